"""Padding, which is an operator itself."""

from rushlight.nn.functional.shared import kernel

pad = kernel("pad")
