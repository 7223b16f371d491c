"""A sampler for several processes, each of which takes its share of a data set."""

import math

from rushlight import eager

from .sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every num_replicas-th index, from ``rank`` on: the shares are of equal size.

    Without drop_last the first indices are repeated at the end to make them so, with it the last
    ones are left out. shuffle: in an order drawn from seed + epoch, the same in all processes; call
    `set_epoch` before each epoch. There are no process groups here, so both numbers must be given
    (RuntimeError). ValueError for a rank that is none of them.
    """

    def __init__(
        self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False
    ):
        if num_replicas is None or rank is None:
            raise RuntimeError(
                "Requires distributed package to be available: give num_replicas and rank"
            )
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"[DistributedSampler] rank {rank} is out of range: 0 to {num_replicas - 1}"
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self):
        n = len(self.dataset)
        if self.shuffle:
            generator = eager.Generator().manual_seed(self.seed + self.epoch)
            indices = eager.randperm(n, generator=generator).tolist()
        else:
            indices = list(range(n))
        if not self.drop_last and n:
            indices *= math.ceil(self.total_size / n)
        indices = indices[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Which order is drawn next."""
        self.epoch = epoch
