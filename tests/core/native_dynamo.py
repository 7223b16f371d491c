"""Compiled functions: binding, entries, misses, lifetimes, threads, depth."""

import copy
import gc
import inspect
import pickle
import sys
import threading
import weakref

import pytest
from harness import core

CompiledFunction, Guards, RETRY, RUN = (
    core.CompiledFunction,
    core.Guards,
    core.RETRY,
    core.RUN_ORIGINAL,
)
ARG = ("arg", -1, 0)


def refuse(self, args, kwargs, failures):
    raise AssertionError(f"miss {args} {kwargs} {failures}")


def compiled(fn, target, sources=(), checks=(), miss=refuse):
    made = CompiledFunction(fn, fn.__code__, miss)
    made.add_entry(Guards(sources, checks), target)
    return made


# ---- binding


def plain(a, b=2):
    return tuple(locals().values())


def rich(a, b=2, /, c=3, *rest, d, e=5, **more):
    return tuple(locals().values())  # in the order of the code's locals


def keyword(*, a, b=1):
    return tuple(locals().values())


def stars(*args, **kwargs):
    return tuple(locals().values())


def nothing():
    return tuple(locals().values())


CALLS = [
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3, 4, 5), {"d": 6}),
    ((1,), {"d": 2, "c": 3, "z": 4}),
    ((1,), {"d": 2, "a": 7, "b": 8}),
    ((1,), {"b": 5}),
    ((), {"a": 1}),
    ((), {"a": 1, "b": 2}),
    ((), {}),
    ((1, 2, 3), {}),
    ((1,), {"a": 2}),
    ((), {"b": 2}),
    ((1, 2), {"d": 4, "e": 5}),
    ((), {"zz": 1}),
    ((1, 2, 3, 4), {"c": 9, "d": 1}),
]


@pytest.mark.parametrize("fn", [plain, rich, keyword, stars, nothing])
def test_binding_is_pythons(fn):
    space = {}
    exec(inspect.getsource(fn), space)
    made = compiled(fn, space[fn.__name__])
    for args, kwargs in CALLS:
        try:
            want = fn(*args, **kwargs)
        except TypeError as error:
            with pytest.raises(TypeError) as seen:
                made(*args, **kwargs)
            assert str(seen.value) == str(error)
        else:
            assert made(*args, **kwargs) == want
            assert made.bind(*args, **kwargs) == want
    assert made.misses == 0


def test_defaults_are_those_of_the_call():
    def fn(a, b=1, *, c=2):
        return a, b, c

    def target(a, b=1, *, c=2):
        return "target", a, b, c

    made = compiled(fn, target)
    assert made(0) == ("target", 0, 1, 2)
    fn.__defaults__, fn.__kwdefaults__ = (10,), {"c": 20}
    assert made(0) == ("target", 0, 10, 20) and made(0, c=3) == ("target", 0, 10, 3)
    fn.__defaults__ = None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        made(0)


def test_methods():
    class A:
        def f(self, x, y=3):
            return self, x, y

        g = compiled(f, lambda self, x, y=3: ("g", self, x, y))

    a = A()
    assert a.g(1) == ("g", a, 1, 3) and a.g(y=1, x=2) == ("g", a, 2, 1) and A.g(a, 1)[1] is a
    assert A.g is A.__dict__["g"] and a.g.__func__ is A.g
    bound = CompiledFunction(a.f, A.f.__code__, refuse)  # a bound method: its self is the first
    bound.add_entry(Guards([ARG], [("is", 0, a)]), lambda self, x, y=3: ("b", self, x, y))
    assert bound(5) == ("b", a, 5, 3) and bound(x=5, y=6) == ("b", a, 5, 6)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        bound()


def test_stands_for_the_original():
    def fn(a: int, b=2):
        "The doc."

    fn.mark = 7
    made = compiled(fn, fn)
    assert made.__name__ == "fn" and made.__doc__ == "The doc." and made.__wrapped__ is fn
    assert made.__qualname__ == fn.__qualname__ and made.__module__ == fn.__module__
    assert inspect.signature(made) == inspect.signature(fn) and made.mark == 7
    assert made.__defaults__ == (2,) and made.__annotations__ == {"a": int}
    made.own = 1
    made.__name__ = "renamed"
    assert made.own == 1 and made.__dict__ == {"own": 1, "__name__": "renamed"}
    assert made.__name__ == "renamed" and fn.__name__ == "fn"
    assert weakref.ref(made)() is made and copy.deepcopy(made) is made and copy.copy(made) is made
    assert callable(made) and "fn" in repr(made) and hash(made) == hash(made)
    with pytest.raises(AttributeError):
        made.missing  # noqa: B018


here = CompiledFunction(plain, plain.__code__, refuse)


def test_pickles_by_name(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "plain", here)
    assert pickle.loads(pickle.dumps(here)) is here


