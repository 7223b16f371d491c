"""Attention in one kernel, without the scores in memory: what scaled_dot_product_attention is on a GPU (loops/triton_attention.py).

Where there is no such kernel the same is spelled out in operators (`spelled`, `spelled_backward`; eager/composed.py).
"""
from rushlight import dtypes

from .creation import steps
from .declare import library
from .derivatives import pull_back, record
from .layouts import ShapeError, dense, like_operands, memory_order, shaped
from .matrix import matmul
from .pointwise import eq, exp, le, log, where
from .promotion import numeric
from .reductions import amax, sum
from .samples import call, t
from .values import TABLE
from .views import expand, permute, reshape, transpose

LARGEST = 256                       # elements of a head
Q, K, V = t(2, 4, 5, 4), t(2, 2, 6, 4), t(2, 2, 6, 3)
OUT, LOGS = t(2, 4, 5, 3), t(2, 4, 5, low=1.0, high=3.0)


def takes(q, k, v, mask, scale, enable_gqa):
    """Whether scaled_dot_product_attention of these is one kernel: half types on a GPU, heads that match."""
    if not q.device.startswith("cuda") or q.dtype not in dtypes.HALVES or not 2 <= q.rank <= 4 or not q.rank == k.rank == v.rank:
        return False
    if not scale > 0 or q.shape[-1] > LARGEST or v.shape[-1] > LARGEST or 0 in (*q.shape, *k.shape, *v.shape):
        return False
    if not q.shape[-1] == k.shape[-1] or not k.shape[:-1] == v.shape[:-1] or (q.rank == 4 and not q.shape[0] == k.shape[0]):
        return False
    if q.rank > 2 and not q.shape[-3] == k.shape[-3] and (not enable_gqa or q.shape[-3] % k.shape[-3]):
        return False
    if mask is None:
        return True
    scores = (*q.shape[:-1], k.shape[-2])
    return mask.rank <= q.rank and all(m == 1 or m == n for m, n in zip(reversed(mask.shape), reversed(scores)))


def whole(q, k, v, mask, is_causal, scale):
    """scaled_dot_product_attention of what `takes` takes."""
    rank = q.rank
    full = lambda x: x if x.rank == 4 else reshape(x, ((1,) * (4 - x.rank)) + tuple(x.shape))
    kind = q.dtype
    q, k, v = full(q), full(k), full(v)
    bias = None
    if mask is not None:
        mask = full(mask)
        bias = where(mask, 0.0, float("-inf")).to(kind) if mask.dtype == "bool" else mask.to(kind)
        bias = expand(bias, (*q.shape[:-1], k.shape[-2]))
    out = flash_attention(q, k, v, bias, is_causal, scale)[0]
    return out if rank == 4 else reshape(out, tuple(out.shape[4 - rank:]))


def forward_layouts(q, k, v, *_):
    """The output lies as the queries do (heads or rows outermost), so that merging heads copies nothing."""
    return [dense((*q.shape[:-1], v.shape[-1]), q.dtype, order_of(q), q.device), tuple(q.shape[:-1])]


def order_of(q):
    order = memory_order([q.layout], 4)
    return (0, 2, 1, 3) if order.index(2) < order.index(1) else (0, 1, 2, 3)


def check(q, k, v, bias):
    name = "[flash_attention]"
    if not q.rank == k.rank == v.rank == 4:
        raise ShapeError(f"{name} expected 4 dims each, got {q.layout}, {k.layout} and {v.layout}")
    if not (q.shape[0] == k.shape[0] == v.shape[0] and q.shape[-1] == k.shape[-1] and k.shape[1:3] == v.shape[1:3]):
        raise ShapeError(f"{name} query {tuple(q.shape)}, key {tuple(k.shape)} and value {tuple(v.shape)} do not match")
    if q.shape[1] % k.shape[1]:
        raise ShapeError(f"{name} {q.shape[1]} heads of query are no multiple of key's and value's, {k.shape[1]}")
    if bias is not None and not tuple(bias.shape) == (*q.shape[:-1], k.shape[2]):
        raise ShapeError(f"{name} expected a bias of shape {(*q.shape[:-1], k.shape[2])}, got {tuple(bias.shape)}")


@library("flash_attention(Tensor query, Tensor key, Tensor value, Tensor? bias, bool is_causal, float scale) -> (Tensor, Tensor)",
         layout=shaped(forward_layouts, ("result", "opmath")), routine="flash_attention", strided=True, method=False, function=False,
         samples=(call(Q, K, V, None, False, 0.5), call(Q, K, V, None, True, 0.5), call(Q, K, V, t(2, 4, 5, 6), False, 0.3),
                  call(t(2, 5, 4, 4, order=(0, 2, 1, 3)), t(2, 5, 6, 4), t(2, 5, 6, 4), None, False, 0.5)))
def flash_attention(q, k, v, bias, is_causal, scale):
    """(softmax(scale q k^T + bias) v, the logarithm of each row's sum of exponentials, for the derivative alone). `scale` is above
    0; heads of q share those of k and v in turn. A row that sees nothing gives zeros, and an infinite logarithm."""
    check(q, k, v, bias)
    return (is_causal,)


@flash_attention.derivative
def _(gs, outs, q, k, v, bias, is_causal, scale):
    g, (out, logs) = gs[0], outs
    grads = flash_attention_backward(g, q, k, v, bias, out, logs, is_causal, scale)
    if bias is None:
        return *grads, None
    weights, _, _ = softmax_of(scores_of(q, k, bias, is_causal, scale))        # not by the logarithms, whose gradient is dropped
    return *grads, reshape(changes(*together(q, k, weights, g, out), v), tuple(bias.shape))


