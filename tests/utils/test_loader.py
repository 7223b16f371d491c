"""DataLoader: what it gives with and without workers, and what happens when a worker fails, hangs,
dies or is left alone.
"""

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import rushlight
from rushlight.utils import data

from .test_data import Count, Numbers

CONTEXTS = ["fork", "spawn", "forkserver"]


def values(batches):
    return [b.tolist() for b in batches]


def children():
    return {p.pid for p in multiprocessing.active_children()}


def handles():
    """Our open sockets and files in memory."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith(("socket:", "/memfd:rushlight")):
            found.append(name)
    return found


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No process and no descriptor outlives a test; files in memory have no other name."""
    gc.collect()
    before = children(), len(handles())
    yield
    gc.collect()
    left = children() - before[0]
    assert not left, f"processes {left}"
    assert len(handles()) <= before[1]


class Random(data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        info = data.get_worker_info()
        seed = info.seed - info.id if info else -1
        return rushlight.randint(0, 2**40, (1,)), random.random(), seed


class Failing(Numbers):
    def __init__(self, n, at, action):
        super().__init__(n)
        self.at, self.action = at, action

    def __getitem__(self, i):
        if i == self.at:
            self.action()
        return super().__getitem__(i)


class Share(data.IterableDataset):
    """Each worker gives its own part."""

    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(info.id, 20, info.num_workers) if info else range(20))


# ---- what comes out


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_order_and_batches(oracle, workers):
    for kwargs in (
        {},
        {"batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": None},
        {"batch_sampler": [[3, 1], [2]]},
        {"sampler": [5, 2, 0], "batch_size": 2},
        {"collate_fn": lambda b: rushlight.tensor(b) * 2, "batch_size": 4},
        {"prefetch_factor": 100} if workers else {},
    ):
        loader = data.DataLoader(Numbers(10), num_workers=workers, **kwargs)
        if "collate_fn" in kwargs:
            kwargs["collate_fn"] = lambda b: oracle.tensor(b) * 2
        kwargs.pop("prefetch_factor", None)
        theirs = oracle.utils.data.DataLoader(Numbers(10), **kwargs)
        as_list = lambda b: b.tolist() if hasattr(b, "tolist") else b
        assert [as_list(b) for b in loader] == [as_list(b) for b in theirs]
        assert len(loader) == len(theirs)


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_start_method(context):
    table = data.TensorDataset(rushlight.arange(40).view(20, 2), rushlight.arange(20.0))
    loader = data.DataLoader(table, 4, num_workers=2, multiprocessing_context=context)
    for _ in range(2):
        got = list(loader)
        assert [y for _, b in got for y in b.tolist()] == list(map(float, range(20)))
        assert got[2][0].tolist() == rushlight.arange(16, 24).view(4, 2).tolist()


def test_shuffling_is_fixed_by_the_seed():
    loader = data.DataLoader(Numbers(50), 7, shuffle=True)
    rushlight.manual_seed(4)
    first, second = values(loader), values(loader)
    rushlight.manual_seed(4)
    assert values(loader) == first != second
    workers = data.DataLoader(Numbers(50), 7, shuffle=True, num_workers=2)
    rushlight.manual_seed(4)
    assert values(workers) == first
    generator = rushlight.Generator().manual_seed(9)
    alone = data.DataLoader(Numbers(50), 7, shuffle=True, generator=generator)
    state = rushlight.get_rng_state().tolist()
    third = values(alone)
    assert rushlight.get_rng_state().tolist() == state  # the default stream is not touched
    generator.manual_seed(9)
    assert values(alone) == third


def test_workers_draw_from_their_own_streams():
    def drawn():
        rushlight.manual_seed(1)
        return [(x.item(), y.item(), s.item()) for x, y, s in loader]

    loader = data.DataLoader(Random(), num_workers=2)
    first = drawn()
    assert first == drawn()
    assert len({x for x, _, _ in first}) == 8 and len({y for _, y, _ in first}) == 8
    (base,) = {s for _, _, s in first}  # seed - id is the same for both: the base seed
    rushlight.manual_seed(base + 1)
    assert rushlight.randint(0, 2**40, (1,)).item() == first[1][0]