def test_bad_construction():
    for bad in (
        lambda: CompiledFunction(1, plain.__code__, refuse),
        lambda: CompiledFunction(plain, 1, refuse),
        lambda: CompiledFunction(plain, plain.__code__, 1),
        lambda: CompiledFunction(),
        lambda: here.add_entry(1, plain),
        lambda: here.add_entry(Guards((), ()), 1),
        lambda: setattr(here, "miss", 3),
    ):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(ValueError, match="parameter 2 of 2"):
        here.add_entry(Guards([("arg", -1, 2)], [("none", 0, None)]), plain)
    assert here.entries == []


# ---- entries and misses


def test_entries_latest_hit_first():
    def fn(x):
        raise AssertionError

    made = CompiledFunction(fn, fn.__code__, refuse)
    for value in range(5):
        made.add_entry(Guards([ARG], [("eq", 0, value)]), lambda x, value=value: ("target", value))
    assert [made(i) for i in (0, 3, 3, 4, 0, 1)] == [("target", i) for i in (0, 3, 3, 4, 0, 1)]
    assert made.hits == [2, 1, 0, 2, 1]
    guards = [g for g, _ in made.entries]
    before = [g.failures for g in guards]
    made(1)
    assert [g.failures for g in guards] == before  # the latest hit is asked first
    assert made.remove_entry(guards[1]) and not made.remove_entry(guards[1])
    assert len(made.entries) == 4
    made.clear()
    assert made.entries == []


def test_miss_sees_what_failed():
    log = []

    def fn(x, *, k=1):
        return "original", x

    def miss(self, args, kwargs, failures):
        log.append((self, args, kwargs, failures))
        if args[0] == "run":
            return RUN
        if args[0] == "answer":
            return "answered"
        self.add_entry(
            Guards([ARG], [("type", 0, type(args[0])), ("eq", 0, args[0])]),
            lambda x, *, k=1: ("target", x, k),
        )
        return RETRY

    made = CompiledFunction(fn, fn.__code__, miss)
    assert made(1) == ("target", 1, 1) and made(1, k=5) == ("target", 1, 5)
    assert made(2) == ("target", 2, 1) and made("run") == ("original", "run")
    assert made("answer", k=2) == "answered"
    assert [entry[:3] for entry in log] == [
        (made, (1,), {}),
        (made, (2,), {}),
        (made, ("run",), {}),
        (made, ("answer",), {"k": 2}),
    ]
    assert log[0][3] == [] and log[1][3] == [(made.entries[0], 1, 2)]
    assert [(i, seen) for _, i, seen in log[2][3]] == [(0, "run"), (0, "run")]
    assert made.misses == 4


def test_miss_that_helps_nothing_runs_the_original():
    asked = []

    def fn(x):
        return "original", x

    def miss(self, args, kwargs, failures):
        asked.append(args)
        self.add_entry(Guards([ARG], [("eq", 0, "never")]), fn)
        return RETRY

    made = CompiledFunction(fn, fn.__code__, miss)
    assert made(1) == ("original", 1) and len(asked) == 2
    made.clear()
    made.add_entry(Guards([ARG], [("eq", 0, 1)]), None)  # an entry that says: the original
    assert made(1) == ("original", 1) and len(asked) == 2


def test_errors_pass_through():
    def fn(x):
        return x

    def target(x):
        raise KeyError("target")

    made = compiled(fn, target, [ARG], [("eq", 0, 1)], miss=lambda *a: 1 / 0)
    with pytest.raises(KeyError, match="target") as seen:
        made(1)
    assert [f.name for f in seen.traceback][-1] == "target" and len(seen.traceback) == 2
    with pytest.raises(ZeroDivisionError):
        made(2)


def test_first_call_has_no_frames_of_the_compiler():
    def fn(x):
        return x

    def target(x):
        raise KeyError("target")

    def miss(self, args, kwargs, failures):
        self.add_entry(Guards((), ()), target)
        return RETRY

    with pytest.raises(KeyError) as seen:
        CompiledFunction(fn, fn.__code__, miss)(1)
    assert [f.name for f in seen.traceback] == [
        "test_first_call_has_no_frames_of_the_compiler",
        "target",
    ]


def test_tail_calls():
    """A target may go on with another compiled function once its own frame is gone."""

    def fn(n, log):
        return "original", n

    def target(n, log):
        log.append(sys._getframe().f_back.f_code.co_name)
        if n == 0:
            raise KeyError("at the end")
        return made.tail(n - 1, log) if n > 1 else ("end", len(log))

    made = compiled(fn, target, [ARG], [("type", 0, int)], lambda *a: RUN)
    log = []
    assert made(20_000, log) == ("end", 20_000)  # no depth, whatever the recursion limit
    assert set(log) == {"test_tail_calls"}  # and no frames in between
    with pytest.raises(KeyError, match="at the end") as seen:
        first = compiled(fn, lambda n, log: made.tail(0, log))
        first(1, [])
    assert [f.name for f in seen.traceback] == ["test_tail_calls", "target"]
    other = compiled(fn, lambda n, log: made.tail(1.5, log))
    assert other(1, []) == ("original", 1.5)  # a miss there
    short = compiled(fn, lambda n, log: made.tail(1))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'log'"):
        short(1, [])
    with pytest.raises(TypeError):
        made.tail(n=1)
    kept = made.tail(5, [made])
    with pytest.raises(TypeError):
        type(kept)()


