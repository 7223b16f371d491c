"""Random programs over Python's statement forms with tensor operations inside, each run eager and
compiled: results, output, exceptions and what became of the arguments must be equal.

    python -m tests.dynamo.fuzz 5000          that many programs from seed 0
    python -m tests.dynamo.fuzz 1 1234        one program, printed
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import random
import sys
import types
import warnings

import rushlight as rl
from rushlight import config, dynamo
from rushlight.fx.pausing import paused_collector

from .both import outcome, seen
from .comparing import same
from .fuzz_forms import Forms
from .fuzz_prelude import PRELUDE


class Program(Forms):
    """Grows the text of one function `program(x, y, n, items, table, box)`."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.names = 0
        self.budget = self.r.randint(6, 16)
        self.loops = 0
        self.inside = 0  # functions

    def fresh(self, letter):
        self.names += 1
        return f"{letter}{self.names}"

    def emit(self, depth, text):
        self.lines.append("    " * depth + text)

    def text(self):
        scope = {"t": ["x", "y"], "i": ["n"], "l": ["items", "log"], "d": ["table"]}
        self.emit(0, "def program(x, y, n, items, table, box, w):")
        self.emit(1, "global LEVEL")
        self.emit(1, "log = []")
        while self.budget > 0:
            self.statement(1, scope, True)
        for i in [i for i in scope["i"] if i.startswith("i")][:3]:
            self.emit(1, f"log.append({i})")
        ts = ", ".join(scope["t"][-3:])
        self.emit(1, f"return {ts}, log, items, table, n, LEVEL")
        return "\n".join(self.lines)


def arguments(k):
    """Three different sets: the second changes values, the third sizes."""
    size = (3, 3, 4)[k]
    x = rl.arange(size) * 0.5 + k
    y = rl.ones(size) * (k + 1)
    w = rl.ones(1, requires_grad=True)
    return x, y, (2, 3, 5)[k], [1, k], {"p": k, "r": 2}, w


def build(text, seed):
    name = f"<fuzz {seed}>"
    whole = PRELUDE + text
    linecache.cache[name] = (len(whole), None, whole.splitlines(True), name)
    module = sys.modules["tests.fuzzed"] = types.ModuleType("tests.fuzzed")
    space = module.__dict__
    space["dynamo_break"] = dynamo.graph_break
    exec(compile(whole, name, "exec"), space)
    return space


def run(seed, text=None):
    """None, or what differs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the limit of captures
        return compare(seed, text)


def compare(seed, text):
    text = text or Program(seed).text()
    plain, other = build(text, seed), build(text, seed)
    dynamo.reset()
    dynamic = True if seed % 4 == 3 else None
    compiled = rl.compile(other["program"], backend="eager", dynamic=dynamic)
    for k in (0, 0, 1, 2):
        results = []
        for space, f in ((plain, plain["program"]), (other, compiled)):
            x, y, n, items, table, w = arguments(k)
            space["LEVEL"] = k
            given = (x, y, n, items, table, space["Box"](y, n), w)
            results.append(seen([outcome(lambda f=f, g=given: f(*g)), given, space["LEVEL"]]))
            if not rl.is_grad_enabled():
                rl.set_grad_enabled(True)
                results[-1].append("grad mode left off")
        if not same(*results):
            return f"call {k}\n{text}\neager    {results[0]}\ncompiled {results[1]}"
    return None


def main(count, first=0):
    wrong = 0
    with config.changed(strict=True), paused_collector():  # a collection every few programs
        for seed in range(first, first + count):
            if seed % 20 == 0:
                gc.collect()
            text = Program(seed).text()
            if count == 1:
                print(text)
            try:
                difference = run(seed, text)
            except BaseException as error:  # noqa: BLE001  an interpreter's failure is a finding
                if isinstance(error, KeyboardInterrupt):
                    raise
                difference = f"{type(error).__name__}: {error}\n{text}"
            if difference:
                wrong += 1
                print(f"---- seed {seed}: {difference}", flush=True)
    print(f"{count} programs, {wrong} differ", flush=True)
    return wrong


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(bool(main(*map(int, sys.argv[1:]))))
