"""Containers: indices, slices, names after changes, errors."""

from collections import OrderedDict

import pytest

import rushlight
from rushlight import nn


def linears(n):
    return [nn.Linear(i + 1, i + 1) for i in range(n)]


@pytest.mark.parametrize("kind", ["Sequential", "ModuleList"])
def test_sequences(kind):
    modules = linears(4)
    held = getattr(nn, kind)(*modules) if kind == "Sequential" else nn.ModuleList(modules)
    assert len(held) == 4 and list(held) == modules
    assert held[-1] is modules[3] and held[1] is modules[1]
    assert type(held[1:3]) is type(held) and list(held[1:3]) == modules[1:3]
    new = nn.ReLU()
    held[0] = new
    assert held[0] is new
    del held[1]
    assert list(held._modules) == ["0", "1", "2"] and held[1] is modules[2]
    held.append(new)
    held.insert(1, nn.Tanh())
    assert [type(m).__name__ for m in held] == ["ReLU", "Tanh", "Linear", "Linear", "ReLU"]
    assert held.pop(-1) is new and len(held) == 4
    del held[0:2]
    assert list(held._modules) == ["0", "1"]
    held.extend(linears(2))
    assert len(held) == 4
    for index in (4, -5):
        with pytest.raises(IndexError, match=f"index {index} is out of range"):
            held[index]


def test_sequential():
    named = nn.Sequential(OrderedDict(a=nn.Identity(), b=nn.ReLU()))
    assert list(named._modules) == ["a", "b"] and named.a is named[0]
    assert named(rushlight.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
    assert type(named[:1]) is nn.Sequential and list(named[:1]._modules) == ["a"]
    both = nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh())
    assert len(both) == 2 and len(both * 2) == 4
    both += nn.Sequential(nn.GELU())
    assert len(both) == 3
    with pytest.raises(TypeError, match="is not a Module subclass"):
        nn.Sequential(3)
    with pytest.raises(ValueError, match="takes another Sequential"):
        both + 3


def test_module_list():
    held = nn.ModuleList(linears(2)) + nn.ModuleList(linears(1))
    assert len(held) == 3
    held += linears(1)
    assert len(held) == 4
    with pytest.raises(TypeError, match="should be called with an iterable, got int"):
        held.extend(3)
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        held(1)


def test_module_dict():
    held = nn.ModuleDict({"a": nn.ReLU()})
    held["b"] = nn.Linear(2, 2)
    held.update([("c", nn.Tanh())])
    assert list(held) == list(held.keys()) == ["a", "b", "c"] and len(held) == 3 and "b" in held
    assert list(held.state_dict()) == ["b.weight", "b.bias"]
    assert type(held.pop("a")).__name__ == "ReLU" and "a" not in held
    del held["c"]
    held.clear()
    assert len(held) == 0
    with pytest.raises(TypeError, match="iterable of key/value pairs"):
        held.update(3)
    with pytest.raises(ValueError, match="has length 1; 2 is required"):
        held.update([("a",)])


def test_parameter_list():
    held = nn.ParameterList([rushlight.ones(2)])
    assert isinstance(held[0], nn.Parameter)
    held.append(nn.Parameter(rushlight.zeros(1)))
    held += [rushlight.ones(3)]
    assert len(held) == 3 and list(held.state_dict()) == ["0", "1", "2"]
    assert [tuple(p.shape) for p in held[1:]] == [(1,), (3,)]
    held[0] = rushlight.zeros(4)
    assert tuple(held[0].shape) == (4,) and len(list(held.parameters())) == 3
    with pytest.raises(TypeError, match="with an iterable"):
        held.extend(3)
    with pytest.raises(RuntimeError, match="should not be called"):
        held(1)


def test_parameter_dict():
    held = nn.ParameterDict({"a": rushlight.ones(2)})
    held["b"] = nn.Parameter(rushlight.zeros(1))
    assert list(held.keys()) == ["a", "b"] and isinstance(held["a"], nn.Parameter)
    assert dict(held.items())["b"] is held["b"] and held.get("c", 3) == 3
    assert list(held.state_dict()) == ["a", "b"]
    assert held.pop("a").tolist() == [1.0, 1.0] and "a" not in held
    with pytest.raises(KeyError):
        held["a"]
    with pytest.raises(TypeError, match="keys are strings"):
        held[3] = rushlight.ones(1)


def test_deleting_numbers_every_module_anew():
    layers = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.ReLU())
    layers.add_module("head", nn.GELU())
    del layers[1]
    assert [name for name, _ in layers.named_children()] == ["0", "1", "2"]
