"""Fakes made from tensors, layouts or sizes. An operator called on fakes answers with its layout
rule.

    x = fake((2, 3))                            # float32, dense
    y = torch.gelu(x) @ fake(weight)            # a FakeTensor, at no cost
    env = ShapeEnv()
    z = symbolic(batch, env, dims=(0,))         # f32[s0, 3]: the first size is a symbol
    guards(env)                                 # what was assumed of the symbols since

Invariant: a fake has no data, and nothing that reads data works on one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight import dtypes
from rushlight.errors import Unsupported, UserError
from rushlight.ops.layouts import Layout, dense
from rushlight.ops.values import Fake
from rushlight.sym import ShapeEnv, Sym

FakeTensor = Fake


def fake(
    x: Any, dtype: Any = None, strides: tuple | None = None, device: str = "cpu"
) -> FakeTensor:
    """Of a tensor, a layout, a fake, or sizes (ints or symbols). `dtype` is a name or a native
    dtype; float32 by default. Raises UserError for anything else."""
    if isinstance(x, Fake):
        return x
    layout = layout_of(x)
    if layout is None:
        sizes = (
            (x,)
            if isinstance(x, (int, Sym))
            else tuple(x)
            if isinstance(x, (list, tuple))
            else None
        )
        if sizes is None or not all(isinstance(n, (int, Sym)) for n in sizes):
            raise UserError(
                "fake",
                f"expected a tensor, a layout or sizes, got {type(x).__name__}",
                kind=TypeError,
            )
        if any(isinstance(n, int) and n < 0 for n in sizes):
            raise UserError(
                "fake", f"expected sizes of at least 0, got {list(sizes)}", kind=ValueError
            )
        name = getattr(dtype, "name", dtype) or dtypes.DEFAULT
        if name not in dtypes.TABLE:
            raise UserError("fake", f"there is no dtype {name!r}", kind=TypeError)
        layout = dense(sizes, name, None, device)
        if strides is not None:
            layout = Layout(sizes, tuple(strides), name, 0, device)
    return Fake(layout)


def layout_of(x: Any) -> Layout | None:
    if isinstance(x, Layout):
        return x
    if hasattr(x, "data_ptr"):
        return Layout(tuple(x.shape), tuple(x.stride()), x.dtype.name, 0, str(x.device))
    return None


def symbolic(
    x: Any, env: ShapeEnv, dims: Iterable[int] | None = None, names: Iterable[str] | None = None
) -> FakeTensor:
    """The fake of x with symbols for the sizes of `dims` (all but 0 and 1, which are special, by
    default). Strides that are products of sizes become products of symbols; others are refused
    where they would vary with a symbol."""
    layout = fake(x).layout
    chosen = (
        [d for d, n in enumerate(layout.shape) if isinstance(n, int) and n > 1]
        if dims is None
        else list(dims)
    )
    given = iter(names or ())
    shape = list(layout.shape)
    for d in chosen:
        if not -len(shape) <= d < len(shape):
            raise UserError("fake", f"dim {d} is out of range for {layout}", kind=IndexError)
        d %= len(shape)
        shape[d] = env.size(next(given, None) or fresh(env), layout.shape[d], least=0)
    return Fake(
        Layout(tuple(shape), strides_of(layout, tuple(shape)), layout.dtype, 0, layout.device)
    )


def strides_of(layout: Layout, shape: tuple) -> tuple:
    """The layout's strides, spelled by the symbols: each 0, or the step of what lies inside."""
    order = sorted(range(layout.rank), key=lambda d: (layout.strides[d], -d))
    strides, step, value = [0] * layout.rank, 1, 1
    for d in order:
        s = layout.strides[d]
        if s == value:
            strides[d] = step
            step, value = step * shape[d], value * layout.shape[d]
        elif s == 0 or not any(isinstance(n, Sym) for n in shape):
            strides[d] = s
        elif not isinstance(step, Sym):
            strides[d] = s
            step, value = s * shape[d], s * layout.shape[d]
        else:
            raise Unsupported(
                "fake",
                f"strides {list(layout.strides)} of {layout} leave gaps that vary with a size",
                "Make the tensor contiguous first, or leave its sizes fixed.",
            )
    return tuple(strides)


def fresh(env: ShapeEnv) -> str:
    i = 0
    while f"s{i}" in env.hints:
        i += 1
    return f"s{i}"


def guards(env: ShapeEnv) -> list[str]:
    """What was assumed of the symbols, as conditions that must hold for another use: `s0 <= 8`,
    `not s0 == 1`."""
    return [text if answer else f"not {text}" for text, answer in env.guards]
