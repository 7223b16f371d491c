"""The worker processes of a DataLoader, and the iterator over what they load.

Invariant: every worker that was started is seen to its end: it leaves when its channel closes
(which the kernel does when we die), and is killed where it does not. A worker that ends unasked is
noticed while waiting, at once.
"""

import multiprocessing
import os
import selectors
import signal
import time
import warnings
import weakref
from collections import deque

from .sampler import drawn_seed
from .transport import WINDOW, Channel, Parcel, pack
from .worker import Exhausted, Failure, Resumed, run

PATIENCE = 5.0  # seconds that workers have to leave by themselves


class Worker:
    """A process and our end of its channel."""

    def __init__(self, number, channel, process):
        self.number, self.channel, self.process = number, channel, process
        self.queued, self.under_way, self.open = deque(), 0, True

    def ask(self, number, index):
        self.queued.append(pack((number, index)))
        self.push()

    def push(self):
        """Sends what fits into the channel without waiting."""
        try:
            while self.queued and self.under_way < WINDOW:
                self.channel.send_packed(*self.queued.popleft())
                self.under_way += 1
        except EOFError:
            pass  # it died: noticed while waiting

    def answer(self):
        found = self.channel.receive()
        self.under_way -= 1
        self.push()
        return found

    def dismiss(self):
        if self.open:
            self.open = False
            for _, handle in self.queued:
                if handle is not None:
                    os.close(handle)
            self.channel.close()

    def end(self):
        """How it ended, in words."""
        self.process.join(1)
        code = self.process.exitcode
        if code is None:
            return "still running, but its channel is closed"
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"killed by signal {-code}"


def started(loader, base_seed):
    """The workers of a loader, all running."""
    context = loader.multiprocessing_context or multiprocessing.get_context()
    forks = context.get_start_method() == "fork"
    job = loader._job if forks else Parcel(loader._job)
    workers = []
    try:
        for i in range(loader.num_workers):
            channel, theirs = Channel.pair()
            args = (theirs, job, base_seed, i, loader.num_workers, loader.worker_init_fn)
            process = context.Process(target=run, args=args, daemon=True)
            workers.append(Worker(i, channel, process))
            with warnings.catch_warnings():
                # "multi-threaded, use of fork() may lead to deadlocks": our own threads, which
                # the core's child does without.
                if forks:
                    warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
    except BaseException:
        for w in workers:
            if w.process.pid is None:
                theirs.close()
                w.dismiss()
        stop([w for w in workers if w.process.pid is not None], os.getpid())
        raise
    finally:
        if not forks:
            job.close()
    return workers


def stop(workers, owner):
    """Sees every worker to its end. In a forked child (of a process with workers) it does nothing:
    they are not its own.
    """
    if os.getpid() != owner:
        return
    for w in workers:
        w.dismiss()
    deadline = time.monotonic() + PATIENCE
    for end in (None, "terminate", "kill"):
        for w in workers:
            if end and w.process.is_alive():
                getattr(w.process, end)()
        for w in workers:
            w.process.join(max(deadline - time.monotonic(), 0.0 if end is None else 1.0))
    for w in workers:
        if not w.process.is_alive():
            w.process.close()
    workers.clear()


