"""`rushlight.jit`: programs for TorchScript run as they are."""

import pytest

import rushlight
from rushlight import nn


def test_script_and_trace_give_back_what_they_were_given():
    @rushlight.jit.script
    def double(x: rushlight.Tensor) -> rushlight.Tensor:
        return x * 2

    assert double(rushlight.ones(2)).tolist() == [2.0, 2.0]
    net = nn.Linear(2, 3)
    assert rushlight.jit.script(net) is net
    assert rushlight.jit.trace(net, rushlight.ones(1, 2)) is net
    assert rushlight.jit.trace_module(net, {"forward": rushlight.ones(1, 2)}) is net
    for made in (double, net, rushlight.jit.trace(double, rushlight.ones(2))):
        assert not isinstance(made, (rushlight.jit.ScriptModule, rushlight.jit.ScriptFunction))
    with pytest.raises(RuntimeError):  # the example does not fit
        rushlight.jit.trace(net, rushlight.ones(1, 5))
    with pytest.raises(RuntimeError, match="example_inputs"):
        rushlight.jit.trace(net)
    with pytest.raises(TypeError):
        rushlight.jit.script(3)


def test_marks_of_torchscript_change_nothing():
    class Net(rushlight.jit.ScriptModule):
        __constants__ = ["n"]

        @rushlight.jit.script_method
        def forward(self, x):
            return self.left(x) + self.right(x)

        @rushlight.jit.ignore
        def left(self, x):
            return x

        @rushlight.jit.ignore(drop=True)
        def right(self, x):
            return rushlight.jit.annotate(rushlight.Tensor, x)

    assert Net()(rushlight.ones(1)).tolist() == [2.0]
    assert not rushlight.jit.is_scripting() and not rushlight.jit.is_tracing()
    assert rushlight.jit.isinstance([1], list) and not rushlight.jit.isinstance([1], (dict, int))
    assert rushlight.jit.wait(rushlight.jit.fork(max, 1, 2)) == 2
    with pytest.raises(RuntimeError, match="evaluation"):
        rushlight.jit.freeze(nn.Linear(1, 1))


def test_archives_are_refused(tmp_path):
    for call in (
        lambda: rushlight.jit.save(nn.Linear(1, 1), tmp_path / "a.pt"),
        lambda: rushlight.jit.load(tmp_path / "a.pt"),
    ):
        with pytest.raises(NotImplementedError, match="state_dict"):
            call()
