"""Lazy modules and parameters without a shape: what the first call makes of them, checkpoints both
ways, refusals."""

import copy
import pickle

import pytest

import rushlight
from rushlight import nn

CASES = {
    "LazyLinear(3)": (2, 5),
    "LazyLinear(3, bias=False)": (5,),
    "LazyConv1d(4, 3, padding=1)": (2, 3, 6),
    "LazyConv2d(4, 3, groups=2)": (2, 4, 5, 5),
    "LazyConv3d(2, 2, bias=False)": (1, 3, 3, 3, 3),
    "LazyConvTranspose1d(4, 2, 2)": (2, 3, 6),
    "LazyConvTranspose2d(4, 3, groups=2, output_padding=1, stride=2)": (4, 5, 5),
    "LazyConvTranspose3d(2, 2)": (1, 3, 3, 3, 3),
    "LazyBatchNorm1d()": (4, 3),
    "LazyBatchNorm2d(affine=False)": (2, 3, 4, 4),
    "LazyBatchNorm3d(track_running_stats=False)": (2, 3, 2, 2, 2),
    "LazyInstanceNorm1d()": (2, 3, 4),
    "LazyInstanceNorm2d(affine=False, track_running_stats=False)": (2, 3, 4, 4),
    "LazyInstanceNorm3d(bias=False)": (2, 3, 2, 2, 2),
}


def made(library, expression):
    return eval(f"nn.{expression}", {"nn": library.nn})


def state(module):
    return {k: None if "Uninit" in type(v).__name__ else tuple(v.shape)
            for k, v in module.state_dict().items()}  # fmt: skip


@pytest.mark.filterwarnings("ignore:input's size at dim=1")  # the oracle, of an instance norm
@pytest.mark.parametrize("expression", CASES)
def test_the_first_call_gives_shapes(pair, expression):
    ours, theirs = (made(library, expression) for library in (rushlight, pair.oracle))
    assert repr(ours) == repr(theirs)
    assert state(ours) == state(theirs)
    assert ours.has_uninitialized_params() == theirs.has_uninitialized_params()
    x = pair.make(*CASES[expression], seed=3)
    a, b = ours(x[0]), theirs(x[1])
    assert type(ours).__name__ == type(theirs).__name__ and type(ours) is ours.__class__
    assert repr(ours) == repr(theirs) and state(ours) == state(theirs)
    assert tuple(a.shape) == tuple(b.shape)
    ours.load_state_dict(
        {k: rushlight.tensor(v.tolist(), dtype=getattr(rushlight, str(v.dtype)[6:]))
         for k, v in theirs.state_dict().items()}
    )  # fmt: skip
    pair.assert_same(ours(x[0]), theirs(x[1]), 1e-5)
    assert not ours._forward_pre_hooks and not ours._load_state_dict_pre_hooks


@pytest.mark.parametrize("expression", CASES)
def test_a_checkpoint_gives_shapes(expression):
    rushlight.manual_seed(0)
    first, second = made(rushlight, expression), made(rushlight, expression)
    x = rushlight.randn(*CASES[expression])
    first(x)
    second.load_state_dict(first.state_dict())
    assert not second.has_uninitialized_params()
    if "Instance" in expression and first.affine:  # PyTorch's says so too
        with pytest.raises(ValueError, match="num_features=0"):
            second(x)
        return
    assert second(x).tolist() == first(x).tolist()


def test_a_tree_of_them_trains_moves_and_copies():
    net = nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
    )
    assert len(list(net.parameters())) == 6
    net = pickle.loads(pickle.dumps(copy.deepcopy(net.to(rushlight.float64))))
    optimizer = rushlight.optim.SGD(net.parameters(), lr=0.1)  # before the shapes are known
    x = rushlight.randn(2, 3, 5, 5, dtype=rushlight.float64)
    net(x).sum().backward()
    before = net[4].weight.tolist()
    optimizer.step()
    assert net[4].weight.dtype is rushlight.float64 and net[4].weight.tolist() != before
    assert type(net[0]) is nn.Conv2d and type(net[1].running_mean) is nn.Buffer


def test_two_without_shapes():
    first, second = nn.LazyLinear(2), nn.LazyLinear(2)
    assert str(second.load_state_dict(first.state_dict())) == "<All keys matched successfully>"
    second(rushlight.ones(1, 3))
    with pytest.raises(RuntimeError, match="shape of an uninitialized"):
        second.load_state_dict(first.state_dict())


QUESTIONS = [
    "p.shape",
    "p + 1",
    "p.numel()",
    "p.dim()",
    "p.size()",
    "p.clone()",
    "p.detach()",
    "p.requires_grad",
    "p.device.type",
    "p.is_leaf",
    "p.grad",
    "len(p)",
    "p[0]",
    "p.mean()",
    "p.zero_()",
    "p.share_memory_()",
    "str(p)",
    "p.ndim",
    "p.is_floating_point()",
    "p @ p",
]


@pytest.mark.parametrize("kind", ["UninitializedParameter", "UninitializedBuffer"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_may_be_asked(oracle, question, kind):
    answers = []
    for library in (rushlight, oracle):
        p = getattr(library.nn.parameter, kind)()
        assert library.nn.parameter.is_lazy(p)
        try:
            answers.append(str(eval(question)).replace("rushlight", "torch"))
        except Exception as error:
            answers.append(type(error))
    assert answers[0] == answers[1]


def test_materialize():
    p = nn.UninitializedParameter(dtype=rushlight.float64)
    p.materialize((2, 3))
    assert type(p) is nn.Parameter and p.shape == (2, 3) and p.dtype is rushlight.float64
    assert p.is_leaf and p.requires_grad
    b = nn.UninitializedBuffer(persistent=False)
    b.materialize((2,), dtype=rushlight.int64)
    assert type(b) is nn.Buffer and not b.persistent and b.dtype is rushlight.int64


def test_refusals():
    with pytest.raises(RuntimeError, match="3 dims, or 4 in a batch"):
        nn.LazyConv2d(2, 3)(rushlight.ones(2, 3))
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        nn.LazyConv2d(2, 3, groups=2)(rushlight.ones(1, 3, 4, 4))

    class Silent(nn.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.UninitializedParameter()

        def initialize_parameters(self, x):
            pass

        def forward(self, x):
            return x

    with pytest.raises(RuntimeError, match="Silent has not been fully initialized"):
        Silent()(rushlight.ones(1))


def test_compiled_before_its_first_call():
    net = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    compiled, x = rushlight.compile(net, backend="eager"), rushlight.randn(2, 4)
    first = compiled(x)
    assert type(net[0]) is nn.Linear
    assert first.tolist() == compiled(x).tolist() == net(x).tolist()
