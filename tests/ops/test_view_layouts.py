"""Layouts that view operators declare are those that run: strides of dims of size 1 too, since
other rules read them (whether an image is channels last)."""

import itertools

import pytest

import rushlight as rl
from rushlight.ops import TABLE
from rushlight.ops.layouts import Layout

SHAPES = [s for n in range(1, 5) for s in itertools.product((1, 2, 4), repeat=n) if max(s) > 1]


def tensors():
    """Of every order of dims, with gaps and without."""
    for shape in [(), (0, 3), (1, 1), (1, 1, 8), (1, 8, 1), (2, 1, 4), (4, 2, 1, 1), (1, 2, 1, 4)]:
        for order in itertools.permutations(range(len(shape))):
            x = rl.zeros(shape).permute(order)
            yield x
            if x.dim():
                yield x[..., ::2]
                yield x.expand(3, *x.shape)[:1]


def agree(name, x, *arguments):
    layout = Layout(tuple(x.shape), tuple(x.stride()), "float32")
    try:
        want = getattr(x, name)(*arguments)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            TABLE[name].body(layout, *arguments)
        return
    got = TABLE[name].body(layout, *arguments)
    assert (got.shape, got.strides) == (want.shape, want.stride()), (layout.strides, arguments)


def test_another_shape():
    for x in tensors():
        n = x.numel()
        for shape in SHAPES:
            if n and rl.Size(shape).numel() == n:
                agree("view", x, shape)
        agree("view", x, tuple(x.shape))
        agree("view", x, (1, *x.shape, 1))
        agree("view", x, (n,))


def test_one_dim_more_or_less():
    for x in tensors():
        for d in range(x.dim()):
            for name in ("unsqueeze", "squeeze"):
                agree(name, x, d)
            agree("transpose", x, d, -1)
            if x.shape[d] > 0:
                agree("select", x, d, 0)
                agree("unfold", x, d, 1, 1)
        agree("expand", x, (2, *x.shape))
