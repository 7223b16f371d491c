"""Attention: softmax of the products of queries and keys, times values."""

import math

from rushlight import eager
from rushlight.nn.functional.shared import kernel

_dropped = kernel("attention_with_dropout")


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
    if dropout_p == 0.0:
        return eager.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if not 0 < dropout_p <= 1:
        raise ValueError(
            f"[scaled_dot_product_attention] a probability lies between 0 and 1, got {dropout_p}"
        )
    return dropped_attention(
        query, key, value, attn_mask, is_causal, scale, enable_gqa, float(dropout_p)
    )


def dropped_attention(query, key, value, attn_mask, is_causal, scale, enable_gqa, p):
    """With dropout: draws from the default stream, so that a captured graph has it as one node."""
    batch = zip(reversed(query.shape[:-2]), reversed(key.shape[:-2]))
    count = math.prod(query.shape[:-1]) * key.shape[-2]  # a number for each weight
    count *= math.prod(k for q, k in batch if q == 1)
    counter = eager.randomness.default_generator.reserve(count)
    return _dropped(query, key, value, attn_mask, is_causal, scale, enable_gqa, p, *counter)
