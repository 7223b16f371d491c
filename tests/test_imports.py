"""The rooms and who may import whom: the table of docs/pipeline.md, held against every file.

Every import counts: at the top, in functions, under TYPE_CHECKING, and by import_module("...").
"""

import ast
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "rushlight"

VOCABULARY = {"dtypes", "errors", "config", "reasons", "sym", "trace"}  # imports no room
# May import everything; nobody imports them.
TOP = {
    "__init__", "__main__", "bisection", "call_log", "cli", "compiled", "forms",
    "kept_forms", "kernel_sources", "loaded_code", "machine", "observation", "other_device",
    "pipeline", "scripts",
}  # fmt: skip
BINDINGS = "_core"

# room -> what it may import besides the root vocabulary and itself
ROOMS: dict[str, set[str]] = {
    "ops": set(),
    "loops": {"ops"},
    "runtime": {BINDINGS},
    "eager": {"ops", "loops", "runtime", BINDINGS},
    "autograd": {"eager"},
    "linalg": {"eager"},
    "special": {"eager"},
    "fft": {"eager", "ops"},
    "signal": {"eager"},
    "return_types": {"eager"},
    "distributions": {"eager", "linalg"},
    "jit": {"nn"},
    "futures": set(),
    "hub": {"interop"},
    "library": {"eager"},
    "nn": {"ops", "eager"},
    "optim": {"ops", "eager", "nn"},
    "fx": {"ops"},
    "fake": {"ops", "eager"},
    "dynamo": {"fx", "fake", "eager", "nn", "ops", BINDINGS},
    "compiler": {"dynamo"},
    "aot_autograd": {"fx", "fake", "ops"},
    "decomposition": {"fx", "fake", "ops"},
    "inductor": {"fx", "fake", "loops", "ops", "runtime"},
    "report": set(),
    "amp": {"eager"},
    "random": {"eager"},
    "backends": {"eager", "runtime", BINDINGS},
    "testing": {"eager"},
    "cuda": {"amp", "eager", "runtime", BINDINGS},
    "accelerator": {"cuda", "eager"},
    "func": {"autograd", "eager", "nn", "utils"},
    "cpu": set(),
    "utils": {"ops", "eager", BINDINGS},
    "serialization": {"interop"},
    "profiler": {"report", "runtime", BINDINGS},
    # export, distributed: a row each before they get code
}
ROOMS["interop"] = {*ROOMS, BINDINGS} - {"serialization"}

# Submodules with these names would shadow a public function.
PUBLIC_FUNCTIONS = {
    "compile",
    "explain",
    "save",
    "load",
    "tensor",
    "grad",
    "backward",
    "no_grad",
    "vmap",
}

