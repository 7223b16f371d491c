"""Names beside `compile`, as PyTorch has them: `compiler.disable`, `compiler.reset`, ..."""

from rushlight.dynamo import allow_in_graph, disable, is_compiling, reset

__all__ = [
    "allow_in_graph",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "reset",
]

is_dynamo_compiling = is_compiling


def is_exporting():
    """False: nothing exports."""
    return False


def cudagraph_mark_step_begin():
    """Says that a step begins. Results are the caller's own here, so that nothing follows."""
