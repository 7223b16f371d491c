"""Groups, errors, hooks, closures and saving of Optimizer."""

import copy
import pickle

import pytest

import rushlight
from rushlight import optim

BAD = [
    ("SGD", {"lr": -1}),
    ("SGD", {"momentum": -1}),
    ("SGD", {"weight_decay": -0.5}),
    ("SGD", {"nesterov": True}),
    ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
    ("SGD", {"fused": True, "foreach": True}),
    ("Adam", {"lr": -1}),
    ("Adam", {"eps": -1}),
    ("Adam", {"betas": (1.0, 0.9)}),
    ("Adam", {"betas": (0.9, -1)}),
    ("AdamW", {"weight_decay": -1}),
]


def parameter(library=rushlight, value=1.0):
    return library.tensor([value, value]).requires_grad_()


def failure(function):
    """The type name of what ``function`` raises; its text is the library's own."""
    with pytest.raises(Exception) as caught:
        function()
    assert str(caught.value)
    return caught.type.__name__


@pytest.mark.parametrize(("name", "options"), BAD)
def test_bad_options_fail_as_the_oracles(oracle, name, options):
    ours = failure(lambda: getattr(optim, name)([parameter()], **options))
    theirs = failure(lambda: getattr(oracle.optim, name)([parameter(oracle)], **options))
    assert ours == theirs


def bad_groups(library, module):
    p = parameter(library)
    sgd = module.SGD
    return {
        "empty": lambda: sgd([]),
        "no tensor": lambda: sgd([1]),
        "no leaf": lambda: sgd([p * 2]),
        "twice": lambda: sgd([{"params": [p]}, {"params": [p]}]),
        "set": lambda: sgd([{"params": {p}}]),
        "no dict": lambda: sgd([p]).add_param_group(3),
        "some names": lambda: sgd([("a", p), parameter(library)]),
        "groups differ": lambda: sgd([p]).load_state_dict({"param_groups": [], "state": {}}),
        "sizes differ": lambda: sgd([p]).load_state_dict(sgd([p, parameter(library)]).state_dict()),
    }


@pytest.mark.parametrize("case", bad_groups(rushlight, optim))
def test_bad_groups_fail_as_the_oracles(oracle, case):
    ours = failure(bad_groups(rushlight, optim)[case])
    theirs = failure(bad_groups(oracle, oracle.optim)[case])
    assert ours == theirs


def test_one_tensor_is_no_list():
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts"):
        optim.SGD(parameter())


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_repr(oracle, name):
    ours = getattr(optim, name)([parameter()])
    theirs = getattr(oracle.optim, name)([parameter(oracle)])
    assert repr(ours) == repr(theirs)


def test_groups_have_their_own_options():
    a, b = parameter(), parameter()
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    a.grad, b.grad = rushlight.ones(2), rushlight.ones(2)
    optimizer.step()
    assert abs(a.tolist()[0] - 0.9) < 1e-7
    assert abs(b.tolist()[0] - 0.5) < 1e-7
    c = parameter()
    group = {"params": c}
    optimizer.add_param_group(group)
    assert group == {"params": c}
    assert optimizer.param_groups[2]["lr"] == 0.1


def test_named_parameters():
    optimizer = optim.SGD([("a", parameter()), ("b", parameter())])
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["a", "b"]


def test_parameters_without_gradient_stay():
    a, b = parameter(), parameter()
    a.grad = rushlight.ones(2)
    optim.AdamW([a, b], lr=0.1).step()
    assert a.tolist() != [1.0, 1.0]
    assert b.tolist() == [1.0, 1.0]


def test_step_leaves_no_history():
    p = parameter()
    p.grad = rushlight.ones(2)
    optim.Adam([p]).step()
    assert p.is_leaf and p.requires_grad and p.grad_fn is None


def test_zero_grad():
    p = parameter()
    optimizer = optim.SGD([p])
    (p * p).sum().backward()
    kept = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is kept and p.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None


def test_closure_runs_with_gradients_on():
    p = parameter()
    optimizer = optim.SGD([p], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with rushlight.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 2.0
    assert p.tolist() == [0.5, 0.5]


def test_hooks_run_in_order_and_can_be_removed():
    p = parameter()
    optimizer = optim.SGD([p])
    seen = []
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    optimizer.step()
    before.remove()
    before.remove()
    optimizer.step()
    assert seen == ["before", "after", "after"]
    optimizer.register_state_dict_post_hook(lambda o, state: dict(state, more=1))
    assert optimizer.state_dict()["more"] == 1


def test_pickle_and_deepcopy():
    p = parameter()
    optimizer = optim.Adam([p], lr=0.1)
    p.grad = rushlight.ones(2)
    optimizer.step()
    copied = copy.deepcopy(optimizer)
    assert copied.param_groups[0]["params"][0] is not p
    assert copied.state_dict()["state"][0]["step"].item() == 1
    loaded = pickle.loads(pickle.dumps(optimizer))
    q = loaded.param_groups[0]["params"][0]
    q.grad = rushlight.ones(2)
    p.grad = rushlight.ones(2)
    optimizer.step()
    loaded.step()
    assert q.tolist() == p.tolist()


def test_failed_load_changes_nothing():
    p = parameter()
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    p.grad = rushlight.ones(2)
    optimizer.step()
    with pytest.raises(ValueError):
        optimizer.load_state_dict(optim.SGD([parameter(), parameter()], lr=7).state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.state[p]["momentum_buffer"].tolist() == [1.0, 1.0]


def test_loaded_state_is_a_copy_in_the_parameters_dtype():
    p = parameter()
    optimizer = optim.SGD([p], momentum=0.9)
    p.grad = rushlight.ones(2)
    optimizer.step()
    wide = rushlight.ones(2, dtype=rushlight.float64).requires_grad_()
    other = optim.SGD([wide], momentum=0.9)
    other.load_state_dict(optimizer.state_dict())
    buffer = other.state[wide]["momentum_buffer"]
    assert buffer.dtype == rushlight.float64
    buffer.add_(1)
    assert optimizer.state[p]["momentum_buffer"].tolist() == [1.0, 1.0]
