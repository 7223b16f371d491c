"""Images at other sizes, and their patches as columns."""

import math
import warnings

from rushlight import eager
from rushlight.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from rushlight.nn.functional.shared import kernel

_resample = kernel("resample")
_im2col, _col2im = kernel("im2col"), kernel("col2im")
_AVERAGES = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
# mode: what it is called below, and for how many spatial dims
_LINES = {
    "linear": ("linear", 1),
    "bilinear": ("linear", 2),
    "bicubic": ("cubic", 2),
    "trilinear": ("linear", 3),
}
_ANY = ("nearest", "nearest-exact", "area")


def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """input (N, C, ...) at spatial sizes ``size``, or its own times ``scale_factor``.

    mode: 'nearest', 'nearest-exact', 'area' (the mean of what an element covers), or 'linear',
    'bilinear', 'bicubic', 'trilinear' by the number of dims. align_corners: the outermost elements
    keep their places, else the outermost edges. recompute_scale_factor: places follow from the
    sizes, not from ``scale_factor``.
    """
    if mode in _ANY:
        if align_corners is not None:
            raise ValueError(
                "[interpolate] align_corners goes with linear, bilinear, bicubic and trilinear only"
            )
    dims = input.dim() - 2
    if dims not in (1, 2, 3) or mode not in _ANY and mode not in _LINES:
        raise NotImplementedError(
            f"[interpolate] no {mode} for {input.dim()} dims: nearest, nearest-exact and area take "
            "3 to 5, linear 3, bilinear and bicubic 4, trilinear 5"
        )
    if antialias:
        if mode not in ("bilinear", "bicubic") or dims != 2:
            raise ValueError(
                "[interpolate] antialias=True goes with bilinear and bicubic of 4 dims"
            )
        raise NotImplementedError("[interpolate] antialias is not supported")
    sizes, scales = _target(
        input, size, scale_factor, recompute_scale_factor or mode == "area", recompute_scale_factor
    )
    if mode in _LINES and _LINES[mode][1] != dims:
        raise NotImplementedError(
            f"[interpolate] {mode} takes {_LINES[mode][1] + 2} dims, got {input.dim()}"
        )
    if any(n <= 0 for n in (*sizes, *input.shape[2:])):
        raise RuntimeError(
            f"[interpolate] from {list(input.shape[2:])} to {list(sizes)}: a size is not positive"
        )
    if mode == "area":
        return _AVERAGES[dims](input, sizes)
    aligned, how = (False, mode) if mode in _ANY else (bool(align_corners), _LINES[mode][0])
    if input.dtype is not eager.uint8 or mode == "bicubic":
        return _resample(input, sizes, how, aligned, scales)
    made = _resample(input.float(), sizes, how, aligned, scales)  # images, as they are stored
    return (made if mode in _ANY else made.round().clamp(0, 255)).to(eager.uint8)


def _target(input, size, scale_factor, recompute, asked):
    """(sizes, the scales that decide places or None)."""
    dims = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("[interpolate] takes size or scale_factor, got both")
    if asked and size is not None:
        raise ValueError(
            "[interpolate] an explicit size leaves nothing for recompute_scale_factor to do"
        )
    for name, value in (("size", size), ("scale_factor", scale_factor)):
        if isinstance(value, (list, tuple)) and len(value) != dims:
            raise ValueError(
                f"[interpolate] {name}={value} does not fit the spatial dims "
                f"{list(input.shape[2:])}, one number each: the input is (N, C, ...)"
            )
    if size is not None:
        return tuple(size) if isinstance(size, (list, tuple)) else (size,) * dims, None
    if scale_factor is None:
        raise ValueError("[interpolate] takes size or scale_factor, got neither")
    given = scale_factor if isinstance(scale_factor, (list, tuple)) else (scale_factor,) * dims
    scales = tuple(float(s) for s in given)
    sizes = tuple(math.floor(float(n) * s) for n, s in zip(input.shape[2:], scales))
    return sizes, None if recompute else scales


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate, under its old name."""
    warnings.warn(
        "[upsample] an older name: use nn.functional.interpolate",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate by the nearest element, under its old name."""
    warnings.warn(
        "[upsample_nearest] an older name: use nn.functional.interpolate",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with lines between aligned corners, under its old name."""
    warnings.warn(
        "[upsample_bilinear] an older name: use nn.functional.interpolate",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The patches of (N, C, H, W) as columns: (N, C * kernel elements, patches)."""
    return _im2col(input, kernel_size, dilation, padding, stride)


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns (N, C * kernel elements, patches) added up where they lie: (N, C, *output_size)."""
    both = tuple(output_size) if isinstance(output_size, (list, tuple)) else (output_size,) * 2
    return _col2im(input, both, kernel_size, dilation, padding, stride)
