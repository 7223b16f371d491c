"""What is in a container from outside is read when somebody looks at it: every builtin that looks
sees values."""

import functools
import itertools
import operator

import pytest

import rushlight as rl
from rushlight import dynamo

from .both import check


class Sized:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __str__(self):
        return f"sized {self.n}"

    def doubled(self):
        return self.n * 2


FORMS = [
    "','.join(map(str, ints)), list(map(len, texts)), list(map(str.upper, texts))",
    "[*map(float, ints)], [*map(abs, ints)], [*map(repr, nested)], [*map(tuple, nested)]",
    "[*map(str, objects)], [*map(len, objects)], [*map(bool, objects)]",
    "[*map(Sized.doubled, objects)], [*map(operator.methodcaller('doubled'), objects)]",
    "[*map(isinstance, ints, [int, str, int])], [*map(pow, ints, ints)], [*map(dict, [pairs])]",
    "[*map('{}-{}'.format, texts, ints)], [*map(str, table.items())], [*map(table.get, texts)]",
    "len([*filter(None, objects)]), len([*filter(len, objects)]), [*filter(str.isalpha, texts)]",
    "''.join(filter(str.isalpha, texts)), ''.join(iter(texts)), '-'.join(reversed(texts))",
    "[*itertools.starmap(pow, zip(ints, ints))], [*itertools.takewhile(bool, ints)]",
    "[*itertools.accumulate(ints, max)], [*itertools.accumulate(ints, func=operator.mul)]",
    "[(k, len([*g])) for k, g in itertools.groupby(texts, key=str.upper)]",
    "functools.reduce(max, ints), functools.reduce(str.__add__, texts)",
    "sum(numbers.values()), max(numbers.values()), sorted(numbers.values()), min(numbers.items())",
    "3 in numbers.values(), ('x', 3) in numbers.items(), numbers.items() & {('x', 3)}",
    "any(v > 2 for v in numbers.values()), all(numbers.values()), list(map(str, numbers.values()))",
    "dict(pairs), dict(pairs, z=1), dict(zip(map(str, ints), texts)), {*map(str, ints)}",
    "[str(kv) for kv in zip(ints, texts)], {*zip(ints, texts)}, sorted(zip(texts, ints))",
    "list(map(None, ints))",
    "list(map(3, ints))",
]


@pytest.mark.parametrize("pause", ["pass", "dynamo.graph_break()"])
@pytest.mark.parametrize("text", FORMS)
def test_what_builtins_see(text, pause):
    source = (
        "def f(x, ints, texts, objects, table, numbers, nested, pairs):\n"
        f"    {pause}\n    try:\n        found = {text}\n"
        "    except TypeError as error:\n        found = str(error)\n    return found, x + 1\n"
    )
    space = {"functools": functools, "itertools": itertools, "operator": operator, "Sized": Sized}
    exec(source, {**space, "dynamo": dynamo, "__name__": __name__}, space)
    arguments = (
        rl.ones(2), [1, 2, 3], ["b", "a", "c"], [Sized(1), Sized(0)], {"k": [1, 2], "j": (3,)},
        {"x": 3, "y": 1}, [[1, 2], [3]], [(1, "x"), (0, "y")],
    )  # fmt: skip
    check(space["f"], arguments, breaks=None)


def holds_itself(x, values):
    values.append((values, 1))
    return [len(t) for t in map(str, values)], x + 1


def test_a_container_that_holds_itself():
    check(holds_itself, (rl.ones(2), [1]), breaks=None)