FILES = sorted(p for p in PACKAGE.rglob("*.py") if "__pycache__" not in p.parts)
IDS = [str(p.relative_to(PACKAGE)) for p in FILES]
LONG, TOO_LONG = 600, 700


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def place(path: Path) -> str:
    """The room of a file, or the name of a module that stands at the root."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imported(path: Path) -> Iterator[tuple[int, str, bool]]:
    """(line, absolute dotted name, whether inside a function) of every import of a file."""
    package = ("rushlight", *path.relative_to(PACKAGE).with_suffix("").parts)[:-1]
    inside: set[int] = set()
    tree = parse(path)
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inside.update(id(node) for node in ast.walk(function))
    for node in ast.walk(tree):
        local = id(node) in inside
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, local
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join((*base, *filter(None, [node.module])))
            for alias in node.names:
                yield node.lineno, f"{name}.{alias.name}", local
        elif (
            isinstance(node, ast.Call)
            and node.args
            and getattr(node.func, "attr", getattr(node.func, "id", ""))
            in ("import_module", "__import__")
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            name = node.args[0].value
            level = len(name) - len(name.lstrip("."))
            base = package[: len(package) - level + 1] if level else ()
            yield node.lineno, ".".join((*base, *filter(None, [name.lstrip(".")]))), local


def target(name: str) -> str | None:
    """What a dotted name reaches: a room, a root module or "__init__" of rushlight; else None."""
    parts = name.split(".")
    if parts[0] != "rushlight":
        return None
    if len(parts) == 1:
        return "__init__"
    known = {*ROOMS, *VOCABULARY, *TOP, BINDINGS}
    here = (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").exists()
    return parts[1] if parts[1] in known or here else "__init__"


def refusal(source: str, reached: str) -> str | None:
    """Why `source` may not import `reached`, or None."""
    if source in TOP or reached == source:
        return None
    if reached in TOP:
        return f"only the top ({', '.join(sorted(TOP))}) may import rushlight.{reached}"
    if source in VOCABULARY:
        return (
            None if reached in VOCABULARY else f"root vocabulary imports no room, so not {reached}"
        )
    if reached in VOCABULARY or reached in ROOMS.get(source, ()):
        return None
    allowed = ", ".join(sorted(ROOMS.get(source, ()))) or "nothing"
    return f"{source} may import {allowed}, so not {reached}"


def test_there_is_something_to_parse():
    assert FILES, f"no Python file under {PACKAGE}"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_imports_stay_within_the_table(path: Path):
    source = place(path)
    assert source in {*ROOMS, *VOCABULARY, *TOP}, f"{source} has no row in the table of rooms"
    wrong = []
    for line, name, _ in imported(path):
        reached = target(name)
        why = refusal(source, reached) if reached else None
        if why:
            wrong.append(f"{path.relative_to(ROOT)}:{line}: {name}: {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_torch_is_imported_only_in_functions_of_interop(path: Path):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for line, name, local in imported(path)
        if name.split(".")[0] == "torch" and not (place(path) == "interop" and local)
    ]
    assert not wrong, f"torch is imported at {', '.join(wrong)}"


def handed_on(init: Path) -> set[str]:
    """Names that an __init__.py binds and that are not its submodules."""
    names = set()
    for node in parse(init).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module:  # not `from . import module`
            inner = init.parent.joinpath(*node.module.split("."))
            names.update(
                a.asname or a.name
                for a in node.names
                if not (inner / a.name).is_dir() and not (inner / f"{a.name}.py").exists()
            )
    return names


def test_no_module_is_named_like_a_public_function():
    """A submodule that is imported later would replace the function of that name in its package."""
    wrong = []
    for folder in sorted({p.parent for p in FILES}):
        modules = {p.stem for p in folder.glob("*.py")} | {
            p.parent.name for p in folder.glob("*/__init__.py")
        }
        init = folder / "__init__.py"
        public = handed_on(init) if init.exists() else set()
        if folder == PACKAGE:
            public |= PUBLIC_FUNCTIONS
        wrong += [str((folder / name).relative_to(ROOT)) for name in sorted(modules & public)]
    assert not wrong, f"modules that shadow public functions: {', '.join(wrong)}"


@pytest.mark.filterwarnings("default:long file")
def test_files_stay_short():
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in FILES}
    for path, lines in lengths.items():
        if lines > LONG:
            warnings.warn(f"long file: {path.relative_to(ROOT)} has {lines} lines", stacklevel=1)
    wrong = [f"{p.relative_to(ROOT)}: {n} lines" for p, n in lengths.items() if n > TOO_LONG]
    assert not wrong, f"over {TOO_LONG} lines: {', '.join(wrong)}"


def run_python(code: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_heavy():
    """`import rushlight` loads the native core; numpy and the rest come at first use."""
    pytest.importorskip(
        "rushlight._core", reason="the native core is not built", exc_type=ImportError
    )
    loaded = set(run_python("import rushlight, sys; print(*sys.modules)").split())
    heavy = {
        "numpy",
        "torch",
        "rich",
        "safetensors",
        "triton",
        "rushlight.report",
        "rushlight.inductor",
        "rushlight.dynamo",
        "rushlight.aot_autograd",
        "rushlight.decomposition",
        "rushlight.loops",
    }
    assert not loaded & heavy


def test_the_emitter_runs_without_the_native_core(tmp_path: Path):
    """The build emits kernels before there is a core: here the core cannot be imported."""
    if not (PACKAGE / "loops" / "library.py").exists():
        pytest.skip("rushlight/loops/library.py is not here")
    run_python(f"""
import runpy, sys
sys.modules["rushlight._core"] = None
sys.argv = ["emit_kernels", "--out", {str(tmp_path)!r}]
runpy.run_path({str(ROOT / "cmake" / "emit_kernels.py")!r}, run_name="__main__")
""")
    assert list(tmp_path.glob("*.cpp"))