@library("flash_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor output, Tensor logs,"
         " bool is_causal, float scale) -> (Tensor, Tensor, Tensor)", others={"logs": "opmath"},
         promote=numeric.of("grad", "query", "key", "value", "bias", "output"),
         layout=shaped(lambda g, q, k, v, *_: [like_operands([x.layout], tuple(x.shape), q.dtype, q.device) for x in (q, k, v)]),
         routine="flash_attention_backward", strided=True, method=False, function=False,
         samples=(call(OUT, Q, K, V, None, OUT, LOGS, False, 0.5), call(OUT, t(2, 4, 5, 4, order=(0, 2, 1, 3)), K, V, None, OUT, LOGS, True, 0.5),
                  call(OUT, Q, K, V, t(2, 4, 5, 6), OUT, LOGS, False, 0.3)))
def flash_attention_backward(grad, q, k, v, bias, output, logs, is_causal, scale):
    """The gradients of query, key and value."""
    check(q, k, v, bias)
    return (is_causal,)


@flash_attention_backward.derivative
def _(gs, grad, q, k, v, bias, is_causal, scale):
    """Through the definition, of which output and logarithms are a part."""
    def run():
        out, logs = spelled(q, k, v, bias, is_causal, scale)
        return spelled_backward(grad, q, k, v, bias, out, logs, is_causal, scale)
    inside, tape = record(run)
    wanted = [x for x in (grad, q, k, v, bias) if x is not None]
    found = list(pull_back(tape, list(zip(inside, gs)), wanted))
    return *found[:4], found[4] if bias is not None else None, None, None


# ---- the same in operators

def together(q, k, *others):
    """Operands with the heads below one another that share a head of the key: (b, h, s, d) -> (b, g, h / g * s, d)."""
    b, h, s = q.shape[:3]
    if h == k.shape[1]:
        return others
    return tuple(reshape(x, (b, k.shape[1], h // k.shape[1] * s, x.shape[-1])) for x in others)


def scores_of(q, k, bias, is_causal, scale):
    """(b, h, s, t), in the type that is computed in."""
    wide = dtypes.opmath(q.dtype)
    (rows,) = together(q, k, q.to(wide))
    s = reshape(matmul(rows, transpose(k.to(wide), -2, -1)), (*q.shape[:-1], k.shape[2])) * scale
    if bias is not None:
        s = s + bias.to(wide)
    if is_causal:
        at = lambda n: steps((n,), 0, 1, dtype="int64")
        s = where(le(at(k.shape[2]), reshape(at(q.shape[2]), (q.shape[2], 1))), s, float("-inf"))
    return s


def laid(x, order):
    """The same with the dims in this order in memory."""
    if tuple(order) == (0, 1, 2, 3):
        return x
    back = tuple(sorted(range(4), key=lambda i: order[i]))
    return permute(TABLE["clone"](permute(x, tuple(order)), memory_format="contiguous"), back)


def softmax_of(s):
    """(weights, sums of exponentials less their largest, the largest)."""
    top = TABLE["detach"](amax(s, (-1,), True))
    top = where(eq(top, float("-inf")), 0.0, top)
    e = exp(s - top)
    total = sum(e, (-1,), True)
    return e / where(eq(total, 0), 1.0, total), total, top


def spelled(q, k, v, bias, is_causal, scale):
    """(output, logarithms) of flash_attention."""
    weights, total, top = softmax_of(scores_of(q, k, bias, is_causal, scale))
    (weights,) = together(q, k, weights)
    out = reshape(matmul(weights, v.to(weights.dtype)), (*q.shape[:-1], v.shape[-1])).to(q.dtype)
    return laid(out, order_of(q)), reshape(where(eq(total, 0), float("inf"), log(total) + top), tuple(q.shape[:-1]))


def changes(weights, g, out, v):
    """The gradient of the scores."""
    wide = weights.dtype
    g, out = g.to(wide), out.to(wide)
    return weights * (matmul(g, transpose(v.to(wide), -2, -1)) - sum(g * out, (-1,), True))


def spelled_backward(g, q, k, v, bias, out, logs, is_causal, scale):
    """The gradients of flash_attention's query, key and value."""
    weights = exp(scores_of(q, k, bias, is_causal, scale) - reshape(logs, (*logs.shape, 1)))
    wide = weights.dtype
    weights, rows, g, out = together(q, k, weights, q, g, out)
    ds = changes(weights, g, out, v) * scale
    dq = reshape(matmul(ds, k.to(wide)), tuple(q.shape))
    turned = lambda x: transpose(x, -2, -1)
    dk, dv = matmul(turned(ds), rows.to(wide)), matmul(turned(weights), g.to(wide))
    return tuple(laid(d.to(x.dtype), memory_order([x.layout], 4)) for d, x in ((dq, q), (dk, k), (dv, v)))


# No routine of csrc/rt does these: what they are where there is no kernel for them.
SPELLED = {"flash_attention": spelled, "flash_attention_backward": spelled_backward}


def padded(size):
    """The power of two that holds a head of this size, at least what a tensor core takes."""
    return max(16, 1 << (size - 1).bit_length())


def key_of(name, dtype, size, value_size, mode):
    """The key of a GPU's kernel (loops/triton_attention.py). `mode`: "", "causal" or "bias"."""
    size, other = padded(size), padded(value_size)
    return ".".join(filter(None, (name, dtype, str(size) if size == other else f"{size}x{other}", mode)))
