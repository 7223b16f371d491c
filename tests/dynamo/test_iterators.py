"""Loops that go on behind a break: what is left of an iterator is looked at, guarded, stepped."""

import collections
import itertools

import pytest

import rushlight as rl
from rushlight import dynamo
from rushlight.dynamo import convert, graph_break

from .both import check

x = rl.arange(3).float()


def over_range(x, v):
    for i in range(12):
        x = x + i
        graph_break()
        x = x * 0.5
    return x


def over_enumerate(x, v):
    out = []
    for i, t in enumerate([x, x + 1, x * 2] * 3, 5):
        out.append(i)
        graph_break()
        x = x + t * i
    return x, out


def over_zip(x, v):
    for a, b in zip(range(9), [x] * 9):
        x = x + b * a
        graph_break()
    return x


def over_tensors(x, v):
    for t in x.reshape(3, 1):
        graph_break()
        x = x + t
    return x


def over_modules(x, v):
    for _ in range(2):
        for layer in LAYERS:
            x = layer(x).relu()
            graph_break()
    return x


LAYERS = [rl.nn.Linear(3, 3) for _ in range(4)]


@pytest.mark.parametrize(
    ("function", "least"),
    [(over_range, 5), (over_enumerate, 5), (over_zip, 4), (over_tensors, 4), (over_modules, 6)],
)
def test_one_capture_serves_the_iterations(function, least):
    compiled = check(function, (x, None), (x, None), breaks=None)
    made = [r for r in convert.COMPILED.values() if r.entries]
    assert sum(len(r.entries) for r in made) <= least
    assert len(made) == 2 and compiled.hits  # the function, and where it goes on


def taken_apart(x, v):
    it = iter(v)
    for a in it:
        graph_break()
        x = x + a
        b = next(it, None)
        if b is None:
            break
        x = x * b
    return x, list(it)


def through_functions(x, v):
    log = []
    for a in map(lambda q: (log.append(q), q * 2)[1], v):
        graph_break()
        x = x + a
    for a in filter(lambda q: q % 2, v):
        x = x + a
        graph_break()
    return x, log


def mappings(x, v):
    d = {c: i for i, c in enumerate("abc")}
    for k, i in d.items():
        x = x * i + len(k)
        graph_break()
        d[k] = i + 1
    for k in d:
        graph_break()
        x = x + d[k]
    for i in d.values():
        x = x + i
        graph_break()
    for i in {1, 2, 3}:
        graph_break()
        x = x + i
    return x, d


def growing(x, v):
    for a in v:
        graph_break()
        if len(v) < 12:
            v.append(a + 1)
        x = x + a
    return x


def growing_dict(x, v):
    d = {"p": 1, "q": 2}
    try:
        for k in d:
            d[k + "x"] = 0
            graph_break()
    except RuntimeError as e:
        return x, str(e), d


def shared(x, v):
    it = iter(v)
    for a, b in zip(it, it):
        graph_break()
        x = x + a * b
    return x, next(it, "end")


def counted_pairs(x, v):
    for i, (a, b) in enumerate(zip(v, reversed(v)), 1):
        graph_break()
        x = x + a * b * i
    return x


def strict(x, v):
    try:
        for a, b in zip(v, [1, 2], strict=True):
            graph_break()
            x = x + a * b
    except ValueError as e:
        return x, str(e)


def nested(x, v):
    for i in range(3):
        for j in reversed(v):
            if x.sum() > 1e6:
                break
            x = x + j * i
        else:
            graph_break()
    return x


def left_over(x, v):
    it = iter(v)
    graph_break()
    return x + next(it), it


