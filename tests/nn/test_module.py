"""Module's own behaviour: attributes and their errors, the tree, hooks, conversion, copies, the
change clock.
"""

import copy
import pickle

import pytest

import rushlight
from rushlight import nn
from rushlight.nn.module import change_clock


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.scale = nn.Parameter(rushlight.ones(2))
        self.register_buffer("count", rushlight.zeros(1))
        self.register_buffer("scratch", rushlight.ones(2), persistent=False)

    def forward(self, x, double=False):
        y = self.second(self.first(x)) * self.scale
        return y * 2 if double else y


# ---- attributes


def test_registration_and_order():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [
        "scale", "first.weight", "first.bias", "second.1.weight", "second.1.bias",
    ]  # fmt: skip
    assert [name for name, _ in net.named_buffers()] == ["count", "scratch"]
    assert [name for name, _ in net.named_modules()] == [
        "", "first", "second", "second.0", "second.1",
    ]  # fmt: skip
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert list(net.state_dict()) == [
        "scale", "count", "first.weight", "first.bias", "second.1.weight", "second.1.bias",
    ]  # fmt: skip
    assert "first" in dir(net) and "scale" in dir(net) and "count" in dir(net)


def test_names_move_between_kinds():
    net = Net()
    net.first = None
    assert net._modules["first"] is None
    net.first = nn.ReLU()
    net.scale = None
    assert net._parameters["scale"] is None and "scale" not in net.state_dict()
    del net.scale
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'scale'"):
        net.scale  # noqa: B018
    net.scale = 3
    net.scale = nn.Parameter(rushlight.ones(1))
    assert "scale" in net._parameters and "scale" not in net.__dict__
    net.count = rushlight.ones(1)
    assert net._buffers["count"].tolist() == [1.0]
    net.count = nn.Linear(1, 1)
    assert "count" not in net._buffers and "count" in net._modules
    net.plain = rushlight.ones(1)
    assert "plain" in net.__dict__ and "plain" not in net._buffers


def test_buffer_objects():
    net = nn.Module()
    net.kept = nn.Buffer(rushlight.ones(1))
    net.dropped = nn.Buffer(rushlight.ones(1), persistent=False)
    assert list(net.state_dict()) == ["kept"]
    assert [name for name, _ in net.named_buffers()] == ["kept", "dropped"]


def mistakes(library, module):
    net = module.Linear(2, 2)
    net.register_buffer("buffer", library.ones(1))
    net.child = module.ReLU()
    empty = module.Module.__new__(module.Module)
    grown = library.ones(2).requires_grad_() * 2
    set_ = setattr
    return {
        "parameter to int": lambda: set_(net, "weight", 3),
        "child to int": lambda: set_(net, "child", 3),
        "buffer to int": lambda: set_(net, "buffer", 3),
        "no such": lambda: net.nothing,
        "delete no such": lambda: delattr(net, "nothing"),
        "before init, parameter": lambda: set_(empty, "w", module.Parameter(library.ones(1))),
        "before init, module": lambda: set_(empty, "m", module.ReLU()),
        "before init, buffer": lambda: module.Module.register_buffer(empty, "b", None),
        "parameter name": lambda: net.register_parameter(3, None),
        "parameter dot": lambda: net.register_parameter("a.b", None),
        "parameter empty": lambda: net.register_parameter("", None),
        "parameter exists": lambda: net.register_parameter("child", None),
        "parameter type": lambda: net.register_parameter("p", 3),
        "buffer name": lambda: net.register_buffer(3, None),
        "buffer dot": lambda: net.register_buffer("a.b", None),
        "buffer empty": lambda: net.register_buffer("", None),
        "buffer exists": lambda: net.register_buffer("weight", None),
        "module name": lambda: net.add_module(3, module.ReLU()),
        "module dot": lambda: net.add_module("a.b", module.ReLU()),
        "module empty": lambda: net.add_module("", module.ReLU()),
        "module exists": lambda: net.add_module("weight", module.ReLU()),
        "module type": lambda: net.add_module("m", 3),
        "no forward": lambda: module.Module()(1),
        "submodule": lambda: net.get_submodule("child.x"),
        "submodule kind": lambda: net.get_submodule("weight"),
        "parameter path": lambda: net.get_parameter("w"),
        "parameter kind": lambda: net.get_parameter("buffer"),
        "buffer path": lambda: net.get_buffer("w"),
        "buffer kind": lambda: net.get_buffer("weight"),
        "to int": lambda: net.to(library.int64),
        "train": lambda: net.train(1),
        "arguments": lambda: module.Module(3),
        "keywords": lambda: module.Module(a=3),
        "history": lambda: net.register_parameter("p", grown),
    }


