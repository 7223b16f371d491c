# The native core as type checkers see it: docs/native.md is its contract, nothing is typed yet.
from typing import Any

Tensor: Any

def __getattr__(name: str) -> Any: ...
