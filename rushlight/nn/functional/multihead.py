"""Attention in several heads, with the projections around it, as one function of all tensors."""

import math

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.nn.functional.activation import softmax
from rushlight.nn.functional.attention import scaled_dot_product_attention
from rushlight.nn.functional.dropping import dropout
from rushlight.nn.functional.shared import kernel

_in_projection, _linear = kernel("in_projection"), kernel("linear")


def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    """What MultiheadAttention computes: (result like query, weights or None).

    query (T, N, width), key and value (S, N, width), or all without N. Masks: True means "do not
    look", a floating one is added to the scores. static_k, static_v (N * heads, S, width of a
    head) stand in for the projected key and value. AssertionError for widths that do not fit.
    """
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"[multi_head_attention] query has 2 dims, or 3 in a batch, got {query.dim()}"
        )
    batched = query.dim() == 3
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"[multi_head_attention] {'a batch' if batched else 'no batch'} of queries: key and "
            f"value have {query.dim()} dims too, got {key.dim()} and {value.dim()}"
        )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "[multi_head_attention] is_causal=True is a hint about attn_mask, which is missing: "
            "Transformer.generate_square_subsequent_mask makes it"
        )
    width = query.shape[-1]
    if width != embed_dim_to_check:
        raise AssertionError(
            f"[multi_head_attention] the query has {width} features where {embed_dim_to_check} are "
            "expected"
        )
    if width % num_heads:
        raise AssertionError(
            f"[multi_head_attention] {width} features are not divisible by {num_heads} heads"
        )
    one = query is key and key is value
    if batched:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    else:
        query, key, value = (x.unsqueeze(0) for x in (query, key, value))
    if use_separate_proj_weight:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"[multi_head_attention] keys are {key.shape[:2]} (positions, batch), values "
                f"{value.shape[:2]}"
            )
        for weight, name in (
            (q_proj_weight, "q_proj_weight"),
            (k_proj_weight, "k_proj_weight"),
            (v_proj_weight, "v_proj_weight"),
        ):
            if weight is None:
                raise AssertionError(
                    f"[multi_head_attention] use_separate_proj_weight=True needs {name}"
                )
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        if key.shape != value.shape:
            raise AssertionError(
                f"[multi_head_attention] keys are {key.shape}, values {value.shape}: they have to "
                "be equal"
            )
        if in_proj_weight is None:
            raise AssertionError(
                "[multi_head_attention] in_proj_weight is None: then use_separate_proj_weight has "
                "to be True"
            )
        weights = None
    out, seen = attended(
        query, key, value, one, num_heads, in_proj_weight, weights, in_proj_bias, bias_k, bias_v,
        add_zero_attn, dropout_p if training else 0.0, out_proj_weight, out_proj_bias,
        key_padding_mask, need_weights, attn_mask, static_k, static_v, average_attn_weights,
    )  # fmt: skip
    if batched:
        return out.transpose(0, 1), seen
    return out.squeeze(0), None if seen is None else seen.squeeze(0)


def attended(
    query, key, value, one, heads, joint, apart, bias, bias_k, bias_v, zero, p, out_weight,
    out_bias, padding, need_weights, attn_mask, static_k=None, static_v=None, average=True,
):  # fmt: skip
    """The same of checked arguments, batch first: query (N, T, width).

    one: query, key and value are one tensor. joint: one weight for all three, or apart: a weight
    each. p: of dropout, 0 when not training.
    """
    batch, targets, width = query.shape
    head = width // heads
    q, k, v = _projected(query, key, value, one, joint, apart, bias, width)
    q = _split(q, heads, head)
    k = _split(k, heads, head) if static_k is None else _static("static_k", static_k, q)
    v = _split(v, heads, head) if static_v is None else _static("static_v", static_v, q)
    mask = _joint_mask(padding, attn_mask, batch, heads, targets, k.shape[2], q.dtype)
    more = []
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("[multi_head_attention] static keys and values take no bias")
        more.append(tuple(b.view(1, heads, 1, head) for b in (bias_k, bias_v)))
    if zero:
        more.append((eager.zeros((1, heads, 1, head), dtype=k.dtype, device=place(k)),) * 2)
    for extra_k, extra_v in more:
        k = eager.cat([k, extra_k.expand(batch, heads, 1, head)], 2)
        v = eager.cat([v, extra_v.expand(batch, heads, 1, head)], 2)
        if mask is not None:
            shown = eager.zeros((*mask.shape[:-1], 1), dtype=mask.dtype, device=place(mask))
            mask = eager.cat([mask, shown], -1)
    weights = None
    if need_weights:
        scores = (q * (1.0 / math.sqrt(head))) @ k.transpose(-2, -1)
        weights = dropout(softmax(scores if mask is None else scores + mask, -1), p)
        out = weights @ v
    else:
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
    out = _linear(out.transpose(1, 2).reshape(batch, targets, width), out_weight, out_bias)
    if weights is not None and average:
        weights = weights.mean(1)
    return out, weights


def _projected(query, key, value, one, joint, apart, bias, width):
    """Query, key and value through their weights; of one tensor by one product."""
    if one and joint is not None and apart is None:
        return _in_projection(query, joint, bias)
    weights = [joint[i * width : (i + 1) * width] for i in range(3)] if apart is None else apart
    biases = [None] * 3 if bias is None else [bias[i * width : (i + 1) * width] for i in range(3)]
    return map(_linear, (query, key, value), weights, biases)


def _split(x, heads, head):
    """(N, L, width) -> (N, heads, L, width of a head)."""
    return x.view(x.shape[0], x.shape[1], heads, head).transpose(1, 2)


def _static(name, given, q):
    """(N * heads, S, width of a head) as (N, heads, S, width of a head)."""
    batch, heads, _, head = q.shape
    if given.shape[0] != batch * heads or given.shape[2] != head:
        raise AssertionError(
            f"[multi_head_attention] {name} is ({batch * heads}, *, {head}), got {given.shape}"
        )
    return given.view(batch, heads, given.shape[1], head)


def _joint_mask(padding, mask, batch, heads, targets, sources, dtype):
    """Both masks as one that is added to scores (N, heads, T, S), or None."""
    found = None
    if mask is not None:
        full = (batch * heads, targets, sources)
        if tuple(mask.shape) not in (full[1:], full):
            raise RuntimeError(
                f"[multi_head_attention] The shape of the attn_mask is {mask.shape}: {full[1:]} or "
                f"{full} is needed"
            )
        found = _added(mask, dtype)
        if mask.dim() == 3:
            found = found.view(batch, heads, targets, sources)
    if padding is not None:
        padding = _added(padding, dtype).reshape(batch, 1, 1, sources)
        found = padding if found is None else found + padding
    return found


def _added(mask, dtype):
    """A bool mask as 0 and -inf; a floating one as it is."""
    if mask.is_floating_point():
        return mask
    return eager.zeros(mask.shape, dtype=dtype, device=place(mask)).masked_fill(mask, -math.inf)
