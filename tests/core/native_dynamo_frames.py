"""The frame hook: which frames it serves, closures, errors, tools, threads, forks, depth, leaks."""

import asyncio
import gc
import os
import sys
import threading
import traceback
import types
import weakref

import pytest
from harness import core

CompiledFunction, Guards, FrameScope = core.CompiledFunction, core.Guards, core.FrameScope
RETRY, RUN = core.RETRY, core.RUN_ORIGINAL


@pytest.fixture(autouse=True)
def idle():
    assert core.frame_hook() is None and not core.frame_hook_installed()
    yield
    assert core.frame_hook() is None and not core.frame_hook_installed()
    core.frame_cache_clear()


class Hook:
    """Serves the functions of a table {name: target}; remembers what it was asked."""

    def __init__(self, table=(), miss=None):
        self.table, self.asked = dict(table), []
        self.miss = miss or self.add

    def add(self, compiled, args, kwargs, failures):
        compiled.add_entry(Guards((), ()), self.table[compiled.__name__])
        return RETRY

    def __call__(self, code, function):
        assert function.__code__ is code and core.frame_hook() is None
        self.asked.append(code.co_name)
        if code.co_name not in self.table:
            return None
        return CompiledFunction(function, code, self.miss)


def leaf(x):
    return "leaf", x


def caller(x):
    return leaf(x), leaf(x + 1)


def leaf_target(x):
    return "target", x


def test_serves_frames_inside_the_scope_only():
    hook = Hook({"leaf": leaf_target})
    scope = FrameScope(hook)
    want = (("target", 1), ("target", 2))
    assert scope(caller, 1) == want and hook.asked == ["caller", "leaf"]
    with scope:
        assert core.frame_hook_installed() and core.frame_hook() is hook
        assert caller(1) == want
    assert caller(1) == (("leaf", 1), ("leaf", 2))
    assert core.set_frame_hook(hook) is None
    try:
        assert caller(1) == want
    finally:
        assert core.set_frame_hook(None) is hook
    assert hook.asked == ["caller", "leaf"]  # once a code object
    assert (
        core.frame_cached(leaf, hook).callable is leaf and core.frame_cached(caller, hook) is None
    )
    assert core.frame_cache_clear() == 2 and core.frame_cached(leaf, hook) is None
    assert scope(caller, 1) == want and hook.asked == ["caller", "leaf"] * 2
    with FrameScope(hook), FrameScope(None):
        assert not core.frame_hook_installed() and caller(1) == (("leaf", 1), ("leaf", 2))


def test_targets_and_what_is_marked_run_as_they_are():
    hook = Hook({"leaf": leaf_target})
    core.frame_skip(caller)
    try:
        assert FrameScope(hook)(caller, 1) == (("target", 1), ("target", 2))
        assert hook.asked == ["leaf"]
        assert FrameScope(hook)(leaf_target, 1) == ("target", 1) and hook.asked == ["leaf"]
        core.frame_skip(leaf)
        assert FrameScope(hook)(caller, 1) == (("leaf", 1), ("leaf", 2))
    finally:
        core.frame_skip(caller, False)
        core.frame_skip(leaf.__code__, False)
    with pytest.raises(TypeError):
        core.frame_skip(3)


def test_answers_belong_to_their_hook():
    one, two = Hook({"leaf": leaf_target}), Hook({"leaf": lambda x: "two"})
    assert FrameScope(one)(leaf, 1) == ("target", 1) and FrameScope(two)(leaf, 1) == "two"
    assert FrameScope(one)(leaf, 1) == ("target", 1)
    assert one.asked == two.asked == ["leaf"]


