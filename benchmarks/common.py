"""The operators that models call most, each on a few elements: what a call costs."""

from collections.abc import Callable, Iterator

from benchmarks.data import ids, tensor


def common(torch) -> Iterator[tuple[str, Callable[[], object]]]:
    """The operators that models call most, each on a few elements."""
    F = torch.nn.functional
    x, y = tensor(torch, "x", (4, 4)), tensor(torch, "y", (4, 4))
    p, flags = torch.abs(x) + 0.5, x > 0
    row, weight = tensor(torch, "row", (4,)), tensor(torch, "w", (4,), 0.1, 1.0)
    batch, image = tensor(torch, "b", (2, 4, 4)), tensor(torch, "i", (1, 2, 6, 6))
    kernel = tensor(torch, "k", (2, 2, 3, 3))
    places = ids(torch, (4, 4), 4)
    labels = ids(torch, (4,), 4)
    steps = {
        "add": lambda: x + y,
        "sub": lambda: x - y,
        "mul": lambda: x * y,
        "div": lambda: x / p,
        "add number": lambda: x + 1.0,
        "mul number": lambda: x * 2.0,
        "neg": lambda: -x,
        "abs": lambda: torch.abs(x),
        "exp": lambda: torch.exp(x),
        "log": lambda: torch.log(p),
        "sqrt": lambda: torch.sqrt(p),
        "rsqrt": lambda: torch.rsqrt(p),
        "pow 2": lambda: x**2,
        "tanh": lambda: torch.tanh(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "relu": lambda: torch.relu(x),
        "gelu": lambda: F.gelu(x),
        "silu": lambda: F.silu(x),
        "maximum": lambda: torch.maximum(x, y),
        "clamp": lambda: torch.clamp(x, -1.0, 1.0),
        "where": lambda: torch.where(flags, x, y),
        "masked_fill": lambda: x.masked_fill(flags, 0.0),
        "x == y": lambda: x == y,
        "x < y": lambda: x < y,
        "sum": lambda: x.sum(),
        "sum dim": lambda: x.sum(-1),
        "mean dim": lambda: x.mean(-1),
        "var dim": lambda: x.var(-1),
        "max dim": lambda: x.max(-1)[0],
        "argmax": lambda: x.argmax(-1),
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax": lambda: torch.log_softmax(x, -1),
        "cross_entropy": lambda: F.cross_entropy(x, labels),
        "layer_norm": lambda: F.layer_norm(x, (4,), weight, row),
        "cumsum": lambda: x.cumsum(-1),
        "topk": lambda: x.topk(2, -1)[0],
        "view": lambda: x.view(16),
        "reshape": lambda: x.reshape(2, 8),
        "transpose": lambda: x.transpose(0, 1),
        "permute": lambda: batch.permute(2, 0, 1),
        "unsqueeze": lambda: x.unsqueeze(0),
        "expand": lambda: row.expand(4, 4),
        "x[0]": lambda: x[0],
        "x[:, 1:]": lambda: x[:, 1:],
        "cat": lambda: torch.cat([x, y]),
        "stack": lambda: torch.stack([x, y]),
        "split": lambda: x.split(2)[0],
        "clone": lambda: x.clone(),
        "to float64": lambda: x.to(torch.float64),
        "zeros_like": lambda: torch.zeros_like(x),
        "arange": lambda: torch.arange(16),
        "gather": lambda: x.gather(1, places),
        "index_select": lambda: x.index_select(0, labels),
        "x[labels]": lambda: x[labels],
        "embedding": lambda: F.embedding(labels, x),
        "matmul": lambda: x @ y,
        "bmm": lambda: torch.bmm(batch, batch),
        "linear": lambda: F.linear(x, y, row),
        "conv2d": lambda: F.conv2d(image, kernel),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
    }
    yield from steps.items()
