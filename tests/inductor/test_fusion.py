"""What becomes one kernel, what does not and why, and that the results are eager's to the bit."""

import ast
import re

import numpy as np
import pytest

import rushlight as rl
from rushlight import fx
from rushlight.decomposition import decompose
from rushlight.errors import CompilerBug, UserError
from rushlight.inductor.pipeline import compile_graph
from rushlight.loops.expr import show
from rushlight.nn import functional as F
from rushlight.ops import TABLE
from rushlight.ops.layouts import dense
from rushlight.sym import ShapeEnv

from ..graphs import golden, same, untimed


def compiled(fn, *inputs, layouts=None):
    return compile_graph(decompose(fx.trace(fn, *(layouts or inputs))))


def test_the_wrapper_is_python_whose_names_are_those_of_the_steps():
    fn = lambda x, y, long_name_of_an_input: (x @ y + 1).exp() * 2 + F.gelu(long_name_of_an_input)
    c = compiled(fn, *(rl.randn(8, 8) for _ in range(3)))
    ast.parse(c.text)  # a variable `mm` does not hide the operator: ops.mm
    called = set(re.findall(r"kernels\.(\w+)", c.text))
    assert called and called <= {s.name for s in c.steps if hasattr(s, "name")}
    assert re.search(r"mm = ops\.mm\(", c.text), c.text


def check(fn, *inputs, kernels, calls=0, exact=True):
    """`kernels` generated, `calls` of operators beside them; the results are eager's."""
    c = compiled(fn, *inputs)
    assert (len(c.kernels), len(c.steps) - len(c.kernels)) == (kernels, calls), c.text
    same(c(*inputs), fn(*inputs), exact=exact)
    return c


def x(*shape):
    return rl.randn(*shape)


def labels(n, classes):
    return rl.from_numpy(np.arange(n) * 7 % classes)


def cross_entropy(a, t, reduction=0):
    return TABLE["cross_entropy_loss"].native(a, t, reduction)


def test_a_chain_of_pointwise_is_one_kernel():
    check(lambda a, b: rl.gelu(a + b) * 2 - rl.tanh(a).abs(), x(30, 40), x(40), kernels=1)


def test_gelu_of_layer_norm_of_a_sum_is_one_kernel():
    def block(a, b, weight, bias):
        return rl.gelu(F.layer_norm(a + b, (40,), weight, bias))

    check(block, x(30, 40), x(40), x(40), x(40), kernels=1)


def test_add_gelu_cross_entropy_is_one_kernel():
    check(
        lambda a, b, t: cross_entropy(rl.gelu(a + b), t),
        x(30, 40),
        x(40),
        labels(30, 40),
        kernels=1,
    )


def test_softmax_between_pointwise_is_one_kernel():
    check(lambda a: rl.softmax(a * 0.5, -1) + 1, x(30, 70), kernels=1)
    check(lambda a: rl.softmax(a * 0.5, 0) + 1, x(70, 33), kernels=1)


def test_rows_of_one_element_keep_an_operand_that_shows_their_length():
    """Found by a random program: every operand was one number a row, and the kernel refused."""

    def changed(a, b):
        a.sub_(b)
        return a.unsqueeze(0).softmax(0), a * 1

    want = changed(rl.ones(9), rl.ones(9))
    got = rl.compile(changed)(rl.ones(9), rl.ones(9))
    assert [g.tolist() for g in got] == [w.tolist() for w in want]


def test_one_number_a_row_stays_in_the_kernel():
    def standardised(a):
        mean = a.mean(1, True)
        deviation = rl.sqrt(((a - mean) * (a - mean)).mean(1, True) + 1e-5)
        return (a - mean) / deviation

    check(standardised, x(20, 50), kernels=1)


def test_dropped_dims_and_views_of_them_stay_in_the_kernel():
    check(lambda a: a - a.sum(1).unsqueeze(1), x(20, 50), kernels=1)
    check(lambda a: a / rl.exp(a.sum(1)).reshape(20, 1), x(20, 50), kernels=1)
    check(lambda a: (a * 2).sum((1, 2)).unsqueeze(-1).unsqueeze(-1) + a, x(4, 5, 6), kernels=1)


def test_views_are_no_steps():
    c = check(
        lambda a, b: rl.exp(a.t() + b.reshape(6, 4))[1:].select(1, 2) * 2,
        x(4, 6),
        x(24),
        kernels=1,
    )
    assert "transpose" in c.text and "slice" in c.text and "select" in c.text


def test_library_calls_stay():
    c = check(lambda a, w, b: rl.relu(a @ w + b) + 1, x(8, 5), x(5, 6), x(6), kernels=1, calls=1)
    assert {r.id for r in c.reasons} == {"fusion.library", "fallback.library"}