def test_iterable_data_sets():
    for workers in (0, 2):
        loader = data.DataLoader(Share(), 4, num_workers=workers)
        got = values(loader)
        assert sorted(x for b in got for x in b) == list(range(20))
        assert [len(b) for b in got] == ([4] * 5 if not workers else [4, 4, 4, 4, 2, 2])
    assert values(data.DataLoader(Share(), 4, num_workers=2, drop_last=True))[-1] != [16, 18]
    assert list(data.DataLoader(Count(3), batch_size=None)) == [0, 1, 2]
    loader = data.DataLoader(Count(3), 2)
    assert len(loader) == 2 and values(loader) == [[0, 1], [2]]
    with pytest.warns(UserWarning, match="replica at each worker"):
        assert len(list(data.DataLoader(Count(3), 2, num_workers=2))) == 4  # each gives all


def test_persistent_workers():
    def mark(worker_id):
        rushlight.marked = os.getpid()

    class Pids(Numbers):
        def __getitem__(self, i):
            assert rushlight.marked == os.getpid()
            return os.getpid()

    loader = data.DataLoader(
        Pids(12), 2, num_workers=2, persistent_workers=True, worker_init_fn=mark
    )
    first = {p for b in values(loader) for p in b}
    next(iter(loader))  # broken off
    assert {p for b in values(loader) for p in b} == first and len(first) == 2
    assert os.getpid() not in first
    shared = data.DataLoader(Share(), 4, num_workers=2, persistent_workers=True)
    assert [sorted(x for b in values(shared) for x in b) for _ in range(3)] == [list(range(20))] * 3
    order = data.DataLoader(Numbers(30), 4, num_workers=2, persistent_workers=True, shuffle=True)
    for _ in range(3):
        for i, _ in enumerate(order):
            if i == 3:
                break
    assert sorted(x for b in values(order) for x in b) == list(range(30))


def test_out_of_order():
    class Slow(Numbers):
        def __getitem__(self, i):
            time.sleep(0.4 if i == 0 else 0)
            return i

    loader = data.DataLoader(Slow(8), num_workers=2, in_order=False)
    got = [x for b in values(loader) for x in b]
    assert got[0] != 0 and sorted(got) == list(range(8))
    assert [x for b in values(data.DataLoader(Slow(8), num_workers=2)) for x in b] == list(range(8))


def test_batches_of_one_data_set_call():
    class Many(Numbers):
        def __getitems__(self, indices):
            return [rushlight.tensor(indices)]

    assert values(data.DataLoader(Many(4), 2)) == [[[0, 1]], [[2, 3]]]


def test_large_and_odd_batches():
    """Many tensors, large ones, empty ones, shared ones, text, large indices."""

    class Odd(Numbers):
        def __getitem__(self, i):
            return i

    def make(batch):
        base = rushlight.arange(300_000).float() + batch[0]
        return {
            "big": base,
            "part": base[10:],
            "many": [rushlight.full((3,), float(k)) for k in range(200)],
            "empty": rushlight.zeros(0, 4),
            "half": rushlight.ones(5, dtype=rushlight.bfloat16),
            "needs": rushlight.ones(2, requires_grad=True),
            "parameter": rushlight.nn.Parameter(rushlight.ones(1)),
            "text": "x" * 100_000,
            "table": rushlight.zeros(1000, 1000)[3],
        }

    loader = data.DataLoader(Odd(8000), 2000, num_workers=2, collate_fn=make)
    for i, out in enumerate(loader):
        assert out["big"][-1].item() == 299_999 + 2000 * i
        out["big"].fill_(1)
        assert out["part"].sum().item() == 299_990
        assert out["many"][150].tolist() == [150.0] * 3 and tuple(out["empty"].shape) == (0, 4)
        assert out["half"].tolist() == [1.0] * 5 and out["needs"].requires_grad
        assert type(out["parameter"]) is rushlight.nn.Parameter
        assert len(out["text"]) == 100_000
        assert out["table"].untyped_storage().nbytes() == 4000  # the row travelled, not the table
    assert i == 3


def test_kept_batches_outlive_their_workers():
    got = list(data.DataLoader(data.TensorDataset(rushlight.randn(64, 1000)), 8, num_workers=2))
    total = rushlight.stack([b[0].sum() for b in got]).sum()
    assert total.isfinite().item() if hasattr(total, "isfinite") else total.item() == total.item()
    got[0][0].zero_()
    assert got[0][0].sum().item() == 0


