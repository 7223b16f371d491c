"""DataLoader: batches of a data set, in this process or from worker processes.

Takes a data set, and who decides the order (sampler) and the batches (batch_sampler, collate_fn);
gives an iterator of batches. What runs in the workers is in worker.py, the processes themselves
in pool.py.
"""

import multiprocessing
import os
import warnings
from collections.abc import Mapping
from itertools import count, repeat

from rushlight.eager.casting import has_cuda

from .collating import default_collate, default_convert
from .dataset import IterableDataset
from .pool import Pool
from .sampler import BatchSampler, RandomSampler, SequentialSampler, drawn_seed
from .worker import fetcher


class DataLoader:
    """An iterable of batches of a data set.

    dataset: a Dataset (or anything with __getitem__ and __len__) or an IterableDataset.
    batch_size: samples a batch; None: samples one by one, not batched. shuffle, sampler,
    batch_sampler: the order; sampler gives indices, batch_sampler lists of them. num_workers:
    processes that load; 0: this one. collate_fn: list of samples -> batch. pin_memory and
    pin_memory_device: with a GPU, batches lie in page-locked memory. drop_last: leave out a
    last batch that is too short. timeout: seconds to wait for a worker; 0: for ever.
    worker_init_fn(id): called in each worker after seeding. multiprocessing_context: 'fork',
    'spawn', 'forkserver' or a context. generator: of the order and of the workers' base seed.
    prefetch_factor: batches loaded ahead by each worker (default 2). persistent_workers: keep
    them from pass to pass. in_order=False: batches as they are ready.

    Worker i draws random numbers from base_seed + i. Its exceptions are raised here, with its
    traceback; a worker that dies raises RuntimeError. ValueError for arguments that exclude one
    another.
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
    ):
        check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        iterable = isinstance(dataset, IterableDataset)
        check_order(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if num_workers and prefetch_factor is None:
            prefetch_factor = 2
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            if iterable:
                sampler = Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn, self.num_workers, self.timeout = collate_fn, num_workers, timeout
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.prefetch_factor = worker_init_fn, prefetch_factor
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.multiprocessing_context = multiprocessing_context
        self._iterable, self._iterator = iterable, None
        self._fixed = True
        check_cores(num_workers)

    FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")

    def __setattr__(self, name, value):
        if name in self.FIXED and getattr(self, "_fixed", False):
            raise ValueError(f"[DataLoader] {name} is fixed once a {type(self).__name__} is made")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self):
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None:
            if not self.num_workers:
                raise ValueError(
                    "[DataLoader] multiprocessing_context is for workers, and "
                    f"num_workers={self.num_workers}"
                )
            known = multiprocessing.get_all_start_methods()
            if isinstance(context, str):
                if context not in known:
                    raise ValueError(
                        f"[DataLoader] the start methods here are {known!r}, not {context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "[DataLoader] multiprocessing_context is a context or the name of a start "
                    f"method, got {context}"
                )
        self._context = context

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    @property
    def _job(self):
        """What makes a fetcher (worker.py)."""
        return (
            self.dataset,
            self._iterable,
            self._auto_collation,
            self.collate_fn,
            self.drop_last,
        )

    def __iter__(self):
        batches = self._batches()
        return Pinned(batches) if self.pin_memory and has_cuda() else batches

    def _batches(self):
        if not self.num_workers:
            return SingleProcess(self)
        if not self.persistent_workers:
            return Pool(self)
        if self._iterator is None or self._iterator.broken:
            self._iterator = Pool(self)
        else:
            self._iterator.begin(self)
        return self._iterator

    def __len__(self):
        if not self._iterable:
            return len(self._index_sampler)
        n = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class Endless:
    """The sampler of an iterable data set: nothing to decide, as often as is asked."""

    def __iter__(self):
        return repeat(None)


class Pinned:
    """An iterator whose tensors are copied into page-locked memory, from which copies to a GPU are
    asynchronous.
    """

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return self

    def __next__(self):
        return pinned(next(self.batches))

    def __len__(self):
        return len(self.batches)


def pinned(batch):
    """A batch with its tensors pinned; what has a `pin_memory` of its own is asked for it."""
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, (str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        return type(batch)({k: pinned(v) for k, v in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(pinned, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(pinned, batch))
    return batch


class SingleProcess:
    """An iterator that loads in this process."""

    def __init__(self, loader):
        drawn_seed(loader.generator)  # as with workers, so that both leave the same stream
        self.indices, self.length = iter(loader._index_sampler), LengthCheck(loader)
        self.fetch = fetcher(*loader._job)

    def __iter__(self):
        return self

    def __next__(self):
        batch = self.fetch(next(self.indices))
        self.length.count()
        return batch

    def __len__(self):
        return len(self.length.loader._index_sampler)


class LengthCheck:
    """Warns when an iterable data set gives more batches than its __len__ promised."""

    def __init__(self, loader):
        self.loader, self.given, self.promised = loader, count(1), None
        if loader._iterable:
            try:
                self.promised = len(loader)
            except (TypeError, NotImplementedError):
                pass

    def count(self):
        n = next(self.given)
        if self.promised is not None and n > self.promised:
            hint = (
                " Does the data set divide itself among the workers, each of which has a replica? "
                "See get_worker_info (replica at each worker)."
                if self.loader.num_workers
                else ""
            )
            warnings.warn(
                f"[DataLoader] {n} samples came from {self.loader.dataset}, an IterableDataset "
                f"whose length said {self.promised}.{hint}",
                stacklevel=3,
            )


# ---- arguments


def check_workers(num_workers, timeout, prefetch_factor, persistent_workers):
    if num_workers < 0:
        raise ValueError("[DataLoader] num_workers is non-negative; 0 loads in this process")
    if timeout < 0:
        raise ValueError("[DataLoader] timeout is non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "[DataLoader] prefetch_factor is for workers: num_workers > 0, or leave it out"
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError("[DataLoader] prefetch_factor is positive")
    if persistent_workers and num_workers == 0:
        raise ValueError("[DataLoader] persistent_workers=True needs workers: num_workers > 0")


def check_order(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last):
    if iterable:
        for name, given in (
            ("shuffle", shuffle or None),
            ("sampler", sampler),
            ("batch_sampler", batch_sampler),
        ):
            if given is not None:
                raise ValueError(
                    "DataLoader with IterableDataset: expected unspecified "
                    f"{name} option, but got {name}={given}"
                )
    if sampler is not None and shuffle:
        raise ValueError("[DataLoader] a sampler decides the order itself: no shuffle beside it")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "[DataLoader] a batch_sampler decides batch_size, shuffle, sampler and drop_last "
                "itself"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "[DataLoader] batch_size=None makes no batches, so there is none for drop_last to drop"
        )


def check_cores(num_workers):
    cores = len(os.sched_getaffinity(0))
    if num_workers > cores:
        warnings.warn(
            f"[DataLoader] {num_workers} worker processes in total are more than the {cores} "
            "cores that this process may use",
            stacklevel=3,
        )


__all__ = ["DataLoader"]
