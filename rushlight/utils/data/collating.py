"""From a list of samples to a batch: tensors stacked, numbers made tensors, containers kept."""

import copy
import sys
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence

from rushlight import eager


def is_numpy(x):
    """Whether x is an array or a scalar of numpy, without loading numpy to ask."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic))


def is_text_array(x):
    return x.dtype.kind in "SUO"


def default_convert(data):
    """numpy's arrays become tensors, in containers too; everything else stays as it is."""
    if is_numpy(data):
        return data if is_text_array(data) else eager.as_tensor(data)
    if isinstance(data, Mapping):
        return mapping_like(data, {key: default_convert(data[key]) for key in data})
    if is_namedtuple(data):
        return type(data)(*map(default_convert, data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return sequence_like(data, [default_convert(d) for d in data])
    return data


def is_namedtuple(x):
    return isinstance(x, tuple) and hasattr(x, "_fields")


def mapping_like(example, items):
    """`items` in the type of `example`, where that can be made; a dict else."""
    try:
        if isinstance(example, MutableMapping):
            out = copy.copy(example)
            out.update(items)
            return out
        return type(example)(items)
    except TypeError:
        return items


def sequence_like(example, items):
    try:
        if isinstance(example, MutableSequence):
            out = copy.copy(example)
            for i, x in enumerate(items):
                out[i] = x
            return out
        return type(example)(items)
    except TypeError:
        return items


def collate_tensor(batch, *, collate_fn_map=None):
    return eager.stack(batch, 0)


def collate_numpy(batch, *, collate_fn_map=None):
    if is_text_array(batch[0]):
        raise TypeError(unfit(batch[0].dtype))
    return collate([eager.as_tensor(x) for x in batch], collate_fn_map=collate_fn_map)


def collate_float(batch, *, collate_fn_map=None):
    return eager.tensor(batch, dtype=eager.float64)


def collate_int(batch, *, collate_fn_map=None):
    return eager.tensor(batch)


def collate_text(batch, *, collate_fn_map=None):
    return batch


# The type of a sample -> how a list of such samples becomes one. Users may add to a copy.
default_collate_fn_map = {
    eager.Tensor: collate_tensor,
    float: collate_float,
    int: collate_int,
    str: collate_text,
    bytes: collate_text,
}


def unfit(kind):
    return (
        "[default_collate] batches are made of tensors, arrays, numbers, dicts and lists; found "
        f"{kind}"
    )


def collate(batch, *, collate_fn_map=None):
    """A list of samples -> one value of their form. collate_fn_map: type -> function(batch, *,
    collate_fn_map) for the leaves. TypeError for a type that has none, RuntimeError for samples
    of unequal lengths.
    """
    first, table = batch[0], collate_fn_map or {}
    kind = type(first)
    if kind in table:
        return table[kind](batch, collate_fn_map=table)
    for known, function in table.items():
        if isinstance(first, known):
            return function(batch, collate_fn_map=table)
    if is_numpy(first):
        return collate_numpy(batch, collate_fn_map=table)
    inner = lambda samples: collate(samples, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return mapping_like(first, {key: inner([d[key] for d in batch]) for key in first})
    if is_namedtuple(first):
        return kind(*(inner(samples) for samples in zip(*batch)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError(
                "[default_collate] the samples are lists of other lengths: equal size is needed"
            )
        columns = [inner(samples) for samples in zip(*batch)]
        return columns if isinstance(first, tuple) else sequence_like(first, columns)
    raise TypeError(unfit(kind))


def default_collate(batch):
    """What a DataLoader does with a list of samples: tensors and arrays are stacked along a new
    first dim, numbers become a tensor (float64 for floats), text stays a list, and dicts,
    tuples, named tuples and lists are batched entry by entry.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