@pytest.mark.parametrize("case", mistakes(rushlight, nn))
def test_mistakes_fail_as_the_oracles(oracle, assert_same_failure, case):
    if case == "history":  # not a Parameter: the type is the first complaint
        with pytest.raises(TypeError):
            mistakes(rushlight, nn)[case]()
        return
    assert_same_failure(mistakes(rushlight, nn)[case], mistakes(oracle, oracle.nn)[case])


# ---- the tree


def test_shared_modules_and_parameters_are_counted_once():
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, shared)
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert len(net.state_dict()) == 4
    assert len(list(net.children())) == 1


def test_paths():
    net = Net()
    assert net.get_submodule("second.1") is net.second[1]
    assert net.get_submodule("") is net
    assert net.get_parameter("second.1.bias") is net.second[1].bias
    assert net.get_buffer("count") is net.count
    new = nn.Linear(4, 2)
    net.set_submodule("second.1", new)
    assert net.second[1] is new


def test_apply_goes_children_first():
    seen = []
    Net().apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_train_eval_and_requires_grad():
    net = Net()
    assert net.eval() is net and not any(m.training for m in net.modules())
    assert all(m.training for m in net.train().modules())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_zero_grad():
    net = Net()
    net(rushlight.ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.first.weight.grad.tolist() == [[0.0] * 3] * 4
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


# ---- conversion


@pytest.mark.parametrize("name", ["double", "half", "bfloat16", "float"])
def test_conversion_keeps_identity(name):
    dtype = {"double": "float64", "half": "float16", "float": "float32"}.get(name, name)
    net = Net()
    net.register_buffer("ids", rushlight.arange(3))
    before = list(net.parameters())
    weight = net.first.weight.tolist()
    net(rushlight.ones(1, 3)).sum().backward()
    assert getattr(net, name)() is net
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert all(p.dtype == getattr(rushlight, dtype) and p.requires_grad for p in before)
    assert all(p.grad.dtype == p.dtype for p in before)
    assert net.count.dtype == getattr(rushlight, dtype)
    assert net.ids.dtype == rushlight.int64
    assert net.first.weight.tolist()[0] == pytest.approx(weight[0], rel=0.01)
    if name == "double":
        out = net(rushlight.ones(1, 3, dtype=rushlight.float64))
        assert out.dtype == rushlight.float64


def test_to_takes_pytorchs_forms():
    net = nn.Linear(2, 2)
    for arguments, keywords in [
        (("cpu",), {}),
        ((rushlight.float64,), {}),
        (("cpu", rushlight.float32), {}),
        ((), {"dtype": rushlight.float64, "device": "cpu"}),
        ((rushlight.ones(1, dtype=rushlight.float32),), {}),
    ]:
        assert net.to(*arguments, **keywords) is net
    assert net.weight.dtype == rushlight.float32


# ---- copies


def test_deepcopy_is_apart():
    net = Net()
    other = copy.deepcopy(net)
    x = rushlight.ones(1, 3)
    assert other(x).tolist() == net(x).tolist()
    with rushlight.no_grad():
        other.scale.add_(1)
    assert net.scale.tolist() == [1.0, 1.0]
    assert isinstance(other.scale, nn.Parameter) and other.scale.requires_grad


def test_deepcopy_keeps_ties():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    other = copy.deepcopy(net)
    assert other[1].weight is other[0].weight and other[0].weight is not net[0].weight


def test_pickle():
    net = Net().eval()
    net.register_forward_hook(print_nothing)
    other = pickle.loads(pickle.dumps(net))
    x = rushlight.ones(1, 3)
    assert other(x).tolist() == net(x).tolist()
    assert not other.training and list(other.state_dict()) == list(net.state_dict())
    assert len(other._forward_hooks) == 1
    parameter = pickle.loads(pickle.dumps(nn.Parameter(rushlight.ones(2), requires_grad=False)))
    assert isinstance(parameter, nn.Parameter) and not parameter.requires_grad


def print_nothing(module, args, result):
    return None


# ---- forward hooks


def test_forward_hooks_see_and_replace():
    net = Net()
    x = rushlight.ones(1, 3)
    plain = net(x).tolist()
    seen = []
    handles = [
        net.register_forward_pre_hook(lambda m, args: seen.append("pre")),
        net.register_forward_hook(lambda m, args, out: seen.append("post")),
        net.register_forward_pre_hook(lambda m, args: seen.append("first"), prepend=True),
        net.register_forward_hook(lambda m, args, out: out * 3),
        net.register_forward_pre_hook(
            lambda m, args, kwargs: (args, {**kwargs, "double": True}), with_kwargs=True
        ),
        net.register_forward_hook(
            lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True
        ),
    ]
    out = net(x)
    assert seen == ["first", "pre", "post", {"double": True}]
    assert out.tolist()[0] == pytest.approx([v * 6 for v in plain[0]])
    for handle in handles:
        handle.remove()
    assert net(x).tolist() == plain
    assert not net._forward_hooks and not net._forward_hooks_with_kwargs
    with net.register_forward_hook(lambda m, args, out: 7):
        assert net(x) == 7
    assert net(x).tolist() == plain


def test_a_single_replacement_is_wrapped():
    net = nn.Identity()
    net.register_forward_pre_hook(lambda m, args: args[0] + 1)
    assert net(rushlight.zeros(2)).tolist() == [1.0, 1.0]


def test_bad_pre_hook_result():
    net = nn.Identity()
    net.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        net(1)


def test_always_called_hooks_run_when_forward_fails():
    seen = []
    net = nn.Linear(2, 2)
    net.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(RuntimeError):
        net(rushlight.ones(3))
    assert seen == [None]


def test_hooks_of_one_module_are_not_anothers():
    a, b = nn.Identity(), nn.Identity()
    a.register_forward_hook(lambda m, args, out: 5)
    assert a(1) == 5 and b(1) == 1
    with pytest.raises(TypeError):
        b._forward_hooks[0] = print


# ---- backward hooks


def gradients_seen(library, module, change=None):
    """What the hooks of the inner layer see, and the gradients that result."""
    x = library.tensor([[1.0, 2.0]]).requires_grad_()
    layer = module.Linear(2, 2)
    with library.no_grad():
        layer.weight.copy_(library.tensor([[1.0, -1.0], [0.5, 2.0]]))
        layer.bias.fill_(0.0)
    seen = []

    def hook(m, grad_input, grad_output):
        seen.append([None if g is None else g.tolist() for g in (*grad_input, *grad_output)])
        return change and tuple(g * change for g in grad_input)

    layer.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 2,))
    layer.register_full_backward_hook(hook)
    (layer(x * 3) ** 2).sum().backward()
    return seen, x.grad.tolist(), layer.weight.grad.tolist()


