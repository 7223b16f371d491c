"""Attention: softmax of the products of queries and keys, times values."""

import math

from rushlight import eager
from rushlight.nn.functional.shared import kernel

_softmax = kernel("safe_softmax_rows")


def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
):
    """softmax(query key^T * scale + mask) value; query (..., T, E), key (..., S, E), value (...,
    S, V).

    attn_mask: broadcast to (..., T, S); bool (True: look) or added to the scores. is_causal:
    position t sees keys 0 to t; RuntimeError with a mask. scale: 1 / sqrt(E). enable_gqa: each
    head of key and value serves several of query. dropout_p is always applied: pass 0.0 when not
    training.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
            "is_causal=True"
        )
    if enable_gqa:
        key, value = (_repeated_heads(x, query.shape[-3]) for x in (key, value))
    if dropout_p == 0.0:
        return eager.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale
        )
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)
    if is_causal:
        rows, columns = (eager.arange(n, device=query.device) for n in scores.shape[-2:])
        attn_mask = rows.unsqueeze(1) >= columns
    if attn_mask is not None:
        added = attn_mask.is_floating_point()
        scores = scores + attn_mask if added else eager.where(attn_mask, scores, -math.inf)
    return eager.dropout(_softmax(scores, -1), dropout_p, True) @ value


def _repeated_heads(x, heads):
    """x (..., h, S, E) -> (..., heads, S, E): each head stands for heads / h neighbours."""
    *batch, own, length, width = x.shape
    if heads % own:
        raise RuntimeError(
            f"[scaled_dot_product_attention] enable_gqa: {heads} heads of query are no multiple of "
            f"{own} heads of key and value"
        )
    x = x.unsqueeze(-3).expand((*batch, own, heads // own, length, width))
    return x.reshape((*batch, heads, length, width))
