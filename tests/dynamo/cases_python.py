# ruff: noqa: E501, B007
"""Public cases about Python's semantics in a capture, its guards and mutations (case_table.py says what a case is)."""

import contextlib
import dataclasses
from collections import OrderedDict

from .case_table import Built, main40


# ---------------------------------------------------------------- Python semantics / capture
@main40(
    "pytorch/pytorch#134030",
    "dynamo: generator",
    "A generator's body was executed when the generator was created, not at next(), so side effects came too early.",
)
def case_01_generator_is_lazy(T):
    def fn(x):
        order = []

        def produce():
            order.append("body")
            yield x * 2
            order.append("after-yield")

        g = produce()
        order.append("created")
        first = next(g)
        order.append("resumed")
        return first, order

    return Built(fn, (T.tensor([1.0, 2.0]),))


@main40(
    "pytorch/pytorch#198190",
    "dynamo: generator",
    "A generator that leaves the compiled region comes back as a tuple iterator; its return value becomes None and send() is gone.",
)
def case_02_generator_escapes(T):
    def fn(x):
        def produce():
            got = yield x + 1
            yield x * (got or 1)
            return "finished"

        return produce()

    def post(g, args):
        seen = [next(g), g.send(5)]
        try:
            next(g)
            tail = "no stop"
        except StopIteration as stop:
            tail = stop.value
        return seen, tail, type(g).__name__

    return Built(fn, (T.tensor([1.0, 2.0]),), post=post)


@main40(
    "pytorch/pytorch#175855",
    "dynamo: list mutation",
    "A for loop over a list that grows inside the loop did not visit the appended items.",
)
def case_04_list_grows_in_loop(T):
    def fn(x):
        work = [x.sum()]
        total = x.sum() * 0
        for t in work:
            if len(work) < 4:
                work.append(t + 1)
            total = total + t
        return total, len(work)

    return Built(fn, (T.ones(2),))


@main40(
    "pytorch/pytorch#198189",
    "dynamo: dict order",
    "OrderedDict.move_to_end on a caller's dict was not replayed, so an LRU cache evicts the wrong key.",
)
def case_07_move_to_end(T):
    lru = OrderedDict(a=1, b=2, c=3)

    def fn(cache, x):
        cache.move_to_end("a")  # the only mutation: this is what gets lost
        return x * len(cache)

    return Built(fn, (lru, T.ones(2)), observe=lambda: list(lru.items()))


@main40(
    "pytorch/pytorch#176599",
    "dynamo: properties",
    "obj.prop = v inside the region skipped the property's setter and getter.",
)
def case_09_property_setter(T):
    class Knob:
        def __init__(self, v):
            self._raw = v

        @property
        def level(self):
            return self._raw + 1

        @level.setter
        def level(self, v):
            self._raw = v * 2

    def fn(x):
        k = Knob(3)
        before = k.level
        k.level = 5
        return x + k.level, before, k._raw

    return Built(fn, (T.zeros(1),))


@main40(
    "pytorch/pytorch#178365",
    "guards: default args; stale cache keyed by code",
    "Functions with the same code but different default values reused one graph with the first default baked in.",
)
def case_10_default_args_guard(T):
    def make(k):
        def scale(x, k=k, *, bias=k * 10):
            return x * k + bias

        return scale

    def fn(g, x):
        return g(x)

    x = T.tensor([1.0, 2.0])
    return Built(fn, (make(2), x), steps=[(None, (make(k), x)) for k in (2, 3, 2, 5)])


@main40(
    "pytorch/pytorch#176851",
    "guards: class attribute",
    "A class attribute changed between calls; the compiled function kept the value of the first trace.",
)
def case_11_class_attribute_guard(T):
    class Config:
        factor = 1.0

    def fn(x):
        return x * Config.factor

    def to(v):
        def setup():
            Config.factor = v

        return setup

    x = T.tensor([4.0])
    return Built(
        fn, (x,), steps=[(to(1.0), (x,)), (to(10.0), (x,)), (to(1.0), (x,)), (to(-2.5), (x,))]
    )


@main40(
    "pytorch/pytorch#93722",
    "guards: aliased containers",
    "Traced with two different lists, then called with the same list twice (or the reverse): aliasing was not guarded.",
)
def case_13_list_alias_guard(T):
    def fn(left, right, x):
        left.append(x + 1)
        right.append(x - 1)
        return len(left), len(right), left[-1], right[0]

    a, b, c = [], [], []
    x = T.zeros(1)
    return Built(
        fn,
        (a, b, x),
        steps=[(None, (a, b, x)), (None, (c, c, x)), (None, (a, b, x))],
        observe=lambda: (list(a), list(b), list(c)),
    )


_DEPTH = 0


@contextlib.contextmanager
def _deeper():
    global _DEPTH
    _DEPTH += 1
    try:
        yield _DEPTH
    finally:
        _DEPTH -= 1


@main40(
    "pytorch/pytorch#103706 (and PR #116159)",
    "dynamo: try/finally",
    "`return` inside try with a finally clause: internal assertion, or the finally part was lost.",
)
def case_15_return_in_try_finally(T):
    def kept(x, log):
        y = x * 2
        try:
            return y
        finally:
            y.add_(1)  # the returned tensor is the same object
            log.append("closed")

    def overridden(x):
        try:
            return x * 100
        finally:
            return x - 1  # noqa: B012

    def fn(x):
        log = []
        return kept(x, log), overridden(x), log

    return Built(fn, (T.tensor([1.0, 2.0]),))


@dataclasses.dataclass
class _Point:
    px: int
    py: int


@main40(
    "pytorch/pytorch#103602, #197093",
    "dynamo: f-strings on sizes",
    "A branch on an f-string built from a size was wrong, and a format spec on a symbolic size crashed, once shapes were dynamic.",
)
def case_17_fstring_of_size(T):
    def fn(x):
        label = f"{x.shape[0]:03d} rows"
        if label.startswith("010"):
            return x.sum() + 1
        return x.sum() - 1

    return Built(fn, (T.ones(10),), steps=[(None, (T.ones(n),)) for n in (10, 3, 100, 10)])


@dataclasses.dataclass(frozen=True)
class _Span:
    lo: float
    hi: float = 2.0
    tag: str = dataclasses.field(default="t", compare=False)


@main40(
    "pytorch/pytorch#114966, #116264, #159424",
    "dynamo: dataclasses",
    "Frozen dataclasses could not be built, hashed or compared inside the region; == ignored the fields.",
)
def case_18_frozen_dataclass(T):
    def fn(x):
        a = _Span(0.5)
        b = dataclasses.replace(a, hi=9.0, tag="other")
        table = {a: 3, b: 7}
        same = a == _Span(0.5, tag="zzz")
        return x * table[_Span(0.5, 9.0)] + (1 if same else 0), a == b, len(table)

    return Built(fn, (T.ones(2),))
