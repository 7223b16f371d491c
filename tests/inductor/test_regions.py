"""What reads through fetches, views, concatenations and constants: in one kernel, with eager's
bits."""

import re
from pathlib import Path

import numpy as np
import pytest

import rushlight as rl
from rushlight import fx
from rushlight.decomposition import decompose
from rushlight.inductor.pipeline import compile_graph
from rushlight.nn import functional as F
from rushlight.ops import TABLE
from rushlight.ops.layouts import Layout
from rushlight.sym import ShapeEnv

from ..graphs import same


def call(name, *arguments):
    """An operator by its name, on tensors and on proxies."""
    flat = [x for a in arguments for x in (a if isinstance(a, list) else [a])]
    native = any(hasattr(x, "data_ptr") for x in flat)
    return (TABLE[name].native if native else TABLE[name])(*arguments)


def check(fn, *inputs, kernels=1, calls=0):
    c = compile_graph(decompose(fx.trace(fn, *inputs)))
    assert (len(c.kernels), len(c.steps) - len(c.kernels)) == (kernels, calls), c.text
    same(c(*inputs), fn(*inputs))
    return c


def x(*shape):
    return rl.randn(*shape)


def places(n, *shape, low=0):
    return rl.from_numpy(np.random.RandomState(0).randint(low, n, shape))


# ---- groups that join


def test_branches_are_one_kernel():
    check(lambda a, b: rl.exp(a) * 2 + rl.tanh(b) * 3, x(40, 30), x(40, 30))
    check(lambda a, b: rl.softmax(a, -1) + rl.tanh(b) * 3, x(40, 30), x(40, 30))
    check(lambda a, b: F.layer_norm(rl.exp(a), (30,)) + rl.softmax(b * 2, -1), x(40, 30), x(40, 30))


def test_a_branch_that_a_library_call_needs_stays_in_front():
    check(lambda a, b: rl.exp(a) * 2 + (rl.exp(a) * 2) @ b, x(8, 8), x(8, 8), kernels=1, calls=2)


def test_small_groups_that_share_nothing_are_one_kernel():
    check(lambda a, b, c: (rl.exp(a) * 2, rl.tanh(b) + 1, rl.exp(c)), x(9, 5), x(9, 5), x(9, 5))


def test_the_steps_of_an_optimiser_are_one_kernel():
    def adam(p, g, m, v):
        m, v = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
        return p - 0.1 * m / (rl.sqrt(v) + 1e-8), m, v

    def two(*given):
        return adam(*given[:4]) + adam(*given[4:])

    check(two, *(rl.rand(9, 5) for _ in range(8)))


def test_large_groups_that_share_nothing_stay_apart():
    check(lambda a, b: (rl.exp(a) * 2, rl.tanh(b) + 1), x(300, 500), x(300, 500), kernels=2)


# ---- fetches


def test_embedding_is_a_load():
    def block(words, places_, ids, weight):
        return F.layer_norm(F.embedding(ids, words) + places_, (40,), weight)

    check(block, x(50, 40), x(7, 40), places(50, 3, 7), x(40))
    check(
        lambda a, b, i: F.layer_norm(F.embedding(i, a) + F.embedding(i, b), (40,)),
        x(50, 40),
        x(50, 40),
        places(50, 7),
    )
    c = check(lambda w, i: F.embedding(i, w) * 2 + 1, x(50, 40), places(50, 3, 7))
    assert "#pragma omp simd" in c.source  # the index is checked once a row


def test_index_tensors_are_loads():
    check(lambda a, i: rl.exp(call("index", a, [i], (0,))) * 2, x(50, 4), places(50, 9, low=-50))
    check(
        lambda a, i, j: call("index", a, [i, j], (0, 1)) * 2 + 1,
        x(50, 40),
        places(9, 7),
        places(9, 7),
    )
    check(
        lambda a, i, j: call("index", a, [i, j], (1, 2)) * 2 + 1,
        x(6, 50, 40),
        places(9, 7, 1),
        places(9, 5),
    )
    check(
        lambda a, i, j: call("index", a, [i, j], (0, 2)) * 2 + 1,
        x(9, 5, 40),
        places(9, 7, 1),
        places(9, 5),
    )
    check(lambda a, i: call("index_select", a, 1, i) * 2 + 1, x(6, 50), places(50, 17))
    check(
        lambda a, i: call("index", a, [i], (0,)).to(rl.float64) * 2,
        x(9).to(rl.float16),
        places(9, 4),
    )
    check(lambda a, i: call("index", a, [i], (0,)) * 2 + 1, x(9, 8).t(), places(8, 4))


