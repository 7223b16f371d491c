"""gradcheck and gradgradcheck: derivatives against differences of the function's own values."""

from itertools import product

from rushlight import eager

from . import grad

Tensor = eager.Tensor


class GradcheckError(RuntimeError):
    """An analytical derivative that the numerical one contradicts."""


def _outputs(func, inputs):
    found = func(*inputs)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(o for o in found if isinstance(o, Tensor) and o.dtype.is_floating_point)


def places(x):
    """The index of every element, in C order, whatever the strides."""
    return product(*map(range, x.shape))


def _numerical(func, inputs, x, eps):
    """The Jacobian of every output by x: x is moved by eps to both sides, element by element."""
    data = x.data  # with a version of its own: what was saved of x is as it was
    columns = []
    for place in places(x):
        before = data[place].item()
        ends = []
        for end in (before + eps, before - eps):
            data[place] = end
            ends.append([o.detach().clone() for o in _outputs(func, inputs)])
        data[place] = before
        columns.append([(a - b) / (2 * eps) for a, b in zip(*ends, strict=True)])
    return columns


def gradcheck(
    func, inputs, *, eps=1e-06, atol=1e-05, rtol=0.001, raise_exception=True,
    nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False, check_batched_grad=False,
    check_batched_forward_grad=False, check_forward_ad=False, check_backward_ad=True,
    fast_mode=False, masked=None,
):  # fmt: skip
    """Whether the gradients of `func` at `inputs` (float64, requiring gradients) agree with
    differences of its values. Raises GradcheckError, or returns False without raise_exception.
    """
    if check_forward_ad or check_batched_grad or check_batched_forward_grad:
        raise NotImplementedError("[gradcheck] no forward mode and no batched gradients yet")
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not wanted:
        raise ValueError("[gradcheck] no input requires a gradient: at least one has to")
    for x in wanted:
        if not x.is_contiguous():
            raise RuntimeError("[gradcheck] inputs must be contiguous: their elements are moved")
    try:
        outputs = _outputs(func, inputs)
        for n, x in enumerate(wanted):
            columns = _numerical(func, inputs, x, eps)
            for k, out in enumerate(outputs):
                _compare(out, x, n, k, columns, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _compare(out, x, n, k, columns, atol, rtol):
    for j, place in enumerate(places(out)):
        seed = eager.zeros_like(out)
        seed[place] = 1
        (g,) = (
            grad((out,), (x,), (seed,), retain_graph=True, allow_unused=True)
            if out.requires_grad
            else (None,)
        )
        analytical = [0.0] * x.numel() if g is None else g.reshape(-1).tolist()
        numerical = [c[k].reshape(-1)[j].item() for c in columns]
        for a, b in zip(analytical, numerical, strict=True):
            if not abs(a - b) <= atol + rtol * abs(b):
                raise GradcheckError(
                    f"[gradcheck] the derivatives of output {k} by input {n} differ,\nby "
                    f"differences:{numerical}\nby backward:{analytical}\n"
                )


def gradgradcheck(func, inputs, grad_outputs=None, **options):
    """gradcheck of the gradients of `func`: its second derivatives."""
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if grad_outputs is None:
        grad_outputs = tuple(eager.randn_like(o) for o in _outputs(func, inputs))
    seeds = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    seeds = tuple(s.detach().requires_grad_() for s in seeds)

    def slopes(*given):
        xs, gs = given[: len(inputs)], given[len(inputs) :]
        chosen = tuple(xs[i] for i in wanted)
        found = grad(_outputs(func, xs), chosen, gs, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    options.pop("gen_non_contig_grad_outputs", None)
    return gradcheck(slopes, (*inputs, *seeds), **options)
