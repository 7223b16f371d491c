"""`autograd.functional`: derivatives of a Python function as a whole: Jacobians, Hessians, and
their products with vectors.

Functions take one tensor or a tuple of them and give one tensor or a tuple; what comes back has the
same nesting. With `create_graph` results can be differentiated again. `strict` raises where an
output does not hang on an input; otherwise its derivative is zeros.
"""

from math import prod

from rushlight import eager
from rushlight.eager.sampling import place

from . import grad
from .checking import places

Tensor = eager.Tensor


def _tuple(value, name, what):
    """(tuple of tensors, whether it was one before); TypeError for anything else."""
    is_tuple = isinstance(value, tuple)
    values = value if is_tuple else (value,)
    for i, v in enumerate(values):
        if not isinstance(v, Tensor):
            raise TypeError(
                f"[{name}] takes a tensor or a tuple of tensors as {what}; number {i} is of "
                f"{type(v)}"
            )
    return values, is_tuple


def _called(func, inputs, name, create_graph):
    """(inputs as leaves or views of the given ones, outputs, nesting of both)."""
    given, many_in = _tuple(inputs, name, "inputs")
    leaves = tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in given
    )
    with eager.enable_grad():
        outputs, many_out = _tuple(func(*leaves), name, "outputs of the user-provided function")
    return leaves, outputs, many_in, many_out


def _derivatives(outputs, inputs, seeds, create_graph, strict, name):
    """grad, with zeros (or, strictly, an error) where nothing flows."""
    flowing = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
    if not flowing:
        found = (None,) * len(inputs)
    else:
        outs, grads = zip(*flowing, strict=True)
        found = grad(
            outs, inputs, grads, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
    for i, g in enumerate(found):
        if g is None and strict:
            raise RuntimeError(f"[{name}] strict=True, but an output does not depend on input {i}")
    pairs = zip(found, inputs, strict=True)
    return tuple(eager.zeros_like(x) if g is None else g for g, x in pairs)


def _nested(values, many):
    return values if many else values[0]


def _vectors(v, like, name, what):
    """`v` checked against what it multiplies; ones for a single number."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"[{name}] v may be left out only where the {what} is one element")
        return (eager.ones_like(like[0]),)
    vectors, _ = _tuple(v, name, "v")
    shapes, wanted = ([tuple(x.shape) for x in xs] for xs in (vectors, like))
    if shapes != wanted:
        raise RuntimeError(
            f"[{name}] v has the sizes {shapes}, expected those of the {what}: {wanted}"
        )
    return vectors


def _settled(values, create_graph):
    return values if create_graph else tuple(v.detach() for v in values)


def jacobian(
    func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"
):
    """The derivative of every element of every output by every element of every input: a tensor of
    shape [*output, *input] for each pair. One backward pass an element of the outputs.
    """
    if strategy != "reverse-mode":
        raise NotImplementedError(f"[jacobian] strategy {strategy!r} is not there yet")
    leaves, outputs, many_in, many_out = _called(func, inputs, "jacobian", create_graph)
    rows = []
    for k, out in enumerate(outputs):
        columns = [[] for _ in leaves]
        for index in places(out):
            seeds = [eager.zeros_like(o) for o in outputs]
            seeds[k][index] = 1
            only = ((out,), (seeds[k],))
            for c, g in zip(
                columns,
                _derivatives(only[0], leaves, only[1], create_graph, strict, "jacobian"),
                strict=True,
            ):
                c.append(g)
        row = tuple(
            eager.stack(c).reshape((*out.shape, *x.shape))
            if c
            else eager.zeros((*out.shape, *x.shape), dtype=out.dtype, device=place(out))
            for c, x in zip(columns, leaves, strict=True)
        )
        rows.append(_nested(_settled(row, create_graph), many_in))
    return _nested(tuple(rows), many_out)


def _scalar(outputs, name):
    if len(outputs) != 1 or prod(outputs[0].shape) != 1 or outputs[0].dim() > 1:
        raise RuntimeError(f"[{name}] the function has to give one element, as one tensor")
    return outputs[0].view(())


def hessian(
    func, inputs, create_graph=False, strict=False, vectorize=False,
    outer_jacobian_strategy="reverse-mode",
):  # fmt: skip
    """The second derivatives of a function with one number as its result: a tensor of shape
    [*input i, *input j] for each pair of inputs.
    """
    _, many_in = _tuple(inputs, "hessian", "inputs")

    def slopes(*xs):
        xs = tuple(x.view_as(x) for x in xs)
        out, _ = _tuple(func(*xs), "hessian", "outputs of the user-provided function")
        number = _scalar(out, "hessian")
        seed = eager.ones((), dtype=number.dtype, device=place(number))
        return _derivatives((number,), xs, (seed,), True, strict, "hessian")

    found = jacobian(slopes, inputs, create_graph, strict, strategy=outer_jacobian_strategy)
    return found if many_in else found[0]


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(outputs, v times the Jacobian): one gradient an input."""
    leaves, outputs, many_in, many_out = _called(func, inputs, "vjp", create_graph)
    seeds = _vectors(v, outputs, "vjp", "user-provided function's output")
    found = _derivatives(outputs, leaves, seeds, create_graph, strict, "vjp")
    outputs = _settled(outputs, create_graph)
    return _nested(outputs, many_out), _nested(_settled(found, create_graph), many_in)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(outputs, the Jacobian times v): one tensor an output, by differentiating the vjp twice."""
    leaves, outputs, _, many_out = _called(func, inputs, "jvp", create_graph)
    vectors = _vectors(v, leaves, "jvp", "input to the user-provided function")
    with eager.enable_grad():
        seeds = tuple(eager.zeros_like(o).requires_grad_() for o in outputs)
        back = _derivatives(outputs, leaves, seeds, True, strict, "jvp")
    found = _derivatives(back, seeds, vectors, create_graph, False, "jvp")
    outputs = _settled(outputs, create_graph)
    return _nested(outputs, many_out), _nested(_settled(found, create_graph), many_out)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(output, v times the Hessian) of a function with one number as its result."""
    leaves, outputs, many_in, _ = _called(func, inputs, "vhp", create_graph)
    vectors = _vectors(v, leaves, "vhp", "input to the user-provided function")
    out = _scalar(outputs, "vhp")
    slopes = _derivatives((out,), leaves, (eager.ones_like(out),), True, strict, "vhp")
    found = _derivatives(slopes, leaves, vectors, create_graph, False, "vhp")
    output = _settled(outputs, create_graph)[0]
    return output, _nested(_settled(found, create_graph), many_in)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(output, the Hessian times v): the same as `vhp` where the Hessian is symmetric."""
    return vhp(func, inputs, v, create_graph, strict)
