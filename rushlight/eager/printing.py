"""Tensors as PyTorch prints them: 4 digits, one width for all, summaries above 1,000 elements."""

from math import isfinite

from rushlight import dtypes

PRECISION, THRESHOLD, EDGE, WIDTH, SCIENTIFIC = 4, 1000, 3, 80, None

PROFILES = {
    "default": (4, 1000, 3, 80),
    "short": (2, 1000, 2, 80),
    "full": (4, float("inf"), 3, 80),
}


def set_printoptions(
    precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None
):
    """How tensors are printed: digits, elements before they are summarised, those shown at each
    end, characters a line; profile: 'default', 'short' or 'full'. sci_mode: always or never in
    scientific notation; None decides by the values, and so does leaving it out.
    """
    global PRECISION, THRESHOLD, EDGE, WIDTH, SCIENTIFIC
    if profile is not None:
        if profile not in PROFILES:
            raise ValueError(f"[set_printoptions] unknown profile {profile!r}")
        PRECISION, THRESHOLD, EDGE, WIDTH = PROFILES[profile]
    given = (precision, threshold, edgeitems, linewidth)
    PRECISION, THRESHOLD, EDGE, WIDTH = (
        old if new is None else new for old, new in zip((PRECISION, THRESHOLD, EDGE, WIDTH), given)
    )
    SCIENTIFIC = sci_mode


class Formatter:
    """One way of writing every number of a tensor: integers, fixed point or scientific, to one
    width. Zeros, NaN and infinities decide nothing.
    """

    def __init__(self, values, floating):
        self.floating, self.scientific, self.whole, self.width = floating, False, True, 1
        if not floating:
            self.width = max([len(str(v)) for v in values], default=1)
            return
        numbers = [v for v in values if isfinite(v) and v != 0]
        if not numbers:
            return
        low, high = min(map(abs, numbers)), max(map(abs, numbers))
        self.whole = all(v == int(v) for v in numbers)
        self.scientific = high / low > 1000.0 or high > 1e8 or low < 1e-4
        if SCIENTIFIC is not None:
            self.scientific = SCIENTIFIC
        self.width = max(len(self.raw(v)) for v in numbers)

    def raw(self, v):
        if not self.floating:
            return str(v)
        if self.scientific:
            return f"{v:.{PRECISION}e}"
        if self.whole:
            return f"{v:.0f}." if isfinite(v) else str(v)
        return f"{v:.{PRECISION}f}"

    def __call__(self, v):
        return self.raw(v).rjust(self.width)


class Pair:
    """How complex numbers are shown: each part in a format of its own."""

    def __init__(self, values):
        self.re = Formatter([v.real for v in values], True)
        self.im = Formatter([v.imag for v in values], True)
        self.width = self.re.width + self.im.width + 1

    def __call__(self, v):
        imag = (self.im(v.imag) + "j").lstrip()
        return self.re(v.real) + ("" if imag[0] in "+-" else "+") + imag


def text(x):
    """`repr` of a tensor."""
    plain = x.detach()
    dtype = plain.dtype
    suffixes = []
    usual = dtypes.DEFAULT
    default = dtype.name in (usual, dtypes.complex_of(usual), "int64", "bool")
    place = plain.device
    if place.type != "cpu":
        suffixes.append(f"device={str(place)!r}")
    if place.type == "meta":
        suffixes.append(f"size={tuple(plain.shape)}")
        if dtype.name != usual:
            suffixes.append(f"dtype={dtype!r}")
        body = "..."
    elif plain.numel() == 0:
        if plain.dim() != 1:
            suffixes.append(f"size={tuple(plain.shape)}")
        if dtype.name != usual:
            suffixes.append(f"dtype={dtype!r}")
        body = "[]"
    else:
        if not default:
            suffixes.append(f"dtype={dtype!r}")
        short = summarised(plain)
        shown = on_host(plain, short) if place.type == "cuda" else plain.cpu()
        shown = shown.to(_float32()) if dtype.name in ("float16", "bfloat16") else shown
        numbers = leaves(shown, short)
        if dtype.is_complex:
            format_ = Pair(numbers)
        else:
            format_ = Formatter(numbers, dtype.is_floating_point)
        body = nested(shown, 7, format_, short)
    if x.grad_fn is not None:
        suffixes.append(f"grad_fn=<{x.grad_fn.name()}>")
    elif x.requires_grad:
        suffixes.append("requires_grad=True")
    return wrapped("tensor(" + body, suffixes) + ")"


def on_host(x, short):
    """A copy on the CPU, in one transfer: of a large tensor, only of what is shown."""
    from rushlight import _core
    from rushlight.ops import TABLE

    for d, n in enumerate(x.shape if short else ()):
        if n > 2 * EDGE + 1:  # the middle one stands for all that is left out
            ends = (x.narrow(d, 0, EDGE + 1), x.narrow(d, n - EDGE, EDGE))
            x = TABLE["cat"].native(ends, d)
    return _core.cuda_named("print", x.cpu)


def _float32():
    from rushlight import _core

    return _core.float32


def wrapped(text, suffixes):
    last = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if last + len(suffix) + 2 > WIDTH:
            text += ",\n       " + suffix
            last = 7 + len(suffix)
        else:
            text += ", " + suffix
            last += len(suffix) + 2
    return text


def summarised(x):
    return x.numel() > THRESHOLD


def edges(n, short):
    return [*range(EDGE), None, *range(n - EDGE, n)] if short and n > 2 * EDGE else list(range(n))


def leaves(x, short=None):
    """The numbers that will be shown."""
    short = summarised(x) if short is None else short
    if x.dim() == 0:
        return [x.item()]
    if x.dim() == 1:
        n = x.shape[0]
        return (
            [x[i].item() for i in edges(n, short) if i is not None]
            if short and n > 2 * EDGE
            else x.tolist()
        )
    return [v for i in edges(x.shape[0], short) if i is not None for v in leaves(x[i], short)]


def nested(x, indent, format_, short=None):
    short = summarised(x) if short is None else short
    if x.dim() == 0:
        return format_(x.item())
    if x.dim() == 1:
        return row(x, indent, format_, short)
    parts = [
        " ..." if i is None else nested(x[i], indent + 1, format_, short)
        for i in edges(x.shape[0], short)
    ]
    return (
        "["
        + ("," + "\n" * (x.dim() - 1) + " " * (indent + 1)).join(
            p.strip(" ") if p == " ..." else p for p in parts
        )
        + "]"
    )


def row(x, indent, format_, short):
    per_line = max(1, (WIDTH - indent) // max(format_.width + 2, 1))
    items = (
        [" ..." if i is None else format_(x[i].item()) for i in edges(x.shape[0], short)]
        if short and x.shape[0] > 2 * EDGE
        else [format_(v) for v in x.tolist()]
    )
    lines = [items[i : i + per_line] for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(", ".join(line) for line in lines) + "]"
