"""What a peer costs before it computes: import time and installed size, with what it depends on."""

import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORT = """
import sys, time
sys.path.append({root!r})
began = time.perf_counter()
import {peer}
print(time.perf_counter() - began)
"""


def import_seconds(peer: str) -> float:
    """Seconds of `import peer` in a fresh process, without the interpreter's own start."""
    code = IMPORT.format(root=str(ROOT), peer=peer)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout)


def bytes_of(paths) -> int:
    return sum(p.stat().st_size for p in paths if p.is_file() and p.suffix != ".pyc")


def closure(name: str, seen: dict[str, Distribution]) -> dict[str, Distribution]:
    """A distribution and all it requires without extras, as far as installed here."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in seen:
        try:
            seen[key] = found = distribution(name)
        except PackageNotFoundError:
            return seen
        for requirement in found.requires or ():
            if "extra ==" not in requirement.replace("'", "").replace('"', ""):
                closure(re.match(r"[\w.-]+", requirement)[0], seen)
    return seen


def installed_mb(peer: str) -> tuple[float, list[str]]:
    """(MB, what was counted). A tree built in place counts its folder and the dependencies here."""
    parts = closure(peer, {})
    total, counted = 0, sorted(parts)
    for found in parts.values():
        total += bytes_of(Path(str(f.locate())) for f in found.files or ())
    if peer not in parts and (ROOT / peer).is_dir():
        total += bytes_of((ROOT / peer).rglob("*"))
        for name in ("numpy", "rich", "scipy-openblas32"):
            for found in closure(name, {}).values():
                total += bytes_of(Path(str(f.locate())) for f in found.files or ())
        counted = [f"{peer} in place", "numpy", "rich", "scipy-openblas32"]
    return total / 2**20, counted
