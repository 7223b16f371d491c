"""Streams of random numbers: seeds, generators, their states, and what checkpoints keep of them."""

import copy
import pickle

import pytest

import rushlight


def drawn(n=4, **kwargs):
    return rushlight.rand(n, **kwargs).tolist()


def test_a_seed_fixes_the_stream():
    assert rushlight.manual_seed(7) is rushlight.default_generator
    first, second = drawn(), drawn()
    assert first != second
    rushlight.manual_seed(7)
    assert (drawn(), drawn()) == (first, second)
    rushlight.manual_seed(8)
    assert drawn() != first


@pytest.mark.parametrize("seed", [0, 5, -1, -(2**63), 2**63, 2**64 - 1])
def test_seeds_as_the_oracles(oracle, seed):
    rushlight.manual_seed(seed)
    oracle.manual_seed(seed)
    assert rushlight.initial_seed() == oracle.initial_seed()
    drawn()
    assert rushlight.initial_seed() == oracle.initial_seed()


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_out_of_range(oracle, seed):
    for library in (rushlight, oracle):
        with pytest.raises((RuntimeError, ValueError)):
            library.manual_seed(seed)


def test_seeds_of_the_system_differ():
    assert rushlight.seed() != rushlight.seed()
    assert rushlight.initial_seed() == rushlight.random.initial_seed()
    g = rushlight.Generator()
    assert g.seed() == g.initial_seed() != rushlight.Generator().initial_seed()


def test_the_state_can_be_put_back():
    rushlight.manual_seed(1)
    drawn(3)
    state = rushlight.get_rng_state()
    assert state.dtype is rushlight.uint8
    expected = drawn(5), rushlight.randn(3).tolist(), rushlight.randperm(6).tolist()
    rushlight.manual_seed(99)
    rushlight.set_rng_state(state)
    assert (drawn(5), rushlight.randn(3).tolist(), rushlight.randperm(6).tolist()) == expected
    for bad in (rushlight.zeros(16), rushlight.zeros(3, dtype=rushlight.uint8), b"x" * 16):
        with pytest.raises((RuntimeError, TypeError)):
            rushlight.set_rng_state(bad)


def test_generators_are_streams_of_their_own():
    g = rushlight.Generator(device="cpu").manual_seed(3)
    assert g.device == rushlight.device("cpu")
    before = rushlight.get_rng_state().tolist()
    a = drawn(generator=g)
    assert rushlight.get_rng_state().tolist() == before
    assert drawn(generator=g) != a
    assert drawn(generator=rushlight.Generator().manual_seed(3)) == a
    rushlight.manual_seed(3)
    assert drawn() == a  # the same seed is the same stream
    with pytest.raises(RuntimeError, match="not available"):
        rushlight.Generator("cuda")


def test_states_move_between_generators():
    g = rushlight.Generator().manual_seed(3)
    drawn(generator=g)
    other = rushlight.Generator().set_state(g.get_state())
    copies = (other, g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g)))
    expected = drawn(generator=g)
    for each in copies:
        assert drawn(generator=each) == expected and each.initial_seed() == 3


def test_a_forked_stream_leaves_the_outer_one():
    rushlight.manual_seed(5)
    with rushlight.random.fork_rng():
        rushlight.manual_seed(6)
        inside = drawn()
    after = drawn()
    rushlight.manual_seed(5)
    assert drawn() == after != inside
    rushlight.manual_seed(5)
    with pytest.raises(KeyError):
        with rushlight.random.fork_rng():
            drawn()
            raise KeyError
    assert drawn() == after
    rushlight.manual_seed(5)
    with rushlight.random.fork_rng(enabled=False):
        drawn()
    assert drawn() != after


def test_states_survive_checkpoints(tmp_path, oracle):
    rushlight.manual_seed(5)
    drawn(3)
    generator = rushlight.Generator().manual_seed(8)
    state = {"default": rushlight.get_rng_state(), "own": generator.get_state()}
    rushlight.save(state, tmp_path / "rng.pt")
    expected = drawn(), drawn(generator=generator)
    loaded = rushlight.load(tmp_path / "rng.pt")
    rushlight.set_rng_state(loaded["default"])
    generator.set_state(loaded["own"])
    assert (drawn(), drawn(generator=generator)) == expected
    assert oracle.load(tmp_path / "rng.pt")["default"].tolist() == state["default"].tolist()
