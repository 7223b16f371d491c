"""What the compile rooms' tests share: each operator's samples as one graph, and equality to the
bit."""

import zlib
from functools import cache

import rushlight as rl
from rushlight import fx
from rushlight.ops import TABLE
from rushlight.ops.samples import t
from rushlight.ops.values import Value

from .ops.materialize import many, ours

OPERATORS = [op for op in list(TABLE.values()) if op.samples]
HALVES = ("float16", "bfloat16")
BOUND = {"float16": 4e-3, "bfloat16": 3e-2}


def name(op):
    return op.name


class Samples:
    """Every sample of an operator: `inputs` are their tensors, `function` calls the operator on
    all of them."""

    def __init__(self, op, keep=lambda sample: True):
        self.op, self.inputs, self.calls = op, [], []
        base = zlib.crc32(op.name.encode()) % 1000
        for sample in filter(keep, op.samples):
            bound = op.bind(sample.args, sample.kwargs)
            self.calls.append([self.take(v, base + i) for i, v in enumerate(bound.values)])

    def take(self, v, seed):
        if isinstance(v, t):
            self.inputs.append(ours(v, seed))
            return Place(len(self.inputs) - 1)
        if isinstance(v, list):
            return [self.take(x, 100 * seed + i) for i, x in enumerate(v)]
        return v

    def function(self, *tensors):
        out = []
        for call in self.calls:
            values = [fill(v, tensors) for v in call]
            out += many(call_operator(self.op, values))
        return tuple(out)


class Place(int):
    pass


def fill(v, tensors):
    if isinstance(v, list):
        return [fill(x, tensors) for x in v]
    return tensors[v] if isinstance(v, Place) else v


def call_operator(op, values):
    if any(isinstance(v, Value) for v in flat(values)) or not any(
        hasattr(v, "data_ptr") for v in flat(values)
    ):
        if any(hasattr(v, "data_ptr") or isinstance(v, Value) for v in flat(values)):
            return op(*values)
        from rushlight.ops.declare import FACTORIES

        if FACTORIES:  # a factory inside a trace
            return op(*values)
    given = {
        p.name: getattr(rl, v) if isinstance(v, str) and p.kind.startswith("dtype") else v
        for p, v in zip(op.parameters, values)
    }
    args = [given[p.name] for p in op.parameters if not p.keyword_only]
    return op.native(*args, **{p.name: given[p.name] for p in op.parameters if p.keyword_only})


def flat(v):
    return [x for y in v for x in flat(y)] if isinstance(v, (list, tuple)) else [v]


@cache
def samples(op):
    return Samples(op)


@cache
def traced(op):
    found = samples(op)
    return fx.trace(found.function, *found.inputs, name=op.name)


@cache
def expected(op):
    """What eager mode gives for every sample, or None where it has no kernel for one."""
    found = samples(op)
    return found.function(*found.inputs)


def bits(x):
    return (
        tuple(x.shape),
        x.dtype.name,
        x.detach().contiguous().numpy().tobytes()
        if x.dtype.name != "bfloat16"
        else x.detach().to(rl.float32).contiguous().numpy().tobytes(),
    )


def strides(x):
    return [s for s, n in zip(x.stride(), x.shape) if n != 1] if x.numel() else []


def same(got, want, exact=True, layout=True):
    """Equal to the bit, strides included; half types within their bound where fusion keeps them
    wider."""
    got, want = many(got), many(want)
    assert len(got) == len(want)
    for i, (x, y) in enumerate(zip(got, want)):
        assert tuple(x.shape) == tuple(y.shape) and x.dtype.name == y.dtype.name, (
            i,
            x.shape,
            y.shape,
            x.dtype,
            y.dtype,
        )
        if layout:
            assert strides(x) == strides(y), (i, x.stride(), y.stride())
        if bits(x) == bits(y):
            continue
        assert not exact or y.dtype.name in HALVES, (i, x, y)
        a, b = x.to(rl.float64).numpy(), y.to(rl.float64).numpy()
        bound = BOUND.get(y.dtype.name, 1e-5)
        assert (abs(a - b) <= bound * (1 + abs(b))).all(), (i, a, b)


def golden(text, path):
    """Holds printed text against tests/golden/<path>; REFRESH_GOLDEN=1 writes it anew instead."""
    import os
    from pathlib import Path

    file = Path(__file__).parent / "golden" / path
    if os.environ.get("REFRESH_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    want = file.read_text(encoding="utf-8")
    assert text == want, f"differs from {file}; REFRESH_GOLDEN=1 writes it anew"


def untimed(graph):
    """A graph's text without the milliseconds that its pass took."""
    import re

    return re.sub(r", [\d.]+ ms$", "", graph.print(), count=1, flags=re.M)
