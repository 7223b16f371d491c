"""The examples as programs of any peer, by the benchmarks' own loader; tests do not see the folder
of the benchmarks as a package.
"""

import importlib.util
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "programs.py"
_spec = importlib.util.spec_from_file_location("benchmarks_programs", PATH)
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
example = _module.example