def test_arguments_of_every_form():
    def forms(a, /, b, c=3, *rest, d, e=5, **more):
        return "original"

    seen = []

    def target(a, /, b, c=3, *rest, d, e=5, **more):
        return tuple(locals().values())

    def miss(self, args, kwargs, failures):
        seen.append((args, kwargs))
        self.add_entry(Guards([("arg", -1, 5)], [("len", 0, len(args) - 3)]), target)
        return RETRY

    scope = FrameScope(Hook({"forms": target}, miss))

    def call(*args, **kwargs):
        return forms(*args, **kwargs)

    for args, kwargs in (
        ((1, 2), {"d": 4}),
        ((1, 2, 3, 4, 5), {"d": 6, "e": 7, "f": 8, "a": 9}),
        ((1,), {"b": 2, "d": 3}),
    ):
        assert scope(call, *args, **kwargs) == target(*args, **kwargs)
    assert seen[0] == ((1, 2, 3), {"d": 4, "e": 5})
    assert seen[1] == ((1, 2, 3, 4, 5), {"d": 6, "e": 7, "f": 8, "a": 9})
    with pytest.raises(TypeError, match="missing 1 required"):
        scope(call, 1)


def test_closures_share_entries_and_keep_their_cells():
    def make(n):
        total = 0

        def step(x):
            nonlocal total
            total += x * n
            return "original", total

        return step

    def build(self, args, kwargs, failures):
        callables.append(self.callable)
        n, total = 0, 0

        def step(x):
            nonlocal total
            total += x * n
            return "target", total

        kind = type(self.callable.__closure__[0].cell_contents)
        assert step.__code__.co_freevars == self.callable.__code__.co_freevars
        self.add_entry(
            Guards([("func", -1, None), ("closure", 0, 0)], [("type", 1, kind)]),
            types.FunctionType(step.__code__, globals(), "step", None, self.callable.__closure__),
        )
        return RETRY

    callables = []
    hook = Hook({"step": None}, build)
    scope = FrameScope(hook)
    core.frame_skip(make)
    one, two, three = make(1), make(10), make("x")
    assert [scope(f, 2) for f in (one, two, one, two)] == [
        ("target", 2),
        ("target", 20),
        ("target", 4),
        ("target", 40),
    ]
    assert hook.asked == ["step"] and callables == [one]
    assert one(1) == ("original", 5) and two(1) == ("original", 50)
    with pytest.raises(TypeError):
        scope(three, 2)  # a miss for another function of the same code: 0 + "xx"
    assert callables == [one, three] and hook.asked == ["step"]


def test_what_passes_through():
    def generator(n):
        yield from range(n)

    async def coroutine(n):
        return n

    async def both(n):
        yield n

    async def drain():
        return [v async for v in both(3)]

    def run():
        class Body:
            here = locals()
            value = 7

        return list(generator(3)), Body.value, eval("1 + 1"), asyncio.run(coroutine(4))

    hook = Hook()
    assert FrameScope(hook)(run) == ([0, 1, 2], 7, 2, 4)
    assert FrameScope(hook)(asyncio.run, drain()) == [3]
    assert not {"generator", "coroutine", "both", "Body", "<module>"} & set(hook.asked)
    assert "run" in hook.asked


def test_original_runs_with_the_hook_on_but_is_not_asked_again():
    for answer in (RUN, None):

        def miss(self, args, kwargs, failures):
            if answer is RUN:
                return RUN
            self.add_entry(Guards((), ()), None)
            return RETRY

        hook = Hook({"caller": None, "leaf": leaf_target})
        hook.miss = lambda self, *rest: (
            miss(self, *rest) if self.callable is caller else hook.add(self, *rest)
        )
        want = (("target", 1), ("target", 2))
        assert FrameScope(hook)(caller, 1) == want
        assert hook.asked == ["caller", "leaf"]
        # and from a compiled function: its hook
        made = CompiledFunction(caller, caller.__code__, hook.miss, hook)
        assert made(1) == want and made.hook is hook and not core.frame_hook_installed()
        assert hook.asked == ["caller", "leaf"]
        made.hook = None
        assert made(1) == (("leaf", 1), ("leaf", 2))
        core.frame_cache_clear()


