"""Samplers: iterables of indices, or of lists of them, in the order in which a DataLoader asks.

Random ones draw from a generator (default: one seeded from the default stream at each pass), so a
seed fixes the order.
"""

import bisect
import itertools
from typing import Generic, TypeVar

from rushlight import eager

T = TypeVar("T", covariant=True)


def drawn_seed(generator=None):
    """A seed drawn from a generator (default: the default stream)."""
    return int(eager.rand((), dtype=eager.float64, generator=generator).item() * 2**53)


class Sampler(Generic[T]):
    """Gives indices by `__iter__`; most have `__len__`."""

    def __iter__(self):
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


def check_count(n, name="num_samples"):
    if not isinstance(n, int) or isinstance(n, bool) or n <= 0:
        raise ValueError(f"[sampler] {name} is a positive integer, got {n!r}")


def check_flag(flag, name):
    if not isinstance(flag, bool):
        raise TypeError(f"[sampler] {name} is a bool, got {flag!r}")


class RandomSampler(Sampler[int]):
    """All indices in random order, or with replacement; num_samples of them (default: as many as
    there are), going round again where that is more.
    """

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement = data_source, replacement
        self._num_samples, self.generator = num_samples, generator
        check_flag(replacement, "replacement")
        check_count(self.num_samples)

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n, count, generator = len(self.data_source), self.num_samples, self.generator
        if generator is None:
            generator = eager.Generator().manual_seed(drawn_seed())
        if self.replacement:
            for start in range(0, count, 1024):
                size = min(1024, count - start)
                yield from eager.randint(0, n, (size,), generator=generator).tolist()
        else:
            for start in range(0, count, max(n, 1)):
                order = eager.randperm(n, generator=generator).tolist()
                yield from order[: count - start]

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """These indices in random order."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for i in eager.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """num_samples indices, each with a probability in proportion to its weight."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        check_count(num_samples)
        check_flag(replacement, "replacement")
        weights = eager.as_tensor(weights, dtype=eager.float64)
        if weights.dim() != 1:
            raise ValueError(
                f"[WeightedRandomSampler] weights are a vector, got shape {tuple(weights.shape)}"
            )
        self.weights, self.num_samples = weights, num_samples
        self.replacement, self.generator = replacement, generator

    def __iter__(self):
        weights, count = self.weights.tolist(), self.num_samples
        if not all(0 <= w < float("inf") for w in weights):
            raise RuntimeError("[WeightedRandomSampler] a weight is negative, infinite or NaN")
        likely = [i for i, w in enumerate(weights) if w > 0]
        if not likely or not self.replacement and count > len(likely):
            raise RuntimeError(
                f"cannot draw {count} of {len(likely)} indices whose weight is not 0"
                + ("" if self.replacement else " without replacement")
            )
        draw = lambda n: eager.rand(n, dtype=eager.float64, generator=self.generator).tolist()
        if self.replacement:
            sums = list(itertools.accumulate(weights[i] for i in likely))
            last = len(likely) - 1
            for u in draw(count):
                yield likely[min(bisect.bisect_right(sums, u * sums[-1]), last)]
        else:  # the first of independent exponential waiting times, each with its weight as rate
            import math

            times = [-math.log(1 - u) / weights[i] for i, u in zip(likely, draw(len(likely)))]
            order = sorted(range(len(likely)), key=times.__getitem__)
            yield from (likely[k] for k in order[:count])

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler[list]):
    """Lists of batch_size indices of a sampler; the last may be shorter, unless drop_last."""

    def __init__(self, sampler, batch_size, drop_last):
        check_count(batch_size, "batch_size")
        check_flag(drop_last, "drop_last")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        n, size = len(self.sampler), self.batch_size
        return n // size if self.drop_last else -(-n // size)
