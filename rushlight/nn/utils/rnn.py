"""Sequences of different lengths: padded to one tensor, or packed step by step without padding."""

from collections import namedtuple

from rushlight import eager
from rushlight.eager.sampling import place

Tensor = eager.Tensor
_Fields = namedtuple("_Fields", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])


def invert_permutation(permutation):
    """Where each place has gone; None for None."""
    if permutation is None:
        return None
    inverse = [0] * permutation.numel()
    for at, i in enumerate(permutation.tolist()):
        inverse[i] = at
    return eager.tensor(inverse, dtype=eager.int64, device=place(permutation))


class PackedSequence(_Fields):
    """``data``: the first elements of all sequences, then the second ones, and so on, longest
    sequence first; ``batch_sizes``: int64, how many each step has; the two permutations lead from
    the batch's order to that of lengths and back (None: it is sorted).
    """

    __slots__ = ()

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("[PackedSequence] a pair (data, batch_sizes) is needed")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else type(self)(data, *self[1:])

    def _as(self, dtype):
        return self.to(dtype)

    def cpu(self):
        return self

    def double(self):
        return self.to(eager.float64)

    def float(self):
        return self.to(eager.float32)

    def half(self):
        return self.to(eager.float16)

    def long(self):
        return self.to(eager.int64)

    def int(self):
        return self.to(eager.int32)

    def pin_memory(self):
        return self

    def is_pinned(self):
        return False

    @property
    def is_cuda(self):
        return False


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """input: (length, batch, ...), or (batch, length, ...) with batch_first; lengths: of each
    sequence, a list or 1-D int64 tensor. enforce_sorted: they must fall (RuntimeError).
    """
    lengths = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if batch_first:
        input = input.transpose(0, 1)
    if len(lengths) != input.shape[1]:
        raise RuntimeError(
            f"[pack_padded_sequence] {len(lengths)} lengths for a batch_size of {input.shape[1]}"
        )
    order = None
    if not enforce_sorted:
        places = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        lengths = [lengths[i] for i in places]
        order = eager.tensor(places, dtype=eager.int64, device=place(input))
        input = input.index_select(1, order)
    elif any(a < b for a, b in zip(lengths, lengths[1:], strict=False)):
        raise RuntimeError(
            "[pack_padded_sequence] the lengths are not sorted in decreasing order: "
            "enforce_sorted=False sorts them"
        )
    if not lengths or lengths[-1] <= 0:
        raise RuntimeError("[pack_padded_sequence] a sequence is empty: each length is positive")
    if lengths[0] > input.shape[0]:
        raise RuntimeError(
            f"[pack_padded_sequence] a length of {lengths[0]} in an input of {input.shape[0]} steps"
        )
    sizes = [sum(n > t for n in lengths) for t in range(lengths[0])]
    parts, start = [], 0
    while start < len(sizes):  # runs of steps of one size are one view
        end = start
        while end < len(sizes) and sizes[end] == sizes[start]:
            end += 1
        run = input[start:end, : sizes[start]]
        parts.append(run.reshape((-1, *input.shape[2:])))
        start = end
    data = parts[0] if len(parts) == 1 else eager.cat(parts)
    return PackedSequence(data, eager.tensor(sizes, dtype=eager.int64), order, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """(padded tensor, int64 lengths), in the batch's order. total_length: the padded length."""
    sizes = sequence.batch_sizes.tolist()
    longest, batch = len(sizes), sizes[0]
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                f"[pad_packed_sequence] total_length={total_length} is shorter than the longest "
                f"sequence, {longest}"
            )
    length = longest if total_length is None else total_length
    data, rest = sequence.data, tuple(sequence.data.shape[1:])
    blank = lambda *lead: eager.full(
        (*lead, *rest), padding_value, dtype=data.dtype, device=place(data)
    )
    parts, start, at = [], 0, 0
    while start < longest:
        end, n = start, sizes[start]
        while end < longest and sizes[end] == n:
            end += 1
        run = data[at : at + n * (end - start)].view((end - start, n, *rest))
        parts.append(run if n == batch else eager.cat([run, blank(end - start, batch - n)], 1))
        at += n * (end - start)
        start = end
    if length > longest:
        parts.append(blank(length - longest, batch))
    padded = eager.cat(parts) if len(parts) > 1 else parts[0].clone()
    lengths = eager.tensor([sum(n > i for n in sizes) for i in range(batch)], dtype=eager.int64)
    if batch_first:
        padded = padded.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices.cpu())
    return padded, lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors (length, ...) -> one (longest, batch, ...), or (batch, longest, ...)."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"[pad_sequence] padding_side is 'left' or 'right', got {padding_side}")
    if isinstance(sequences, Tensor):
        sequences = [sequences[i] for i in range(sequences.shape[0])]
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("[pack_sequence] an empty list of sequences")
    longest, rest = max(s.shape[0] for s in sequences), tuple(sequences[0].shape[1:])
    padded = []
    for s in sequences:
        missing = longest - s.shape[0]
        if missing:
            blank = eager.full((missing, *rest), padding_value, dtype=s.dtype, device=place(s))
            s = eager.cat([s, blank] if padding_side == "right" else [blank, s])
        padded.append(s)
    return eager.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The sequences of a padded tensor, as a list."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [padded_sequences[i, : int(n)] for i, n in enumerate(lengths.tolist())]


def pack_sequence(sequences, enforce_sorted=True):
    """Tensors (length, ...) -> a PackedSequence."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The sequences of a PackedSequence, as a list."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