def test_targets_run_with_the_hook_off():
    states = []

    def target(x):
        states.append(core.frame_hook())
        return FrameScope(hook)(leaf, x)

    hook = Hook({"caller": target, "leaf": leaf_target})
    assert FrameScope(hook)(caller, 1) == ("target", 1) and states == [None]
    with FrameScope(hook):
        made = CompiledFunction(caller, caller.__code__, hook.add, hook)
        assert made(1) == ("target", 1) and states == [None, None]
        assert core.frame_hook() is hook


def test_tail_calls_of_served_frames():
    def on(x):
        return "on", x, core.frame_hook()

    made = CompiledFunction(on, on.__code__, lambda *a: RUN)
    made.add_entry(Guards((), ()), on)
    hook = Hook({"leaf": lambda x: made.tail(x)})
    with FrameScope(hook):
        assert caller(1) == (("on", 1, None), ("on", 2, None)) and core.frame_hook() is hook


def test_disabled():
    hook = Hook({"leaf": leaf_target})
    with FrameScope(hook):
        core.compile_disabled(True)
        try:
            assert FrameScope(hook)(leaf, 1) == ("leaf", 1)
        finally:
            core.compile_disabled(False)
    assert FrameScope(hook)(leaf, 1) == ("target", 1)


def test_bad_hooks():
    for bad in (1, "x"):
        with pytest.raises(TypeError):
            core.set_frame_hook(bad)
        with pytest.raises(TypeError):
            FrameScope(bad)
    with pytest.raises(TypeError, match="function to call"):
        FrameScope(None)()
    with pytest.raises(RuntimeError, match="not entered"):
        FrameScope(None).__exit__(None, None, None)
    for answer, error in (
        (lambda code, function: 1, TypeError),
        (lambda code, function: CompiledFunction(caller, caller.__code__, leaf), ValueError),
        (lambda code, function: 1 / 0, ZeroDivisionError),
        (lambda code: None, TypeError),
    ):
        with pytest.raises(error):
            FrameScope(answer)(leaf, 1)
        assert core.frame_hook() is None


# ---- errors


def test_tracebacks_are_honest():
    def broken(x):
        raise KeyError("original")

    def broken_target(x):
        raise KeyError("target")

    def outer(x):
        try:
            return broken(x)
        except KeyError as error:
            return [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)]

    hook = Hook({"broken": broken_target})
    line = outer.__code__.co_firstlineno
    assert FrameScope(hook)(outer, 1) == [
        ("outer", line + 2),
        ("broken_target", broken_target.__code__.co_firstlineno + 1),
    ]
    assert [name for name, _ in outer(1)] == ["outer", "broken"]

    def failing(self, args, kwargs, failures):
        raise OSError("while compiling")

    with pytest.raises(OSError, match="while compiling"):
        FrameScope(Hook({"leaf": None}, failing))(leaf, 1)


def test_frames_that_escape():
    def keeps(x):
        y = x + 1
        return sys._getframe(), y

    def stack(x):
        names, frame = [], sys._getframe()
        while frame and len(names) < 3:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        return names

    def run(x):
        return keeps(x), leaf(x), stack(x)

    hook = Hook({"leaf": leaf_target, "stack": None})
    hook.miss = lambda self, *rest: RUN if self.callable is stack else hook.add(self, *rest)
    (frame, y), served, names = FrameScope(hook)(run, 1)
    assert y == 2 and served == ("target", 1) and names[:2] == ["stack", "run"]
    gc.collect()
    assert frame.f_locals["y"] == 2 and frame.f_code is keeps.__code__

    def target_keeps(x):
        return sys._getframe()

    frame = FrameScope(Hook({"keeps": target_keeps}))(keeps, object())
    gc.collect()
    assert frame.f_code is target_keeps.__code__ and type(frame.f_locals["x"]) is object
    assert frame.f_back is None or frame.f_back.f_code is not keeps.__code__


