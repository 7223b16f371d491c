"""Elements moved between channels and places, bilinear forms."""

from rushlight.nn.functional.shared import WHOLE, kernel, kind_of

pad = kernel("pad")


def pixel_shuffle(input, upscale_factor):
    """(..., C r^2, H, W) -> (..., C, H r, W r)."""
    r = upscale_factor
    if input.dim() < 3:
        raise RuntimeError(f"[pixel_shuffle] takes at least 3 dims, got {input.dim()}")
    if r <= 0:
        raise RuntimeError(f"[pixel_shuffle] upscale_factor is positive, got {r}")
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise RuntimeError(
            f"[pixel_shuffle] {channels} channels are not divisible by upscale_factor ** 2 = "
            f"{r * r}"
        )
    n = len(lead)
    x = input.reshape((*lead, channels // (r * r), r, r, height, width))
    x = x.permute((*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return x.reshape((*lead, channels // (r * r), height * r, width * r))


def pixel_unshuffle(input, downscale_factor):
    """(..., C, H r, W r) -> (..., C r^2, H, W)."""
    r = downscale_factor
    if input.dim() < 3:
        raise RuntimeError(f"[pixel_unshuffle] takes at least 3 dims, got {input.dim()}")
    if r <= 0:
        raise RuntimeError(f"[pixel_unshuffle] downscale_factor is positive, got {r}")
    *lead, channels, height, width = input.shape
    for name, size in (("height", height), ("width", width)):
        if size % r:
            raise RuntimeError(
                f"[pixel_unshuffle] the {name} {size} is not divisible by downscale_factor={r}"
            )
    n = len(lead)
    x = input.reshape((*lead, channels, height // r, r, width // r, r))
    x = x.permute((*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return x.reshape((*lead, channels * r * r, height // r, width // r))


def channel_shuffle(input, groups):
    """Channels (dim 1) of ``groups`` groups interleaved."""
    if input.dim() < 3:
        raise RuntimeError(f"[channel_shuffle] takes at least 3 dims, got {list(input.shape)}")
    if groups <= 0:
        raise RuntimeError(f"[channel_shuffle] groups is positive, got {groups}")
    batch, channels, *rest = input.shape
    if channels % groups:
        raise RuntimeError(
            f"[channel_shuffle] {channels} channels are not divisible by {groups} groups"
        )
    x = input.reshape((batch, groups, channels // groups, *rest))
    return x.transpose(1, 2).reshape((batch, channels, *rest))


def bilinear(input1, input2, weight, bias=None):
    """x1^T W[k] x2 + b[k] for each k; x1 (..., in1), x2 (..., in2), weight (out, in1, in2)."""
    out, first, second = weight.shape
    if tuple(input1.shape[:-1]) != tuple(input2.shape[:-1]):
        raise RuntimeError(
            f"[bilinear] the batches differ: {list(input1.shape)} and {list(input2.shape)}"
        )
    if input1.shape[-1] != first or input2.shape[-1] != second:
        raise RuntimeError(
            f"[bilinear] the weight is for {first} and {second} features, got {input1.shape[-1]} "
            f"and {input2.shape[-1]}"
        )
    lead = tuple(input1.shape[:-1])
    x1, x2 = input1.reshape((-1, first)), input2.reshape((-1, second))
    left = x1 @ weight.permute((1, 0, 2)).reshape((first, out * second))
    y = (left.view((-1, out, second)) * x2.unsqueeze(1)).sum(2)
    y = y.to(left.dtype) if kind_of(y) in WHOLE else y  # as a product's sums
    y = y.view((*lead, out))
    return y if bias is None else y + bias
