"""Every operator's samples through the whole compiler, forward and backward: eager's values and
gradients."""

import numpy as np
import pytest

import rushlight as rl
from rushlight import config
from rushlight.pipeline import compile_fx
from rushlight.trace import collect

from ..graphs import OPERATORS, many, name, same, samples

EXACT = ("scalar", "view", "assemble")
# `detach` as an operator is the value alone; Tensor.detach() takes it from the tape.
DIFFERENTIATED = [op for op in OPERATORS if op.name != "detach"]


@pytest.fixture(autouse=True, scope="module")
def artifacts(tmp_path_factory):
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts")), strict=True):
        yield


def leaves(inputs):
    return [
        x.detach().requires_grad_() if x.dtype.is_floating_point else x.detach() for x in inputs
    ]


def learned(f, inputs):
    """(results, gradients) of the sum of all results' squares, with a weight for each."""
    outs, total = many(f(*inputs)), None
    for i, out in enumerate(outs):
        if out.requires_grad:
            out = rl.view_as_real(out) if out.dtype.is_complex else out
            part = (out.to(rl.float64) ** 2).sum() * (1 + i % 3)
            total = part if total is None else total + part
    wanted = [x for x in inputs if x.requires_grad]
    if total is None:
        return outs, [None] * len(wanted)
    return outs, list(rl.autograd.grad(total, wanted, allow_unused=True))


@pytest.mark.parametrize("op", DIFFERENTIATED, ids=name)
def test_gradients_equal_eagers(op):
    found = samples(op)
    mine, theirs = leaves(found.inputs), leaves(found.inputs)
    try:
        want, expected = learned(found.function, theirs)
    except (NotImplementedError, RuntimeError) as error:
        pytest.skip(f"eager mode refuses it: {error}")
    compiled = compile_fx(found.function, mine)
    with collect("fallback") as records:
        got, grads = learned(compiled, mine)
    numbers = (*found.inputs, *got)  # graphs of complex ones run in eager mode
    whole = not any(rl.is_tensor(x) and x.dtype.is_complex for x in numbers)
    assert not whole or not [r.text for r in records if r.name == "fallback.graph"]
    assert [o.requires_grad for o in got] == [o.requires_grad for o in want]
    layout = op.name != "in_projection"  # whose results share memory in eager mode
    same([o.detach() for o in got], [o.detach() for o in want], op.kind in EXACT, layout)
    for i, (g, w) in enumerate(zip(grads, expected, strict=True)):
        assert (g is None) == (w is None), i
        if g is not None:
            assert g.dtype is w.dtype and g.shape == w.shape, i
            a, b = (v.detach().to(rl.float64).numpy() for v in (g, w))
            bound = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 1e-4}.get(w.dtype.name, 1e-9)
            scale = 1 + np.abs(b[np.isfinite(b)]).max(initial=0)
            close = np.allclose(a / scale, b / scale, rtol=bound, atol=bound, equal_nan=True)
            assert close, (i, g, w)


