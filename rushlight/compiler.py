"""Names beside `compile`, as PyTorch has them: `compiler.disable`, `compiler.reset`, ..."""

from rushlight.dynamo import allow_in_graph, disable, is_compiling, reset

__all__ = ["allow_in_graph", "disable", "is_compiling", "reset"]
