"""Weights of convolutions laid out as a memory format says, all others left as they are."""

from rushlight.nn.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d


def _converted(module, memory_format, kinds):
    if isinstance(module, kinds):
        module.weight.data = module.weight.detach().to(memory_format=memory_format, copy=True)
    for child in module.children():
        _converted(child, memory_format, kinds)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """Every Conv2d's and ConvTranspose2d's weight in that format; returns the module."""
    return _converted(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module, memory_format):
    """Every Conv3d's and ConvTranspose3d's weight in that format; returns the module."""
    return _converted(module, memory_format, (Conv3d, ConvTranspose3d))
