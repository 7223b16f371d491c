"""Pruning, as the oracle: names, masks, several times over, and back."""

import pytest

import rushlight as rl

WEIGHT = [[0.5, -0.1, 2.0, 0.3], [-1.0, 0.2, 0.05, -0.4], [0.9, -0.8, 0.7, 0.6]]


def layer(lib):
    m = lib.nn.Linear(4, 3)
    with lib.no_grad():
        m.weight.copy_(lib.tensor(WEIGHT))
        m.bias.copy_(lib.tensor([0.1, -0.2, 0.35]))
    return m


def prune_of(lib):
    from importlib import import_module

    return import_module(lib.__name__ + ".nn.utils.prune")


STEPS = {
    "l1": lambda p, m: p.l1_unstructured(m, "weight", 0.5),
    "l1 of 3": lambda p, m: p.l1_unstructured(m, "weight", 3),
    "rows": lambda p, m: p.ln_structured(m, "weight", 1, 2, 0),
    "columns": lambda p, m: p.ln_structured(m, "weight", 0.5, 1, 1),
    "twice": lambda p, m: p.l1_unstructured(p.l1_unstructured(m, "weight", 0.25), "weight", 0.5),
    "rows then elements": lambda p, m: p.l1_unstructured(
        p.ln_structured(m, "weight", 1, 2, 0), "weight", 3
    ),
    "elements then rows": lambda p, m: p.ln_structured(
        p.l1_unstructured(m, "weight", 3), "weight", 1, 2, 0
    ),
    "global": lambda p, m: p.global_unstructured(
        [(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.4
    ),
    "identity": lambda p, m: p.identity(m, "bias"),
}


@pytest.mark.parametrize("name", STEPS)
def test_as_the_oracle(name, oracle):
    found = []
    for lib in (rl, oracle):
        m, p = layer(lib), prune_of(lib)
        STEPS[name](p, m)
        assert p.is_pruned(m)
        state = {k: v.tolist() for k, v in m.state_dict().items()}
        y = m(lib.ones(2, 4))
        y.sum().backward()
        grads = {k: v.grad.tolist() for k, v in m.named_parameters()}
        pruned = "bias" if name == "identity" else "weight"
        p.remove(m, pruned)
        found.append((state, y.tolist(), grads, sorted(k for k, _ in m.named_parameters())))
    for ours, theirs in zip(*found):
        if isinstance(ours, dict):
            assert ours.keys() == theirs.keys()
            for k in ours:
                assert rl.tensor(ours[k]).allclose(rl.tensor(theirs[k])), (name, k)
        else:
            assert ours == theirs or rl.tensor(ours).allclose(rl.tensor(theirs)), name


def test_random_ones_take_as_many_as_they_say():
    p = prune_of(rl)
    m = layer(rl)
    p.random_unstructured(m, "weight", 5)
    assert m.weight_mask.sum().item() == 7
    m = layer(rl)
    p.random_structured(m, "weight", 2, dim=1)
    assert m.weight_mask.sum(0).tolist().count(3.0) == 2
    m = layer(rl)
    p.custom_from_mask(m, "bias", rl.tensor([1, 0, 1]))
    assert m.bias.tolist() == pytest.approx([0.1, 0.0, 0.35])


def test_what_is_refused_leaves_the_module_as_it_was(oracle):
    for lib in (rl, oracle):
        p, m = prune_of(lib), layer(lib)
        for error, call in (
            (ValueError, lambda: p.l1_unstructured(m, "weight", 1.5)),
            (ValueError, lambda: p.l1_unstructured(m, "weight", -1)),
            (ValueError, lambda: p.l1_unstructured(m, "weight", 100)),
            (TypeError, lambda: p.l1_unstructured(m, "weight", "a")),
            (ValueError, lambda: p.ln_structured(m, "bias", 1, 2, 0)),
            (ValueError, lambda: p.remove(m, "weight")),
        ):
            with pytest.raises(error):
                call()
        assert sorted(k for k, _ in m.named_parameters()) == ["bias", "weight"]
        assert not p.is_pruned(m)
