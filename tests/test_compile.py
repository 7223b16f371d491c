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
    expected = cases.run_case(build, rl)
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


@pytest.mark.parametrize("dynamic", [None, True])
def test_backward_knows_sizes_of_what_is_not_saved(dynamic):
    def f(table, i):
        return table[i].sum() * 2

    compiled = rl.compile(f, dynamic=dynamic)
    i = rl.tensor([1, 2, 2])
    for n in (5, 7, 9):
        grads = []
        for g in (f, compiled):
            table = rl.ones(n, 3, requires_grad=True)
            (first,) = rl.autograd.grad(g(table, i), table, create_graph=g is compiled)
            g(table, i).backward()
            grads += [first, table.grad]
        for one in grads[1:]:
            same(one, grads[0])


def test_backward_knows_what_a_quotient_of_sizes_is_made_of():
    f = lambda x: rl.stack([x, x * 2], 1).flatten(0, 1)[::2].sin()
    compiled = rl.compile(f, dynamic=True)
    for n in (4, 6, 5):
        grads = []
        for g in (f, compiled):
            x = rl.ones(n, 3, requires_grad=True)
            g(x).sum().backward()
            grads.append(x.grad)
        assert np.allclose(*(x.numpy() for x in grads))


def test_a_triangle_of_ones_knows_how_long_its_rows_are():
    from rushlight.dynamo import runtime

    f = lambda x: rl.ones(x.shape[0], x.shape[0]).tril().bool()
    compiled, failures = rl.compile(f, dynamic=True), runtime.FAILURES[0]
    for n in (4, 6):
        same(compiled(rl.ones(n, 3)), f(rl.ones(n, 3)))
    assert runtime.FAILURES[0] == failures


def test_attention_is_scaled_by_the_width_of_each_call():
    f = lambda x: F.scaled_dot_product_attention(x, x * 2, x)
    compiled = rl.compile(f, dynamic=True)
    for n, width in ((4, 3), (6, 3), (5, 4), (4, 9)):
        x = rl.randn(1, 1, n, width)
        assert np.allclose(compiled(x).numpy(), f(x).numpy(), atol=1e-6)


def test_a_whole_number_that_varies_is_divided_though_no_size_varies():
    def f(x, i):
        x[i // 2] = 0
        return x * (i % 2)

    compiled = rl.compile(f)
    with config.changed(strict=True):
        for i in (3, 6, 7):
            same(compiled(rl.ones(5, 2), i), f(rl.ones(5, 2), i))


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


def test_who_waits_sees_what_is_done(monkeypatch, capsys):
    import sys
    import time

    from rushlight import compiled as forms
    from rushlight import pipeline
    from rushlight.inductor import pipeline as steps

    def slow_step(c):
        time.sleep(0.4)

    monkeypatch.setattr(forms, "SLOW", 0.05)
    monkeypatch.setattr(steps, "PASSES", (slow_step, *steps.PASSES))
    x = rl.randn(5, 6)
    for terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)  # noqa: B023
        pipeline.compile_fx(lambda x: rl.gelu(x) + 1, [x])(x)
        said = capsys.readouterr().err
        assert ("compiling" in said) is terminal
        if terminal:
            assert "(its first call): slow step, " in said and said.rindex("\r") > 80


# ---- what goes wrong while a graph is compiled


def test_an_interrupted_compile_is_begun_anew(monkeypatch):
    from rushlight import forms

    def fn(x, y):
        y.add_(1)
        return rl.tanh(x) * y

    real = forms.compile_graph
    x, y = rl.randn(4).requires_grad_(), rl.zeros(4)
    compiled, word = rl.compile(fn), rl._core.mode()
    for error in (KeyboardInterrupt, MemoryError):

        def stop(*args, **kwargs):
            raise error  # noqa: B023

        monkeypatch.setattr(forms, "compile_graph", stop)
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                compiled(x, y)
            assert y.tolist() == [0] * 4 and rl._core.mode() == word
        else:  # what is ours must not be the program's
            same(compiled(x, y).detach(), rl.tanh(x.detach()) * rl.ones(4))
            assert y.tolist() == [1] * 4
        monkeypatch.setattr(forms, "compile_graph", real)
    dynamo.reset()
    same(compiled(x, y).detach(), rl.tanh(x.detach()) * 2)
    assert y.tolist() == [2] * 4


def test_two_processes_compile_one_graph_at_once(tmp_path):
    import os
    import subprocess
    import sys

    code = (
        "import rushlight as rl\n"
        "x = rl.arange(6, dtype=rl.float32).requires_grad_()\n"
        "rl.compile(lambda x: (rl.tanh(x) * 2 + 1).sum())(x).backward()\n"
        "print(x.grad.tolist())"
    )
    environment = {**os.environ, "RUSHLIGHT_CACHE_DIR": str(tmp_path)}
    run = [sys.executable, "-c", code]
    both = [subprocess.Popen(run, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    said = [p.communicate()[0] for p in both]
    x = rl.arange(6, dtype=rl.float32)
    assert said[0] == said[1] == f"{((1 - rl.tanh(x) ** 2) * 2).tolist()}\n".encode()
    assert not list(tmp_path.glob("*.part")) and list(tmp_path.glob("*.so"))


@pytest.mark.parametrize("state", ["world", "file", "missing"])
def test_a_cache_folder_that_is_of_no_use(tmp_path, state):
    """The graph is compiled all the same, and the program's data is what it was."""
    from rushlight.trace import collect

    folder = tmp_path / "cache"
    if state == "world":
        folder.mkdir()
        folder.chmod(0o777)
    elif state == "file":
        folder.write_text("")
    else:
        (tmp_path / "file").write_text("")
        folder = tmp_path / "file" / "cache"
    x = rl.randn(7)
    before = x.tolist()
    with config.changed(cache_dir=str(folder)), collect() as records:
        got = rl.compile(lambda x: rl.tanh(x) * 3 - 1)(x)
    same(got, rl.tanh(x) * 3 - 1)
    assert x.tolist() == before
    names = [r.name for r in records]
    assert "cache.refused" in names or "cache.unwritable" in names
    assert state != "world" or not list(folder.iterdir())
