"""Derivatives of functions, as functions: `grad`, `vjp`, `jvp`, Jacobians and Hessians.

What is differentiated by is seen anew by each of them: a leaf of its own or, where the tape of an
outer derivative (or of the program) follows it, a view, so that they nest and what they give can be
differentiated again. Invariant: where nothing outside is followed, the results are off the tape.
"""

import functools

from rushlight import eager
from rushlight.autograd import grad as gradients
from rushlight.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .batching import known_randomness

Tensor = eager.Tensor


def fresh(x, forward=False):
    """A tensor to differentiate by: x's values, seen anew. forward: errors are jvp's."""
    if not isinstance(x, Tensor):
        raise ValueError(f"[func] a transform differentiates by tensors, got {type(x)}")
    if not x.is_floating_point() and not x.is_complex():
        if forward:
            raise ValueError(
                f"[func] a transform differentiates by floating or complex tensors, got {x.dtype}"
            )
        raise RuntimeError("[func] only floating tensors have a gradient")
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


def followed(given, leaves, outputs):
    """Whether the tape of something else than `leaves` leads to the outputs."""
    if any(x.requires_grad for x in given):
        return True
    own, seen = {id(x) for x in leaves}, set()
    stack = [x.grad_fn for x in outputs if x.grad_fn is not None]
    if any(x.requires_grad and x.grad_fn is None and id(x) not in own for x in outputs):
        return True
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.variable is not None and id(node.variable) not in own:
            return True
        stack.extend(n for n, _ in node.next_functions if n is not None)
    return False


def differentiated(outputs, leaves, seeds, create_graph):
    """Gradients of all leaves, zeros where nothing flows."""
    flowing = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
    found = [None] * len(leaves)
    if flowing:
        outs, grads = zip(*flowing, strict=True)
        found = gradients(
            outs, leaves, grads, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
    pairs = zip(found, leaves, strict=True)
    return [eager.zeros_like(x) if g is None else g for g, x in pairs]


def settled(values, kept):
    """Off the tape, unless something outside follows."""
    return (
        values if kept else tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, values)
    )


FORWARD = ("jvp", "jacfwd", "linearize")  # integers are refused among the arguments
REVERSE = ("vjp", "jacrev")  # and here among the outputs


class Call:
    """A function called once, with some of its positional arguments seen anew.

    argnums: which of them, None for all; each may be a tree. `leaves` are the new tensors, `tree`
    their structure, `outputs` the tensors of the result and `shape` its structure.
    """

    def __init__(self, func, args, kwargs, argnums, has_aux, name):
        picked = chosen(args, argnums)
        self.given, self.tree = tree_flatten(picked)
        forward = name in FORWARD
        if forward and not self.given:
            raise RuntimeError(f"[{name}] there is no tensor among the inputs")
        self.leaves = [fresh(x, forward) for x in self.given]
        seen = tree_unflatten(self.leaves, self.tree)
        if argnums is None:
            args = seen
        elif isinstance(argnums, int):
            args = tuple(seen if i == argnums % len(args) else a for i, a in enumerate(args))
        else:
            places = {n % len(args): part for n, part in zip(argnums, seen, strict=True)}
            args = tuple(places.get(i, a) for i, a in enumerate(args))
        made = func(*args, **kwargs)
        self.aux = None
        if has_aux:
            if not (isinstance(made, tuple) and len(made) == 2):
                raise RuntimeError(
                    f"[{name}] with has_aux=True the function gives a pair (output, aux)"
                )
            made, self.aux = made
            for x in tree_flatten(self.aux)[0]:
                if not isinstance(x, Tensor):
                    raise RuntimeError(f"[func] tensors are needed, got {type(x)}")
        self.made = made
        self.outputs, self.shape = tree_flatten(made)
        for x in self.outputs:
            if not isinstance(x, Tensor):
                raise RuntimeError(f"[{name}] the function has to give tensors, got {type(x)}")
            if name in REVERSE and not (x.is_floating_point() or x.is_complex()):
                raise RuntimeError(
                    f"[{name}] the function has to give floating or complex tensors, got {x.dtype}"
                )
        if name in (*FORWARD, *REVERSE) and not self.outputs:
            raise RuntimeError(
                f"[{name}] the function gave nothing to differentiate: an empty output"
            )
        self.kept = followed(self.given, self.leaves, self.outputs)

    def like_arguments(self, values):
        return tree_unflatten(values, self.tree)


