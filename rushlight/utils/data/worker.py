"""A worker process of a DataLoader: receives indices, sends batches, until its channel ends."""

import pickle
import random
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from rushlight import eager

from . import transport


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is: id of num_workers, its seed, its copy of the data set."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_current: WorkerInfo | None = None


def get_worker_info():
    """The WorkerInfo in a worker process of a DataLoader, None elsewhere."""
    return _current


# ---- messages


class Failure:
    """An exception of another process: its kind, if it can be sent, and its traceback."""

    def __init__(self, error, where):
        self.kind = sendable_kind(type(error))
        self.text = f"Caught {type(error).__name__} {where}.\nOriginal " + "".join(
            traceback.format_exception(error)
        )

    def again(self):
        """The exception, to be raised here: of the same kind, its text holds the traceback."""
        if self.kind is KeyError:
            return KeyError(Text(self.text))
        return self.kind(self.text)


class Text(str):
    """A text whose repr is itself: KeyError prints its argument's repr."""

    def __repr__(self):
        return str(self)


def sendable_kind(kind):
    """The kind itself, or its nearest base that both sides know and that takes one text."""
    for base in kind.__mro__:
        try:
            if pickle.loads(pickle.dumps(base)) is base and isinstance(base("text"), base):
                return base
        except Exception:
            continue
    return RuntimeError


class Exhausted:
    """This worker's part of an iterable data set has ended."""


class Resumed:
    """This worker has begun the next pass."""


# ---- fetching


def fetcher(dataset, iterable, auto_collation, collate_fn, drop_last):
    """A function of what a sampler gives -> a batch (or a sample, without auto_collation).

    For iterable data sets it raises StopIteration at the end.
    """
    if not iterable:

        def fetch(index):
            if not auto_collation:
                return collate_fn(dataset[index])
            if getattr(dataset, "__getitems__", None):
                return collate_fn(dataset.__getitems__(index))
            return collate_fn([dataset[i] for i in index])

        return fetch
    iterator, ended = iter(dataset), False

    def fetch_next(index):
        nonlocal ended
        if ended:
            raise StopIteration
        if not auto_collation:
            return collate_fn(next(iterator))
        samples = []
        for _ in index:
            try:
                samples.append(next(iterator))
            except StopIteration:
                ended = True
                break
        if not samples or drop_last and len(samples) < len(index):
            raise StopIteration
        return collate_fn(samples)

    return fetch_next


def numpy_seed(base_seed, worker_id):
    """128 bits for numpy's global generator, different for every (base_seed, worker_id)."""
    import hashlib

    digest = hashlib.blake2b(f"{base_seed} {worker_id}".encode(), digest_size=16).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]


def seed_everything(base_seed, worker_id):
    """PyTorch's rule: base_seed + id; numpy's global generator too, where numpy is loaded."""
    random.seed(base_seed + worker_id)
    eager.manual_seed(base_seed + worker_id)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(numpy_seed(base_seed, worker_id))


def run(end, job, base_seed, worker_id, count, init_fn):
    """The whole life of a worker. job: the arguments of `fetcher`."""
    global _current
    transport.close_inherited()
    channel = transport.Channel(end)
    try:
        eager.set_num_threads(1)
        seed_everything(base_seed, worker_id)
        _current = WorkerInfo(worker_id, count, base_seed + worker_id, job[0])
        serve(channel, job, init_fn, worker_id)
    except (EOFError, KeyboardInterrupt):
        pass  # the loader is gone, or will say so itself


def serve(channel, job, init_fn, worker_id):
    """Answers (number, index) with (number, batch, Failure or Exhausted); number None begins the
    next pass.
    """
    where = f"in DataLoader worker process {worker_id}"
    fetch = failure = None
    try:
        if init_fn is not None:
            init_fn(worker_id)
        fetch = fetcher(*job)
    except Exception as error:
        failure = Failure(error, where)
    while True:
        number, index = channel.receive()
        answer = failure
        try:
            if number is None:
                answer = Resumed()
                fetch = fetch and fetcher(*job)
            elif failure is None:
                answer = fetch(index)
        except StopIteration as error:
            answer = Exhausted() if job[1] else Failure(error, where)
        except Exception as error:
            answer = Failure(error, where)
        try:
            packed = transport.pack((number, answer))
        except Exception as error:  # it cannot be sent
            packed = transport.pack((number, Failure(error, where)))
        answer = None
        channel.send_packed(*packed)
