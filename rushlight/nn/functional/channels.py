"""Normalisation over channels: batch, instance and group norm. Input is (N, C, ...)."""

from rushlight import eager
from rushlight.nn.functional.shared import kernel

_rows, _fixed, _step = kernel("batch_norm_rows"), kernel("batch_norm_fixed"), kernel("running_step")
_group_norm = kernel("group_norm")


def _check(input, vectors):
    if input.dim() < 2:
        raise RuntimeError(
            f"[batch_norm] expected (N, C, ...), got a tensor of {input.dim()} dimensions: "
            f"{list(input.shape)}"
        )
    channels = input.shape[1]
    for name, v in vectors:
        if v is not None and tuple(v.shape) != (channels,):
            raise RuntimeError(
                f"[batch_norm] {name} should contain {channels} elements not {v.numel()}: input "
                f"{list(input.shape)}, {name} {list(v.shape)}"
            )


def _both(input, weight, bias):
    """The kernels take a scale and a shift, or neither."""
    if (weight is None) == (bias is None):
        return weight, bias
    known = bias if weight is None else weight
    other = (eager.ones if weight is None else eager.zeros)(
        tuple(known.shape), dtype=known.dtype, device=known.device
    )
    return (other, bias) if weight is None else (weight, other)


def batch_norm(
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    """(x - mean) / sqrt(var + eps) * weight + bias, one mean and variance a channel.

    training: they are the batch's, and the running ones move towards them by ``momentum`` (the
    variance without its bias, in place); else they are the running ones. ValueError when training
    on one value a channel.
    """
    _check(
        input,
        (
            ("running_mean", running_mean),
            ("running_var", running_var),
            ("weight", weight),
            ("bias", bias),
        ),
    )
    weight, bias = _both(input, weight, bias)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("[batch_norm] training=False needs running_mean and running_var")
        return _fixed(input, running_mean, running_var, weight, bias, float(eps))
    count = input.numel() // max(input.shape[1], 1)
    if count == 1:
        raise ValueError(
            "[batch_norm] training takes more than one value a channel, got "
            f"{eager.Size(input.shape)}"
        )
    out, mean, var, _ = _rows(input, weight, bias, float(eps))
    if running_mean is not None and count:
        _move(running_mean, running_var, mean, var, float(momentum), count)
    return out


def _move(running_mean, running_var, mean, var, momentum, count):
    with eager.no_grad():
        _step(
            running_mean,
            running_var,
            mean,
            var,
            momentum,
            count / (count - 1),
            out=(running_mean, running_var),
        )


def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Batch norm of each image by itself. The running statistics, where given, are the means over
    the batch."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    count = 1
    for n in input.shape[2:]:
        count *= n
    if count == 1:
        raise ValueError(
            "[instance_norm] training takes more than one value a channel and sample, got "
            f"{eager.Size(input.shape)}"
        )
    n, c = input.shape[:2]
    weight, bias = _both(input, weight, bias)
    if weight is not None:
        weight, bias = (v.expand(n, c).reshape(n * c) for v in (weight, bias))
    flat = input.reshape((1, n * c, *input.shape[2:]))
    out, mean, var, _ = _rows(flat, weight, bias, float(eps))
    if running_mean is not None and n:
        mean, var = (v.view(n, c).mean(0) for v in (mean, var))
        _move(running_mean, running_var, mean, var, float(momentum), count)
    return out.reshape(input.shape)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Each image's channels in ``num_groups`` groups, each brought to mean 0 and deviation 1."""
    return _group_norm(input, num_groups, weight, bias, float(eps))