def test_a_single_node_keeps_its_precompiled_kernel():
    check(lambda a: rl.softmax(a, 1), x(8, 5), kernels=0, calls=1)


def test_several_results():
    check(
        lambda a, b: (rl.exp(a), rl.exp(a) + b, (rl.exp(a) + b).sum(1)), x(8, 20), x(20), kernels=1
    )


def test_integers_and_doubles():
    ints = rl.from_numpy(np.arange(24).reshape(4, 6))
    check(lambda a, b: (a + b) * a - 3, ints, ints, kernels=1)
    check(lambda a: (rl.exp(a) + 1).sum(1), x(8, 20).to(rl.float64), kernels=1)
    check(
        lambda a, b: rl.exp(a + b).sum(1),
        x(8, 20),
        ints[0, :1].to(rl.float64).reshape(()),
        kernels=1,
    )


def test_half_types_stay_wide():
    check(
        lambda a, b: rl.gelu(a + b) * 3,
        x(30, 40).to(rl.float16),
        x(40).to(rl.float16),
        kernels=1,
        exact=False,
    )


def test_empty_and_scalar_tensors():
    check(lambda a: rl.exp(a + 1) * 2, x(0, 5), kernels=1)
    check(lambda a: rl.exp(a + 1) * 2, x(), kernels=1)
    check(lambda a: (a + 1).sum(1), x(3, 0), kernels=1)
    check(lambda a: (a * 2).sum(), x(1, 1), kernels=1)


def test_odd_strides():
    base = x(12, 20)
    check(lambda a: rl.exp(a) + 1, base[::2, ::3], kernels=1)
    check(lambda a, b: rl.exp(a) * b, base.t(), x(12), kernels=1)
    check(lambda a: rl.softmax(a + 1, 1), base.t(), kernels=1)
    check(lambda a, b: (a + b).sum((0, 2)), x(3, 4, 5).permute(2, 0, 1), x(4), kernels=1)


def test_large_and_threaded():
    check(lambda a, b: rl.gelu(a + b).sum(1), x(300, 3000), x(3000), kernels=1)
    check(lambda a: rl.tanh(a) * 2 + a, x(1000003), kernels=1)


def pick(a, t):
    return TABLE["pick"].native(a, 1, t.unsqueeze(1))


def test_an_element_of_a_row_that_was_folded_is_taken_behind_the_folds():
    a, t = x(40, 37), labels(40, 37)
    check(lambda a, t: pick(F.log_softmax(a, 1), t), a, t, kernels=1)
    check(lambda a, t: pick(F.layer_norm(a, (37,)), t) * a.amax(1, True), a, t, kernels=1)
    check(lambda a, t: F.softmax(a, 1) * pick(F.softmax(a, 1), t), a, t, kernels=1)
    twice = lambda a, t: pick((a - a.mean(1, True)) * pick(F.log_softmax(a, 1), t), (t + 1) % 37)
    check(twice, a, t, kernels=1)


