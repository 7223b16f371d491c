"""Random programs of what fusion reads through: fetches at indices, concatenations and slices of
what kernels make, padding, tensors of one number, constants, writes into slices and at indices,
library calls in between. Compiled equals eager, to the bit, whatever memory is used again.

RANDOM_GRAPHS=n runs n programs (6 by default), from seed RANDOM_SEED on.
"""

import os
import random

import numpy as np
import pytest

import rushlight as rl
from rushlight import fx
from rushlight.decomposition import decompose
from rushlight.inductor.pipeline import compile_graph
from rushlight.inductor.wrapper import Ends
from rushlight.ops import TABLE
from rushlight.ops.layouts import Layout
from rushlight.sym import ShapeEnv

from ..graphs import bits, same

COUNT, SEED = int(os.environ.get("RANDOM_GRAPHS", 6)), int(os.environ.get("RANDOM_SEED", 0))
UNARY = ("exp", "tanh", "abs", "relu", "gelu", "neg", "sigmoid")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "where")
VALUES = 9  # of a program, at least


def call(name, *arguments):
    flat = [x for a in arguments for x in (a if isinstance(a, (list, tuple)) else [a])]
    native = any(hasattr(x, "data_ptr") for x in flat)
    return (TABLE[name].native if native else TABLE[name])(*arguments)


def inputs_of(seed):
    rng = np.random.RandomState(seed)
    n, m = int(rng.choice([3, 6, 17, 40])), int(rng.choice([4, 8, 33, 64]))
    if rng.rand() < 0.1:
        n, m = 70, 80
    values = [rl.randn(n, m), rl.randn(n, m), rl.randn(m), rl.randn(n, 1), rl.randn(m, n).t()]
    values.append(rl.from_numpy(rng.randint(0, n, (n,))))
    values.append(rl.from_numpy(rng.randint(-m, m, (m,))))
    if rng.rand() < 0.2:
        values[0] = values[0].to(rl.float64)
    return values


def function_of(seed, like):
    """The program: the same calls whatever it is called on."""

    def function(*given):
        draw = random.Random(seed + 1)
        *live, rows, columns = given
        for _ in range(draw.randrange(VALUES, 2 * VALUES)):
            live.append(step(draw, live, rows, columns))
        return tuple(live[-draw.randrange(1, 5) :])

    return function


def fits(a, b):
    return all(m == n or m == 1 or n == 1 for m, n in zip(tuple(a)[::-1], tuple(b)[::-1]))


def step(draw, live, rows, columns):
    a = draw.choice(live[-6:])
    kind, n, m = draw.random(), rows.shape[0], columns.shape[0]
    twins = [b for b in live if tuple(b.shape) == tuple(a.shape) and b.dtype == a.dtype]
    if kind < 0.22:
        return getattr(rl, draw.choice(UNARY))(a * 0.5)
    if kind < 0.45:
        b = draw.choice([b for b in live if fits(a.shape, b.shape)])
        name = draw.choice(BINARY)
        return rl.where(a > 0, a, b) if name == "where" else getattr(rl, name)(a, b)
    if kind < 0.52:
        d = draw.randrange(a.ndim)
        return call("cat", [draw.choice(twins) for _ in range(draw.randrange(1, 4))], d)
    if kind < 0.55:
        d = draw.randrange(a.ndim + 1)
        return call("stack", [draw.choice(twins) for _ in range(2)], d).sum(d)
    if kind < 0.63:
        d = draw.randrange(a.ndim)
        size = a.shape[d]
        lo = draw.randrange(size)
        hi = draw.randrange(lo + 1, size + 1)
        return call("slice", a, d, lo, hi, draw.choice((1, 1, 2)))
    if kind < 0.67 and a.ndim > 1:
        return a.permute(tuple(reversed(range(a.ndim))))
    if kind < 0.70 and a.ndim > 1:
        return a.select(draw.randrange(a.ndim), 0)
    if kind < 0.77:
        d = draw.randrange(a.ndim)
        if a.shape[d] == n:
            return call("index_select", a, d, rows)
        if a.shape[d] == m and a.ndim == 2 and d == 1:
            return call("index", a, [columns], (1,))
        return call("index", a, [rows * 0], (d,))
    if kind < 0.80 and a.ndim == 2 and a.shape[0] >= n:
        return call("embedding", a, rows, -1)
    if kind < 0.84:
        return call("constant_pad_nd", a, (draw.randrange(3), draw.randrange(3)), 0.5)
    if kind < 0.88:
        d = draw.randrange(a.ndim)
        return rl.softmax(a, d) if draw.random() < 0.5 else a - a.mean(d, True)
    if kind < 0.91:
        size = tuple(a.shape) if draw.random() < 0.5 else (a.shape[-1],)
        full = (TABLE["full"].native if hasattr(a, "data_ptr") else TABLE["full"])(size, 1.25)
        return a * full + full
    if kind < 0.94:
        d = draw.randrange(a.ndim)
        lo = draw.randrange(a.shape[d])
        part = call("slice", draw.choice(twins), d, lo, a.shape[d], 1)
        return call("slice_scatter", a * 2, rl.tanh(part) + 1, d, lo, a.shape[d], 1)
    if kind < 0.96 and a.shape[0] >= n:
        return call(
            "index_write", a + 1, [rows], call("index", a, [rows], (0,)) * 0 + 3, (0,), False
        )
    if a.ndim == 2:
        wide = a.to(rl.float64)  # whose products have the same bits each time
        return (wide @ wide.t()).to(rl.float32) * 0.01
    return a + 1


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_compiled_equals_eager(seed):
    inputs = inputs_of(seed)
    function = function_of(seed, inputs)
    want = function(*inputs)
    graph = decompose(fx.trace(function, *inputs))
    before = [bits(x) for x in inputs]
    compiled = compile_graph(graph)
    compiled.graph.verify()
    for _ in range(2):
        same(compiled(*inputs), want)
    assert [bits(x) for x in inputs] == before
    for p in compiled.memory.places:
        for q in compiled.memory.places:
            apart = p.offset + p.bytes <= q.offset or q.offset + q.bytes <= p.offset
            assert p is q or apart or p.last < q.first or q.last < p.first