@pytest.mark.parametrize(
    "function",
    [
        taken_apart, through_functions, mappings, growing, growing_dict, shared, counted_pairs,
        strict, nested, left_over,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*was captured")
def test_iterators(function):
    calls = [(x, list(range(1, n))) for n in (8, 8, 5, 1)]
    if function is left_over:
        calls = calls[:3]
    check(function, *calls, breaks=None)


def take(it):
    return [next(it, 0), next(it, None), [a for a, _ in zip(it, "ab")]]


@pytest.mark.parametrize(
    "make",
    [
        lambda v: iter(v), lambda v: enumerate(v), lambda v: map(str, v), lambda v: iter(tuple(v)),
        lambda v: filter(None, v), lambda v: itertools.count(2), lambda v: iter(range(len(v))),
    ],
)  # fmt: skip
def test_iterators_as_arguments(make):
    dynamo.reset()
    f = rl.compile(take, backend="eager")
    for n in (6, 6, 4, 2):
        mine, theirs = make(list(range(1, n))), make(list(range(1, n)))
        assert f(theirs) == take(mine)
        assert list(itertools.islice(theirs, 3)) == list(itertools.islice(mine, 3))


def test_two_iterators_that_may_be_one():
    def fn(a, b):
        return next(a), next(b), next(a)

    f = rl.compile(fn, backend="eager")
    for _ in range(2):
        assert f(iter([1, 2, 3]), iter([4, 5])) == (1, 4, 2)
        one, other = iter([1, 2, 3]), iter([1, 2, 3])
        assert f(one, one) == fn(other, other)


def test_a_list_that_may_be_the_one_iterated_over():
    def fn(it, v):
        a = next(it)
        v.append(a)
        return a, next(it, None)

    f = rl.compile(fn, backend="eager")
    for _ in range(2):
        assert f(iter([1]), [5]) == (1, None)
        v = [1]
        assert f(iter(v), v) == (1, 1)


def test_the_limit_names_what_varies():
    def fn(x, names):
        for name in names:
            graph_break()
            x = x + len(name)
        return x

    dynamo.reset()
    f = rl.compile(fn, backend="eager")
    with pytest.warns(UserWarning, match="captured 8 times; name was '.*', now '"):
        assert f(x, ["a" * n for n in range(1, 13)]).tolist() == [78, 79, 80]


def list_that_grew(x, v):
    v.append(7)
    out = []
    for a in v:
        graph_break()
        out.append(a)
    return out


def backwards(x, v):
    v.extend([7, 8])
    out = []
    for a in reversed(v):
        graph_break()
        out.append(a)
    return out


def list_that_shrank(x, v):
    v.extend([7, 8, 9])
    it = iter(v)
    out = [next(it) for _ in range(len(v) - 1)]
    v.clear()
    graph_break()
    v.extend(range(9))
    return out, list(it)


def own_list_that_holds_its_iterator(x, v):
    made = [1, 2]
    it = iter(made)
    made += [next(it), it]
    graph_break()
    return len([a for a in it]), made[-1] is it, len(made)


def sorted_meanwhile(x, v):
    v.append(5)
    it = enumerate(v)
    out = [next(it)]
    v.sort(reverse=True)
    v.append(7)
    graph_break()
    return out + list(it)


def dict_that_grew(x, v):
    v["a"] = 1
    v["b"] = 2
    out = []
    for k, a in v.items():
        graph_break()
        out.append((k, a))
    return out


def dict_that_holds_its_iterator(x, v):
    v["a"] = v["it"] = 1
    v["it"] = it = iter(v)
    names = [next(it), *map(str, v)]
    graph_break()
    return names, list(v["it"]), v["it"] is it


def deque_that_grew(x, v):
    v.append(7)
    it = map(str, v)
    out = [next(it)]
    graph_break()
    return out + list(it)


@pytest.mark.parametrize(
    ("function", "cls"),
    [
        (list_that_grew, list), (backwards, list), (list_that_shrank, list),
        (own_list_that_holds_its_iterator, list), (sorted_meanwhile, list),
        (dict_that_grew, dict), (dict_that_holds_its_iterator, dict),
        (deque_that_grew, collections.deque),
    ],
)  # fmt: skip
def test_iterators_over_what_changed(function, cls):
    """Made again behind a break they go on where they were, though the container from outside gets
    its new contents only after everything is made."""
    for start in ([], [3, 4]):
        if cls is dict:
            start = dict.fromkeys(start, 0)
        dynamo.reset()
        compiled = rl.compile(function, backend="eager")
        for _ in range(3):
            mine, theirs = cls(start), cls(start)
            assert compiled(x, theirs) == function(x, mine)
            if function is not dict_that_holds_its_iterator:
                assert theirs == mine