class Pool:
    """An iterator of batches that workers load, as many ahead as prefetch_factor says."""

    def __init__(self, loader):
        self.broken = None  # the error after which there is nothing more
        self.base_seed = drawn_seed(loader.generator)
        self.workers = started(loader, self.base_seed)
        self.stop = weakref.finalize(self, stop, self.workers, os.getpid())
        self.selector = selectors.PollSelector()
        for w in self.workers:
            self.selector.register(w.channel, selectors.EVENT_READ, w)
            self.selector.register(w.process.sentinel, selectors.EVENT_READ, w)
        self.prepare(loader)

    def prepare(self, loader):
        """The state of one pass, with the first batches asked for."""
        from .loader import LengthCheck

        self.timeout, self.in_order = loader.timeout, loader.in_order
        self.persistent, self.ahead = loader.persistent_workers, loader.prefetch_factor
        self.indices, self.length = iter(loader._index_sampler), LengthCheck(loader)
        self.active = set(range(len(self.workers)))  # those that have more to give in this pass
        self.asked, self.wanted = 0, 0  # numbers of the next request and of the next batch
        self.asked_of = {}  # number -> worker, for what has not come back
        self.ready = {}  # number -> answer that came early
        self.next_worker = 0
        for _ in range(self.ahead * len(self.workers)):
            self.ask()

    def begin(self, loader):
        """The next pass with the same workers; what is left of the last one is dropped."""
        for w in self.workers:
            w.ask(None, None)
        left = len(self.workers)
        while left:
            _, answer = self.receive()
            left -= isinstance(answer, Resumed)
        self.prepare(loader)

    def ask(self):
        """Asks the next worker in turn for the next batch, if there is one."""
        if not self.active:
            return
        loads = list(self.asked_of.values())
        for _ in range(len(self.workers)):
            i, self.next_worker = self.next_worker, (self.next_worker + 1) % len(self.workers)
            if i in self.active and (self.in_order or loads.count(i) < self.ahead):
                break
        else:
            return
        try:
            index = next(self.indices)
        except StopIteration:
            return
        self.asked_of[self.asked] = i
        self.workers[i].ask(self.asked, index)
        self.asked += 1

    def __iter__(self):
        return self

    def __next__(self):
        if self.broken is not None:
            raise self.broken
        answer = self.next_answer()
        self.ask()
        if isinstance(answer, Failure):
            raise answer.again()
        self.length.count()
        return answer

    def next_answer(self):
        """The next batch in order (or any), or a Failure; StopIteration at the end."""
        while True:
            if self.in_order:
                if self.wanted in self.ready:
                    self.wanted += 1
                    return self.ready.pop(self.wanted - 1)
                if self.wanted < self.asked and self.wanted not in self.asked_of:
                    self.wanted += 1  # asked of a worker that had nothing more
                    continue
            elif self.ready:
                return self.ready.pop(next(iter(self.ready)))
            if not self.asked_of:
                self.finish()
                raise StopIteration
            number, answer = self.receive()
            if number not in self.asked_of:
                continue  # of a pass that was broken off
            i = self.asked_of.pop(number)
            if isinstance(answer, Exhausted):
                self.active.discard(i)
                for n in [n for n, w in self.asked_of.items() if w == i]:
                    del self.asked_of[n]
                    self.ask()
                if not self.persistent:
                    self.let_go(self.workers[i])
                self.ask()
            else:
                self.ready[number] = answer

    def let_go(self, worker):
        """It has nothing more to give, now or later."""
        self.selector.unregister(worker.channel)
        self.selector.unregister(worker.process.sentinel)
        worker.dismiss()

    def receive(self):
        """(number, answer) of whichever worker has one; RuntimeError if one died or time is up."""
        deadline = time.monotonic() + self.timeout if self.timeout else None
        while True:
            wait = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            events = self.selector.select(max(wait, 0))
            ended = []
            for key, _ in events:
                if isinstance(key.fileobj, Channel):
                    try:
                        return key.data.answer()
                    except EOFError:
                        pass
                    except Exception as error:  # what it sent cannot be read here
                        self.broken = error
                        self.finish(everyone=True)
                        raise
                ended.append(key.data)
            # A grandchild may hold a dead worker's channel open: look at the process itself.
            ended += [w for w in self.workers if w.open and not w.process.is_alive()]
            if ended:
                self.fail(
                    f"DataLoader worker (pid(s) {ended[0].process.pid}) exited unexpectedly: "
                    f"{ended[0].end()}"
                )
            if deadline is not None and time.monotonic() >= deadline:
                self.fail(f"DataLoader timed out after {self.timeout} seconds")

    def fail(self, what):
        self.broken = RuntimeError(what)
        self.finish(everyone=True)
        raise self.broken

    def finish(self, everyone=False):
        """The end of a pass: the workers leave, unless they stay for the next one."""
        if everyone or not self.persistent:
            self.selector.close()
            self.stop()

    def __len__(self):
        return len(self.length.loader._index_sampler)
