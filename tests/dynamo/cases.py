"""Public bug reports of compile stacks as small differential cases: the table, all cases in it."""

from . import cases_more, cases_python, cases_tensors
from .case_table import CASES, EXTRA, META, Built, check, run_case
from .comparing import freeze, same

CASES.sort(key=lambda case: case[0])
__all__ = [
    "CASES", "EXTRA", "META", "Built", "cases_more", "cases_python", "cases_tensors", "check",
    "freeze", "run_case", "same",
]  # fmt: skip
