"""Batch norms of eval mode, which are one factor and one shift a channel, taken into the layer
before them.
"""

import copy

from rushlight import eager
from rushlight.nn.parameter import Parameter


def _taken_in(weight, bias, mean, var, eps, scale, shift, dim):
    """(weight, bias) that do what the layer and the norm behind it do; `dim`: weight's outputs."""
    bias = eager.zeros_like(mean) if bias is None else bias
    scale = eager.ones_like(mean) if scale is None else scale
    shift = eager.zeros_like(mean) if shift is None else shift
    factor = scale * eager.rsqrt(var + eps)
    sizes = [-1 if d == dim else 1 for d in range(weight.dim())]
    made = (weight * factor.reshape(sizes)).to(weight.dtype)
    return made, ((bias - mean) * factor + shift).to(bias.dtype)


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """(weight, bias) of a convolution (transpose: transposed) with a batch norm of these tensors
    behind it, as Parameters.
    """
    bias_grad = conv_w.requires_grad if conv_b is None else conv_b.requires_grad
    w, b = _taken_in(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, int(transpose))
    return Parameter(w.detach(), conv_w.requires_grad), Parameter(b.detach(), bias_grad)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """(weight, bias) of a linear layer with a batch norm of these tensors behind it, as
    Parameters.
    """
    bias_grad = linear_w.requires_grad if linear_b is None else linear_b.requires_grad
    w, b = _taken_in(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)
    return Parameter(w.detach(), linear_w.requires_grad), Parameter(b.detach(), bias_grad)


def _check(layer, bn):
    if layer.training or bn.training:
        raise AssertionError("[fusion] takes modules in evaluation mode")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("[fusion] the batch norm keeps no running_mean and running_var")


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """A copy of the convolution that does what both do. AssertionError unless both are in eval
    mode and the norm tracks statistics.
    """
    _check(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        transpose,
    )  # fmt: skip
    return fused


def fuse_linear_bn_eval(linear, bn):
    """A copy of the linear layer that does what both do. AssertionError unless both are in eval
    mode, the norm tracks statistics and fits.
    """
    _check(linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            f"[fuse_linear_bn_eval] out_features={linear.out_features} do not go with "
            f"num_features={bn.num_features} (equal, or 1)"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