# ---- tools


def test_trace_functions_see_calls_and_lines():
    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name in wanted:
            events.append(
                (frame.f_code.co_name, event, frame.f_lineno - frame.f_code.co_firstlineno)
            )
        return tracer

    wanted = {"caller", "leaf", "leaf_target"}
    hook = Hook({"leaf": leaf_target})
    FrameScope(hook)(caller, 1)
    sys.settrace(tracer)
    try:
        assert FrameScope(hook)(caller, 1) == (("target", 1), ("target", 2))
    finally:
        sys.settrace(None)
    target = [("leaf_target", "call", 0), ("leaf_target", "line", 1), ("leaf_target", "return", 1)]
    assert events == [
        ("caller", "call", 0),
        ("caller", "line", 1),
        *target,
        *target,
        ("caller", "return", 1),
    ]
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append((frame.f_code.co_name, event)))
    try:
        FrameScope(hook)(caller, 1)
    finally:
        sys.setprofile(None)
    assert calls.count(("leaf_target", "call")) == calls.count(("leaf_target", "return")) == 2
    assert ("leaf", "call") not in calls


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with 3.12")
def test_monitoring_sees_starts_and_lines():
    monitoring, events = sys.monitoring, []
    kinds = monitoring.events
    monitoring.use_tool_id(3, "test")
    monitoring.register_callback(
        3, kinds.PY_START, lambda code, offset: events.append(("start", code.co_name))
    )
    monitoring.register_callback(
        3, kinds.LINE, lambda code, line: events.append((code.co_name, line - code.co_firstlineno))
    )
    hook = Hook({"leaf": leaf_target})
    FrameScope(hook)(caller, 1)
    monitoring.set_events(3, kinds.PY_START | kinds.LINE)
    try:
        FrameScope(hook)(caller, 1)
    finally:
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
    mine = [e for e in events if "leaf_target" in e or "caller" in e or "leaf" in e]
    target = [("start", "leaf_target"), ("leaf_target", 1)]
    assert mine[:4] == [("start", "caller"), ("caller", 1), *target]
    assert mine.count(target[0]) == 2 and ("start", "leaf") not in mine


def test_a_hook_set_by_a_debugger_in_between():
    """A trace function that turns compilation off for its own work, as a debugger does."""

    def tracer(frame, event, arg):
        with FrameScope(None):
            leaf(3)
        return None

    hook = Hook({"leaf": leaf_target})
    sys.settrace(tracer)
    try:
        assert FrameScope(hook)(caller, 1) == (("target", 1), ("target", 2))
    finally:
        sys.settrace(None)


# ---- threads, forks, depth


def test_each_thread_has_its_own():
    hook = Hook({"leaf": leaf_target})
    wrong, go = [], threading.Barrier(4)

    def work(on):
        scope = FrameScope(hook if on else None)
        want = (("target", 1), ("target", 2)) if on else (("leaf", 1), ("leaf", 2))
        go.wait()
        for _ in range(3000):
            with scope:
                if caller(1) != want or scope(caller, 1) != want:
                    wrong.append(on)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_fork():
    hook = Hook({"leaf": leaf_target})
    scope = FrameScope(hook)
    inside, leave = threading.Event(), threading.Event()

    def hold():  # another thread's hook is on while we fork: the child must not inherit it
        with scope:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    try:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert not core.frame_hook_installed() and caller(1) == (("leaf", 1), ("leaf", 2))
                assert scope(caller, 1) == (("target", 1), ("target", 2))
                assert not core.frame_hook_installed()
                made = CompiledFunction(caller, caller.__code__, hook.add, hook)
                made.add_entry(Guards((), ()), leaf_target)
                assert made(1) == ("target", 1)
                with scope:
                    pid = os.fork()
                    assert caller(1) == (("target", 1), ("target", 2))
                assert not core.frame_hook_installed()
                if pid == 0:
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        leave.set()
        thread.join()


