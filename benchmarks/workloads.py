"""The benchmarks: each takes a namespace (`rushlight` or `torch`) and yields named cases.

A case is (name, step). The text is one and the same for all peers. A benchmark runs in a process of
its own; its cases share the process. `GROUPS` names them and says what the table shows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.common import common
from benchmarks.data import fill, ids, tensor
from benchmarks.models import made
from benchmarks.programs import example

Step = Callable[[], object]
Cases = Iterator[tuple[str, Step]]


@dataclass(frozen=True)
class Benchmark:
    name: str
    about: str
    cases: Callable[[object], Cases]
    seconds: float = 0.5  # of timing, a case
    check: float = 1e-4  # results of peers agree to this, relative; 0: not compared


def as_it_is(function):
    return function


# What a peer does to a function or model before it is called: `benchmarks.compiled` puts `compile`
# here.
wrap: Callable = as_it_is


def without_gradients(torch, function: Callable, *arguments) -> Step:
    function = wrap(function)

    def step():
        with torch.no_grad():
            return function(*arguments)

    return step


# ---- W: small programs whose cost is memory, library calls or dispatch


def w1(torch) -> Cases:
    x, b = tensor(torch, "x", (1024, 1024)), tensor(torch, "b", (1024, 1024))
    yield "W1", without_gradients(torch, lambda: torch.relu(x + b) * 2)


def w1v(torch) -> Cases:
    x, b = tensor(torch, "x", (1024, 1024)), tensor(torch, "b", (1024,))
    yield "W1v", without_gradients(torch, lambda: torch.relu(x + b) * 2)


def w2(torch) -> Cases:
    F = torch.nn.functional
    x = tensor(torch, "x", (4096, 1024))
    weight, bias = tensor(torch, "w", (1024,), 0.1, 1.0), tensor(torch, "b", (1024,), 0.1)
    yield "W2", without_gradients(torch, lambda: F.gelu(F.layer_norm(x, (1024,), weight, bias)))


def w3(torch) -> Cases:
    x = tensor(torch, "x", (4096, 4096))
    yield "W3", without_gradients(torch, lambda: torch.softmax(x, dim=-1))


def w4(torch) -> Cases:
    nn = torch.nn
    layers = [m for _ in range(3) for m in (nn.Linear(1024, 1024), nn.GELU())]
    model = nn.Sequential(*layers).eval()
    fill(torch, model, "W4")
    yield "W4", without_gradients(torch, model, tensor(torch, "x", (64, 1024)))


def w5(torch) -> Cases:
    block = made(torch, "Block", 512, 8).eval()
    yield "W5", without_gradients(torch, block, tensor(torch, "x", (4, 256, 512)))


def w6(torch) -> Cases:
    block = made(torch, "Block", 512, 8)
    x, target = tensor(torch, "x", (4, 256, 512)), tensor(torch, "y", (4, 256, 512))
    optimizer = torch.optim.SGD(block.parameters(), lr=0.0)
    block = wrap(block)

    def step():
        optimizer.zero_grad()
        loss = ((block(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    yield "W6", step


def w7(torch) -> Cases:
    model = made(torch, "GPT2").eval()
    yield "W7", without_gradients(torch, model, ids(torch, (1, 128), 50257))


def w8(torch) -> Cases:
    model = made(torch, "ResNet18").eval()
    yield "W8", without_gradients(torch, model, tensor(torch, "x", (4, 3, 224, 224)))


def w9(torch) -> Cases:
    x, a = tensor(torch, "x", (32,)), tensor(torch, "a", (32,), 0.1)
    m = tensor(torch, "m", (32,), 0.01, 1.0)

    def chain(y):
        for _ in range(100):
            y = y + a
            y = y * m
        return y

    yield "W9", without_gradients(torch, chain, x)


# ---- what one operator call costs


def overhead(torch) -> Cases:
    for grad in (False, True):
        suffix = " grad" if grad else ""
        x = tensor(torch, "x", (16,)).requires_grad_(grad)
        y = tensor(torch, "y", (16,)).requires_grad_(grad)
        square = tensor(torch, "s", (4, 4)).requires_grad_(grad)
        other = tensor(torch, "t", (4, 4)).requires_grad_(grad)
        linear = torch.nn.Linear(4, 4)
        fill(torch, linear, "linear")
        linear.requires_grad_(grad)
        steps = {
            "x + y": lambda x=x, y=y: x + y,
            "x + 1.0": lambda x=x: x + 1.0,
            "relu": lambda x=x: torch.relu(x),
            "view": lambda x=x: x.view(4, 4),
            "x[0]": lambda x=x: x[0],
            "matmul 4x4": lambda a=square, b=other: torch.matmul(a, b),
            "sum": lambda x=x: x.sum(),
            "softmax": lambda a=square: torch.softmax(a, -1),
            "nn.Linear(4, 4)": lambda m=linear, a=square: m(a),
        }
        for name, step in steps.items():
            yield name + suffix, step


def chain(torch) -> Cases:
    x = tensor(torch, "x", (16,), 0.001, 1.0).requires_grad_(True)
    y = tensor(torch, "y", (16,), 0.001, 1.0)
    ones = tensor(torch, "ones", (16,), 0.0, 1.0)

    def forward():
        z = x
        for _ in range(100):
            z = z * y
        return z

    def both():
        x.grad = None
        forward().backward(ones)
        return x.grad

    yield "100 multiplications, forward", forward
    yield "100 multiplications, forward and backward", both


# ---- training steps


def mlp(torch) -> Cases:
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)
    )
    fill(torch, model, "mlp")
    x, target = tensor(torch, "x", (8, 32)), tensor(torch, "y", (8, 32))
    parameters = list(model.parameters())

    def forward_backward():
        for p in parameters:
            p.grad = None
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        return parameters[0].grad

    yield "MLP 3 x 32, forward and backward", forward_backward

    optimizer = torch.optim.SGD(parameters, lr=0.0)

    def train():
        optimizer.zero_grad()
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    yield "MLP 3 x 32, training step", train


def char_gpt(torch) -> Cases:
    program = example("train_char_gpt", torch.__name__)
    model = program.GPT(96, 128)
    fill(torch, model, "char_gpt")
    optimizer, _ = program.make_optimizer(model, 1e-5, 100, 1)
    x, y = ids(torch, (32, 128), 96), ids(torch, (32, 128), 96)
    model = wrap(model)
    yield "char-GPT, training step", lambda: program.train_step(model, optimizer, x, y)


def lstm(torch) -> Cases:
    program = example("lstm_lm", torch.__name__)
    model = program.LanguageModel(96, dropout=0.0)
    fill(torch, model, "lstm")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    x, y = ids(torch, (64, 32), 96), ids(torch, (64, 32), 96)
    model = wrap(model)
    yield "LSTM, training step", lambda: program.train_step(model, optimizer, x, y, None)[0]


def cnn(torch) -> Cases:
    program = example("train_digits_cnn", torch.__name__)
    model = program.CNN()
    fill(torch, model, "cnn")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    x, y = tensor(torch, "digits", (64, 1, 8, 8)), ids(torch, (64,), 10)
    model = wrap(model)
    yield "digits CNN, training step", lambda: program.train_step(model, optimizer, x, y)


# ---- bandwidth


def sweep(rows: int, label: str) -> Callable[[object], Cases]:
    def cases(torch) -> Cases:
        F = torch.nn.functional
        x, y = tensor(torch, "x", (rows, 1024)), tensor(torch, "y", (rows, 1024))
        p = torch.abs(x) + 0.5
        flags, places = x > 0, ids(torch, (rows, 1024), 1024)
        row, weight = tensor(torch, "row", (1024,)), tensor(torch, "w", (1024,), 0.1, 1.0)
        steps = {
            "add": lambda: x + y,
            "mul by number": lambda: x * 1.5,
            "add row": lambda: x + row,
            "div": lambda: x / p,
            "exp": lambda: torch.exp(x),
            "log": lambda: torch.log(p),
            "tanh": lambda: torch.tanh(x),
            "sigmoid": lambda: torch.sigmoid(x),
            "sqrt": lambda: torch.sqrt(p),
            "relu": lambda: torch.relu(x),
            "gelu": lambda: F.gelu(x),
            "where": lambda: torch.where(flags, x, y),
            "x > y": lambda: x > y,
            "copy": lambda: x.clone(),
            "transpose copy": lambda: x.t().contiguous(),
            "silu": lambda: F.silu(x),
            "clamp": lambda: x.clamp(-1.0, 1.0),
            "pow 2": lambda: x**2,
            "masked_fill": lambda: x.masked_fill(flags, 0.0),
            "cat": lambda: torch.cat([x, y]),
            "gather": lambda: x.gather(1, places),
            "index_select": lambda: x.index_select(0, places[:, 0]),
            "cumsum": lambda: x.cumsum(-1),
            "sort": lambda: x.sort(-1)[0],
            "topk": lambda: x.topk(10, -1)[0],
            "var": lambda: x.var(-1),
            "argmax": lambda: x.argmax(-1),
            "max": lambda: x.max(-1)[0],
            "norm": lambda: x.norm(),
            "tril": lambda: x.tril(),
            "to bfloat16": lambda: x.to(torch.bfloat16),
            "sum": lambda: x.sum(-1),
            "sum of all": lambda: x.sum(),
            "mean": lambda: x.mean(-1),
            "amax": lambda: torch.amax(x, -1),
            "sum over rows": lambda: x.sum(0),
            "softmax": lambda: torch.softmax(x, -1),
            "log_softmax": lambda: torch.log_softmax(x, -1),
            "layer_norm": lambda: F.layer_norm(x, (1024,), weight, row),
        }
        for name, step in steps.items():
            yield f"{name} {label}", without_gradients(torch, step)

    return cases


# ---- a model with its real weights


def minilm(batch: int, length: int) -> Callable[[object], Cases]:
    def cases(torch) -> Cases:
        from benchmarks.minilm import load, tokens

        model = load(torch).eval()
        ids = tokens(torch, batch, length)
        yield f"MiniLM batch {batch} x {length}", without_gradients(torch, model, ids)

    return cases


# ---- memory over many distinct calls


def growing(torch) -> Cases:
    """A step is 10,000 distinct calls; the next step goes on where it stopped."""
    n = 1_000_000
    x = tensor(torch, "x", (n,))
    at = {"index": 0, "slice": 0, "length": 1}

    def index():
        i = at["index"]
        for k in range(i, i + 10_000):
            y = x[k]
        at["index"] = (i + 10_000) % n
        return y

    def slices():
        i = at["slice"]
        for k in range(i, i + 10_000):
            y = x[k : k + 16]
        at["slice"] = (i + 10_000) % (n - 10_016)
        return y

    def lengths():
        i = at["length"]
        for k in range(i, i + 10_000):
            y = x[: k & 0xFFFF or 1] + 1.0
        at["length"] = i + 10_000
        return y

    yield "10,000 distinct x[i]", index
    yield "10,000 distinct x[i:i+16]", slices
    yield "10,000 growing x[:n] + 1", lengths


GROUPS = {
    b.name: b
    for b in (
        Benchmark("W1", "relu(x + b) * 2, both 1024 x 1024", w1),
        Benchmark("W1v", "the same, b of 1024", w1v),
        Benchmark("W2", "gelu(layer_norm(x)), 4096 x 1024", w2),
        Benchmark("W3", "softmax of 4096 x 4096", w3, 1.0),
        Benchmark("W4", "three Linear(1024, 1024) + GELU, batch 64", w4),
        Benchmark("W5", "a Transformer block, d 512, 8 heads, 4 x 256, forward", w5, 1.0),
        Benchmark("W6", "the same, a training step with SGD", w6, 1.5, 1e-3),
        Benchmark("W7", "GPT-2 small, forward, 1 x 128", w7, 2.0, 1e-3),
        Benchmark("W8", "ResNet-18, forward, 4 x 3 x 224 x 224", w8, 1.5, 1e-3),
        Benchmark("W9", "200 operators on 32 elements, one after the other", w9),
        Benchmark("overhead", "one operator call on a few elements", overhead, 0.15),
        Benchmark("common", "the commonest operators, each on a few elements", common, 0.1),
        Benchmark("chain", "100 multiplications in a row", chain, 0.3),
        Benchmark("mlp", "a small model, trained", mlp),
        Benchmark("char-gpt", "examples/train_char_gpt.py, one step", char_gpt, 2.0, 1e-3),
        Benchmark("lstm", "examples/lstm_lm.py, one step", lstm, 2.0, 1e-3),
        Benchmark("cnn", "examples/train_digits_cnn.py, one step", cnn, 1.0, 1e-3),
        Benchmark("sweep-1M", "1M elements in rows of 1024", sweep(1024, "1M"), 0.15),
        Benchmark("sweep-16M", "16M elements in rows of 1024", sweep(16384, "16M"), 0.3),
        Benchmark("minilm-1", "the MiniLM encoder, one sentence", minilm(1, 32), 1.0, 1e-3),
        Benchmark("minilm-32", "the MiniLM encoder, 32 sentences", minilm(32, 32), 1.5, 1e-3),
        Benchmark("growing", "distinct indices, slices and lengths", growing, 1.5, 0),
    )
}
