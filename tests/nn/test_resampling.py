"""Interpolation and patches: values, gradients and failures are the oracle's."""

import numpy as np
import pytest

import rushlight
from rushlight import nn
from rushlight.nn import functional as F

from .test_layers import build

CALLS = [
    ((2, 3, 7), {"size": 12}),
    ((2, 3, 7), {"size": 3, "mode": "linear"}),
    ((2, 3, 7), {"scale_factor": 1.7, "mode": "linear", "align_corners": True}),
    ((2, 3, 5, 6), {"size": (7, 4)}),
    ((2, 3, 5, 6), {"scale_factor": 2}),
    ((2, 3, 5, 6), {"scale_factor": (1.3, 0.7)}),
    ((2, 3, 5, 6), {"scale_factor": (1.3, 0.7), "recompute_scale_factor": True}),
    ((2, 3, 5, 6), {"size": (5, 6)}),
    ((2, 3, 5, 6), {"size": (11, 3), "mode": "nearest-exact"}),
    ((2, 3, 5, 6), {"scale_factor": 1.6, "mode": "nearest-exact"}),
    ((2, 3, 5, 6), {"size": (9, 4), "mode": "bilinear"}),
    ((2, 3, 5, 6), {"size": (9, 4), "mode": "bilinear", "align_corners": True}),
    ((2, 3, 5, 6), {"size": (1, 1), "mode": "bilinear", "align_corners": True}),
    ((2, 3, 5, 6), {"scale_factor": 1.37, "mode": "bilinear"}),
    ((2, 3, 5, 6), {"scale_factor": 1.37, "mode": "bilinear", "recompute_scale_factor": True}),
    ((2, 3, 5, 6), {"size": (9, 4), "mode": "bicubic"}),
    ((2, 3, 5, 6), {"size": (9, 4), "mode": "bicubic", "align_corners": True}),
    ((2, 3, 5, 6), {"scale_factor": 0.6, "mode": "bicubic"}),
    ((2, 3, 5, 6), {"size": (2, 9), "mode": "area"}),
    ((2, 3, 5, 6), {"scale_factor": 0.6, "mode": "area"}),
    ((1, 2, 3, 4, 5), {"size": (5, 2, 6)}),
    ((1, 2, 3, 4, 5), {"size": (5, 2, 6), "mode": "trilinear"}),
    ((1, 2, 3, 4, 5), {"scale_factor": 1.5, "mode": "trilinear", "align_corners": True}),
    ((1, 2, 3, 4, 5), {"size": (2, 2, 2), "mode": "area"}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, options", CALLS, ids=str)
def test_interpolate(pair, shape, options, dtype):
    x, y = pair.make(*shape, dtype=dtype, requires_grad=True)
    a, b = F.interpolate(x, **options), pair.oracle.nn.functional.interpolate(y, **options)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    pair.assert_same(a, b, tolerance)
    assert a.stride() == b.stride()
    pair.assert_same_gradients(a, b, [(x, y)], tolerance)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_channels_last(pair, mode):
    x, y = pair.make(2, 3, 5, 6)
    a = F.interpolate(x.contiguous(memory_format=rushlight.channels_last), (7, 4), mode=mode)
    assert a.is_contiguous(memory_format=rushlight.channels_last)
    pair.assert_same(a, pair.oracle.nn.functional.interpolate(y, (7, 4), mode=mode), 1e-5)


@pytest.mark.parametrize("sizes", [(1, 7), (64, 200), (100, 33), (255, 256)])
def test_places_of_large_sizes_are_the_oracles(oracle, sizes):
    """Rounding decides which element is nearest."""
    n, m = sizes
    x = np.arange(n, dtype=np.float32).reshape(1, 1, n)
    for mode in ("nearest", "nearest-exact"):
        a = F.interpolate(rushlight.from_numpy(x), m, mode=mode)
        b = oracle.nn.functional.interpolate(oracle.from_numpy(x), m, mode=mode)
        assert a.tolist() == b.tolist()


LAYERS = {
    "nn.Upsample(scale_factor=2)": (2, 3, 4),
    "nn.Upsample((5, 3), mode='bilinear')": (2, 3, 4, 5),
    "nn.Upsample(scale_factor=(1.5, 2.0), mode='bicubic', align_corners=True)": (2, 3, 4, 5),
    "nn.UpsamplingNearest2d(scale_factor=2)": (2, 3, 4, 5),
    "nn.UpsamplingBilinear2d(size=(6, 7))": (2, 3, 4, 5),
    "nn.Unfold((2, 3), dilation=(1, 2), padding=(1, 0), stride=(2, 1))": (2, 3, 5, 6),
    "nn.Unfold(2)": (3, 4, 5),
    "nn.Fold((5, 6), (2, 3), dilation=(1, 2), padding=(1, 0), stride=(2, 1))": (2, 18, 6),
    "nn.Fold(4, 2)": (12, 9),
}


@pytest.mark.parametrize("expression", LAYERS)
def test_modules(pair, expression):
    ours, theirs = build(pair, expression)
    x = pair.make(*LAYERS[expression], seed=5, requires_grad=True)
    a, b = ours(x[0]), theirs(x[1])
    pair.assert_same(a, b, 1e-5)
    pair.assert_same_gradients(a, b, [x], 2e-5)
    assert repr(ours) == repr(theirs)


FAILURES = [
    "F.interpolate(x(1, 2, 3, 4))",
    "F.interpolate(x(1, 2, 3, 4), 3, 2)",
    "F.interpolate(x(1, 2, 3, 4), (3, 4, 5))",
    "F.interpolate(x(1, 2, 3, 4), None, (1, 2, 3))",
    "F.interpolate(x(1, 2, 3, 4), 3, mode='linear')",
    "F.interpolate(x(1, 2, 3, 4), 3, mode='other')",
    "F.interpolate(x(1, 2, 3, 4), 3, mode='nearest', align_corners=True)",
    "F.interpolate(x(1, 2, 3, 4), 3, recompute_scale_factor=True)",
    "F.interpolate(x(1, 2, 3, 4), 0)",
    "F.interpolate(x(1, 2), 3)",
    "F.unfold(x(1, 1, 2, 3, 2), 2)",
    "F.unfold(x(1, 2, 3, 3), 4)",
    "F.unfold(x(1, 2, 3, 3), 0)",
    "F.fold(x(1, 7, 4), (3, 3), 2)",
    "F.fold(x(1, 8, 5), (3, 3), 2)",
]


@pytest.mark.parametrize("expression", FAILURES)
def test_failures_are_of_the_oracles_kind(oracle, expression):
    def fails(library):
        with pytest.raises(Exception) as caught:
            eval(expression, {"F": library.nn.functional, "x": library.ones})
        return caught.type

    ours, theirs = fails(rushlight), fails(oracle)
    assert issubclass(ours, theirs)


def test_folding_adds_up_what_patches_share():
    x = rushlight.ones(1, 1, 3, 3)
    back = F.fold(F.unfold(x, 2), (3, 3), 2)
    assert back.tolist() == [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]]
    assert isinstance(nn.Fold((3, 3), 2), nn.Module)
