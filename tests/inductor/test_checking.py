"""`compile(check=True)`: right code passes, wrong code is told, with the node that is wrong."""

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.errors import CompilerBug
from rushlight.inductor import codegen
from rushlight.inductor.checking import compare
from rushlight.nn import functional as F


def test_right_code_passes():
    def f(x, w):
        x.mul_(2)
        return F.dropout(rl.gelu(x @ w), 0.5), x.t(), (x > 0).sum()

    checked = rl.compile(f, check=2)
    for _ in range(3):
        checked(rl.randn(6, 6), rl.randn(6, 6))
    net = rl.compile(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), check=True)
    net(rl.randn(5, 6)).sum().backward()


def test_wrong_code_is_told_with_its_node(monkeypatch):
    real = codegen.generate

    def wrong(kernels):
        return real(kernels).replace("= rl_tanh_f32(", "= 0.5f * rl_tanh_f32(")

    monkeypatch.setattr(codegen, "generate", wrong)
    monkeypatch.setattr(codegen, "emitter", lambda: "one that is wrong")
    f = rl.compile(lambda x: rl.exp(rl.tanh(x + 1) * 2) + 3, check=True)
    with pytest.raises(CompilerBug, match=r"First: tanh = tanh\(...\).*ulp"):
        f(rl.ones(3, 4))


def test_differences():
    x = rl.tensor([1.0, 2.0, 3.0])
    assert compare("x", x, x) is None
    assert compare("x", x, x + 1e-7) is None
    found = compare("x", x, rl.tensor([1.0, 2.5, 3.0]))
    assert found.place == (1,) and found.maximum == 0.5 and found.steps > 1e6
    assert compare("x", x, x.to(rl.float64)).steps == float("inf")
    nan = rl.tensor([float("nan"), float("inf")])
    assert compare("x", nan, nan) is None
    assert compare("x", nan, rl.tensor([0.0, float("inf")])) is not None
    assert compare("x", rl.tensor([1, 2]), rl.tensor([1, 3])).place == (1,)
    exact = rl.from_numpy(np.array([0.5, 1.0]))
    assert compare("x", rl.tensor([0.6, 1.0]), rl.tensor([0.4, 1.0]), exact) is None
