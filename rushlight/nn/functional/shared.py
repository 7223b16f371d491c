"""What several functions of this package share: reductions, dims, writes in place, warnings."""

import warnings

from rushlight import eager
from rushlight.dtypes import INTEGERS
from rushlight.ops import TABLE

Tensor = eager.Tensor
WHOLE = ("bool", *INTEGERS)
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def kernel(name):
    """The native operator of that name."""
    return TABLE[name].native


def kind_of(x):
    """A dtype's name, of a tensor or of a graph's value."""
    return x.dtype if isinstance(x.dtype, str) else x.dtype.name


def floats(name, x):
    """x, whose dtype is to be floating: elsewhere PyTorch has no kernel."""
    if kind_of(x) in WHOLE:
        raise NotImplementedError(f'[{name}] "{name}" not implemented for {kind_of(x)!r}')
    return x


def _reduction(reduction, size_average=None, reduce=None):
    """'none', 'mean' or 'sum'; the two old flags win when given."""
    if size_average is not None or reduce is not None:
        average = True if size_average is None else size_average
        keep = reduce is not None and not reduce
        reduction = "none" if keep else "mean" if average else "sum"
        warnings.warn(
            "[loss] size_average and reduce are PyTorch's older way to say "
            f"reduction='{reduction}'",
            stacklevel=3,
        )
    if reduction not in REDUCTIONS:
        raise ValueError(f"[loss] there is no reduction {reduction!r}")
    return reduction


def _reduced(loss, reduction):
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _softmax_dim(name, ndim, dim):
    if dim is not None:
        return dim
    warnings.warn(
        f"[{name}] Implicit dimension choice for {name}: which dim it takes depends on the rank; "
        "say dim=",
        stacklevel=3,
    )
    return 0 if ndim in (0, 1, 3) else 1


def _written_over(input, function):
    """function(input), stored in ``input``. What the derivative of ``function`` needs is kept
    apart from the write.
    """
    keeps = eager.is_grad_enabled() and input.requires_grad
    return input.copy_(function(input.clone() if keeps else input))


def _warn_of_broadcast(input, target):
    if input.shape != target.shape:
        warnings.warn(
            f"[loss] the target has shape {list(target.shape)}, the input {list(input.shape)} "
            "(Using a target size of its own): they are broadcast, which is seldom meant",
            stacklevel=3,
        )
