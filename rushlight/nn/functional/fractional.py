"""Max pooling over windows whose steps vary (Graham, 2014): outputs may have any size."""

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.nn.functional.shared import floats


def _each(value, dims):
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * dims


def _starts(u, size, out, kernel):
    """Where the windows of a plane begin: (N, C, out) of u (N, C, 1). Steps of size / out on
    average, the first one at 0, the last window at the end.
    """
    last = size - kernel
    if out == 1:
        return (u * 0 + last).to(eager.int64)  # type: ignore[attr-defined]
    alpha = float(last) / (out - 1)
    steps = eager.arange(out, dtype=u.dtype, device=place(u))
    begin = ((steps + u) * alpha).to(eager.int64) - (u * alpha).to(eager.int64)  # type: ignore[attr-defined]
    at_end = eager.arange(out, device=place(u)) == out - 1
    return eager.where(at_end, last, begin)


def _pooled(dims, input, kernel_size, output_size, output_ratio, samples):
    name = f"fractional_max_pool{dims}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"[{name}] needs output_size or output_ratio")
    single = floats(name, input).dim() == dims + 1
    if not single and input.dim() != dims + 2:
        raise RuntimeError(
            f"[{name}] Expected {dims + 1}D or {dims + 2}D tensor, but got {list(input.shape)}"
        )
    x = input.unsqueeze(0) if single else input
    sizes, kernel = tuple(x.shape[-dims:]), _each(kernel_size, dims)
    if output_size is None:
        if dims == 3 and not isinstance(output_ratio, (list, tuple)):
            output_ratio = (output_ratio,) * dims
        ratio = _each(output_ratio, dims)
        output_size = tuple(int(n * r) for n, r in zip(sizes, ratio, strict=True))
    out = _each(output_size, dims)
    for n, m, k in zip(sizes, out, kernel, strict=True):
        if m + k - 1 > n:
            raise RuntimeError(
                f"[{name}] pool size {k} too large relative to input size {n} for output size {m}"
            )
    batch, channels = x.shape[:2]
    if samples is None:
        kept = x.dtype if x.dtype in (eager.float32, eager.float64) else eager.float32  # type: ignore[attr-defined]
        samples = eager.rand(batch, channels, dims, dtype=kept, device=place(x))
    elif tuple(samples.shape) != (batch, channels, dims):
        raise RuntimeError(
            f"[{name}] Expect _random_samples of shape {[batch, channels, dims]}, got "
            f"{list(samples.shape)}"
        )
    # places in the flattened plane, one window after another: (N, C, *out, *kernel)
    flat, strides = None, [1] * dims
    for d in reversed(range(dims - 1)):
        strides[d] = strides[d + 1] * sizes[d + 1]
    for d in range(dims):
        at = dims - 1 - d if dims == 2 else d  # in two dims the first number is that of the width
        begin = _starts(samples[..., at : at + 1], sizes[d], out[d], kernel[d])
        begin = begin.view(batch, channels, *(out[d] if e == d else 1 for e in range(2 * dims)))
        within = eager.arange(kernel[d], device=place(x))
        within = within.view(*(kernel[d] if e == d else 1 for e in range(dims)))
        part = (begin + within) * strides[d]
        flat = part if flat is None else flat + part
    cells = 1
    for k in kernel:
        cells *= k
    flat = flat.reshape(batch, channels, -1, cells)
    plane = x.reshape(batch, channels, -1)
    seen = plane.gather(2, flat.reshape(batch, channels, -1)).view(flat.shape)
    best = seen.argmax(-1, keepdim=True)
    values, indices = (t.gather(-1, best).view(batch, channels, *out) for t in (seen, flat))
    return (values.squeeze(0), indices.squeeze(0)) if single else (values, indices)


def fractional_max_pool2d_with_indices(
    input,
    kernel_size,
    output_size=None,
    output_ratio=None,
    return_indices=False,
    _random_samples=None,
):
    """fractional_max_pool2d with indices, always."""
    return _pooled(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(
    input,
    kernel_size,
    output_size=None,
    output_ratio=None,
    return_indices=False,
    _random_samples=None,
):
    """fractional_max_pool3d with indices, always."""
    return _pooled(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input,
    kernel_size,
    output_size=None,
    output_ratio=None,
    return_indices=False,
    _random_samples=None,
):
    """The largest element of each of output_size windows of kernel_size, whose steps are random:
    one number for each plane and dim, ``_random_samples`` (N, C, 2). ``output_ratio`` gives the
    output's size as a share of the input's. With ``return_indices`` also places in (H, W).
    """
    found = _pooled(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d(
    input,
    kernel_size,
    output_size=None,
    output_ratio=None,
    return_indices=False,
    _random_samples=None,
):
    """fractional_max_pool2d in three dims."""
    found = _pooled(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]