@pytest.mark.parametrize("change", [None, 10])
def test_backward_hooks(oracle, change):
    ours = gradients_seen(rushlight, nn, change)
    assert len(ours[0]) == 1
    assert ours == gradients_seen(oracle, oracle.nn, change)


def test_backward_hook_of_several_inputs_and_outputs(oracle):
    def run(library, module):
        class Two(module.Module):
            def forward(self, a, flag, b):
                return a * b, a + b

        two, seen = Two(), []
        two.register_full_backward_hook(lambda m, i, o: seen.append((i, o)))
        a, b = (library.tensor([v, 2.0]).requires_grad_() for v in (1.0, 3.0))
        product, total = two(a, True, b)
        (product + 2 * total).sum().backward()
        values = [[None if g is None else g.tolist() for g in side] for side in seen[0]]
        return len(seen), values, a.grad.tolist(), b.grad.tolist()

    assert run(rushlight, nn) == run(oracle, oracle.nn)


def test_backward_hook_without_input_gradients():
    layer = nn.Linear(2, 1)
    seen = []
    layer.register_full_backward_hook(lambda m, i, o: seen.append((i, o[0].tolist())))
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        layer(rushlight.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0]])]


# ---- the change clock


def test_every_change_moves_the_clock():
    net = Net()
    changes = [
        lambda: setattr(net, "plain", 1),
        lambda: setattr(net, "plain", 1),
        lambda: delattr(net, "plain"),
        lambda: setattr(net, "scale", nn.Parameter(rushlight.ones(2))),
        lambda: setattr(net, "count", rushlight.ones(1)),
        lambda: setattr(net, "more", nn.ReLU()),
        lambda: delattr(net, "more"),
        lambda: net.register_buffer("b", None),
        lambda: net.register_parameter("p", None),
        lambda: net.add_module("m", None),
        lambda: net.register_forward_hook(print),
        lambda: net.eval(),
        lambda: net.double(),
        lambda: net.second.append(nn.ReLU()),
    ]
    for change in changes:
        before, stamp = change_clock(), net._changed_at
        change()
        assert change_clock() > before
        assert net._changed_at > stamp or change is changes[-1]
    assert net.second._changed_at == change_clock()


def test_calling_does_not_move_the_clock():
    net = Net()
    before = change_clock()
    net(rushlight.ones(1, 3)).sum().backward()
    net.state_dict()
    list(net.named_parameters())
    assert change_clock() == before
