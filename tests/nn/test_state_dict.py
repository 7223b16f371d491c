"""state_dict and load_state_dict: PyTorch's keys, results and texts; a state that does not fit
changes nothing.
"""

import re
from collections import OrderedDict

import pytest

import rushlight
from rushlight import nn


def net(module=nn):
    return module.Sequential(
        OrderedDict(first=module.Linear(2, 3), second=module.Sequential(module.LayerNorm(3)))
    )


def values(module):
    return {key: tensor.tolist() for key, tensor in module.state_dict().items()}


def spoiled(library, module):
    """Ways in which a state dictionary does not fit."""
    good = {key: tensor.detach() + 1 for key, tensor in net(module).state_dict().items()}

    def without(*names):
        return {key: tensor for key, tensor in good.items() if key not in names}

    ones = library.ones
    return {
        "missing": without("first.bias"),
        "two missing": without("first.bias", "second.0.weight"),
        "empty": {},
        "extra": {**good, "third.weight": ones(1)},
        "extra at the top": {**good, "weight": ones(1), "more": ones(2)},
        "extra inside": {**good, "first.scale": ones(1), "second.0.x.y": ones(1)},
        "shape": {**good, "first.weight": ones(3, 3)},
        "rank": {**good, "first.bias": ones(3, 1)},
        "two shapes": {**good, "first.weight": ones(1), "second.0.bias": ones(4)},
        "no tensor": {**good, "first.weight": [1.0]},
        "everything": {**without("first.bias"), "first.weight": ones(1), "more": ones(1)},
    }


CASES = list(spoiled(rushlight, nn))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_result_or_refusal_as_the_oracles(oracle, case, strict):
    """The same missing and unexpected keys, or an error that names the same keys."""
    outcomes = []
    for library, module in ((rushlight, nn), (oracle, oracle.nn)):
        model = net(module)
        try:
            keys = model.load_state_dict(spoiled(library, module)[case], strict=strict)
            outcomes.append((keys.missing_keys, keys.unexpected_keys, repr(keys)))
        except RuntimeError as error:
            assert str(error).startswith("Error(s) in loading state_dict for Sequential:")
            names = r"(?:first|second|third|weight|more)[.\w]*"
            outcomes.append(set(re.findall(names, str(error))))
    ours, theirs = (
        keys if isinstance(keys, set) else (*keys[:2], keys[2].replace("_Incom", "Incom"))
        for keys in outcomes
    )
    assert ours and ours == theirs


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_refused_state_changes_nothing(case, assign):
    model = net()
    before, identities = values(model), [id(p) for p in model.parameters()]
    with pytest.raises(RuntimeError, match="Error\\(s\\) in loading state_dict for Sequential"):
        model.load_state_dict(spoiled(rushlight, nn)[case], assign=assign)
    assert values(model) == before
    assert [id(p) for p in model.parameters()] == identities


def test_not_strict_loads_what_fits():
    model, other = net(), net()
    state = {k: t for k, t in other.state_dict().items() if k != "first.bias"}
    bias = model.first.bias.tolist()
    keys = model.load_state_dict({**state, "more": rushlight.ones(1)}, strict=False)
    assert keys.missing_keys == ["first.bias"] and keys.unexpected_keys == ["more"]
    assert model.first.weight.tolist() == other.first.weight.tolist()
    assert model.first.bias.tolist() == bias


def test_not_a_dictionary():
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got <class 'int'>"):
        net().load_state_dict(3)


def test_copies_convert_and_keep_identity():
    model = net()
    weight = model.first.weight
    state = {k: (t + 1).to(rushlight.float64) for k, t in net().state_dict().items()}
    model.load_state_dict(state)
    assert model.first.weight is weight and weight.dtype == rushlight.float32
    assert weight.tolist() == state["first.weight"].tolist()
    assert weight.requires_grad and weight.is_leaf