def test_operators_in_workers_under_load():
    """Products and folds in forked children while the parent computes on all threads."""

    class Work(Numbers):
        def __getitem__(self, i):
            x = rushlight.full((128, 128), float(i % 3))
            return (x @ x).sum() + rushlight.softmax(x, -1).sum()

    x = rushlight.randn(400, 400)
    for _ in range(3):
        for b in data.DataLoader(Work(24), 3, num_workers=2):
            (x @ x).sum()
            assert b.tolist() == pytest.approx([128.0, 2097280.0, 8388736.0])


# ---- what goes wrong


def test_exceptions_keep_their_kind_and_show_where():
    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a, b)

    def raising(error):
        def action():
            raise error

        return action

    for error, kind in (
        (ValueError("no such sample"), ValueError),
        (KeyError("no such sample"), KeyError),
        (Odd("no such sample", 2), Exception),
        (UnicodeDecodeError("utf8", b"no such sample", 0, 1, "no such sample"), ValueError),
    ):
        loader = data.DataLoader(Failing(6, 2, raising(error)), num_workers=2)
        it = iter(loader)
        assert [next(it).item(), next(it).item()] == [0, 1]
        with pytest.raises(
            kind, match="(?s)Caught .* in DataLoader worker process 0.*no such sample"
        ):
            next(it)
        assert next(it).item() == 3  # the others go on
    bad = lambda: rushlight.ones(2) @ rushlight.ones(3)
    with pytest.raises(RuntimeError, match="(?s)worker process 0.*expected"):
        list(data.DataLoader(Failing(6, 2, bad), num_workers=2))


def test_failures_at_the_start():
    def init(worker_id):
        raise ValueError(f"worker {worker_id} cannot start")

    with pytest.raises(ValueError, match="worker 0 cannot start"):
        list(data.DataLoader(Numbers(4), num_workers=1, worker_init_fn=init))
    loader = data.DataLoader(Numbers(4), num_workers=1, collate_fn=lambda b: lambda: b)
    with pytest.raises(Exception, match="(?i)worker process 0.*|pickle"):
        list(loader)
    graph = lambda b: rushlight.ones(1, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="detach"):
        list(data.DataLoader(Numbers(4), num_workers=1, collate_fn=graph))
    spawned = data.DataLoader(
        Numbers(4), num_workers=1, collate_fn=lambda b: b, multiprocessing_context="spawn"
    )
    with pytest.raises(Exception, match="pickle|local object"):
        list(spawned)


def crash():
    import ctypes
    import faulthandler

    faulthandler.disable()
    ctypes.string_at(0)


@pytest.mark.parametrize(
    "action, how",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"signal 9 \(SIGKILL\)"),
        (lambda: os._exit(3), "exit code 3"),
        (lambda: sys.exit(4), "exit code 4"),
        (lambda: os._exit(0), "exit code 0"),
        (crash, r"signal 11 \(SIGSEGV\)"),
    ],
    ids=["killed", "_exit", "exit", "_exit 0", "segfault"],
)
def test_a_worker_that_dies_is_told_of_at_once(action, how):
    for persistent in (False, True):
        loader = data.DataLoader(
            Failing(100, 20, action), 4, num_workers=2, persistent_workers=persistent
        )
        begin, it = time.monotonic(), iter(loader)
        with pytest.raises(
            RuntimeError, match=rf"worker \(pid\(s\) \d+\) exited unexpectedly: .*{how}"
        ):
            list(it)
        assert time.monotonic() - begin < 4
        with pytest.raises(RuntimeError, match="exited unexpectedly"):  # it stays so
            next(it)
        del it, loader


def test_a_dead_worker_whose_child_lives_on():
    """Which keeps the dead one's channel open."""

    def leave_a_child():
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        os._exit(7)

    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="exit code 7"):
        list(data.DataLoader(Failing(10, 5, leave_a_child), num_workers=1))
    assert time.monotonic() - begin < 2.9