def deepest(f):
    low, high = 1, 20_000
    while low < high:
        middle = (low + high + 1) // 2
        try:
            f(middle)
            low = middle
        except RecursionError:
            high = middle - 1
    return low


def dive(n):
    return n if n == 0 else dive(n - 1)


def test_recursion_to_the_normal_limit():
    def dive_target(n):
        return n if n == 0 else scope(dive, n - 1)

    bare = Hook()
    scope = FrameScope(Hook({"dive": dive_target}))
    limit = sys.getrecursionlimit()
    for want in (1000, 2500):
        sys.setrecursionlimit(want)
        try:
            plain = deepest(dive)
            assert abs(deepest(lambda n: FrameScope(bare)(dive, n)) - plain) <= 3
            assert abs(deepest(lambda n: scope(dive, n)) - plain) <= 3
        finally:
            sys.setrecursionlimit(limit)


def test_where_the_stack_ends_is_a_recursion_error():
    scope = FrameScope(Hook())
    made = CompiledFunction(dive, dive.__code__, lambda *a: RUN)
    made.add_entry(Guards((), ()), lambda n: n if n == 0 else made(n - 1))
    found = []

    def work():
        for f in (lambda: scope(dive, 10**6), lambda: made(10**6)):
            try:
                f()
            except RecursionError:
                found.append(True)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**7)
    before = threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
        sys.setrecursionlimit(limit)
    assert found == [True, True]


# ---- leaks


def test_served_frames_leave_nothing():
    class Value:
        pass

    def wide(a, b, c, d=4, *e, f=6, **g):
        return a

    def wide_target(a, b, c, d=4, *e, f=6, **g):
        if b is None:
            raise ValueError
        return a

    value = Value()
    hook = Hook({"wide": wide_target, "leaf": leaf_target})
    scope = FrameScope(hook)

    def rounds(n):
        for i in range(n):
            wide(value, value, value)
            wide(value, i, c=value, f=value, z=value)
            wide(value, 1, 2, 3, value, value)
            leaf(value)
            try:
                wide(value, None, value)
            except ValueError:
                pass

    def down(n):  # served frames at every depth of the data stack, its chunks' edges included
        wide(value, n, value)
        leaf(value)
        return n if n == 0 else down(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4000)
    try:
        scope(rounds, 100)
        for n in range(0, 900, 13):
            scope(down, n)
        gc.collect()
        before = sys.getrefcount(value), sys.getallocatedblocks(), sys.getrefcount(wide.__code__)
        scope(rounds, 20_000)
        for n in range(0, 900, 7):
            scope(down, n)
        gc.collect()
        after = sys.getrefcount(value), sys.getallocatedblocks(), sys.getrefcount(wide.__code__)
    finally:
        sys.setrecursionlimit(limit)
    assert after[0] == before[0] and after[2] == before[2] and abs(after[1] - before[1]) < 100


def test_compile_and_reset_leave_nothing():
    def make():
        def fresh(x):
            return x

        return fresh

    def rounds(n):
        hook = Hook({"fresh": leaf_target})
        scope = FrameScope(hook)
        for _ in range(n):
            assert scope(make(), 1) == ("target", 1)
            core.frame_cache_clear()

    rounds(100)
    gc.collect()
    before = sys.getallocatedblocks()
    rounds(10_000)
    gc.collect()
    assert abs(sys.getallocatedblocks() - before) < 100


def test_answers_go_with_their_code():
    space = {}
    exec("def fresh(x): return x", space)
    hook = Hook({"fresh": leaf_target})
    assert FrameScope(hook)(space["fresh"], 1) == ("target", 1)
    held = weakref.ref(core.frame_cached(space["fresh"], hook))
    code = weakref.ref(space["fresh"].__code__)
    core.frame_cache_clear()
    space.clear()
    gc.collect()
    assert held() is None and code() is None