@pytest.mark.parametrize("bad", [50, -51])
def test_an_index_outside_is_told(bad):
    index = rl.from_numpy(np.array([3, bad]))
    f = lambda a, i: call("index", a, [i], (0,)) * 2 + 1
    c = compile_graph(decompose(fx.trace(f, x(50, 40), places(50, 2))))
    assert len(c.kernels) == 1
    with pytest.raises(IndexError):
        c(x(50, 40), index)
    g = lambda w, i: F.embedding(i, w) * 2 + 1
    c = compile_graph(decompose(fx.trace(g, x(50, 40), places(50, 2))))
    with pytest.raises(IndexError):
        c(x(50, 40), index)


def test_a_table_that_the_kernel_makes_is_whole_before_it_is_read():
    f = lambda a, i: call("index", rl.exp(a) * 2, [i], (0,)) * 2 + rl.exp(a) * 2
    c = check(f, x(50, 4), places(50, 50), kernels=2)
    assert "fusion.dependency" in {r.id for r in c.reasons}


def test_tables_of_symbolic_sizes():
    env = ShapeEnv()
    n, v = env.size("n", 7), env.size("v", 50)
    layouts = (Layout((v, 40), (40, 1), "float32"), Layout((n,), (1,), "int64"))
    f = lambda w, i: F.embedding(i, w) * 2 + 1
    c = compile_graph(decompose(fx.trace(f, *layouts)))
    assert len(c.kernels) == 1
    for rows, count in ((50, 7), (9, 33)):
        w, i = x(rows, 40), places(rows, count)
        same(c(w, i), f(w, i))


@pytest.mark.parametrize("count", [2, 3, 16, 17])
def test_short_rows_fetched_at_indices_read_only_rows_that_are_there(count):
    env = ShapeEnv()
    n = env.size("n", 4)
    layouts = (Layout((900, 8), (8, 1), "float32"), Layout((n,), (1,), "int64"))
    f = lambda w, i: F.layer_norm(F.embedding(i, w), (8,))
    c = compile_graph(decompose(fx.trace(f, *layouts)))
    (kernel,) = c.kernels
    w, i = x(900, 8), places(900, count)
    same(c(w, i), f(w, i))
    assert "t1[c] = t1[count - 1];" in c.source  # else memory of nobody tells where it reads
    assert "first + (c < count ? c : count - 1)" in c.source


def test_a_change_of_any_file_of_the_emitter_is_another_artifact():
    from rushlight.inductor.codegen import EMITTER
    from rushlight.loops import cpp

    room, found, left = Path(cpp.__file__).parent, set(), ["cpp"]
    while left:
        name = left.pop()
        found.add(f"{name}.py")
        text = (room / f"{name}.py").read_text()
        named = set(re.findall(r"^\s*from \.(\w+) import", text, re.MULTILINE))
        left += [n for n in named if f"{n}.py" not in found]
    assert found <= set(EMITTER)


# ---- numbers and constants


def test_a_tensor_of_one_number_is_no_memory():
    def f(a):
        full = lambda *s: call_full(a, *s)
        return rl.where(a > 0, a, full((4, 5), 0.0)) + full((5,), 2.5)

    def call_full(a, size, value):
        return (TABLE["full"].native if hasattr(a, "data_ptr") else TABLE["full"])(size, value)

    c = check(f, x(4, 5))
    assert "full" not in c.text


def test_what_no_input_decides_is_computed_once():
    def f(a):
        steps = TABLE["steps"].native if hasattr(a, "data_ptr") else TABLE["steps"]
        mask = steps((5,), 0, 1).unsqueeze(0) <= steps((5,), 0, 1).unsqueeze(1)
        return rl.where(mask, a, 0.0) * 2

    c = check(f, x(5, 5))
    assert "steps" not in c.text and "constant" in c.text


def test_a_constant_that_is_a_result_has_memory_of_its_own():
    steps = lambda a: (TABLE["steps"].native if hasattr(a, "data_ptr") else TABLE["steps"])(
        (5,), 0, 1
    )
    f = lambda a: (steps(a), steps(a).unsqueeze(0) * a)
    c = compile_graph(decompose(fx.trace(f, x(5, 5))))
    a = x(5, 5)
    first, _ = c(a)
    first.add_(100)
    same(c(a), f(a))


# ---- views of what a kernel makes


