"""Duals: values with tangents, as the oracle."""

import importlib

import pytest

import rushlight as rl


def modules(oracle):
    for lib in (rl, oracle):
        yield lib, importlib.import_module(lib.__name__ + ".autograd.forward_ad")


def test_tangents_of_functions_of_two_duals(oracle):
    found = []
    for lib, fw in modules(oracle):
        x, t = lib.tensor([0.5, -1.0, 2.0]), lib.tensor([1.0, 2.0, -1.0])
        with fw.dual_level():
            a, b = fw.make_dual(x, t), fw.make_dual(x * 2, t * 3)
            y = fw.unpack_dual((a.sin() * b + b.exp()).sum())
            z = fw.unpack_dual(a * 3)
            found.append((y.primal.item(), y.tangent.item(), z.tangent.tolist()))
            assert fw.unpack_dual(a).tangent.tolist() == t.tolist()
            assert fw.unpack_dual(x).tangent is None
        assert fw.unpack_dual(a).tangent is None
    assert found[0][:2] == pytest.approx(found[1][:2], rel=1e-5)
    assert found[0][2] == found[1][2]


def test_reverse_over_forward(oracle):
    found = []
    for lib, fw in modules(oracle):
        x = lib.tensor([0.5, -1.0], requires_grad=True)
        with fw.dual_level():
            y = fw.unpack_dual((fw.make_dual(x, lib.tensor([1.0, 2.0])) ** 3).sum())
            y.tangent.backward()
        found.append(x.grad.tolist())
    assert found[0] == pytest.approx(found[1])


def test_what_is_refused(oracle):
    for lib, fw in modules(oracle):
        with pytest.raises(RuntimeError, match="level"):
            fw.make_dual(lib.ones(2), lib.ones(2))
        with fw.dual_level():
            with pytest.raises(RuntimeError, match="size|shape"):
                fw.make_dual(lib.ones(2), lib.ones(3))
            with pytest.raises(ValueError, match="floating"):
                fw.make_dual(lib.ones(2, dtype=lib.int64), lib.ones(2))
            with pytest.raises(RuntimeError, match="[Nn]ested"):
                fw.enter_dual_level()
        with pytest.raises(RuntimeError, match="level"):
            fw.exit_dual_level()
