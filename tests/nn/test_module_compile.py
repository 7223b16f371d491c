"""`Module.compile`: the module stays what it is, copies and pickles with it."""

import copy
import pickle

import rushlight as rl


def test_compiled_in_place():
    rl.manual_seed(0)
    m = rl.nn.Sequential(rl.nn.Linear(4, 4), rl.nn.ReLU())
    x = rl.randn(2, 4)
    want = m(x)
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm

    m.compile(backend=backend)
    assert m(x).equal(want) and len(seen) == 1
    m.register_forward_hook(lambda module, inputs, output: output + 1)
    assert m(x).equal(want + 1)
    assert list(m.state_dict()) == ["0.weight", "0.bias"] and type(m) is rl.nn.Sequential


def test_copies_use_their_own_parameters():
    m = rl.nn.Sequential(rl.nn.Linear(4, 4))
    m.compile(backend="eager")
    m(rl.ones(1, 4))
    other = copy.deepcopy(m)
    with rl.no_grad():
        other[0].weight.zero_()
        other[0].bias.zero_()
    assert other(rl.ones(1, 4)).tolist() == [[0.0] * 4]
    assert m(rl.ones(1, 4)).tolist() != [[0.0] * 4]
    back = pickle.loads(pickle.dumps(m))
    assert back(rl.ones(1, 4)).equal(m(rl.ones(1, 4)))
    m.compile(backend="eager")
    assert m(rl.ones(1, 4)).equal(back(rl.ones(1, 4)))
