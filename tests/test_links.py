"""Links of the documentation lead to files of the repository, and lists of files are whole."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def tracked() -> set[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no clone")
    return set(done.stdout.splitlines())


def test_every_relative_link_leads_to_a_tracked_file():
    files, found, lost = tracked(), 0, []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" in target or target.startswith("mailto:"):
                continue
            found += 1
            path = (page.parent / target).resolve()
            name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
            if name not in files and not any(f.startswith(f"{name}/") for f in files if name):
                lost.append(f"{page.name}: {target}")
    assert found > 10 and not lost, lost


def test_the_page_of_dynamo_names_all_its_tests():
    page = (ROOT / "docs" / "dynamo.md").read_text(encoding="utf-8")
    names = [path.name for path in (ROOT / "tests" / "dynamo").glob("test_*.py")]
    assert names and not [name for name in names if f"`{name}`" not in page]
