# ruff: noqa: E501, F541
"""Random expressions: tensors, ints, conditions, any values. `scope` has the names of each kind."""

from __future__ import annotations

import random

import rushlight as rl


class Expressions:
    """Of `Program`."""

    r: random.Random

    def pick(self, *options):
        return self.r.choice(options)

    def tensor(self, scope, deep=0):
        r = self.r.random()
        some = lambda: self.pick(*scope["t"])
        if deep > 2 or r < 0.25:
            return some()
        t = self.tensor(scope, deep + 1)
        return self.pick(
            f"({t} + {self.integer(scope, 1)})",
            f"({self.integer(scope, 1)} - {t})",
            f"({t} * 0.5)",
            f"({t} + {some()})",
            f"{t}.relu()",
            f"rl.where({t} > 1, {some()}, {t})",
            f"{t}.abs().sqrt()",
            f"(-{t})",
            f"{t}[...]",
            f"{t}.reshape(-1)",
            f"helper({t}, {self.integer(scope, 1)})",
            f"helper({t}, scale=2.0, extra=1)",
            f"({t} if {self.test(scope)} else {some()})",
            f"Box({t}).twice",
            f"(Box({t}) + {some()}).value",
            f"functools.reduce(operator.add, [{t}, {some()}])",
            f"sum([{t}, {some()}])",
            f"(lambda q, k={self.integer(scope, 2)}: q * k)({t})",
            f"rl.stack([{t}, {t}]).sum(0)"
            if hasattr(rl, "stack")
            else f"rl.cat([{t}, {t}])[:len({t})]",
        )

    def integer(self, scope, deep=0):
        r = self.r.random()
        if deep > 2 or r < 0.3:
            return self.pick(str(self.r.randint(-3, 5)), *scope["i"])
        i = self.integer(scope, deep + 1)
        return self.pick(
            f"({i} + 1)", f"({i} * 2)", f"len({self.pick(*scope['l'])})", f"{self.pick(*scope['t'])}.shape[0]",
            f"({i} % 4)", f"abs({i})", f"max({i}, 2)", f"({i} if {self.test(scope)} else 7)", f"int({i} > 1)",
            f"{self.pick(*scope['d'])}.get('p', 4)", "box.k", f"{self.pick(*scope['t'])}.dim()", f"divmod({i}, 3)[1]",
            "LEVEL", f"sum(range({i} % 5))", f"({i} // 2)", f"len(f'{{{self.pick(*scope['i'])}}}')",
        )  # fmt: skip

    def test(self, scope):
        i = self.integer(scope, 2)
        return self.pick(
            f"{i} > 2", f"{i} % 2", f"not {i}", f"{self.pick(*scope['l'])}", f"'p' in {self.pick(*scope['d'])}",
            f"{i} in (1, 2, 3)", f"1 < {i} <= 6", f"box == Box(0, {i})", f"isinstance({self.pick(*scope['t'])}, rl.Tensor)",
            f"{self.pick(*scope['t'])} is {self.pick(*scope['t'])}", f"({i} or 0) and True",
        )  # fmt: skip

    def value(self, scope):
        return self.pick(
            self.tensor(scope), self.integer(scope), f"'s{self.r.randint(0, 3)}'", self.pick(*scope["l"]),
            f"[{self.tensor(scope, 2)}, {self.integer(scope)}]", f"({self.integer(scope)},)", "None",
            f"{{'k': {self.integer(scope)}}}", f"f'{{{self.pick(*scope['i'])}:>3}}'", "Color.RED",
            f"Pair({self.tensor(scope, 2)})", f"Point({self.integer(scope)}, {self.tensor(scope, 2)})",
            f"[q * 2 for q in range({self.integer(scope)} % 4)]", f"{{q: q for q in 'ab'}}",
            f"{{**{self.pick(*scope['d'])}}}", f"(*{self.pick(*scope['l'])}, 1)", f"list(reversed([1, {self.integer(scope)}]))",
            f"sorted([3, {self.integer(scope)}, 1])", f"[t + {self.integer(scope, 2)} for t in [{self.tensor(scope, 2)}]]",
            f"dict(zip('ab', [{self.integer(scope)}, {self.tensor(scope, 2)}]))",
        )  # fmt: skip