@pytest.mark.parametrize("seed", range(SEED + 500000, SEED + 500000 + COUNT))
def test_results_written_to_inputs(seed):
    """The program's values of an input's layout become that input's new contents."""
    inputs = inputs_of(seed)
    function = function_of(seed, inputs)
    want = function(*inputs)
    graph = decompose(fx.trace(function, *inputs))
    places = []
    for k, out in enumerate(want):
        fit = [
            i
            for i, x in enumerate(inputs)
            if (x.shape, x.stride(), x.dtype) == (out.shape, out.stride(), out.dtype)
            and i not in places
        ]
        if k != len(places) or not fit:
            break
        places.append(fit[0])
    if not places:
        pytest.skip("no result fits an input")
    own = len(want) - len(places)
    order = [*range(len(places), len(want)), *range(len(places))]
    outputs = tuple(graph.result[i] for i in order)
    graph = graph.with_nodes([*graph.nodes[:-1], fx.graph.Node("output", "output", (outputs,))])
    ends = Ends(own, tuple(places), ("tuple", tuple(("own", k) for k in range(own))))
    compiled = compile_graph(graph, ends=ends)
    given = [x.clone() if x.is_contiguous() else x.t().clone().t() for x in inputs]
    got = compiled(*given)
    same(got, tuple(want[i] for i in order[:own]))
    for k, i in enumerate(places):
        assert bits(given[i]) == bits(want[k])
    for i, x in enumerate(inputs):
        assert i in places or bits(given[i]) == bits(x)


@pytest.mark.parametrize("seed", range(SEED + 900000, SEED + 900000 + COUNT // 2))
def test_symbolic_sizes(seed):
    """Every dim a symbol: as the program first ran, and on larger sizes where its guards allow."""
    inputs = inputs_of(seed)
    function = function_of(seed, inputs)
    env, names, layouts = ShapeEnv(), {}, []
    for x in inputs:
        shape = tuple(
            n if n == 1 else names.setdefault(n, env.size(f"s{len(names)}", n)) for n in x.shape
        )
        steps = Layout(shape[::-1] if not x.is_contiguous() else shape, (), x.dtype.name)
        strides, step_ = [], 1
        for n in reversed(steps.shape):
            strides.append(step_)
            step_ = step_ * n if not (type(n) is int and n == 1) else step_
        strides = strides if not x.is_contiguous() else strides[::-1]
        layouts.append(Layout(shape, tuple(strides), x.dtype.name))
    graph = decompose(fx.trace(function, *layouts))
    compiled = compile_graph(graph)
    same(compiled(*inputs), function(*inputs))
