"""torch's symbolic sizes: what they are in terms of the sizes of a graph's inputs.

Takes ints and torch's SymInts, whose expressions are polynomials and whole quotients of named
sizes; gives numbers, or Rushlight's symbols, for values of the names. Invariant: an expression of
another form raises Unsupported, and torch runs what needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rushlight import sym
from rushlight.errors import Unsupported
from rushlight.ops.layouts import Layout


def hint(n: Any) -> int:
    """The value that a size was first seen with."""
    if isinstance(n, int):
        return n
    found = n.node.hint if n.node.has_hint() else None
    if type(found) is not int:
        raise Unsupported("torch_backend", f"the size {n} is known only when the graph runs")
    return found


def evaluate(n: Any, values: Mapping[str, Any]) -> Any:
    """A size for values of its names: ints, or symbols of ours."""
    return n if isinstance(n, int) else followed(n.node.expr, values)


def evaluable(fake: Any, sizes: Mapping[str, Any]) -> bool:
    """Whether all sizes and strides are known from those that the inputs have."""
    try:
        return all(isinstance(evaluate(n, sizes), int) for n in (*fake.shape, *fake.stride()))
    except Unsupported:
        return False


def followed(e: Any, values: Mapping[str, Any]) -> Any:
    if e.is_Integer:
        return int(e)
    if e.is_Symbol:
        if e.name not in values:
            raise Unsupported("torch_backend", f"no input has the size {e.name}")
        return values[e.name]
    parts = [followed(a, values) for a in e.args]
    if e.is_Add:
        return sum(parts[1:], parts[0])
    if e.is_Mul:
        product = parts[0]
        for part in parts[1:]:
            product = product * part
        return product
    if e.is_Pow and isinstance(parts[1], int) and parts[1] > 0:
        product = parts[0]
        for _ in range(parts[1] - 1):
            product = product * parts[0]
        return product
    if type(e).__name__ in ("FloorDiv", "CleanDiv"):
        return parts[0] // parts[1]
    raise Unsupported("torch_backend", f"the size {e} is no polynomial")


def places(tensors: Iterable[Any]) -> dict[str, tuple[int, int]]:
    """Where each named size stands alone: (which tensor, which dim)."""
    found: dict[str, tuple[int, int]] = {}
    for i, x in enumerate(tensors):
        for d, n in enumerate(x.shape):
            if not isinstance(n, int) and n.node.expr.is_Symbol:
                found.setdefault(n.node.expr.name, (i, d))
    return found


def layouts(tensors: Iterable[Any], dtypes: Iterable[str], device: str) -> list[Layout]:
    """The tensors as ours describes them on a device, with symbols for named sizes."""
    tensors, env = list(tensors), sym.ShapeEnv()
    values = {
        name: env.size(name, hint(tensors[i].shape[d]), least=0)
        for name, (i, d) in places(tensors).items()
    }
    return [
        Layout(
            tuple(evaluate(n, values) for n in x.shape),
            tuple(evaluate(n, values) for n in x.stride()),
            dtype,
            0,
            device,
        )
        for x, dtype in zip(tensors, dtypes)
    ]