@pytest.mark.parametrize(
    "fn, shapes",
    [
        (lambda a, b: rl.exp(a + b)[1:] * 2, [(6, 7), (7,)]),
        (lambda a, b: rl.exp(a + b)[:, 1:] * b[1:], [(6, 7), (7,)]),
        (lambda a, b: rl.exp(a + b).select(0, 2) * b, [(6, 7), (7,)]),
        (lambda a, b: rl.exp(a + b).t() * 2 + a.t(), [(6, 7), (7,)]),
        (lambda a, b: (a + b).view(2, 3, 4, 2).permute(0, 2, 1, 3) * 2, [(2, 3, 8), (8,)]),
        (lambda a, b: F.layer_norm((a * b)[:, 2:] + 1, (6,)), [(5, 8), (8,)]),
    ],
)
def test_views_move_to_the_operands(fn, shapes):
    check(fn, *(x(*s) for s in shapes))


def test_halves_of_a_value_are_one_kernel():
    def glu(a):
        y = a * 2 + 1
        return y[:, :4] * rl.sigmoid(y[:, 4:])

    check(glu, x(6, 8))


def test_a_view_stays_where_moving_it_would_change_a_layout():
    f = lambda a: (rl.exp(a)[:, 1:], rl.exp(a)[:, 1:] * 2)
    a = x(6, 7)
    c = compile_graph(decompose(fx.trace(f, a)))
    same(c(a), f(a))


# ---- pieces


def test_pieces_are_computed_where_they_will_lie():
    c = check(
        lambda a, b: rl.cat([rl.exp(a), rl.tanh(b) * 2], 1), x(6, 8), x(6, 5), kernels=2, calls=1
    )
    assert "copy_" not in c.text and "cat(" not in c.text
    c = check(lambda a, b: rl.stack([rl.exp(a), b, rl.tanh(b) * 2], 1), x(6, 8), x(6, 8), calls=1)
    assert c.text.count("copy_") == 1
    check(lambda a: F.pad(rl.exp(a) * 2, (1, 2, 3, 0), value=1.5), x(6, 8), calls=1)
    check(lambda a: call("select_backward", rl.exp(a) * 2, (6, 8), 0, 3), x(8), calls=1)
    check(lambda a: call("slice_backward", rl.exp(a) * 2, (6, 8), 1, 1, 7, 2), x(6, 3), calls=1)


def test_a_piece_stays_outside_where_its_rows_would_need_more_loops():
    """Rows are walked in two loops: images of a batch, in a wider image, would be three."""
    a, m, v = x(2, 4, 9, 9), rl.zeros(4), rl.ones(4)
    check(lambda a, m, v: F.pad(F.relu(F.batch_norm(a, m, v)), (0, 1)), a, m, v, calls=1)
    check(lambda a: F.pad(F.relu(F.layer_norm(a, (4, 9, 9))), (1, 1)), a, calls=1)


def test_calls_move_into_a_concatenation():
    def rope(a, cos, sin):
        turned = rl.cat([-a[:, 4:], a[:, :4]], 1)
        return a * cos + turned * sin

    c = check(rope, x(6, 8), x(6, 8), x(6, 8), calls=1)
    assert "cat(" not in c.text and "copy_" not in c.text


def test_pieces_that_others_read_or_that_stand_twice():
    def f(a, b):
        y = rl.exp(a) * 2
        return rl.cat([y, y, b], 0), rl.cat([y + 1, rl.softmax(b * 2, -1)], 0) @ b

    c = compile_graph(decompose(fx.trace(f, x(6, 6), x(6, 6))))
    a, b = x(6, 6), x(6, 6)
    same(c(a, b), f(a, b))
    g = lambda a, b: rl.cat([rl.exp(a) * 2, (b * 2).to(rl.float64)], 0)
    same(compile_graph(decompose(fx.trace(g, a, b)))(a, b), g(a, b))


def test_gradients_of_parts_are_joined():
    def apart(a, b, c):
        part = lambda x, i, j: call("slice_backward", rl.exp(x) * 2, (6, 9), 1, i, j, 1)
        return part(a, 0, 2) + part(c, 5, 9) + part(b, 2, -4)

    a, b, c = x(6, 2), x(6, 3), x(6, 4)
    a = a * 0 - float("inf")  # exp gives 0, * 2; zeros' signs are eager's
    made = check(apart, a, b, c, kernels=3, calls=1)
    assert "slice_backward" not in made.text and "copy_" not in made.text

    def taken(a, b):
        part = lambda x, i: call("select_backward", -rl.relu(x), (6, 2), 1, i)
        return part(a, 1) + part(b, -2)

    made = check(taken, x(6), x(6), calls=1)
    assert "select_backward" not in made.text

    def gaps(a, b):
        part = lambda x, i, j: call("slice_backward", rl.exp(x) * 2, (6, 9), 1, i, j, 1)
        return part(a, 0, 2) + part(b, 3, 6)

    same(
        compile_graph(decompose(fx.trace(gaps, x(6, 2), x(6, 3))))(a, b),
        gaps(a, b),
    )
