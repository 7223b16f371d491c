"""A compiled module is a module: names, what acts on all of it, copies, and hooks of its own."""

import copy
import io

import pytest

import rushlight as rl
from rushlight import nn


@pytest.fixture
def compiled():
    return rl.compile(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), backend="eager")


def test_its_only_child_is_the_module(compiled):
    inner = compiled._orig_mod
    assert [n for n, _ in compiled.named_children()] == ["_orig_mod"]
    assert list(compiled.state_dict()) == [f"_orig_mod.{n}" for n in inner.state_dict()]
    assert [n for n, _ in compiled.named_parameters()][0] == "_orig_mod.0.weight"
    assert len(list(compiled.buffers())) == 3


def test_what_acts_on_a_module_acts_on_the_one_inside(compiled):
    inner = compiled._orig_mod
    assert compiled.eval() is compiled and not inner.training and not compiled.training
    compiled.double()
    assert compiled(rl.ones(2, 3, dtype=rl.float64)).dtype is rl.float64
    compiled.float().train()
    compiled(rl.ones(2, 3)).sum().backward()
    assert inner[0].weight.grad is not None
    compiled.zero_grad()
    assert inner[0].weight.grad is None
    compiled.load_state_dict({k: v * 0 for k, v in compiled.state_dict().items()})
    assert not inner[0].weight.any()


def test_copies_are_compiled_modules_of_their_own(compiled):
    x = rl.ones(2, 3)
    compiled.eval()
    want = compiled(x)
    file = io.BytesIO()
    rl.save(compiled, file)
    file.seek(0)
    for other in (copy.deepcopy(compiled), rl.load(file, weights_only=False)):
        assert type(other) is type(compiled) and other(x).tolist() == want.tolist()
        with rl.no_grad():
            for p in other.parameters():
                p.add_(1)
        assert other(x).tolist() != want.tolist() and compiled(x).tolist() == want.tolist()


def test_hooks_of_its_own_run_around_those_inside(compiled):
    x = rl.ones(2, 3)
    want = compiled.eval()(x)
    compiled.register_forward_hook(lambda module, given, out: out * 2)
    compiled._orig_mod.register_forward_hook(lambda module, given, out: out + 1)
    assert compiled(x).tolist() == ((want + 1) * 2).tolist()
