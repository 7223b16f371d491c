"""What is written where: over operands, into inputs and slices, in one block; and what is refused
because index expressions do not prove it."""

import numpy as np
import pytest

import rushlight as rl
from rushlight import fx, trace
from rushlight.decomposition import decompose
from rushlight.inductor.access import Access, disjoint, one_to_one, same_place
from rushlight.inductor.memory_plan import assign_offsets
from rushlight.inductor.pipeline import compile_graph
from rushlight.ops import TABLE
from rushlight.ops.layouts import dense
from rushlight.sym import ShapeEnv

from ..graphs import bits, same


def x(*shape):
    return rl.randn(*shape)


def written(fn, *inputs):
    """fn writes to its inputs: compiled on copies; results and inputs equal eager's. The records
    of fusion and the program's text."""
    theirs, ours = [i.clone() for i in inputs], [i.clone() for i in inputs]
    with trace.collect("fusion", "wrapper") as records:
        got = rl.compile(fn)(*ours)
    want = fn(*theirs)
    assert [bits(a) for a in (got, *ours)] == [bits(a) for a in (want, *theirs)]
    reasons = {r.name for r in records if r.kind == "reason"}
    return reasons, "\n".join(r.text() if callable(r.text) else r.text for r in records)


# ---- index expressions


def at(shape, strides, offset=0):
    return Access(shape, strides, offset)


def test_places_are_compared_as_index_expressions():
    a = at((4, 6), (6, 1))
    assert same_place(a, at((4, 6), (6, 1))) and not same_place(a, at((4, 6), (6, 1), 6))
    assert same_place(at((4, 1), (6, 1)), at((4, 1), (6, 9)))
    assert not same_place(at((4, 4), (4, 1)), at((4, 4), (1, 4)))
    s = ShapeEnv().size("s", 5)
    assert same_place(at((s, 4), (4, 1)), at((s, 4), (4, 1)))
    assert not same_place(at((s, 4), (4, 1)), at((s, 4), (4, 1), s))


def test_ranges_and_residues_prove_places_apart():
    assert disjoint(at((3,), (1,)), at((3,), (1,), 3)) and not disjoint(
        at((3,), (1,)), at((3,), (1,), 2)
    )
    assert disjoint(at((5,), (2,)), at((5,), (2,), 1)) and not disjoint(
        at((5,), (2,)), at((5,), (2,), 2)
    )
    assert disjoint(at((0,), (1,)), at((9,), (1,)))
    assert not disjoint(at((ShapeEnv().size("s", 5),), (1,)), at((3,), (1,), 100))


def test_what_is_written_must_be_one_place_an_element():
    assert one_to_one(at((4, 6), (6, 1))) and one_to_one(at((4, 6), (1, 4)))
    assert not one_to_one(at((4, 6), (0, 1))) and not one_to_one(at((4, 6), (3, 1)))
    s = ShapeEnv().size("s", 5)
    assert one_to_one(at((s, 4), (4, 1))) and not one_to_one(at((4, s), (4, 1)))


# ---- writes, proved and refused


def test_rows_shifted_over_themselves_are_not_written_in_place():
    def shift(a):
        a[1:] = a[:-1] * 2 + 1
        return a

    def turn(a):
        a.copy_(rl.exp(a.t()) + 1)
        return a

    written(shift, x(6, 6))
    reasons, _ = written(turn, x(6, 6))
    assert "fusion.overlap" in reasons


def test_a_pass_that_reads_again_is_not_written_in_place():
    def normalised(a):
        a.copy_(a - (a * 2).mean(1, True))
        return a

    written(normalised, x(6, 7))
    written(lambda a: a.mul_(2).add_(rl.softmax(a, -1)), x(6, 7))


def test_halves_that_do_not_meet():
    def f(a):
        a[::2] = a[1::2] * 2 + 1
        return a

    written(f, x(6, 6))


def test_what_is_put_into_a_slice_is_computed_there():
    def cache(keys, k):
        keys[:, 2] = k * 2 + 1
        return keys + 1

    _, text = written(cache, x(6, 6), x(6))
    assert "copy_" not in text.split("def ")[-1]

    def reads_it(keys, k):
        keys[1:3] = keys[2:4] * 2 + k
        return keys + 1

    reasons, _ = written(reads_it, x(6, 6), x(6))
    assert "fusion.overlap" in reasons

    def read_between(a, k):
        y = a * 2 + 1
        z = (y @ y)[0]
        y[1:3] = k * 3 - 1
        return y + z

    written(read_between, x(6, 6), x(2, 6))


