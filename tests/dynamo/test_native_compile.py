"""Compiled functions as a program meets them: leaks, threads, forks, tracebacks, tools, depth."""

import gc
import os
import sys
import threading
import traceback

import pytest

import rushlight as torch
from rushlight.dynamo import graph_break

core = pytest.importorskip("rushlight._core", exc_type=ImportError)


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()
    assert core.frame_hook() is None and not core.frame_hook_installed()


def eager(fn):
    return torch.compile(fn, backend="eager")


def helper(x):
    return x * 3


def broken(x):
    y = x + 1
    graph_break()
    return helper(y) - 1


def blocks():
    gc.collect()
    return sys.getallocatedblocks()


def grows(round, warm, rounds):
    """The least of what three spans of so many rounds left behind, in blocks of memory."""
    for _ in range(warm):
        round()
    left, now = [], blocks()
    for _ in range(3):
        for _ in range(rounds // 3):
            round()
        before, now = now, blocks()
        left.append(now - before)
    return min(left)


def function_round():
    def fn(x, k=2):
        return torch.relu(x + k)

    compiled = eager(fn)
    assert compiled(X).tolist() == [3.0, 3.0] and compiled(X, 3).tolist() == [4.0, 4.0]
    torch.compiler.reset()


def module_round():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x):
            return helper(self.linear(x))

    model = Model()
    eager(model)(X)
    model.train(False)
    torch.compiler.reset()


def break_round():
    def fn(x):
        return broken(x) + 1

    assert eager(fn)(X).tolist() == [6.0, 6.0]
    torch.compiler.reset()


X = torch.ones(2)


@pytest.mark.parametrize("round", [function_round, module_round, break_round])
def test_compile_and_reset_leave_nothing(round):
    assert grows(round, 40, 200) < 30


def resident():
    """Kilobytes of memory that the process has."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc")
def test_ten_thousand_rounds_leave_nothing():
    """Memory stays as it was after the first tenth, to less than a hundred bytes a round."""
    seen = []
    for i in range(10_000):
        (break_round if i % 20 == 7 else module_round if i % 20 == 17 else function_round)()
        if i % 1000 == 999:
            gc.collect()
            seen.append(resident())
    assert max(seen[1:]) - seen[0] < 900, seen


def test_two_threads_compile_and_call_the_same_function():
    def fn(x, k):
        y = torch.relu(x + k)
        return broken(y) * k

    compiled, wrong, go = eager(fn), [], threading.Barrier(4)
    want = {k: fn(X, k).tolist() for k in range(1, 6)}

    def work(seed):
        go.wait()
        try:
            for i in range(60):
                k = 1 + (i * seed) % 5
                got = compiled(X, k).tolist()
                if got != want[k]:
                    wrong.append((k, got))
        except BaseException as error:
            wrong.append(repr(error))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3, 4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    finally:
        sys.setswitchinterval(interval)
    assert not wrong, wrong[:3]


def test_fork():
    def fn(x):
        return broken(x) + 1

    compiled = eager(fn)
    before = compiled(X).tolist()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert compiled(X).tolist() == before
            assert compiled(torch.ones(3)).tolist() == before[:1] * 3  # compiles in the child
            assert eager(lambda x: x - 1)(X).tolist() == [0.0, 0.0]
            assert not core.frame_hook_installed()
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0 and compiled(X).tolist() == before


def names_and_lines(error):
    here = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    return [(f.name, f.line) for f in here]


def test_tracebacks_are_those_of_the_program():
    def inner(x, fail):
        if fail:
            raise KeyError("mine")
        return x + 1

    def outer(x, fail):
        y = torch.relu(x)
        return inner(y, fail)

    compiled = eager(outer)
    assert compiled(X, False).tolist() == [2.0, 2.0]
    for _ in range(2):
        with pytest.raises(KeyError, match="mine") as plain:
            outer(X, True)
        with pytest.raises(KeyError, match="mine") as seen:
            compiled(X, True)
        want, got = names_and_lines(plain.value), names_and_lines(seen.value)
        assert got[1:] == want[1:] and len(want) == 3


def lines_seen(call):
    """(function, line from its first) of every line event of this file, in order."""
    seen = []

    def tracer(frame, event, arg):
        code = frame.f_code
        if event == "line" and code.co_filename == __file__:
            seen.append((code.co_name, frame.f_lineno - code.co_firstlineno))
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


def test_trace_functions_see_the_lines_of_the_program():
    def fn(x, log):
        y = helper(x)
        log.append(core.frame_hook_installed())  # what it calls is not known: the graph breaks
        return y + 1

    compiled, log = eager(fn), []
    compiled(X, log)
    want = lines_seen(lambda: fn(X, log))
    got = lines_seen(lambda: compiled(X, log))
    assert ("fn", 2) in want and ("fn", 2) in got  # the line that runs as it is
    assert set(got) <= set(want)  # and none that the program does not run: made code has no line
    assert compiled(X, log).tolist() == [4.0, 4.0] and log == [True, False, True, True]


def test_trace_functions_see_calls_and_returns_with_lines():
    def fn(x, n):
        for i in range(n):
            x = x + i
            graph_break()
        return x * 2

    compiled = eager(fn)
    for _ in range(2):
        compiled(X, 5)
    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            events.append((event, frame.f_lineno))
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        compiled(X, 5)
    finally:
        sys.settrace(before)
    first = fn.__code__.co_firstlineno
    assert {e for e, _ in events} == {"call", "line", "return"}
    assert all(line is not None for _, line in events)
    lines = [line - first for event, line in events if event == "line"]
    assert lines.count(3) >= 5 and lines[-1] == 4 and 0 not in lines


def deepest(f):
    low, high = 1, 3000
    while low < high:
        middle = (low + high + 1) // 2
        try:
            f(middle)
            low = middle
        except RecursionError:
            high = middle - 1
    return low


def test_recursion_to_the_normal_limit():
    def down(x, n):
        x = x + 1
        graph_break()
        return x if n == 0 else compiled(x, n - 1)

    def bare(x, n):
        x = x + 1
        return x if n == 0 else bare(x, n - 1)

    compiled = eager(down)
    for n in (3, 4, 5, 0, 2):
        assert compiled(X, n).tolist() == [n + 2.0] * 2
    assert deepest(lambda n: compiled(X, n)) >= deepest(lambda n: bare(X, n)) - 5


def test_a_loop_of_breaks_needs_no_depth():
    def fn(x, n):
        for _ in range(n):
            x = x + 1
            graph_break()
            x = x - 1
        return x

    assert eager(fn)(X, 2000).tolist() == [1.0, 1.0]


def test_tracebacks_across_a_break():
    def fn(x):
        x = x + 1
        graph_break()
        x = x * 2
        raise KeyError(f"mine {x.shape[0]}")

    compiled = eager(fn)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine 2") as plain:
            fn(X)
        with pytest.raises(KeyError, match="mine 2") as seen:
            compiled(X)
        assert names_and_lines(seen.value)[1:] == names_and_lines(plain.value)[1:]
