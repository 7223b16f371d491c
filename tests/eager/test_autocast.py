"""Autocast on the CPU: every operator gets the precision that PyTorch gives it, gradients come back
in the dtypes of the parameters, weights are cast once a region.
"""

import threading

import pytest

import rushlight
import rushlight.nn.functional as F
from rushlight import nn
from rushlight.eager import casting
from rushlight.ops import TABLE

from ..ops.materialize import arguments, call, many, oracle_call, ours, theirs

OPERATORS = [op for op in TABLE.values() if op.samples and not op.name.endswith("backward")]


def short(dtype):
    return str(dtype).split(".")[1]


def described(values):
    return [(short(x.dtype), tuple(x.shape)) for x in many(values) if hasattr(x, "dtype")]


# ---- which precision an operator gets


@pytest.mark.parametrize("start", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_every_operator_gets_the_oracles_precision(op, start, oracle):
    """With operands of each dtype; what the oracle refuses is not compared."""
    if op.name == "view_as_complex" and start == "bfloat16":
        pytest.skip("half precision has no complex dtype here")
    compared = 0
    for sample in op.samples:
        if op.name == "einsum" and sample.args[0] == "ij,kj->ik":
            continue  # j of size 1 and 3: a sum there, a product here
        mine = start_from(start, rushlight, arguments(op, sample, ours))
        their = start_from(start, oracle, arguments(op, sample, theirs(oracle)))
        try:
            with oracle.autocast("cpu", oracle.bfloat16):
                want = oracle_call(oracle, op, their)
        except (RuntimeError, TypeError, NotImplementedError, IndexError):
            continue
        if want is None:
            pytest.skip("no ATen operator of this name")
        with rushlight.autocast("cpu", rushlight.bfloat16):
            got = call(op, mine)
        if described(got) != described(want):  # only if they agree where autocast is off
            assert described(call(op, mine)) != described(oracle_call(oracle, op, their)), sample
            continue
        compared += 1
    if not compared:
        pytest.skip("the oracle takes none of the samples in this dtype")


def start_from(name, library, values):
    """The same arguments with every float32 tensor in another dtype."""
    dtype, single = getattr(library, name), library.float32

    def change(x):
        if isinstance(x, (list, tuple)):
            return [change(v) for v in x]
        return x.to(dtype) if getattr(x, "dtype", None) == single else x

    return [change(x) for x in values]


def function_calls(library):
    """Functions that are no single operator here."""
    t = lambda *shape: library.linspace(0.1, 0.9, int(eval("*".join(map(str, shape))))).reshape(
        shape
    )
    x, y = t(2, 3), t(2, 3) * 0.5 + 0.1
    ids, ones = library.tensor([0, 2]), library.ones(2)
    q = t(1, 2, 4, 3)
    yield "l1_loss", (x, y), {}
    yield "mse_loss", (x, y), {}
    yield "mse_loss", (x, y), {"reduction": "none"}
    yield "huber_loss", (x, y), {}
    yield "smooth_l1_loss", (x, y), {}
    yield "binary_cross_entropy", (x, y), {}
    yield "binary_cross_entropy_with_logits", (x, y), {"weight": x}
    yield "kl_div", (x, y), {"reduction": "sum"}
    yield "poisson_nll_loss", (x, y), {}
    yield "gaussian_nll_loss", (x, y, x), {}
    yield "soft_margin_loss", (x, y), {}
    yield "hinge_embedding_loss", (x, y), {}
    yield "margin_ranking_loss", (x, y, x), {}
    yield "cosine_embedding_loss", (x, y, ones), {}
    yield "triplet_margin_loss", (x, y, x), {}
    yield "nll_loss", (x, ids), {}
    yield "cross_entropy", (x, ids), {}
    yield "cross_entropy", (x, ids), {"label_smoothing": 0.1}
    yield "cross_entropy", (x, y), {}
    yield "multi_margin_loss", (x, ids), {}
    yield "multilabel_margin_loss", (x, library.tensor([[0, 2, -1], [1, -1, 0]])), {}
    yield "multilabel_soft_margin_loss", (x, y), {}
    yield "scaled_dot_product_attention", (q, q, q), {}
    yield "scaled_dot_product_attention", (q, q, q), {"attn_mask": t(4, 4)}
    yield "scaled_dot_product_attention", (q, q, q), {"dropout_p": 0.5}
    yield "layer_norm", (x, (3,)), {}
    yield "softmax", (x, -1), {}
    yield "log_softmax", (x, -1), {}
    yield "gelu", (x,), {}
    yield "linear", (x, y), {}
    yield "bilinear", (x, y, t(4, 3, 3)), {}
    yield "normalize", (x,), {}
    yield "cosine_similarity", (x, y), {}
    yield "pairwise_distance", (x, y), {}
    yield "embedding", (ids, x.reshape(3, 2)), {}


@pytest.mark.parametrize("start", ["float32", "bfloat16"])
def test_every_function_gets_the_oracles_precision(start, oracle):
    for (name, mine, kwargs), (_, their, options) in zip(
        function_calls(rushlight), function_calls(oracle)
    ):
        mine, their = start_from(start, rushlight, mine), start_from(start, oracle, their)
        try:
            with oracle.autocast("cpu"):
                want = getattr(oracle.nn.functional, name)(*their, **options)
        except RuntimeError:
            continue
        with rushlight.autocast("cpu"):
            got = getattr(F, name)(*mine, **kwargs)
        assert described(got) == described(want), (name, kwargs)
        if "dropout_p" not in kwargs:
            close = dict(rtol=3e-2, atol=1e-2)
            assert oracle.allclose(oracle.tensor(got.tolist()), want.float(), **close), name


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("start", ["float32", "bfloat16"])
def test_every_recurrent_layer_gets_the_oracles_precision(start, gradients, oracle):
    def run(library, name):
        x = library.ones(2, 1, 3).to(getattr(library, start))
        with library.autocast("cpu"), library.set_grad_enabled(gradients):
            out = getattr(library.nn, name)(3, 4)(x[0] if "Cell" in name else x)
        flat = []
        for x in out if isinstance(out, tuple) else (out,):
            flat += x if isinstance(x, tuple) else (x,)
        return [(short(x.dtype), tuple(x.shape)) for x in flat]

    for name in ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"):
        assert run(rushlight, name) == run(oracle, name), name


# ---- training


def network(library):
    model = library.nn.Sequential(
        library.nn.Linear(6, 16),
        library.nn.GELU(),
        library.nn.LayerNorm(16),
        library.nn.Linear(16, 3),
    )
    with library.no_grad():
        for k, p in enumerate(model.parameters()):
            n = p.numel()
            p.copy_(
                ((library.arange(n) * 7919 % 31).float() / 31 - 0.5).reshape(p.shape) + 0.01 * k
            )
    return model


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_training_step_equals_the_oracles(dtype, oracle):
    def step(library):
        model = network(library)
        x = (library.arange(48).float() / 24 - 1).reshape(8, 6)
        with library.autocast("cpu", getattr(library, dtype)):
            out = model(x)
            loss = library.nn.functional.cross_entropy(out, library.arange(8) % 3)
        loss.backward()
        grads = [p.grad for p in model.parameters()]
        assert short(out.dtype) == dtype and short(loss.dtype) == "float32"
        assert {short(g.dtype) for g in grads} == {"float32"}
        return loss.item(), [g.flatten().tolist() for g in grads]

    (loss, grads), (their_loss, their_grads) = step(rushlight), step(oracle)
    assert loss == pytest.approx(their_loss, rel=1e-2)
    for a, b in zip(grads, their_grads):
        scale = max(map(abs, b))
        assert max(abs(p - q) for p, q in zip(a, b)) < 0.03 * scale + 1e-4


def test_backward_inside_the_region_is_as_outside():
    def gradients(inside):
        model = network(rushlight)
        x = rushlight.ones(2, 6)
        with rushlight.autocast("cpu"):
            loss = model(x).float().pow(2).sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return [p.grad.tolist() for p in model.parameters()]

    assert gradients(True) == gradients(False)


def test_second_derivatives():
    w = rushlight.ones(3, 3, requires_grad=True)
    with rushlight.autocast("cpu"):
        y = (w @ w).float().sum()
    (g,) = rushlight.autograd.grad(y, w, create_graph=True)
    assert g.dtype is rushlight.float32
    (h,) = rushlight.autograd.grad(g.sum(), w)
    assert h.tolist() == [[6.0] * 3] * 3


# ---- what is not cast


def test_writes_are_not_cast():
    x = rushlight.full((2, 2), 1.001)
    with rushlight.autocast("cpu"):
        out = rushlight.mm(x, x, out=rushlight.empty(2, 2))
        assert out.dtype is rushlight.float32 and out[0, 0].item() == pytest.approx(2.004, abs=1e-5)
        y = x.clone()
        y.addmm_(x, x) if hasattr(y, "addmm_") else y.add_(x)
        assert y.dtype is rushlight.float32
        assert x.t().dtype is x.view(4).dtype is (x + x).dtype is rushlight.float32
        assert (x @ x).dtype is rushlight.bfloat16
        assert (x.double() @ x.double()).dtype is rushlight.float64
        assert (x.long() @ x.long()).dtype is rushlight.int64
        with pytest.raises(RuntimeError, match="same dtype"):
            x @ x.double()


def test_the_inside_of_an_operator_is_not_cast_again(monkeypatch):
    """A loss is cast to float32 as a whole; a product in there stays in float32."""
    x = rushlight.full((2, 3), 1.001)
    with rushlight.autocast("cpu"):

        @casting.casts("float32")
        def loss(x):
            assert not rushlight.is_autocast_enabled("cpu")
            return x @ x.t()

        assert loss(x).dtype is rushlight.float32
        assert rushlight.is_autocast_enabled("cpu")
        with pytest.raises(ValueError, match="inside"):
            casting.casts("lower")(lambda x: (_ for _ in ()).throw(ValueError("inside")))(x)
        assert rushlight.is_autocast_enabled("cpu")


# ---- the region


def test_regions_nest_and_restore():
    state = lambda: (rushlight.is_autocast_enabled("cpu"), rushlight.get_autocast_dtype("cpu"))
    off, bf16, f16 = (
        (False, rushlight.bfloat16),
        (True, rushlight.bfloat16),
        (True, rushlight.float16),
    )
    x = rushlight.ones(2, 2)
    assert state() == off
    with rushlight.autocast("cpu"):
        assert state() == bf16
        with rushlight.autocast("cpu", dtype=rushlight.float16):
            assert state() == f16 and (x @ x).dtype is rushlight.float16
            with rushlight.autocast("cpu", enabled=False):
                assert not state()[0] and (x @ x).dtype is rushlight.float32
            assert state() == f16
        with rushlight.no_grad():
            assert state() == bf16 and (x @ x).dtype is rushlight.bfloat16
        assert state() == bf16 and rushlight.is_grad_enabled()
        with pytest.raises(ZeroDivisionError):
            with rushlight.autocast("cpu", enabled=False):
                raise ZeroDivisionError
        assert state() == bf16
        found = []
        thread = threading.Thread(target=lambda: found.append(state()))
        thread.start()
        thread.join()
        assert found == [off]  # regions are of a thread
    assert state() == off


def test_as_a_decorator():
    @rushlight.autocast("cpu")
    def product(x):
        """Doc."""
        return x @ x

    assert product(rushlight.ones(2, 2)).dtype is rushlight.bfloat16 and product.__doc__ == "Doc."
    assert not rushlight.is_autocast_enabled("cpu")


def test_switches_as_functions():
    rushlight.set_autocast_dtype("cpu", rushlight.float16)
    rushlight.set_autocast_enabled("cpu", True)
    try:
        assert (rushlight.ones(1, 1) @ rushlight.ones(1, 1)).dtype is rushlight.float16
    finally:
        rushlight.set_autocast_enabled("cpu", False)
        rushlight.set_autocast_dtype("cpu", rushlight.bfloat16)
    assert (rushlight.ones(1, 1) @ rushlight.ones(1, 1)).dtype is rushlight.float32


def test_bad_regions():
    with pytest.raises(ValueError, match="`str`"):
        rushlight.autocast(3)
    with pytest.raises(RuntimeError, match="device"):
        rushlight.autocast("xyz")
    with pytest.warns(UserWarning, match="CUDA"):
        with rushlight.autocast("cuda"):
            assert not rushlight.is_autocast_enabled()
    for dtype in (rushlight.float32, rushlight.float64):
        with pytest.warns(UserWarning, match="autocast is off"):
            with rushlight.autocast("cpu", dtype):
                assert not rushlight.is_autocast_enabled("cpu")


# ---- weights


def test_weights_are_cast_once_a_region():
    layer, x = nn.Linear(3, 3, bias=False), rushlight.ones(1, 3)
    casts = lambda: [entry[2] for entry in casting.state.cache.values()]
    with rushlight.autocast("cpu"):
        layer(x)
        (first,) = casts()
        with rushlight.autocast("cpu"):
            layer(x)
        assert casts()[0] is first  # the inner region's end forgets nothing
        with rushlight.no_grad():
            layer.weight.add_(1)
            expected = (x @ layer.weight.t()).tolist()
        y = layer(x)
        assert casts()[-1] is not first and y.tolist() == expected  # written to: cast again
        rushlight.clear_autocast_cache()
        assert not casts()
        with rushlight.no_grad():
            layer(x)
        assert layer(x).requires_grad  # not the cast that was made without gradients
    assert not casts()
    with rushlight.autocast("cpu", cache_enabled=False):
        layer(x)
        assert not casts()


def test_a_cached_weight_serves_several_backward_passes():
    layer, x = nn.Linear(3, 1, bias=False), rushlight.ones(1, 3)
    with rushlight.autocast("cpu"):
        (layer(x) + layer(2 * x)).sum().backward()
        layer(4 * x).sum().backward()
    assert layer.weight.grad.tolist() == [[7.0] * 3]


# ---- functions with a backward of their own


def test_custom_functions():
    seen = []

    class Product(rushlight.autograd.Function):
        @staticmethod
        @rushlight.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @rushlight.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            seen.append(rushlight.is_autocast_enabled("cpu"))
            return (g @ w.t()).float(), (x.t() @ g).float()

    class Single(rushlight.autograd.Function):
        @staticmethod
        @rushlight.amp.custom_fwd(device_type="cpu", cast_inputs=rushlight.float32)
        def forward(ctx, x):
            assert x.dtype is rushlight.float32 and not rushlight.is_autocast_enabled("cpu")
            return x * 2

        @staticmethod
        @rushlight.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            seen.append(rushlight.is_autocast_enabled("cpu"))
            return g * 2

    x = rushlight.ones(2, 2, requires_grad=True)
    with rushlight.autocast("cpu"):
        y = Product.apply(x, x)
        assert y.dtype is rushlight.bfloat16
        z = Single.apply(y)
    assert z.dtype is rushlight.float32
    z.sum().backward()
    assert seen == [False, True] and x.grad.tolist() == [[8.0, 8.0], [8.0, 8.0]]


def test_plans_of_other_modes_are_kept_apart():
    x = rushlight.ones(2, 2)
    for _ in range(2):
        assert (x @ x).dtype is rushlight.float32
        with rushlight.autocast("cpu"):
            assert (x @ x).dtype is rushlight.bfloat16
        with rushlight.autocast("cpu", rushlight.float16):
            assert (x @ x).dtype is rushlight.float16