def test_index_writes_change_what_dies():
    def put(y, i, k):
        op = TABLE["index_write"]
        return (op.native if hasattr(y, "data_ptr") else op)(y, [i], k, (0,), False)

    inputs = x(6, 6), x(3, 6), rl.from_numpy(np.array([5, 0, 2]))
    for f, held in (
        (lambda a, k, i: put(a * 2 + 1, i, k), True),
        (lambda a, k, i: put(a, i, k * 2 + 1), False),
        (lambda a, k, i: (lambda y: (put(y, i, k), y))(a * 2 + 1), False),
        (lambda a, k, i: (lambda y: put(y, i, y[:3]))(a * 2 + 1), False),
    ):
        c = compile_graph(decompose(fx.trace(f, *inputs)))
        assert ("index_write_(" in c.text) == held, c.text
        same(c(*inputs), f(*inputs))


# ---- one block


def network(a, v, w, b):
    h = rl.relu(a @ v + b) * 2
    h = rl.relu(h @ w + b) * 2
    h = rl.softmax(h @ v, -1) + a
    return h @ w


def test_a_call_allocates_its_block_and_its_results():
    inputs = x(8, 16), x(16, 16), x(16, 16), x(16)
    c = compile_graph(decompose(fx.trace(network, *inputs)))
    assert c.text.count("workspace()") == 1
    assert c.memory.workspace == 2 * 8 * 16 * 4  # two values are alive at once, at most
    same(c(*inputs), network(*inputs))
    rl._core.plan_stats()
    before = rl._core.allocator_stats()["allocations"]
    c(*inputs)
    assert rl._core.allocator_stats()["allocations"] - before == 2


def test_places_alive_together_do_not_overlap():
    inputs = x(8, 16), x(16, 16), x(16, 16), x(16)
    places = compile_graph(decompose(fx.trace(network, *inputs))).memory.places
    assert len(places) == 3
    for i, p in enumerate(places):
        for q in places[:i]:
            if p.first <= q.last and q.first <= p.last:
                assert p.offset + p.bytes <= q.offset or q.offset + q.bytes <= p.offset


def test_offsets_are_the_lowest_that_are_free():
    offsets, end = assign_offsets([100, 50, 100, 10], [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert offsets == [0, 128, 0, 192] and end == 202
    assert assign_offsets([], []) == ([], 0)


def test_a_block_for_each_set_of_sizes():
    env = ShapeEnv()
    n = env.size("n", 8)
    layouts = (
        dense((n, 16), "float32"),
        *(dense((16, 16), "float32"),) * 2,
        dense((16,), "float32"),
    )
    c = compile_graph(decompose(fx.trace(network, *layouts)))
    assert "workspace(n)" in c.text
    for rows in (8, 3, 40, 8):
        inputs = x(rows, 16), x(16, 16), x(16, 16), x(16)
        same(c(*inputs), network(*inputs))


def test_results_do_not_lie_in_the_block():
    def f(a, b):
        y = rl.exp(a @ b) + 1
        z = rl.tanh(y @ b) * 2
        return y, (z @ b)[0]

    inputs = x(8, 8), x(8, 8)
    c = compile_graph(decompose(fx.trace(f, *inputs)))
    first = c(*inputs)
    kept = [bits(t) for t in first]
    for _ in range(3):
        c(x(8, 8), x(8, 8))
    assert [bits(t) for t in first] == kept


def test_a_place_outside_its_block_is_refused():
    with pytest.raises(ValueError, match="does not lie in 64 bytes"):
        rl._core.Workspace(64, [(32, (3, 4), (4, 1), rl.float32)])
    with pytest.raises(ValueError, match="does not lie"):
        rl._core.Workspace(64, [(2, (3,), (1,), rl.float32)])
    with pytest.raises(TypeError):
        rl._core.Workspace(64, [(2, 3)])
    (place,) = rl._core.Workspace(64, [(16, (3, 4), (4, 1), rl.float32)])()
    assert place.storage_offset() == 4