def test_assign_takes_the_tensors_over():
    model = net()
    model.first.bias.requires_grad_(False)
    state = {k: t.clone().to(rushlight.float64) for k, t in net().state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert model.first.weight.dtype == rushlight.float64
    assert model.first.weight.data_ptr() == state["first.weight"].data_ptr()
    assert isinstance(model.first.weight, nn.Parameter) and model.first.weight.requires_grad
    assert not model.first.bias.requires_grad


def test_state_shares_memory_and_is_detached():
    model = net()
    state = model.state_dict()
    assert not state["first.weight"].requires_grad
    with rushlight.no_grad():
        model.first.weight.fill_(3.0)
    assert state["first.weight"].tolist() == [[3.0, 3.0]] * 3
    kept = model.state_dict(keep_vars=True)
    assert kept["first.weight"] is model.first.weight
    assert list(model.state_dict(prefix="a."))[0] == "a.first.weight"


def test_metadata_holds_versions(oracle):
    assert dict(net().state_dict()._metadata) == dict(net(oracle.nn).state_dict()._metadata)


def test_a_scalar_takes_a_vector_of_one():
    model = nn.Module()
    model.scale = nn.Parameter(rushlight.tensor(1.0))
    model.load_state_dict({"scale": rushlight.tensor([5.0])})
    assert model.scale.item() == 5.0
    with pytest.raises(RuntimeError, match="size mismatch for scale"):
        model.load_state_dict({"scale": rushlight.ones(2)})


def test_buffers():
    model = nn.Module()
    model.register_buffer("kept", rushlight.arange(3))
    model.register_buffer("dropped", rushlight.ones(1), persistent=False)
    model.register_buffer("none", None)
    assert list(model.state_dict()) == ["kept"]
    model.load_state_dict({"kept": rushlight.tensor([5, 6, 7])})
    assert model.kept.tolist() == [5, 6, 7]
    with pytest.raises(RuntimeError, match='Unexpected key.*"dropped"'):
        model.load_state_dict({"kept": rushlight.arange(3), "dropped": rushlight.ones(1)})


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.calls = 0

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


def test_extra_state():
    model, other = Counted(), Counted()
    model.calls = 7
    state = model.state_dict()
    assert state["_extra_state"] == {"calls": 7}
    other.load_state_dict(state)
    assert other.calls == 7
    del state["_extra_state"]
    with pytest.raises(RuntimeError, match='Missing key.*"_extra_state"'):
        other.load_state_dict(state)
    with pytest.raises(RuntimeError, match='Unexpected key.*"_extra_state"'):
        nn.Sequential().load_state_dict({"_extra_state": 1})


def test_hooks_of_saving():
    model = net()
    seen = []
    model.first.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(prefix))
    model.register_state_dict_post_hook(lambda m, state, prefix, meta: state.update(more=1))
    assert model.state_dict()["more"] == 1
    assert seen == ["first."]
    bad = net()
    bad.register_state_dict_post_hook(lambda m, state, prefix, meta: state)
    with pytest.raises(RuntimeError, match="must return None"):
        bad.state_dict()


def test_hooks_of_loading():
    model = net()

    def rename(m, state, prefix, meta, strict, missing, unexpected, errors):
        assert m is model.first
        state[prefix + "weight"] = state.pop(prefix + "kernel")

    model.first.register_load_state_dict_pre_hook(rename)
    state = net().state_dict()
    state["first.kernel"] = state.pop("first.weight")
    seen = []
    handle = model.register_load_state_dict_post_hook(lambda m, keys: seen.append(keys))
    model.load_state_dict(state)
    assert len(seen) == 1 and seen[0].missing_keys == []
    assert model.first.weight.tolist() == state["first.kernel"].tolist()
    assert "first.kernel" in state  # the caller's dictionary is as before
    handle.remove()
    model.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    del state["first.bias"]
    model.load_state_dict(state)


def test_a_module_may_load_its_own_way():
    class Doubled(nn.Linear):
        def _load_from_state_dict(self, state, prefix, *rest):
            state[prefix + "weight"] = state[prefix + "weight"] * 2
            super()._load_from_state_dict(state, prefix, *rest)

    model = nn.Sequential(Doubled(1, 1))
    model.load_state_dict({"0.weight": rushlight.ones(1, 1), "0.bias": rushlight.ones(1)})
    assert model[0].weight.item() == 2.0
