"""Attention: two batched products around one kernel that scales, masks and normalises the scores."""
import math

from . import flash, promotion
from .creation import counted_dropout, steps
from .declare import composition, derived, rows
from .layouts import ShapeError, same_rows
from .matrix import matmul
from .normalization import softmax_backward
from .pointwise import eq, exp, le, where
from .reductions import amax, positions, sum
from .samples import call, t
from .views import reshape, transpose

LIMIT = t(1, 5, 1, dtype="int64", low=0, high=6)


@rows("attention_weights(Tensor scores, Tensor? bias, Tensor? mask, Tensor? limit, float scale, int dim) -> Tensor",
      layout=same_rows(per_row=("limit",), out="C"), promote=promotion.floating.of("scores", "bias"),
      others={"mask": "bool", "limit": "int64"}, domain=("bfloat16", "float32", "float64"), patterns=("T000", "TT00", "T0T0", "T00T"),
      method=False, function=False, cost=12,
      samples=(call(t(2, 5, 6), None, None, None, 0.5, -1), call(t(2, 5, 6), t(5, 6), None, None, 0.5, -1),
               call(t(2, 5, 6), None, t(2, 1, 6, dtype="bool"), None, 0.5, -1), call(t(2, 5, 6), None, None, LIMIT, 0.5, -1)))
def attention_weights(x, bias, mask, limit, scale, dim):
    """softmax(scale * scores + bias) along `dim`, over the elements where the mask is set and whose position is at most the
    row's limit; zeros in rows where nothing is."""
    x = x * scale
    if bias is not None:
        x = x + bias
    if mask is not None:
        x = where(mask, x, float("-inf"))
    if limit is not None:
        x = where(le(positions(x, dim), limit), x, float("-inf"))
    top = amax(x, dim, True)
    e = exp(x - where(eq(top, float("-inf")), 0.0, top))
    total = sum(e, dim, True)
    return e * where(eq(total, 0), 0.0, 1 / total)


@attention_weights.derivative
def _(g, out, bias, scale, dim):
    return attention_weights_backward(g, out, scale, dim), None if bias is None else softmax_backward(g, out, dim), None, None


@rows("attention_weights_backward(Tensor grad_output, Tensor output, float scale, int dim) -> Tensor", layout=same_rows(out="C"),
      derivative=derived, method=False, function=False, domain=("bfloat16", "float32", "float64"), cost=4,
      samples=(call(t(3, 5), t(3, 5, low=0.1), 0.5, 1),))
def attention_weights_backward(g, y, scale, dim):
    return y * (g - sum(g * y, dim, True)) * scale


def checked(q, k, v, mask, is_causal):
    if not q.dtype == k.dtype == v.dtype:
        raise RuntimeError(
            f"[scaled_dot_product_attention] query, key and value have the same dtype, got {q.dtype}, {k.dtype} and "
            f"{v.dtype}"
        )
    if min(q.rank, k.rank, v.rank) < 2:
        raise RuntimeError(
            f"[scaled_dot_product_attention] query, key and value have at least 2 dims, got {q.layout}, {k.layout} "
            f"and {v.layout}"
        )
    if mask is not None and is_causal:
        raise RuntimeError(
            "[scaled_dot_product_attention] attn_mask should not be set beside is_causal=True, which is a mask "
            "itself"
        )
    if mask is not None and mask.dtype not in ("bool", "float32", q.dtype):
        raise RuntimeError(
            f"[scaled_dot_product_attention] attn_mask is bool, float32 or of the query's dtype {q.dtype}, got "
            f"{mask.dtype}"
        )


def attended(q, k, v, mask, is_causal, scale, enable_gqa, drop=lambda weights: weights):
    """The heads of query that share a head of key and value stand below one another in its product: nothing is repeated."""
    heads = length = None
    if enable_gqa and q.rank > 2 and not q.shape[-3] == k.shape[-3]:
        heads, length = q.shape[-3:-1]
        own = k.shape[-3]
        if heads % own or not v.shape[-3] == own:
            raise ShapeError(f"[scaled_dot_product_attention] enable_gqa: {heads} heads of query are no multiple of key's and value's, "
                             f"{own} and {v.shape[-3]}")
        q = reshape(q, (*q.shape[:-3], own, heads // own * length, q.shape[-1]))
    scores = matmul(q, transpose(k, -2, -1))
    shared = scores.shape
    if heads is not None:
        scores = reshape(scores, (*shared[:-3], heads, length, shared[-1]))
    limit = None
    if is_causal:                                       # of the scores' rank: a row has one
        limit = reshape(steps((scores.shape[-2],), 0, 1, dtype="int64"), ((1,) * (scores.rank - 2)) + (scores.shape[-2], 1))
    boolean = mask is not None and mask.dtype == "bool"
    bias = None if boolean or mask is None else mask.to(q.dtype)
    weights = drop(attention_weights(scores, bias, mask if boolean else None, limit, scale, -1))
    if heads is not None:
        weights = reshape(weights, shared)
    out = matmul(weights, v)
    return out if heads is None else reshape(out, (*out.shape[:-3], heads, length, out.shape[-1]))


@composition("scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0,"
             " bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor", method=False,
             structural=("dropout_p", "scale"), autocast="lower",
             samples=(call(t(2, 2, 5, 4), t(2, 2, 6, 4), t(2, 2, 6, 3)), call(t(2, 5, 4), t(2, 5, 4), t(2, 5, 4), None, 0.0, True),
                      call(t(2, 5, 4), t(2, 6, 4), t(2, 6, 3), t(5, 6, dtype="bool")),
                      call(t(2, 5, 4), t(2, 6, 4), t(2, 6, 3), None, 0.0, True), call(t(2, 5, 4), t(2, 6, 4), t(2, 6, 3), t(5, 6), scale=0.3),
                      call(t(2, 4, 5, 4), t(2, 2, 6, 4), t(2, 2, 6, 3), enable_gqa=True)))
def scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale, enable_gqa):
    """softmax(scale * q k^T, masked) v. A row that sees nothing gives zeros."""
    if dropout_p:
        raise NotImplementedError("[scaled_dot_product_attention] dropout inside attention is drawn by "
                                  "nn.functional.scaled_dot_product_attention")
    checked(q, k, v, mask, is_causal)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if flash.takes(q, k, v, mask, scale, enable_gqa):
        return flash.whole(q, k, v, mask, is_causal, scale)
    return attended(q, k, v, mask, is_causal, scale, enable_gqa)


@composition("attention_with_dropout(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale,"
             " bool enable_gqa, float p, SymInt seed, SymInt offset) -> Tensor", method=False, function=False, structural=("scale",),
             autocast="lower", samples=(call(t(2, 5, 4), t(2, 6, 4), t(2, 6, 3), None, False, None, False, 0.5, 7, 100),))
def attention_with_dropout(q, k, v, mask, is_causal, scale, enable_gqa, p, seed, offset):
    """The same with weights dropped by counter: one a weight, from (seed, offset)."""
    checked(q, k, v, mask, is_causal)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return attended(q, k, v, mask, is_causal, scale, enable_gqa, lambda weights: counted_dropout(weights, p, seed, offset))
