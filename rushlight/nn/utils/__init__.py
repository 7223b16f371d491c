"""Helpers over a model's parameters."""

from rushlight.nn.utils.gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from rushlight.nn.utils.skipping import skip_init
from rushlight.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from rushlight.nn.utils.weight_hook import apply as weight_norm
from rushlight.nn.utils.weight_hook import remove as remove_weight_norm

from . import parametrizations, parametrize, rnn
