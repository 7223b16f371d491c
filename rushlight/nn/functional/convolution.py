"""Convolutions, which are operators themselves."""

from rushlight.nn.functional.shared import kernel

conv1d, conv2d, conv3d = (kernel(f"conv{n}d") for n in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    kernel(f"conv_transpose{n}d") for n in (1, 2, 3)
)