def test_timeout():
    begin = time.monotonic()
    loader = data.DataLoader(Failing(4, 1, lambda: time.sleep(1.5)), num_workers=1, timeout=0.3)
    with pytest.raises(RuntimeError, match="timed out after 0.3 seconds"):
        list(loader)
    assert time.monotonic() - begin < 3


def test_leaving_early_ends_the_workers():
    before = children()
    for _ in data.DataLoader(Numbers(10_000), num_workers=2):
        assert len(children() - before) == 2
        break
    assert children() == before
    it = iter(data.DataLoader(Numbers(100), num_workers=2))
    next(it)
    del it
    assert children() == before


def test_loaders_side_by_side_and_inside_one_another():
    """A worker inherits the other loader's channels: closing those must still be seen."""
    outer = iter(data.DataLoader(Numbers(6), num_workers=1))
    assert next(outer).item() == 0
    for _ in range(2):
        assert len(list(data.DataLoader(Numbers(6), num_workers=2))) == 6
    inner = iter(data.DataLoader(Numbers(6), num_workers=1))
    begin = time.monotonic()
    del outer
    assert time.monotonic() - begin < 2 and next(inner).item() == 0


def run_program(text, wait=30):
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=wait
    )


PROGRAM = """
import os, sys, time, signal
import rushlight
from rushlight.utils import data

class Slow(data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        time.sleep(0.05)
        return os.getpid()

loader = data.DataLoader(Slow(), 2, num_workers=2)
it = iter(loader)
pids = {p for _ in range(4) for p in next(it).tolist()}
print(*pids, flush=True)
"""


def gone(pids, wait=5.0):
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        if not any(os.path.exists(f"/proc/{p}") for p in pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    "end, code",
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("1 / 0", 1),
        ("os._exit(5)", 5),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_no_worker_outlives_the_program(end, code):
    done = run_program(PROGRAM + end)
    assert done.returncode == code, done.stderr
    assert gone(map(int, done.stdout.split()))
    assert "Traceback" not in done.stderr or "1 / 0" in end


def test_interrupted_from_the_keyboard():
    """Ctrl-C reaches the workers too; they leave without a word."""
    # Ctrl-C is ignored by what a shell started in the background, and that is inherited.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = heard + PROGRAM + "for _ in it: pass"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = list(map(int, process.stdout.readline().split()))
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode and errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt") and gone(pids)


# ---- arguments


def test_arguments_that_exclude_one_another():
    for error, match, kwargs in (
        (ValueError, "non-negative", {"num_workers": -1}),
        (ValueError, "non-negative", {"timeout": -1}),
        (ValueError, "prefetch_factor", {"prefetch_factor": 2}),
        (ValueError, "prefetch_factor", {"prefetch_factor": -1, "num_workers": 1}),
        (ValueError, "persistent_workers", {"persistent_workers": True}),
        (ValueError, "sampler", {"shuffle": True, "sampler": [1]}),
        (ValueError, "batch_sampler", {"batch_sampler": [[1]], "batch_size": 2}),
        (ValueError, "batch_sampler", {"batch_sampler": [[1]], "drop_last": True}),
        (ValueError, "drop_last", {"batch_size": None, "drop_last": True}),
        (ValueError, "batch_size", {"batch_size": 0}),
        (ValueError, "start method", {"multiprocessing_context": "x", "num_workers": 1}),
        (ValueError, "num_workers=0", {"multiprocessing_context": "fork"}),
        (TypeError, "is a context or", {"multiprocessing_context": 3, "num_workers": 1}),
    ):
        with pytest.raises(error, match=match):
            data.DataLoader(Numbers(3), **kwargs)
    for kwargs in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        with pytest.raises(ValueError, match="DataLoader with IterableDataset"):
            data.DataLoader(Count(3), **kwargs)
    assert len(list(data.DataLoader(Count(3), shuffle=False))) == 3
    loader = data.DataLoader(Numbers(3), pin_memory=True)  # accepted; nothing to pin
    assert values(loader) == [[0], [1], [2]]
    for name in ("batch_size", "dataset", "sampler", "drop_last"):
        with pytest.raises(ValueError, match="is fixed once"):
            setattr(loader, name, 1)
    with pytest.warns(UserWarning, match="worker processes in total"):
        data.DataLoader(Numbers(3), num_workers=10_000)