def chosen(args, argnums):
    """The arguments of these numbers: one, a tuple, or all."""
    if argnums is None:
        return args
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"[func] argnums is an int or a tuple of ints, got {type(argnums)}")
    if argnums == ():
        raise RuntimeError("[func] argnums is empty")
    for n in (argnums,) if isinstance(argnums, int) else argnums:
        if not isinstance(n, int):
            raise RuntimeError(f"[func] argnums holds ints, got {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"[func] argnum {n} of {len(args)} positional inputs")
    if isinstance(argnums, int):
        return args[argnums]
    if len({n % len(args) for n in argnums}) != len(argnums):
        raise RuntimeError(f"[func] argnums names an input twice: {argnums}")
    return tuple(args[n] for n in argnums)


def named(function, like):
    return functools.wraps(like)(function) if hasattr(like, "__name__") else function


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that gives (gradient, value) of `func`, whose result is one number.

    argnums: by which positional argument, or a tuple of them; arguments may be trees of tensors,
    and the gradient has their structure. has_aux: func gives (value, something more), and the
    result is (gradient, (value, something more)).
    """

    def wrapper(*args, **kwargs):
        with eager.enable_grad():
            call = Call(func, args, kwargs, argnums, has_aux, "grad_and_value")
            value = call.made
            if not isinstance(value, Tensor):
                raise RuntimeError(
                    f"[grad_and_value] the function has to give a tensor, got {type(value)}"
                )
            if value.dim():
                raise RuntimeError(
                    f"[grad_and_value] the function has to give a scalar tensor, got {value.dim()} "
                    "dims: vjp and jacrev take more"
                )
            if value.is_complex():
                raise RuntimeError(
                    f"[grad_and_value] a scalar of {value.dtype} has no gradient without a "
                    "cotangent: make it real"
                )
            seeds = [eager.ones_like(value)]
            found = differentiated(call.outputs, call.leaves, seeds, call.kept)
        result = call.like_arguments(found), value
        if has_aux:
            result = result[0], (value, call.aux)
        return settled(result, call.kept)

    return named(wrapper, func)


def grad(func, argnums=0, has_aux=False):
    """A function that gives the gradient of `func`, whose result is one number; arguments as those
    of `grad_and_value`. With has_aux: (gradient, aux).
    """

    def wrapper(*args, **kwargs):
        found, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return named(wrapper, func)


def checked(given, outputs, shape, what):
    """Cotangents or tangents as a list, or an error where they do not fit."""
    values, other = tree_flatten(given)
    if other != shape:
        raise RuntimeError(f"[func] {what} have another structure than f's")
    for i, (v, x) in enumerate(zip(values, outputs, strict=True)):
        if not isinstance(v, Tensor) or tuple(v.shape) != tuple(x.shape):
            raise RuntimeError(
                f"[func] Mismatch in shape: {what}[{i}] has {getattr(v, 'shape', type(v))}, the "
                f"value that it belongs to {x.shape}"
            )
    return values


def vjp(func, *primals, has_aux=False):
    """(func's results, a function of cotangents that gives those of the primals, as a tuple); with
    has_aux, func gives (results, aux) and aux stands behind both. The function may be called often.
    """
    with eager.enable_grad():
        call = Call(func, primals, {}, None, has_aux, "vjp")

    def back(cotangents, retain_graph=True, create_graph=None):
        if isinstance(retain_graph, Tensor):
            raise TypeError("vjp: cotangents are one argument, of the structure of f's results")
        seeds = checked(cotangents, call.outputs, call.shape, "grad_output")
        kept = call.kept or any(s.requires_grad for s in seeds)
        with eager.enable_grad():
            found = differentiated(call.outputs, call.leaves, seeds, kept)
        return call.like_arguments(settled(found, kept))

    made = settled(call.made, call.kept)
    return (made, back, settled(call.aux, call.kept)) if has_aux else (made, back)


def zero_seeds(outputs):
    """Cotangents whose coefficients in the vjp are the jvp: zeros to differentiate by. Outputs of
    integers have none that could be followed.
    """
    seeds = [eager.zeros_like(x) for x in outputs]
    return [s.requires_grad_() if s.is_floating_point() or s.is_complex() else s for s in seeds]


def pulled(back, seeds, tangents, create_graph):
    """`differentiated` by the seeds that can be; zeros for the others."""
    live = [s for s in seeds if s.requires_grad]
    found = iter(differentiated(back, live, tangents, create_graph) if live else ())
    return [next(found) if s.requires_grad else s for s in seeds]


def pushed(call, tangents):
    """The Jacobian times tangents (one a leaf), for each output: the derivative of the vjp."""
    seeds = zero_seeds(call.outputs)
    back = differentiated(call.outputs, call.leaves, seeds, True)
    kept = call.kept or any(t.requires_grad for t in tangents)
    return pulled(back, seeds, tangents, kept), kept


def depended(call):
    """RuntimeError for an output that no leaf leads to."""
    for x in call.outputs:
        found = [None]
        if x.requires_grad:
            seed = [eager.ones_like(x)]
            found = gradients([x], call.leaves, seed, retain_graph=True, allow_unused=True)
        if all(g is None for g in found):
            raise RuntimeError("[jvp] strict=True, but the output does not depend on the inputs")


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """(func's results, the Jacobian times the tangents); with has_aux, func gives (results, aux)
    and aux is the third. strict: RuntimeError for an output that no primal leads to. By
    differentiating the vjp, so each operator inside needs a second derivative.
    """
    for value, what in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(value, tuple):
            raise RuntimeError(f"[jvp] {what} is a tuple: f(*primals) is what is called")
    with eager.enable_grad():
        call = Call(func, primals, {}, None, has_aux, "jvp")
        given = checked(tangents, call.leaves, call.tree, "tangents")
        if strict:
            depended(call)
        found, kept = pushed(call, given)
    made = settled(call.made, call.kept)
    found = tree_unflatten(settled(found, kept), call.shape)
    return (made, found, settled(call.aux, call.kept)) if has_aux else (made, found)


def linearize(func, *primals):
    """(func's results, the function of tangents that gives the Jacobian times them)."""
    with eager.enable_grad():
        call = Call(func, primals, {}, None, False, "linearize")

    def forward(*tangents):
        given = checked(tangents, call.leaves, call.tree, "tangents")
        with eager.enable_grad():
            found, kept = pushed(call, given)
        return tree_unflatten(settled(found, kept), call.shape)

    return settled(call.made, call.kept), forward


def one_hot(x):
    """x's shape, 1 at one place after another, else 0."""
    for i in range(x.numel()):
        seed = eager.zeros(x.numel(), dtype=x.dtype, device=x.device)
        seed[i] = 1
        yield seed.view(x.shape)


def rows(call):
    """For each output and leaf the Jacobian [*output, *leaf], one backward pass an element of the
    output.
    """
    table = []
    for k, out in enumerate(call.outputs):
        columns = [[] for _ in call.leaves]
        for seed in one_hot(out):
            found = differentiated([call.outputs[k]], call.leaves, [seed], call.kept)
            for column, g in zip(columns, found, strict=True):
                column.append(g)
        table.append(
            [
                eager.stack(c).view((*out.shape, *x.shape))
                if c
                else x.new_zeros((*out.shape, *x.shape))
                for c, x in zip(columns, call.leaves, strict=True)
            ]
        )
    return table


def columns(call):
    """The same, one pass an element of the arguments."""
    seeds = zero_seeds(call.outputs)
    back = differentiated(call.outputs, call.leaves, seeds, True)
    table = [[[] for _ in call.leaves] for _ in call.outputs]
    for k, x in enumerate(call.leaves):
        for tangent in one_hot(x):
            found = pulled([back[k]], seeds, [tangent], call.kept)
            for row, t in zip(table, found, strict=True):
                row[k].append(t)
    return [
        [
            eager.stack(c, -1).view((*out.shape, *x.shape))
            if c
            else out.new_zeros((*out.shape, *x.shape))
            for c, x in zip(row, call.leaves, strict=True)
        ]
        for row, out in zip(table, call.outputs, strict=True)
    ]


def jacobian(func, argnums, has_aux, made, name):
    def wrapper(*args, **kwargs):
        with eager.enable_grad():
            call = Call(func, args, kwargs, argnums, has_aux, name)
            table = made(call)
        parts = [call.like_arguments(row) for row in table]
        found = settled(tree_unflatten(parts, call.shape), call.kept)
        return (found, settled(call.aux, call.kept)) if has_aux else found

    return named(wrapper, func)


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """A function that gives the Jacobian of `func`: [*output, *argument] for each pair, in the
    structure of the outputs and, in it, of the arguments of these numbers. One backward pass an
    element of the outputs; chunk_size has no meaning here.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("[jacrev] chunk_size is positive")
    return jacobian(func, argnums, has_aux, rows, "jacrev")


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """As jacrev: one pass an element of the arguments where that is fewer than of the outputs
    (then operators inside need a second derivative), else its passes. Each has its output's dtype.
    randomness: as in `vmap`, which PyTorch runs the function under; here it runs once.
    """
    known_randomness(randomness)

    def fewer(call):
        inside, outside = (sum(x.numel() for x in xs) for xs in (call.leaves, call.outputs))
        table = columns(call) if inside < outside else rows(call)
        pairs = zip(table, call.outputs, strict=True)
        return [[part.to(out.dtype) for part in row] for row, out in pairs]

    return jacobian(func, argnums, has_aux, fewer, "jacfwd")


def hessian(func, argnums=0):
    """A function that gives the second derivatives of `func`: [*output, *argument, *argument]."""
    return jacfwd(jacrev(func, argnums), argnums)