def test_a_random_number_that_is_taken_is_that_of_its_place():
    a, t = x(40, 37), labels(40, 37)
    fn = lambda a, t: pick(F.log_softmax(F.dropout(a + 5, 0.5), 1) + rl.rand_like(a), t)
    rl.manual_seed(3)
    expected = fn(a, t)
    rl.manual_seed(3)
    same(rl.compile(fn)(a, t), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_class_ids(smoothing, weighted):
    t = labels(40, 37)
    weight = rl.rand(37) if weighted else None

    def fn(a):
        logs = F.log_softmax(a, 1)
        spread = F.cross_entropy(a, t, weight, ignore_index=7, label_smoothing=smoothing)
        return F.nll_loss(logs, t, weight), spread, logs.sum(1)

    results = []
    a = x(40, 37)
    for f in (fn, rl.compile(fn)):
        b = a.clone().requires_grad_()
        nll, spread, sums = f(b)
        results.append([nll, spread, sums, *rl.autograd.grad(nll + spread + sums.sum(), b)])
    for ours, theirs in zip(*results):
        assert rl.allclose(ours, theirs, rtol=1e-5, atol=1e-6), (ours, theirs)


def test_random_numbers_are_eagers():
    drop = TABLE["counted_dropout"].native
    check(lambda a: drop(a + 1, 0.5, 7, 100) * 2, x(30, 40), kernels=1)
    check(lambda a: drop(a.t() + 1, 0.5, 7, 100) * 2, x(30, 40), kernels=1)


# ---- refusals: each planted, each with its reason


@pytest.mark.parametrize(
    "id, fn, shapes",
    [
        ("fusion.space", lambda a: (a + 1).sum(0) + 1 + (a + 1).sum(1).sum(), [(4, 6)]),
        ("fusion.library", lambda a: rl.exp(a @ a), [(4, 4)]),
        ("fusion.dependency", lambda a: rl.exp(a) + rl.exp(a).t(), [(4, 4)]),
        ("fusion.dependency", lambda a: rl.exp(a) * (rl.exp(a) @ a), [(4, 4)]),
        ("fusion.size", lambda *xs: rl.exp(xs[0]) + sum(xs[1:], xs[0]), [(3,)] * 18),
        ("fusion.size", lambda a: tuple(rl.exp(a) * i for i in range(10)), [(3,)]),
        ("fusion.layout", lambda a, b: (rl.exp(b) + a.t() * 2, a.t() * 2), [(4, 5), (5, 4)]),
        ("fusion.reduction", lambda a, b: (a + b).sum((1, 2)), [(3, 4, 20), (4, 1)]),
        ("fusion.reduction", lambda a, b: (a + b).sum(), [(3, 4, 5), (4, 1)]),
        ("fallback.no_definition", lambda a: rl.cat([rl.exp(a), a], 0), [(4, 4)]),
    ],
)
def test_refusals_have_reasons(id, fn, shapes):
    inputs = [x(*s) for s in shapes]
    c = compiled(fn, *inputs)
    assert id in {r.id for r in c.reasons}, [str(r) for r in c.reasons]
    assert all(r.what and r.why for r in c.reasons)
    same(c(*inputs), fn(*inputs))


# ---- symbolic sizes


def test_one_kernel_for_many_sizes():
    env = ShapeEnv()
    s = env.size("s0", 6)

    def block(a, b):
        return rl.gelu(F.layer_norm(a + b, (40,))).mean(0) / a.shape[0]

    c = compiled(block, layouts=(dense((s, 40), "float32"), dense((40,), "float32")))
    b = x(40)
    for n in (2, 6, 33, 500):
        a = x(n, 40)
        same(c(a, b), block(a, b))
    assert c.source.count("extern") == len(c.kernels)


def test_sizes_are_arguments_of_views_and_numbers():
    env = ShapeEnv()
    s, t = env.size("s0", 6), env.size("s1", 4)

    def f(a):
        return (rl.exp(a) * a.shape[1] + 1).reshape((a.shape[0] * a.shape[1],)) / a.shape[0]

    c = compiled(f, layouts=(dense((s, t), "float32"),))
    for shape in ((6, 4), (5, 7), (2, 9)):
        a = x(*shape)
        same(c(a), f(a))


def test_other_layouts_are_refused():
    c = compiled(lambda a: rl.exp(a) + 1, x(3, 4))
    for wrong in (x(4, 3), x(3, 4).to(rl.float64), x(4, 3).t(), x(3, 4, 1)):
        with pytest.raises(UserError, match="was compiled for a: f32"):
            c(wrong)
    with pytest.raises(TypeError, match="takes 1 inputs, got 2"):
        c(x(3, 4), x(3, 4))
    env = ShapeEnv()
    s = env.size("s0", 6)
    c = compiled(lambda a: rl.exp(a) + 1, layouts=(dense((s, s), "float32"),))
    c(x(5, 5))
    with pytest.raises(UserError, match="was compiled for a: f32"):
        c(x(5, 6))


def test_a_guard_that_fails_is_refused():
    env = ShapeEnv()
    s = env.size("s0", 6)
    c = compiled(
        lambda a: rl.exp(a) + (1 if a.shape[0] > 4 else 2), layouts=(dense((s,), "float32"),)
    )
    c(x(9))
    with pytest.raises(UserError, match="s0"):
        c(x(3))


# ---- nothing is recorded; errors surface


def test_nothing_is_recorded_on_the_tape():
    a = x(3, 4).requires_grad_()
    assert not compiled(lambda a: rl.exp(a) @ a.t() + 1, x(3, 4))(a).requires_grad


def test_an_index_out_of_range_is_told():
    c = compiled(lambda a, t: cross_entropy(a + 1, t), x(3, 4), labels(3, 4))
    with pytest.raises(IndexError):
        c(x(3, 4), rl.from_numpy(np.array([0, 9, 1])))


# ---- texts


def test_the_graph_the_loops_and_the_wrapper_as_printed():
    def block(a, b):
        return rl.softmax(a + b, 1) * 2

    c = compiled(block, x(3, 4), x(4))
    graph = "\n".join(row.split("  # ")[0] for row in untimed(c.graph).splitlines())
    text = "\n\n".join([graph, *map(show, c.kernels), c.text])
    golden(text, "softmax.txt")


def test_every_line_of_code_names_its_declaration():
    c = compiled(lambda a, b: rl.gelu(a + b), x(3, 4), x(4))
    assert re.search(r"// test_fusion.py:\d+ > erf ops/pointwise.py:", c.source)
    assert re.search(r"> add ops/pointwise.py:", c.source)
    (kernel,) = c.kernels
    chains = list(kernel.origins.values())
    assert all(
        chain[0][0] == "line" and chain[0][1].startswith("test_fusion.py:") for chain in chains
    )
    assert {chain[1][0] for chain in chains} == {"add", "gelu"}


def test_equal_kernels_share_their_code():
    def layers(a):
        for _ in range(5):
            a = rl.relu(a @ a) * 0.5 + a
        return a

    a = x(4, 4)
    c = check(layers, a, kernels=5, calls=5)
    assert c.source.count('extern "C"') == 1


def test_a_value_kept_in_an_outputs_memory_is_not_overwritten():
    def two_passes(a):
        s = rl.sigmoid(a)
        return rl.log_softmax(s - s.sum(1, True), 1), s

    check(two_passes, x(20, 50), kernels=1)
    check(
        lambda a: (rl.softmax(a * 2, 1) + 1, rl.exp(a * 2 - (a * 2).amax(1, True))),
        x(20, 50),
        kernels=1,
    )


def test_a_kernel_called_with_other_strides_tells_so():
    c = compiled(lambda a: rl.exp(a) * 2 + 1, x(30, 40))
    c.check = lambda tensors: None
    with pytest.raises(CompilerBug, match="other strides"):
        c(x(30, 80)[:, ::2])


def test_numbers_a_row_meet_operands_of_fewer_dims():
    check(lambda a, b: rl.minimum((a * 2).sum(2), b) + b, x(4, 33, 70), x(33), kernels=1)
    check(lambda a, b: rl.minimum((a * 2).sum(2, True), b) + b, x(4, 33, 70), x(33, 1), kernels=1)
    check(lambda a, b: rl.minimum((a * 2).sum(0), b), x(4, 5, 5), x(1, 5), kernels=1)
    check(lambda a, b: rl.minimum((a * 2).sum(1), b), x(5, 4, 5), x(5), kernels=1)


def test_long_bodies_run_in_stages():
    def chain(a, b):
        kept = rl.exp(a)
        for _ in range(4):
            a = rl.tanh(a) * 0.9 + b
        return a + kept, a > b

    c = check(chain, x(7, 1500), x(1500), kernels=1)
    assert "[512]" in c.source
    check(chain, x(7, 0), x(1), kernels=1)
    check(chain, x(40, 30).t(), x(1), kernels=1)


def test_loops_beyond_a_kernels_own_are_kept_from_call_to_call():
    """Large enough to release the interpreter's lock: the remembered loops are copied then."""

    def f(a):
        b = a.reshape(4, 64, 8, 32).permute(2, 0, 3, 1)
        c = a.reshape(4, 64, 8, 32).permute(0, 2, 3, 1)[:, ::2]
        return b * 2 + 1, b.contiguous() - 1, rl.exp(c) + c

    c = compiled(f, x(4, 64, 256))
    junk = []
    for i in range(8):
        a = x(4, 64, 256)
        same(c(a), f(a))
        junk.append(rl.full((1 << (10 + i),), -(2.0**40)))


def test_equal_layers_are_compiled_once():
    """Twelve layers: each of their kernels is one function, called twelve times."""

    def layers(a, *weights):
        for i in range(0, len(weights), 3):
            up, down, scale = weights[i : i + 3]
            h = F.layer_norm(a, (16,), scale)
            a = rl.gelu(h @ up) * 0.5 @ down + a
        return a

    weights = [w for _ in range(12) for w in (x(16, 32), x(32, 16), x(16))]
    inputs = [x(8, 16), *weights]
    c = compiled(layers, *inputs)
    functions = c.source.count('extern "C"')
    assert functions <= 4 and len(c.kernels) >= 23, (functions, len(c.kernels))
    same(c(*inputs), layers(*inputs), exact=False)


def test_a_view_between_dims_of_size_one_lies_as_declared():
    """A convolution's result lies as its operand does, asked of strides that walk nothing where
    the operand is one pixel; the kernel behind it knows the strides that were declared."""
    w = x(8, 8, 4, 4)

    def fn(a, b):
        image = a.transpose(1, 2).view(1, 8, 1, 1)  # its strides are those of channels last
        pixels = F.conv_transpose2d(image, w, stride=4)
        lines = pixels.view(1, 8, 16).transpose(1, 2) + b
        return lines, (lines * b).sum((0, 1)), lines.sum((0, 1))

    check(fn, x(1, 1, 8), x(1, 16, 8), kernels=1, calls=1, exact=False)
