"""Three hundred random programs (programs.py): compiled as eager, forward to the bit where the
numerics contract says so, and backward."""

import os

import numpy as np
import pytest

import rushlight as rl
from rushlight import config
from rushlight.decomposition import decompose
from rushlight.forms import forget_gradients
from rushlight.fx.interpreter import call
from rushlight.fx.interpreter import run as run_graph
from rushlight.inductor.checking import compare
from rushlight.inductor.pipeline import compile_graph
from rushlight.pipeline import compile_fx

from ..graphs import bits, strides
from .programs import program

CHUNK = 20
FIRST, COUNT = int(os.environ.get("RANDOM_SEED", 0)), int(os.environ.get("RANDOM_GRAPHS", 300))
ERRORS = (RuntimeError, IndexError, NotImplementedError, TypeError, ValueError)


@pytest.fixture(autouse=True, scope="module")
def artifacts(tmp_path_factory):
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts")), strict=True):
        yield


def run(function, inputs):
    """The results, or the error."""
    rl.manual_seed(11)
    try:
        return function(*inputs)
    except ERRORS as error:
        return error


def copied(x):
    """A copy with the same strides."""
    order = sorted(range(x.dim()), key=lambda d: -x.stride()[d])
    back = sorted(range(x.dim()), key=order.__getitem__)
    return x.detach().permute(tuple(order)).contiguous().clone().permute(tuple(back))


def numbers(x):
    return x.detach().to(rl.float64).numpy()


def near(got, want, bound, where):
    a, b = numbers(got), numbers(want)
    scale = 1 + np.abs(b[np.isfinite(b)]).max(initial=0)
    close = np.allclose(a / scale, b / scale, rtol=bound, atol=bound, equal_nan=True)
    assert close, (where, got, want)


def wide(v):
    return v.to(rl.float64) if hasattr(v, "data_ptr") and v.dtype.is_floating_point else v


def in_float64(node, arguments):
    """A node of a graph on float64 numbers, whatever it converts them to."""
    if node.op.name == "to" and node.outs[0].dtype in ("float16", "bfloat16", "float32"):
        if arguments[0].dtype.is_floating_point:
            return arguments[0]
    outs = call(node, arguments)
    return tuple(map(wide, outs)) if isinstance(outs, tuple) else wide(outs)


def rounds_too_much(compiled, inputs):
    """Inside a kernel half types are wider: what overflows or cancels in eager mode need not there.
    So where the two are apart: is compiled code farther from float64 than eager mode is?"""
    (form,) = compiled.forms.values()
    graph = forget_gradients(form.made.graph)
    values = [*map(copied, inputs), *(11, 0)[: len(graph.numbers)]]  # as `run` seeds
    with rl.no_grad():
        got = compile_graph(decompose(graph)).program(*values)
        want = run_graph(graph, *values)
        ideal = run_graph(graph, *map(wide, values), step=in_float64)
    found = [compare(str(i), *three) for i, three in enumerate(zip(got, want, ideal))]
    return [f for f in found if f]


def exact_gradients(compiled, leaves):
    """Of the program in float64, for the sum that `check_backward` takes."""
    (form,) = compiled.forms.values()
    inputs = [wide(x.detach()).requires_grad_(x.requires_grad) for x in leaves]
    numbers = (11, 0)[: len(form.made.graph.numbers)]
    own = run_graph(form.made.graph, *inputs, *numbers, step=in_float64)
    outs = form.placed(form.made.outputs, list(own), tuple(inputs), numbers)
    weighed(outs).backward()
    return [x.grad for x in inputs]


def weighed(outs):
    """What `backward` is called on; None where no result has a gradient."""
    total = None
    for i, o in enumerate(outs if isinstance(outs, tuple) else ()):
        if o.requires_grad:
            part = (o.to(rl.float64) ** 2 * (i + 1)).sum()
            total = part if total is None else total + part
    return total


def alike(got, want, exact, where, doubt=None):
    assert got.dtype is want.dtype and got.shape == want.shape, (where, got, want)
    assert got.requires_grad == want.requires_grad, where
    if exact:
        assert bits(got.detach()) == bits(want.detach()), (where, got, want)
    else:
        try:
            near(got, want, 5e-2, where)
        except AssertionError:
            if doubt is None or doubt():
                raise


def check_forward(seed):
    """What the program is: "equal", or "error" where eager mode raises one, and so must it."""
    function, inputs, exact = program(seed)
    mine, theirs = [copied(x) for x in inputs], [copied(x) for x in inputs]
    run(function, [copied(x) for x in inputs])  # the matrix library may take another way at first
    want = run(function, theirs)
    compiled = compile_fx(function, mine)
    before = tuple(map(copied, mine))
    got = run(compiled, mine)
    if isinstance(want, Exception):
        assert isinstance(got, Exception), want
        return "error"
    assert not isinstance(got, Exception), repr(got)
    for _ in range(2):
        for i, (g, w) in enumerate(zip([*got, *mine], [*want, *theirs], strict=True)):
            alike(g, w, exact, i, lambda: rounds_too_much(compiled, before))
            assert strides(g) == strides(w), (i, g.stride(), w.stride())
        if not exact:  # what the first call wrote, it rounded its own way
            for x, y in zip(mine, theirs, strict=True):
                x.copy_(y)
            before = tuple(map(copied, theirs))
        got, want = run(compiled, mine), run(function, theirs)
    return "equal"


def check_backward(seed):
    """Likewise, with the gradients of the inputs; "none" where no result has any."""
    function, inputs, exact = program(seed)
    leaves = [[copied(x) for x in inputs] for _ in range(2)]
    for given in leaves:
        for x in given:
            x.requires_grad_(x.dtype.is_floating_point)

    def inside(*given):  # leaves are not written to
        return function(*(x * 1 for x in given))

    compiled, results = compile_fx(inside, leaves[0]), []
    for f, given in ((inside, leaves[1]), (compiled, leaves[0])):
        outs = run(f, given)
        total = weighed(outs)
        if total is not None:
            try:
                total.backward()
            except ERRORS as error:
                outs = error
        results.append(outs)
    want, got = results
    if isinstance(want, Exception):  # a graph has no values that were overwritten before backward
        return "error"
    assert not isinstance(got, Exception), repr(got)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        alike(g, w, exact, i, lambda: rounds_too_much(compiled, [x.detach() for x in leaves[0]]))
    for i, (x, y) in enumerate(zip(*leaves)):
        assert (x.grad is None) == (y.grad is None), i
        if x.grad is not None:
            try:
                near(x.grad, y.grad, 1e-4 if exact else 8e-2, f"gradient {i}")
            except AssertionError:
                if exact:
                    raise
                ideal = exact_gradients(compiled, leaves[0])[i]
                assert (found := compare(f"gradient {i}", x.grad, y.grad, ideal)) is None, found
    return "equal" if any(x.grad is not None for x in leaves[0]) else "none"


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
def test_forward(first):
    for seed in range(first, first + CHUNK):
        check_forward(seed)


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
def test_backward(first):
    for seed in range(first, first + CHUNK):
        check_backward(seed)


def test_most_programs_say_something():
    found = [check_backward(seed) for seed in range(40)]
    assert found.count("equal") > 20
