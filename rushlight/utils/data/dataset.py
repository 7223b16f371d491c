"""Data sets: indexed (`dataset[i]`, perhaps `len`) or iterated, and those made from others."""

import bisect
import math
import warnings
from itertools import accumulate
from typing import Generic, TypeVar

from rushlight import eager

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Something with `__getitem__`, and for most samplers `__len__`. `__getitems__(indices)`, if
    there, gives a whole batch at once.
    """

    def __getitem__(self, index):
        raise NotImplementedError("[Dataset] a subclass defines __getitem__")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Something with `__iter__`. With workers each has a copy: `get_worker_info` tells which part
    is its own.
    """

    def __iter__(self):
        raise NotImplementedError("[IterableDataset] a subclass defines __iter__")

    def __add__(self, other):
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple]):
    """Tuples of the rows of tensors that have the same number of rows."""

    def __init__(self, *tensors):
        if any(x.size(0) != tensors[0].size(0) for x in tensors):
            raise AssertionError(
                "[TensorDataset] Size mismatch in the first dim: "
                f"{[tuple(x.shape) for x in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(x[index] for x in self.tensors)

    def __len__(self):
        return self.tensors[0].size(0)


class StackDataset(Dataset):
    """Several data sets of one length side by side: tuples of their elements, or dicts where they
    are given by name.
    """

    def __init__(self, *args, **kwargs):
        if args and kwargs:
            raise ValueError("[StackDataset] takes data sets in order or by name, got both")
        if not args and not kwargs:
            raise ValueError("[StackDataset] takes at least one data set")
        self.datasets = kwargs or args
        members = self.members()
        self._length = len(members[0])
        if any(len(d) != self._length for d in members):
            raise ValueError("[StackDataset] Size mismatch: the data sets have other lengths")

    def members(self):
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def together(self, values):
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, values))
        return tuple(values)

    def __getitem__(self, index):
        return self.together(d[index] for d in self.members())

    def __getitems__(self, indices):
        columns = []
        for d in self.members():
            if callable(getattr(d, "__getitems__", None)):
                found = d.__getitems__(indices)
                if len(found) != len(indices):
                    raise ValueError(
                        f"[StackDataset] {len(indices)} samples were asked for, one data set gave "
                        f"{len(found)}"
                    )
            else:
                found = [d[i] for i in indices]
            columns.append(found)
        return [self.together(row) for row in zip(*columns)]

    def __len__(self):
        return self._length


class ConcatDataset(Dataset[T]):
    """Indexed data sets one after another."""

    @staticmethod
    def cumsum(sequence):
        return list(accumulate(len(d) for d in sequence))

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError(
                "[ConcatDataset] takes at least one data set, the list cannot be empty"
            )
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("[ConcatDataset] an IterableDataset has no place to be indexed at")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        if index < 0:
            if -index > len(self):
                raise ValueError(
                    f"[ConcatDataset] index {index} is out of range: its absolute value exceeds "
                    "the length"
                )
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset):
    """Iterated data sets one after another."""

    def __init__(self, datasets):
        super().__init__()
        self.datasets = datasets

    def checked(self):
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise AssertionError(
                    "[ChainDataset] only supports data sets that are iterated over, IterableDataset"
                )
            yield d

    def __iter__(self):
        for d in self.checked():
            yield from d

    def __len__(self):
        return sum(len(d) for d in self.checked())


class Subset(Dataset[T]):
    """The elements of a data set at these indices."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices):
        places = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(places)
        return [self.dataset[i] for i in places]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Disjoint Subsets in random order. lengths: numbers of elements, or fractions that sum to 1
    (what rounding leaves goes to the first ones, one each). generator: of the order.
    """
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        counts = []
        for i, fraction in enumerate(lengths):
            if fraction < 0 or fraction > 1:
                raise ValueError(f"[random_split] fraction {i} is not between 0 and 1")
            counts.append(math.floor(len(dataset) * fraction))
        for i in range(len(dataset) - sum(counts)):
            counts[i % len(counts)] += 1
        lengths = counts
        for i, length in enumerate(lengths):
            if length == 0:
                warnings.warn(
                    f"[random_split] Length of split at index {i} is 0: an empty data set",
                    stacklevel=2,
                )
    if sum(lengths) != len(dataset):
        raise ValueError(
            "[random_split] the lengths do not add up to that of the data set (Sum of input "
            "lengths)"
        )
    order = eager.randperm(sum(lengths), generator=generator).tolist()
    ends = list(accumulate(lengths))
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, lengths)]
