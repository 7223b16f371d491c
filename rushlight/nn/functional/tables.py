"""Rows of tables by integer ids."""

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.nn.functional.shared import floats, kernel

_embedding = kernel("embedding")


def _table_row(padding_idx, rows):
    """The row that gets no gradient, counted from the front; -1 for none."""
    if padding_idx is None:
        return -1
    if padding_idx >= rows or padding_idx < -rows:
        raise AssertionError("[embedding] Padding_idx must be within num_embeddings rows")
    return padding_idx % rows


def _renormalise(weight, ids, max_norm, norm_type):
    """Rows that are looked up and longer than max_norm are shortened to it, in place."""
    from rushlight.nn.functional.normalization import vector_norm

    with eager.no_grad():
        rows = sorted(set(ids.reshape(-1).tolist()))
        if not rows:
            return
        picked = eager.tensor(rows, dtype=eager.int64)  # type: ignore[attr-defined]
        values = _embedding(weight, picked)
        norm = vector_norm(values, norm_type, 1, True)
        scale = eager.where(norm > max_norm, max_norm / (norm + 1e-7), 1.0)
        for i, row in enumerate(rows):
            if scale[i].item() != 1.0:
                weight[row].mul_(scale[i])


def embedding(
    input,
    weight,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
):
    """weight[input]: rows of a (rows, columns) table for integer ids of any shape.

    padding_idx: a row without gradient. max_norm: rows looked up are brought to that norm first, in
    place. scale_grad_by_freq: a row's gradient is divided by how often it was looked up. Sparse
    gradients are not supported (NotImplementedError).
    """
    if sparse:
        raise NotImplementedError("[embedding] sparse gradients are not supported")
    padding_idx = _table_row(padding_idx, weight.shape[0])
    if max_norm is not None:
        _renormalise(weight, input, max_norm, norm_type)
    out = _embedding(weight, input, padding_idx)
    if scale_grad_by_freq and out.requires_grad:
        ones = eager.ones((weight.shape[0], 1), dtype=weight.dtype, device=place(weight))
        counts = kernel("embedding_backward")(
            eager.ones((*input.shape, 1), dtype=weight.dtype, device=place(weight)),
            input,
            ones.shape[0],
        )
        share = 1 / _embedding(counts, input)
        out = out.detach() + (out - out.detach()) * share
    return out


def embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Sums, means or maxima of rows a bag: (bags, columns).

    input: (bags, ids), or 1-D ids with ``offsets``, where each bag begins (with
    include_last_offset also where the last one ends). per_sample_weights: factors of input's shape,
    for 'sum' only. padding_idx: ids that count as not there. Empty bags give zeros.
    """
    if weight.dtype == eager.int64 and input.is_floating_point():  # type: ignore[attr-defined]
        raise ValueError("Arguments to embedding_bag are in the wrong order: input, then weight")
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            f"[embedding_bag] per_sample_weights has shape {tuple(per_sample_weights.shape)}, the "
            f"input {tuple(input.shape)}: they have to be equal"
        )
    if weight.dim() != 2:
        raise ValueError(f"[embedding_bag] a table has 2 dims, got {weight.dim()}")
    if mode not in ("sum", "mean", "max"):
        raise ValueError("[embedding_bag] mode is not one of sum, mean and max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"[embedding_bag] mode='{mode}' takes no per_sample_weights, only 'sum' does"
        )
    if mode == "max" and scale_grad_by_freq:
        raise ValueError(
            "[embedding_bag] mode='max' has no scale_grad_by_freq: it is not supported"
        )
    floats("embedding_bag", weight)
    lengths = _bag_lengths(input, offsets, include_last_offset)
    ids = input.reshape(-1)
    if lengths is None:
        bags, longest = input.shape
        valid = None
    else:
        ids, valid = _padded_bags(ids, lengths)
        bags, longest = valid.shape
    rows = weight.shape[0]
    grid = ids.view((bags, longest))
    values = embedding(grid, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if padding_idx is not None:
        there = grid != padding_idx % rows
        valid = there if valid is None else valid & there
    if per_sample_weights is not None:
        factors = per_sample_weights.reshape(-1)
        if lengths is not None:
            factors = _spread_over_bags(factors, lengths, longest)
        values = values * factors.view((bags, longest)).unsqueeze(2)
    if mode == "max":
        if longest == 0:
            return eager.zeros((bags, weight.shape[1]), dtype=weight.dtype, device=place(weight))
        if valid is None:
            return eager.max(values, 1)[0]
        low = values.masked_fill(~valid.unsqueeze(2), float("-inf"))
        any_there = valid.to(eager.int64).sum(1, keepdim=True) > 0  # type: ignore[attr-defined]
        return eager.where(any_there, eager.max(low, 1)[0], 0.0)
    if valid is not None:
        values = values.masked_fill(~valid.unsqueeze(2), 0.0)
    total = values.sum(1)
    if mode == "sum":
        return total
    if valid is None:
        return total / max(longest, 1)
    return total / valid.to(total.dtype).sum(1, keepdim=True).clamp(min=1)


def _bag_lengths(input, offsets, include_last_offset):
    """How many ids each bag has; None for 2-D input, whose rows are bags."""
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "[embedding_bag] the rows of a 2-D input are the bags, so offsets is None, got "
                f"{type(offsets)}"
            )
        return None
    if input.dim() != 1:
        raise ValueError(f"[embedding_bag] the input has 1 or 2 dims, got {input.dim()}")
    if offsets is None:
        raise ValueError("[embedding_bag] a 1-D input needs offsets, where each bag begins")
    if offsets.dim() != 1:
        raise ValueError("[embedding_bag] offsets is a vector")
    starts = offsets.tolist()
    if starts and starts[0] != 0:
        raise RuntimeError(f"[embedding_bag] the first bag begins at offset 0, got {starts[0]}")
    if starts and starts[-1] > input.shape[0]:
        raise RuntimeError(
            f"[embedding_bag] the last bag begins at {starts[-1]}, after the end of "
            f"{input.shape[0]} indices"
        )
    if not include_last_offset:
        starts = [*starts, input.shape[0]]
    return [b - a for a, b in zip(starts, starts[1:], strict=False)]


def _padded_bags(ids, lengths):
    """(ids (bags, longest) with zeros at the ends, bool which are there)."""
    longest = max(lengths, default=0)
    flat, rows, there, at = ids.tolist(), [], [], 0
    for n in lengths:
        rows.append(flat[at : at + n] + [0] * (longest - n))
        there.append([True] * n + [False] * (longest - n))
        at += n
    shape = (len(lengths), longest)
    return (
        eager.tensor(rows, dtype=ids.dtype, device=place(ids)).view(shape),
        eager.tensor(there, dtype=eager.bool, device=place(ids)).view(shape),  # type: ignore[attr-defined]
    )


def _spread_over_bags(factors, lengths, longest):
    places, at = [], 0
    for n in lengths:
        places += [*range(at, at + n), *([0] * (longest - n))]
        at += n
    order = eager.tensor(places, dtype=eager.int64)  # type: ignore[attr-defined]
    return _embedding(factors.unsqueeze(1), order).squeeze(1)


def one_hot(tensor, num_classes=-1):
    """int64 ids of any shape -> int64 zeros and ones, shape ids.shape + (classes,)."""
    if tensor.dtype is not eager.int64:
        raise RuntimeError(f"one_hot is only applicable to int64 ids, got {tensor.dtype}")
    if num_classes == -1:
        num_classes = int(tensor.amax().item()) + 1
    elif tensor.numel() and int(tensor.amax().item()) >= num_classes:
        raise RuntimeError("[one_hot] a class is not below num_classes")
    if tensor.numel() and int((-tensor).amax().item()) > 0:
        raise RuntimeError("[one_hot] a class is negative")
    return (tensor.unsqueeze(-1) == eager.arange(num_classes, device=tensor.device)).to(eager.int64)
