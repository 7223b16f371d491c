"""Factories that few programs call: `range`, whose end is among its numbers, and memory whose dims
lie in a given order.
"""

import warnings

from . import factories


def range(
    start=0, end=None, step=1, *, dtype=None, device=None, requires_grad=False, out=None,
    layout=None,
):  # fmt: skip
    """start, start + step, ... up to end, which is among them where a step meets it; float32 where
    no dtype is given. PyTorch's older `arange`, which warns.
    """
    warnings.warn(
        "rushlight.range is deprecated: its end is among the numbers, as with Python's range it is "
        "not. Use rushlight.arange, which produces values in [start, end).",
        UserWarning,
        stacklevel=2,
    )
    start, end = (0, start) if end is None else (start, end)
    if step == 0:
        raise RuntimeError("[range] step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("[range] one cannot get from start to end in steps of this sign")
    count = int((end - start) / step) + 1
    dtype = factories.dtype_of(dtype) or factories.DEFAULT[0]
    device = factories.device_of(device)
    made = factories.created("steps", device, (count,), start, step, dtype=dtype)
    return factories.finished(made, requires_grad, out)


def empty_permuted(
    size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False,
    pin_memory=False,
):  # fmt: skip
    """Memory as it is found: dense, its dims lying in the order of physical_layout, outermost
    first.
    """
    if sorted(physical_layout) != [d for d, _ in enumerate(size)]:
        raise RuntimeError(
            f"[empty_permuted] expected a permutation of {len(size)} dims, got "
            f"{list(physical_layout)}"
        )
    strides, step = [0] * len(size), 1
    for d in reversed(physical_layout):
        strides[d], step = step, step * max(size[d], 1)
    options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
    return factories.empty_strided(size, strides, **options)
