"""Images read at any places: grids of an affine map, and sampling by a grid."""

import itertools
import warnings

from rushlight import eager

PADDING = ("zeros", "border", "reflection")
MODES = ("bilinear", "nearest", "bicubic")
CUBIC = -0.75  # the a of Keys's kernel, as in PyTorch


def _warned(name, align_corners):
    if align_corners is None:
        warnings.warn(
            f"[{name}] align_corners=False is the default: say which one is meant",
            stacklevel=3,
        )
    return bool(align_corners)


def affine_grid(theta, size, align_corners=None):
    """The places (N, H, W, 2) (3D: (N, D, H, W, 3)) that affine maps theta (N, 2, 3) (3D:
    (N, 3, 4)) take the elements of an output of ``size`` to, from -1 to 1, x first.

    align_corners: -1 and 1 are the centres of the outermost elements, else their outer edges.
    """
    align_corners = _warned("affine_grid", align_corners)
    dims = len(size) - 2
    if dims not in (2, 3) or tuple(theta.shape[1:]) != (dims, dims + 1) or theta.dim() != 3:
        raise ValueError(
            f"[affine_grid] Expected a batch of {dims}D affine matrices of shape Nx{dims}x"
            f"{dims + 1} for size {list(size)}. Got {list(theta.shape)}."
        )
    if not theta.dtype.is_floating_point:
        raise ValueError(f"[affine_grid] Expected theta to be floating, but got {theta.dtype}")
    if min(size) <= 0:
        raise ValueError(f"[affine_grid] Expected non-zero, positive output size. Got {list(size)}")
    axes = []
    for n in size[2:]:
        axis = eager.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device)
        if n == 1:
            axis = axis * 0
        axes.append(axis if align_corners else axis * ((n - 1) / n))
    places = list(eager.meshgrid(*axes, indexing="ij"))[::-1]
    base = eager.stack([*places, eager.ones_like(places[0])], -1)
    made = base.reshape(1, -1, dims + 1) @ theta.transpose(1, 2)
    return made.reshape(theta.shape[0], *size[2:], dims)


def _folded(x, low, high):
    """Reflected at both ends, given in halves of elements."""
    if low == high:
        return x * 0
    least, span = low / 2, (high - low) / 2
    x = (x - least).abs()
    times, rest = (x / span).floor(), x % span
    return eager.where(times % 2 == 0, rest + least, span - rest + least)


def _kept(x, n, padding, align_corners):
    """Coordinates in elements, brought into the image as the padding says."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        x = _folded(x, 0, 2 * (n - 1)) if align_corners else _folded(x, -1, 2 * n - 1)
    return x.clamp(0, n - 1)


def _cubic(fraction):
    """Weights of the four elements around a place, `fraction` behind the second."""
    near = lambda d: ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
    far = lambda d: ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
    return (far(fraction + 1), near(fraction), near(1 - fraction), far(2 - fraction))


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """input (N, C, H, W) (or (N, C, D, H, W)) at the places of grid (N, H', W', 2) (or
    (N, D', H', W', 3)): (N, C, H', W') (or (N, C, D', H', W')).

    A place is x, y (and z) from -1 to 1 over the image. mode: 'bilinear' (3D: trilinear),
    'nearest', 'bicubic' (2D). padding_mode: what is outside: 'zeros', 'border', 'reflection'.
    align_corners as in `affine_grid`.
    """
    if mode not in MODES:
        raise ValueError(
            "[grid_sample] the modes are 'bilinear', 'nearest' and 'bicubic' (expected mode to be "
            f"among them), not {mode!r}"
        )
    if padding_mode not in PADDING:
        raise ValueError(
            "[grid_sample] the padding modes are 'zeros', 'border' and 'reflection', not "
            f"{padding_mode!r}"
        )
    align_corners = _warned("grid_sample and affine_grid", align_corners)
    dims = input.dim() - 2
    if dims not in (2, 3) or grid.dim() != input.dim() or grid.shape[-1] != dims:
        raise RuntimeError(
            f"[grid_sample] expected input of 4 or 5 dims and a grid of as many with {dims} "
            f"coordinates at its end, got {list(input.shape)} and {list(grid.shape)}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            f"[grid_sample] input and grid have the same batch size, got {list(input.shape)} and "
            f"{list(grid.shape)}"
        )
    if input.dtype is not grid.dtype:
        raise RuntimeError(
            f"[grid_sample] expected input and grid to have same dtype, but input has "
            f"{input.dtype} and grid has {grid.dtype}"
        )
    if mode == "bicubic" and dims != 2:
        raise RuntimeError("[grid_sample] bicubic interpolation only supports 4D input")
    sizes = tuple(input.shape[2:])
    if 0 in sizes:
        raise RuntimeError(f"[grid_sample] the input has no places to sample: {list(input.shape)}")
    coordinates = []
    for i, n in enumerate(sizes):
        g = grid[..., dims - 1 - i]
        x = (g + 1) * ((n - 1) / 2) if align_corners else ((g + 1) * n - 1) / 2
        coordinates.append(x if mode == "bicubic" else _kept(x, n, padding_mode, align_corners))
    return _mixed(input, sizes, _taps(coordinates, sizes, mode, padding_mode, align_corners))


def _taps(coordinates, sizes, mode, padding, align_corners):
    """For each dim the elements that count, with their weights: [(place, weight or None), ...]."""
    taps = []
    for x, n in zip(coordinates, sizes):
        if mode == "nearest":
            taps.append([(x.detach().round(), None)])
            continue
        first = x.detach().floor()
        if mode == "bilinear":
            taps.append([(first, first + 1 - x), (first + 1, x - first)])
            continue
        places = (first - 1, first, first + 1, first + 2)
        kept = [_kept(p, n, padding, align_corners) for p in places]
        taps.append(list(zip(kept, _cubic(x - first))))
    return taps


def _mixed(input, sizes, taps):
    """The weighted sum of the elements at every combination of taps; outside there are zeros."""
    n, channels = input.shape[:2]
    flat = input.reshape(n, channels, -1)
    shape, total = tuple(taps[0][0][0].shape[1:]), None
    for chosen in itertools.product(*taps):
        at, weight, inside = 0, None, None
        for (place, w), size in zip(chosen, sizes):
            within = (place >= 0) & (place <= size - 1)
            inside = within if inside is None else inside & within
            at = at * size + eager.where(within, place, 0).long()
            if w is not None:
                weight = w if weight is None else weight * w
        at = at.reshape(n, 1, -1).expand(n, channels, -1)
        value = flat.gather(2, at).reshape(n, channels, *shape)
        value = eager.where(inside.unsqueeze(1), value, 0)
        value = value if weight is None else value * weight.unsqueeze(1)
        total = value if total is None else total + value
    return total
