"""`rl.compile` from the top to generated code: public bug reports, modules and their training."""

import numpy as np
import pytest

import rushlight as rl
from rushlight import config, dynamo, nn
from rushlight.nn import functional as F

from .dynamo import cases
from .graphs import same

ALL = cases.CASES + cases.EXTRA


@pytest.fixture(autouse=True, scope="module")
def artifacts(tmp_path_factory):
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts"))):
        yield


@pytest.mark.parametrize(("name", "build"), ALL, ids=[name for name, _ in ALL])
def test_public_reports_come_out_as_in_eager_mode(name, build):
    try:
        expected = cases.run_case(build, rl)
    except AttributeError as missing:
        if "complex64" not in str(missing):  # the one name that is known to be missing
            raise
        pytest.skip(str(missing))
    assert {"raised": "AttributeError"} not in expected, "eager mode lacks a name of this case"
    dynamo.reset()
    found = cases.run_case(build, rl, rl.compile)
    assert cases.same(expected, found, cases.META[name]["tol"]), f"\n{expected}\n{found}"


def test_a_compiled_function_gives_eager_bits():
    def f(x, b):
        return rl.relu(x + b) * 2

    x, b = rl.randn(30, 40), rl.randn(40)
    same(rl.compile(f)(x, b), f(x, b))


def test_training_goes_as_in_eager_mode():
    def model():
        rl.manual_seed(0)
        return nn.Sequential(
            nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(32), nn.Linear(32, 5)
        )

    rl.manual_seed(1)
    x, t = rl.randn(24, 16), rl.arange(24) % 5
    losses = []
    for wrap in (lambda m: m, rl.compile):
        plain = model()
        m, optimiser = wrap(plain), rl.optim.AdamW(plain.parameters(), 1e-2)
        rl.manual_seed(2)
        losses.append([])
        for _ in range(20):
            optimiser.zero_grad()
            loss = F.cross_entropy(m(x), t)
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    assert np.allclose(*losses, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_one_graph_serves_many_batch_sizes():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    compiled = rl.compile(net)
    with rl.no_grad():
        for n in (4, 7, 2, 33, 64):
            x = rl.randn(n, 8)
            assert np.allclose(compiled(x).numpy(), net(x).numpy(), atol=1e-6)


def test_compile_time_is_told_by_stage(monkeypatch, capsys):
    import sys

    from rushlight import compiled as forms
    from rushlight import pipeline
    from rushlight.trace import collect

    monkeypatch.setattr(forms, "SLOW", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    x = rl.randn(5, 6).requires_grad_()
    compiled = pipeline.compile_fx(lambda x: rl.gelu(x @ x.t()) + 1, [x])
    with collect("inductor") as records:
        compiled(x)
    (form,) = compiled.forms.values()
    stages = list(form.milliseconds)
    assert stages[:3] == ["functionalise", "differentiate", "decompose"] and stages[-1] == "all"
    assert any("schedule_nodes" in r.text for r in records)
    assert "rushlight: compiled" in capsys.readouterr().err
