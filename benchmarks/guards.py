"""What a compiled call costs before its graph runs: binding, guards, the call of the target.

    python -P benchmarks/guards.py [--torch] [--layers 1 12 48]

Nanoseconds, the least of several rounds. "guards" rows are entries of real captures with a target
that does nothing, less a plain call of such a function; `--torch` adds torch.compile with the same
backend ("eager": the captured graph as it stands), less the call that was not compiled.
"""

import argparse
import sys
import time
import timeit
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))


def nanoseconds(step, calls: int = 2000) -> float:
    step()
    return min(timeit.repeat(step, number=calls, repeat=9)) / calls * 1e9


def gpt(torch, layers: int, width: int = 32):
    """A decoder with learned positions, `layers` blocks of ten submodules."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.act, self.drop = nn.GELU(), nn.Dropout(0.0)

        def forward(self, x):
            q, k, v = self.qkv(self.ln_1(x)).split(width, dim=-1)
            weights = torch.softmax(q @ k.transpose(-2, -1), -1)
            x = x + self.drop(self.proj(weights @ v))
            return x + self.down(self.act(self.up(self.ln_2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(50, width), nn.Embedding(16, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.ln = nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places(torch.arange(8))
            for block in self.blocks:
                x = block(x)
            return self.ln(x)

    return Model(), torch.arange(8).reshape(1, 8)


def one_line(torch):
    def add_one(x):
        return x + 1

    return add_one, torch.ones(4)


def guards_alone(compiled, *args) -> float:
    """Binding, guards and a call, less that call, of the entry that serves these arguments."""
    from rushlight import _core

    guards, _ = compiled.entries[0]
    names = ", ".join(compiled.signature_code.co_varnames[: compiled.signature_code.co_argcount])
    nothing = eval(f"lambda {names}: None")

    def miss(*rest):
        raise AssertionError("the guards do not hold")

    alone = _core.CompiledFunction(compiled.callable, compiled.signature_code, miss)
    alone.add_entry(guards, nothing)
    args += (None,) * (compiled.signature_code.co_argcount - len(args))
    return nanoseconds(lambda: alone(*args)) - nanoseconds(lambda: nothing(*args))


def without_graph(rushlight, layers: int, closure: bool = False) -> tuple[int, float]:
    """(inputs, a compiled call of GPT-2 whose graph is a function that does nothing); `closure`:
    of a function that closes over the model."""
    from benchmarks.models import made as build

    model = build(rushlight, "GPT2", 1000, 64, 32, layers, 4)
    tokens = rushlight.arange(8).reshape(1, 8)
    counts = []

    def nothing(graph, examples):
        counts.append(len(examples))
        results = (rushlight.zeros(1),)

        def run(*inputs):
            return results

        run.trusted = True  # as the compiler's own functions are: its results are not looked at
        return run

    called = (lambda tokens: model(tokens)) if closure else model
    made = rushlight.compile(called, backend=nothing, fullgraph=True)
    made(tokens)
    return counts[0], nanoseconds(lambda: made(tokens), 500)


def capture(rushlight, layers: int) -> tuple[float, float]:
    """The first call of GPT-2 less a later one: (once, the least of several after resets)."""
    from benchmarks.models import made as build

    model = build(rushlight, "GPT2", 1000, 64, 32, layers, 4)
    tokens = rushlight.arange(8).reshape(1, 8)
    model(tokens)
    times = []
    for _ in range(7):
        rushlight.compiler.reset()
        made = rushlight.compile(model, backend="eager", fullgraph=True)
        start = time.perf_counter_ns()
        made(tokens)
        first = time.perf_counter_ns()
        made(tokens)
        times.append(2 * first - start - time.perf_counter_ns())
    return times[0], min(times[1:])


def rows(layers: list[int]):
    import rushlight
    from rushlight import _core

    function, x = one_line(rushlight)
    compiled = rushlight.compile(function, backend="eager")
    compiled(x)
    yield "guards of a one-line function", guards_alone(compiled, x)
    over = nanoseconds(lambda: compiled(x)) - nanoseconds(lambda: function(x))
    yield "one-line function, compiled less plain", over
    for n in layers:
        model, tokens = gpt(rushlight, n)
        made = rushlight.compile(model, backend="eager", fullgraph=True)
        made(tokens)
        served = made.__dict__["_forward"]
        count = len(list(model.modules()))
        name = f"guards of a model of {count} modules ({len(served.entries[0][0])} checks)"
        yield name, guards_alone(served, model, tokens)

        def touched(model=model, tokens=tokens, served=served):
            model.blocks[0].steps = 1
            return served.entries[0][0].check(model, tokens)

        yield "  the same, an attribute set before each", nanoseconds(touched, 500)
        inputs, whole = without_graph(rushlight, n)
        yield f"  all but the graph: guards, {inputs} inputs fetched, call", whole
        _, whole = without_graph(rushlight, n, closure=True)
        yield "  the same of a function that closes over the model", whole
    for n in layers:
        first, later = capture(rushlight, n)
        yield f"capture of GPT-2 of {n} layers, first in this process", first
        yield "  the same, after a reset", later

    def callee():
        pass

    def caller():
        callee(), callee(), callee(), callee(), callee()

    idle = nanoseconds(caller)
    with _core.FrameScope(lambda code, function: None):
        on = nanoseconds(caller)
    yield "frame hook on, a call it passes on", (on - idle) / 5
    yield "frame hook off again, a call", (nanoseconds(caller) - idle) / 5


def torch_rows():
    import torch

    function, x = one_line(torch)
    compiled = torch.compile(function, backend="eager")
    compiled(x)
    over = nanoseconds(lambda: compiled(x)) - nanoseconds(lambda: function(x))
    yield "torch: one-line function, compiled less plain", over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", action="store_true", help="torch.compile beside it")
    parser.add_argument("--layers", type=int, nargs="*", default=[1, 12, 48])
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, nanoseconds")
    for name, value in rows(options.layers):
        print(f"{value:10.0f}  {name}")
    for name, value in torch_rows() if options.torch else ():
        print(f"{value:10.0f}  {name}")


if __name__ == "__main__":
    main()