def test_disabled():
    made = compiled(plain, lambda a, b=2: "target")
    assert core.compile_disabled(True) is False
    try:
        assert made(1) == (1, 2)
        other = []
        thread = threading.Thread(target=lambda: other.append(made(1)))
        thread.start()
        thread.join()
        assert other == ["target"]
    finally:
        assert core.compile_disabled(False) is True
    assert made(1) == "target"


# ---- lifetimes


class Thing:
    pass


def test_guards_keep_no_users_object_alive():
    thing = Thing()
    guards = Guards([ARG], [("is", 0, thing)])
    made = compiled(lambda x: x, lambda x: "target", [ARG], [("is", 0, thing)], lambda *a: RUN)
    assert guards.payload(0) is thing and guards.alive and made(thing) == "target"
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None and not guards.alive and guards.payload(0) is None
    assert not guards.check(None) and not guards.check(Thing())

    class Local:
        pass

    guards = Guards([ARG], [("type", 0, Local)])
    assert guards.check(Local())
    gone = weakref.ref(Local)
    del Local
    gc.collect()
    assert gone() is None and not guards.check(None)


def test_cycles_are_collected():
    def make():
        def fn(x):
            return fn

        def target(x):
            return made

        made = CompiledFunction(fn, fn.__code__, lambda *a: made)
        cell = target.__closure__[0]
        made.add_entry(Guards([("cell", -1, cell), ARG], [("is", 0, made)]), target)
        made.add_entry(
            Guards([("const", -1, fn), ("const", -1, made)], [("none", 0, made)]), target
        )
        made.me = made
        assert made(1) is made
        return weakref.ref(made), weakref.ref(fn)

    refs = make()
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_entries_may_go_while_they_are_asked():
    def fn(x):
        return "original"

    def target(x):
        made.clear()
        gc.collect()
        return "target", x

    def clearing(v):
        made.clear()
        gc.collect()
        return v == 1

    made = CompiledFunction(fn, fn.__code__, lambda *a: RUN)
    for _ in range(3):
        made.add_entry(Guards([ARG], [("true", 0, clearing)]), target)
    assert made(1) == ("target", 1) and made.entries == [] and made(2) == "original"


def test_a_million_rounds_leave_nothing():
    def fn(x, y=1, *z, k=2):
        return x

    def rounds(n):
        made = CompiledFunction(fn, fn.__code__, lambda *a: RUN)
        for i in range(n):
            made.add_entry(Guards([ARG, ("type", 0, None)], [("eq", 0, i), ("is", 1, int)]), fn)
            made(i), made("other", 2, 3, k=4), made.entries, made.hits
            made.clear()

    rounds(200)
    gc.collect()
    before = sys.getallocatedblocks()
    rounds(10_000)
    gc.collect()
    assert abs(sys.getallocatedblocks() - before) < 50


def test_threads():
    def fn(x):
        return x

    def miss(self, args, kwargs, failures):
        value = args[0]
        self.add_entry(Guards([ARG], [("eq", 0, value)]), lambda x: ("target", value, x))
        return RETRY

    made = CompiledFunction(fn, fn.__code__, miss)
    wrong, plain = [], []

    def work(seed):
        for i in range(3000):
            value = (i * seed) % 13
            found = made(value)
            if found == value:  # others cleared it between both tries: the function itself ran
                plain.append(value)
            elif found != ("target", value, value):
                wrong.append((value, found))
            if i % 500 == 499:
                made.clear()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3, 5)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert len(plain) < 100


def test_recursion_to_the_normal_limit():
    def fn(n):
        return n if n == 0 else made(n - 1)

    def target(n):
        return n if n == 0 else made(n - 1)

    made = compiled(fn, target, [ARG], [("type", 0, int)])

    def deepest(f):
        low, high = 1, 6000
        while low < high:
            middle = (low + high + 1) // 2
            try:
                f(middle)
                low = middle
            except RecursionError:
                high = middle - 1
        return low

    def bare(n):
        return n if n == 0 else bare(n - 1)

    limit = sys.getrecursionlimit()
    for want in (1000, 2500):
        sys.setrecursionlimit(want)
        try:
            assert abs(deepest(made) - deepest(bare)) <= 2
        finally:
            sys.setrecursionlimit(limit)


def test_what_calls_itself_without_a_frame_ends_in_a_recursion_error():
    made = CompiledFunction(plain, plain.__code__, lambda *a: RUN)
    made.add_entry(Guards([ARG], [("true", 0, made)]), lambda *a: "target")
    assert made(1) == "target"  # deep down the guard fails and the original answers
    made.clear()
    made.add_entry(Guards((), ()), made)
    with pytest.raises(RecursionError):
        made(1)
    made.clear()
    made.miss = made
    with pytest.raises((RecursionError, TypeError)):
        made(1)
    made.miss = refuse
    value = ()
    for _ in range(100_000):
        value = (value,)
    other = ()
    for _ in range(100_000):
        other = (other,)
    index, error = Guards([ARG], [("eq", 0, value)]).explain(other)
    assert index == 0 and type(error) is RecursionError
