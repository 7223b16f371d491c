"""Helpers over a model's parameters."""

from rushlight.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from rushlight.nn.utils.gradients import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from rushlight.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from rushlight.nn.utils.skipping import skip_init
from rushlight.nn.utils.spectral_hook import remove_spectral_norm, spectral_norm
from rushlight.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from rushlight.nn.utils.weight_hook import apply as weight_norm
from rushlight.nn.utils.weight_hook import remove as remove_weight_norm

from . import parametrizations, parametrize, rnn, stateless


def __getattr__(name):
    if name == "prune":  # rarely used, and long
        from importlib import import_module

        return import_module("rushlight.nn.utils.prune")
    raise AttributeError(f"module 'rushlight.nn.utils' has no attribute {name!r}")
