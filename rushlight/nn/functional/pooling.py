"""Pooling over windows that slide or adapt, and its inverse.

Input is (N, C, ...) or (C, ...), with one, two or three dims after the channels. A size may be one
number for all dims. ``stride`` None: the kernel's size.
"""

from rushlight import eager
from rushlight.nn.functional.shared import kernel

avg_pool1d, avg_pool2d, avg_pool3d = (kernel(f"avg_pool{n}d") for n in (1, 2, 3))
_max_pool1d, _max_pool2d, _max_pool3d = (kernel(f"max_pool{n}d") for n in (1, 2, 3))
_max_pool1d_both, _max_pool2d_both, _max_pool3d_both = (
    kernel(f"max_pool{n}d_with_indices") for n in (1, 2, 3)
)
_ADAPTIVE_MAX = {n: kernel(f"adaptive_max_pool{n}d") for n in (1, 2, 3)}
_ADAPTIVE_AVG = {n: kernel(f"adaptive_avg_pool{n}d") for n in (1, 2, 3)}
_scatter = kernel("pool_scatter")


def max_pool1d(
    input,
    kernel_size,
    stride=None,
    padding=0,
    dilation=1,
    ceil_mode=False,
    return_indices=False,
):
    """The largest element of each window; with ``return_indices``, also its place."""
    pool = _max_pool1d_both if return_indices else _max_pool1d
    return pool(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    input,
    kernel_size,
    stride=None,
    padding=0,
    dilation=1,
    ceil_mode=False,
    return_indices=False,
):
    """The largest element of each window; with ``return_indices``, its flat place in (H, W) too."""
    pool = _max_pool2d_both if return_indices else _max_pool2d
    return pool(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d(
    input,
    kernel_size,
    stride=None,
    padding=0,
    dilation=1,
    ceil_mode=False,
    return_indices=False,
):
    """The largest element of each window; with ``return_indices``, also its place in (D, H, W)."""
    pool = _max_pool3d_both if return_indices else _max_pool3d
    return pool(input, kernel_size, stride, padding, dilation, ceil_mode)


def _sizes(input, output_size, dims):
    """None, for all or for one, keeps the input's size."""
    if not isinstance(output_size, (list, tuple)):
        output_size = (output_size,) * dims
    own = input.shape[-dims:]
    return tuple(own[i] if n is None else n for i, n in enumerate(output_size))


def _adaptive_max(dims, input, output_size, return_indices):
    values, places = _ADAPTIVE_MAX[dims](input, _sizes(input, output_size, dims))
    return (values, places) if return_indices else values


def adaptive_max_pool1d(input, output_size, return_indices=False):
    """The largest element of each of ``output_size`` windows that cover the input."""
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(input, output_size, return_indices=False):
    """The largest element of each of ``output_size`` windows that cover the input."""
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(input, output_size, return_indices=False):
    """The largest element of each of ``output_size`` windows that cover the input."""
    return _adaptive_max(3, input, output_size, return_indices)


def adaptive_avg_pool1d(input, output_size):
    """The mean of each of ``output_size`` windows that cover the input."""
    return _ADAPTIVE_AVG[1](input, _sizes(input, output_size, 1))


def adaptive_avg_pool2d(input, output_size):
    """The mean of each of ``output_size`` windows that cover the input."""
    return _ADAPTIVE_AVG[2](input, _sizes(input, output_size, 2))


def adaptive_avg_pool3d(input, output_size):
    """The mean of each of ``output_size`` windows that cover the input."""
    return _ADAPTIVE_AVG[3](input, _sizes(input, output_size, 3))


def _each(value, dims):
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * dims


def _unpool(dims, input, indices, kernel_size, stride, padding, output_size):
    kernel_size, padding = _each(kernel_size, dims), _each(padding, dims)
    stride = kernel_size if stride is None else _each(stride, dims)
    least = [
        (n - 1) * s + k - 2 * p
        for n, s, k, p in zip(input.shape[-dims:], stride, kernel_size, padding)
    ]
    if output_size is None:
        sizes = least
    else:
        sizes = list(output_size)[-dims:]
        if len(output_size) not in (dims, dims + 2, input.dim()):
            raise ValueError(
                f"[max_unpool] output_size has {dims} or {dims + 2} values, got {len(output_size)}"
            )
        for d, (n, want, s) in enumerate(zip(sizes, least, stride)):
            if not want - s < n < want + s:
                raise ValueError(
                    f"[max_unpool] output_size {sizes}: dim {d} lies between {want - s} and "
                    f"{want + s}"
                )
    if tuple(indices.shape) != tuple(input.shape):
        raise RuntimeError(
            f"[max_unpool] indices have the input's shape {list(input.shape)}, got "
            f"{list(indices.shape)}"
        )
    return _scatter(input, indices, (*input.shape[:-dims], *sizes), dims, False)


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Zeros, with input at the places that max_pool1d gave."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Zeros, with input at the places that max_pool2d gave."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Zeros, with input at the places that max_pool3d gave."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _power_average(dims, input, norm_type, kernel_size, stride, ceil_mode):
    sizes = _each(kernel_size, dims)
    pool = (avg_pool1d, avg_pool2d, avg_pool3d)[dims - 1]
    mean = pool(input**norm_type, sizes, stride, 0, ceil_mode)
    count = 1
    for n in sizes:
        count *= n
    return (mean.sign() * eager.abs(mean).relu() * count) ** (1.0 / norm_type)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window: (sum of x^p)^(1/p)."""
    return _power_average(1, input, float(norm_type), kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window: (sum of x^p)^(1/p)."""
    return _power_average(2, input, float(norm_type), kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window: (sum of x^p)^(1/p)."""
    return _power_average(3, input, float(norm_type), kernel_size, stride, ceil_mode)


def max_pool3d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """max_pool3d with indices, always."""
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def adaptive_max_pool1d_with_indices(input, output_size, return_indices=False):
    """adaptive_max_pool1d with indices, always."""
    return _adaptive_max(1, input, output_size, True)


def adaptive_max_pool2d_with_indices(input, output_size, return_indices=False):
    """adaptive_max_pool2d with indices, always."""
    return _adaptive_max(2, input, output_size, True)


def adaptive_max_pool3d_with_indices(input, output_size, return_indices=False):
    """adaptive_max_pool3d with indices, always."""
    return _adaptive_max(3, input, output_size, True)


def max_pool1d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """max_pool1d with indices, always."""
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool2d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """max_pool2d with indices, always."""
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)
