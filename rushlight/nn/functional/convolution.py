"""Convolutions, which are operators themselves."""

from rushlight.nn.functional.shared import kernel

conv1d, conv2d, conv3d = (kernel(f"conv{n}d") for n in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    kernel(f"conv_transpose{n}d") for n in (1, 2, 3)
)


def conv_tbc(input, weight, bias, pad=0):
    """conv1d with time first: (T, N, C) and weight (kernel, C, out) -> (T + 2 pad - kernel + 1, N,
    out).
    """
    for x, name, what in (
        (input, "Input", "time, batch, in_channel"),
        (weight, "Weight tensor", "kernel_width, in_channels, out_channels"),
    ):
        if x.dim() != 3:
            raise RuntimeError(f"{name} must have 3 dims: {what}")
    if bias.dim() != 1:
        raise RuntimeError("[conv_tbc] the bias is a vector")
    moved = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad)
    return moved.permute(2, 0, 1)
