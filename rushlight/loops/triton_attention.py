"""Attention for GPUs: templates of Triton source, written by hand. What loops cannot say (products inside a kernel) is said
here; the rest of the way down is that of generated kernels.

    flash_attention           out = softmax(scale q k^T + bias) v, and the logarithm of each row's sum of exponentials
    flash_attention_backward  (dq, dk, dv) from these and the gradient of out

Neither keeps the scores: a program holds one block of rows and walks over the blocks of the other side, so that memory is
read once a block and causal kernels never touch what nobody sees. No atomics: the same bits on every run.

Numbers of the record: operand b has its sizes in n[8 b .. 8 b + 3] and its strides in n[8 b + 4 .. 8 b + 7]; scalar 0 is the
scale, which is above 0.
"""
import re
from typing import NamedTuple

from rushlight.dtypes import HALVES
from rushlight.ops import TABLE, flash
from rushlight.ops.flash import key_of

from .triton import HEAD, Source
from .triton_words import POINTER

FORWARD, BACKWARD = "flash_attention", "flash_attention_backward"
SIZES, MODES = (16, 32, 64, 128, flash.LARGEST), ("", "causal", "bias")
LOG2E = 1.4426950408889634
NUMBERS = 8                         # of each operand
LINE = 128                          # rows of the backward's workspaces are multiples of it: read in whole vectors, without masks
WORK = ("delta", "logs2")


class Tile(NamedTuple):
    """Rows that a program holds, rows of the other side that a step takes, warps, steps in flight."""
    held: int
    step: int
    warps: int
    stages: int


# By capability, then the larger of the two head sizes. Those of 90 were the fastest of eight on an H200
# (benchmarks/attention_tiles.py); those of 80 were not measured.
TILES = {
    (90, "forward"): {16: Tile(64, 64, 4, 3), 32: Tile(64, 64, 4, 3), 64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3),
                      256: Tile(64, 64, 4, 2)},
    (90, "keys"): {16: Tile(128, 64, 4, 2), 32: Tile(128, 64, 4, 2), 64: Tile(128, 64, 8, 3), 128: Tile(128, 64, 8, 3),
                   256: Tile(64, 32, 8, 2)},
    (90, "queries"): {16: Tile(64, 64, 4, 3), 32: Tile(64, 64, 4, 3), 64: Tile(64, 64, 4, 3), 128: Tile(128, 64, 8, 2),
                      256: Tile(64, 32, 8, 2)},
    (80, "forward"): {16: Tile(128, 64, 4, 3), 32: Tile(128, 64, 4, 3), 64: Tile(128, 64, 4, 3), 128: Tile(128, 32, 4, 3),
                      256: Tile(64, 32, 4, 2)},
    (80, "keys"): {16: Tile(64, 64, 4, 2), 32: Tile(64, 64, 4, 2), 64: Tile(64, 64, 4, 2), 128: Tile(64, 32, 4, 2),
                   256: Tile(32, 32, 4, 1)},
    (80, "queries"): {16: Tile(64, 64, 4, 2), 32: Tile(64, 64, 4, 2), 64: Tile(64, 64, 4, 2), 128: Tile(64, 32, 4, 2),
                      256: Tile(32, 32, 4, 1)},
}
WIDER = 1                           # how many places down the list of sizes a general form (64-bit strides, masks) looks for its tile


class Shape(NamedTuple):
    """What a kernel is for. `size`, `value_size`: head sizes, each the power of two that holds it."""
    name: str
    dtype: str
    size: int
    value_size: int
    mode: str

    @property
    def key(self):
        return key_of(self.name, self.dtype, self.size, self.value_size, self.mode)


KEY = re.compile(rf"({FORWARD}|{BACKWARD})\.({'|'.join(HALVES)})\.(\d+)(?:x(\d+))?(?:\.(causal|bias))?")


def shape_of(key):
    """The Shape of a key; None for what is no key of attention."""
    found = KEY.fullmatch(key)
    if found is None:
        return None
    name, dtype, size, other, mode = found.groups()
    return Shape(name, dtype, int(size), int(other or size), mode or "")


def keys():
    """What is precompiled."""
    return [Shape(name, dtype, size, size, mode).key for name in (FORWARD, BACKWARD) for dtype in HALVES for size in SIZES for mode in MODES]


def operands(shape):
    """(letter, its sizes' letters) of each operand of the record, in order. b: batch, h: heads of query, g: of key and value,
    s: rows of query, t: of key and value, d, e: their sizes."""
    bias = (("bias", "bhst"),) if shape.mode == "bias" else ()
    forward = (("q", "bhsd"), ("k", "bgtd"), ("v", "bgte"), *bias)
    if shape.name == FORWARD:
        return forward, (("out", "bhse"), ("lse", "bhs"))
    return (("go", "bhse"), *forward, ("out", "bhse"), ("lse", "bhs")), (("dq", "bhsd"), ("dk", "bgtd"), ("dv", "bgte"))


def record(key, capability, tiles=None):
    """(kernel record of docs/gpu.md, sources). `tiles`: other ones than the table's, by phase."""
    shape = shape_of(key)
    inputs, outputs = operands(shape)
    variants, sources = [], []
    for even in (True, False):
        launches = []
        for phase in ("forward",) if shape.name == FORWARD else ("deltas", "keys", "queries"):
            form = Form(shape, phase, capability, even, (tiles or {}).get(phase))
            source = form.source()
            grid = form.programs
            launches.append({"cubin": len(sources), "entry": source.name, "warps": source.warps, "shared": 0,
                             "params": [word for _, _, word, _ in source.params], "grid": [grid]})
            sources.append(source)
        # Of any form: conditions and workspaces do not depend on the phase.
        work = [] if shape.name == FORWARD else [[f"{form.at('q', 'b')} {form.at('q', 'h')} * {form.lines} * 4 *", False]] * 2
        variants.append({"when": form.when(), "work": work, "launches": launches})
    made = {"key": key, "outer": NUMBERS, "inner": 0, "inputs": len(inputs), "outputs": len(outputs), "numbers": 1, "serial": 0,
            "cost": 100, "origin": TABLE[shape.name].where, "variants": variants}
    return made, sources


class Form:
    """One launch. `even`: whole heads, unit strides along them, rows at multiples of 16 bytes and offsets of 32 bits; else
    anything."""

    def __init__(self, shape, phase, capability, even, tile=None):
        self.shape, self.phase, self.even = shape, phase, even
        inputs, outputs = operands(shape)
        self.names = [name for name, _ in (*inputs, *outputs)]
        self.dims = dict((*inputs, *outputs))
        self.tile = tile or chosen(shape, phase, capability, even)
        self.causal, self.bias = shape.mode == "causal", shape.mode == "bias"
        self.strides = []           # (operand, letter) in order of use
        self.pointers = []

    # ---- the record's words

    def at(self, operand, letter, stride=False):
        """The number of a size, or of a stride."""
        dims = self.dims[operand]
        return f"n{NUMBERS * self.names.index(operand) + 4 * stride + (4 - len(dims)) + dims.index(letter)}"

    def halves(self):
        """Operands of the storage dtype whose rows are heads."""
        return [name for name in self.names if name not in ("bias", "lse")]

    def when(self):
        if not self.even:
            return []
        told = [f"{self.at('q', 'd')} {self.shape.size} ==", f"{self.at('v', 'e')} {self.shape.value_size} =="]
        for name in self.halves():
            long = self.dims[name][2]
            told.append(f"{self.at(name, self.dims[name][3], True)} 1 ==")
            told += [f"{self.at(name, letter, True)} 16 % 0 ==" for letter in self.dims[name][:3]]
            told.append(f"{self.at(name, long)} 256 + {self.at(name, long, True)} * 2147483647 <=")
        if self.bias:
            told += [f"{self.at('bias', 't', True)} 1 ==", f"{self.at('bias', 's')} 256 + {self.at('bias', 's', True)} * 2147483647 <="]
            told += [f"{self.at('bias', letter, True)} 16 % 0 ==" for letter in "bhs"]
        return told + [f"p{self.names.index(name)} 16 % 0 ==" for name in self.names if name != "lse"]

    @property
    def lines(self):
        """The length of a row of the workspaces."""
        return f"{self.at('q', 's')} {LINE} cdiv {LINE} *"

    # ---- pieces of text

    def stride(self, operand, letter):
        name = f"{operand}_{letter}"
        if (operand, letter) not in self.strides:
            self.strides.append((operand, letter))
        return name

    def step(self, operand, letter):
        """" * stride" along the last dim."""
        return "" if self.even else f" * {self.stride(operand, letter)}"

    def base(self, operand, head):
        """The statement that moves a pointer to its batch and head."""
        if operand not in self.pointers:
            self.pointers.append(operand)
        _, heads = self.dims[operand][:2]
        return f"{operand}_at = {operand} + batch * {self.stride(operand, 'b')} + {head} * {self.stride(operand, heads)}"

    def tile_at(self, operand, rows):
        """The addresses of whole rows."""
        long, across = self.dims[operand][2:]
        return f"{operand}_at + {rows}[:, None] * {self.stride(operand, long)} + {self.across(across)}[None, :]{self.step(operand, across)}"

    def across(self, letter):
        return "wide" if letter == "e" and self.shape.size != self.shape.value_size else "dims"

    def guard(self, operand, rows, masked):
        """The mask of whole rows; "" where all are there."""
        long, across = self.dims[operand][2:]
        told = [f"({rows}[:, None] < n_{long})"] if masked else []
        if not self.even:
            told.append(f"({self.across(across)}[None, :] < n_{across})")
        return " & ".join(told)

    def load(self, operand, rows, masked):
        mask = self.guard(operand, rows, masked)
        return f"tl.load({self.tile_at(operand, rows)}{f', mask={mask}, other=0.0' if mask else ''})"

    def store(self, operand, rows, value):
        return f"tl.store({self.tile_at(operand, rows)}, ({value}).to({operand}.dtype.element_ty), mask={self.guard(operand, rows, True)})"

    def biases(self, rows, columns, turned):
        """What is added to the scores, in base 2; `turned`: columns go down."""
        index = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        where = f"bias_at + {rows}{index[0]} * {self.stride('bias', 's')} + {columns}{index[1]}{self.step('bias', 't')}"
        return (f"tl.load({where}, mask=({rows}{index[0]} < n_s) & ({columns}{index[1]} < n_t), other=0.0).to(tl.float32) * {LOG2E}")

    # ---- phases

    def source(self):
        body = getattr(self, self.phase)()
        params = [self.pointer(name) for name in self.pointers]
        sizes = [letter for letter in "bhgstde" if re.search(rf"\bn_{letter}\b", body)]
        params += [(f"n_{x}", "i32", f"{self.size(x)}:i32", False) for x in sizes]
        kind = "i32" if self.even else "i64"
        for operand, letter in self.strides:
            far = letter in "bhg"
            one = "i64" if far else kind
            params.append((f"{operand}_{letter}", one, f"{self.at(operand, letter, True)}:{one}", False))
        if "scale" in body:
            params.append(("scale", "fp32", "s0:f32", False))
        name = re.sub(r"\W", "_", self.shape.key) + ("_keys" if self.phase == "keys" else "_queries" if self.phase == "queries"
                                                     else "_deltas" if self.phase == "deltas" else "") + ("" if self.even else "_any")
        constants = [f"    {k}: tl.constexpr = {v}" for k, v in (("HELD", self.tile.held), ("STEP", self.tile.step),
                                                                   ("SIZE", self.shape.size), ("WIDE", self.shape.value_size))]
        text = "\n".join([*HEAD.rstrip().splitlines(), "", "", f"# {self.shape.key}: {self.phase}, {self.tile}", "@triton.jit",
                          f"def {name}({', '.join(p[0] for p in params)}):", *constants, body, ""])
        params = [(n, k, w, a or (self.even and n[:-2] in self.names)) for n, k, w, a in params]
        return Source(name, text, tuple(params), self.programs, self.tile.warps, stages=self.tile.stages, contracts=True)

    def pointer(self, name):
        if name in WORK:
            return name, "*fp32", f"w{WORK.index(name)}", True
        dtype = "float32" if name == "lse" else self.shape.dtype
        return name, POINTER[dtype], f"p{self.names.index(name)}", self.even and name != "lse"

    def size(self, letter):
        return self.at("v" if letter == "e" else "k" if letter in "gt" else "q", letter)

    @property
    def programs(self):
        rows, heads = ("t", "g") if self.phase == "keys" else ("s", "h")
        long = self.lines if self.phase == "deltas" else self.size(rows)
        return f"{long} {self.tile.held} cdiv {self.size('b')} * {self.size(heads)} *"

    def begin(self, rows, heads, late_first):
        """Which block of rows of which head a program takes. `late_first`: the longest ones begin, over all heads."""
        long = f"tl.cdiv(n_s, {LINE}) * {LINE}" if self.phase == "deltas" else f"n_{rows}"
        out = [f"blocks = tl.cdiv({long}, HELD)", f"rows_of_all = n_b * n_{heads}", "program = tl.program_id(0)"]
        if self.causal:
            block = "program // rows_of_all"
            out += [f"block = {f'blocks - 1 - {block}' if late_first else block}", "row = program % rows_of_all"]
        else:
            out += ["block = program % blocks", "row = program // blocks"]
        out += [f"batch = (row // n_{heads}).to(tl.int64)", f"head = row % n_{heads}", "dims = tl.arange(0, SIZE)"]
        if self.shape.size != self.shape.value_size:
            out.append("wide = tl.arange(0, WIDE)")
        return out

    def queries_first(self, operands_):
        """The head of a program, of the key and value that it reads, and its rows."""
        out = self.begin("s", "h", True)
        out += ["group = (head // (n_h // n_g)).to(tl.int64)", "head = head.to(tl.int64)", "rows = block * HELD + tl.arange(0, HELD)",
                "columns = tl.arange(0, STEP)"]
        out += [self.base(name, "group" if name in ("k", "v") else "head") for name in operands_]
        if self.causal:             # what every row sees, and what some row sees
            out += ["whole = tl.minimum((block * HELD + 1) // STEP, n_t // STEP) * STEP", "last = tl.minimum((block + 1) * HELD, n_t)"]
        else:
            out += ["whole = n_t // STEP * STEP", "last = n_t"]
        return out

    def seen(self, rows, places, turned):
        index = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        told = f"({places}{index[1]} < n_t)"
        return f"{told} & ({rows}{index[0]} >= {places}{index[1]})" if self.causal else told

    def forward(self):
        self.pointers += ["q", "k", "v", *(["bias"] if self.bias else []), "out", "lse"]
        out = self.queries_first(["q", "k", "v", *(["bias"] if self.bias else []), "out"])
        out += [f"queries = {self.load('q', 'rows', True)}", "top = tl.full([HELD], float('-inf'), tl.float32)",
                "total = tl.zeros([HELD], tl.float32)", "sums = tl.zeros([HELD, WIDE], tl.float32)", f"scale *= {LOG2E}"]
        for first, end, masked in (("0", "whole", False), ("whole", "last", True)):
            out.append(f"for start in range({first}, {end}, STEP):")
            inner = ["places = start + columns", f"keys = {self.load('k', 'places', masked)}", "scores = tl.dot(queries, tl.trans(keys))"]
            if self.bias:
                inner.append(f"scores = scores * scale + {self.biases('rows', 'places', False)}")
            if masked:
                inner.append(f"scores = tl.where({self.seen('rows', 'places', False)}, scores, float('-inf'))")
            if self.bias:           # a row may have seen nothing so far
                inner += ["new = tl.maximum(top, tl.max(scores, 1))", "least = tl.where(new == float('-inf'), 0.0, new)",
                          "weights = tl.exp2(scores - least[:, None])", "shrink = tl.exp2(top - least)"]
            else:
                inner += ["new = tl.maximum(top, tl.max(scores, 1) * scale)", "weights = tl.exp2(scores * scale - new[:, None])",
                          "shrink = tl.exp2(top - new)"]
            inner += ["total = total * shrink + tl.sum(weights, 1)", "sums = sums * shrink[:, None]", f"values = {self.load('v', 'places', masked)}",
                      "sums = tl.dot(weights.to(values.dtype), values, sums)", "top = new"]
            out += ["    " + line for line in inner]
        if self.bias:               # rows that see nothing: zeros, and no weight in the backward
            out += ["empty = total == 0.0", "total = tl.where(empty, 1.0, total)",
                    f"logs = tl.where(empty, float('inf'), (top + tl.log2(total)) * {1 / LOG2E})"]
        else:
            out.append(f"logs = (top + tl.log2(total)) * {1 / LOG2E}")
        out += [self.store("out", "rows", "sums / total[:, None]"), "tl.store(lse + row.to(tl.int64) * n_s + rows, logs, mask=rows < n_s)"]
        return indented(out)

    def line(self, head):
        return f"line = {head}.to(tl.int64) * (tl.cdiv(n_s, {LINE}) * {LINE})"

    def deltas(self):
        """The sum over each row of gradient times output, which the softmax's derivative subtracts; and the logarithms in base 2,
        infinite where there is no row."""
        self.pointers += ["go", "out", "lse", *WORK]
        out = self.begin("s", "h", True)
        out += ["head = head.to(tl.int64)", "rows = block * HELD + tl.arange(0, HELD)", self.base("go", "head"), self.base("out", "head")]
        out += [f"products = {self.load('go', 'rows', True)}.to(tl.float32) * {self.load('out', 'rows', True)}.to(tl.float32)",
                self.line("row"), "tl.store(delta + line + rows, tl.sum(products, 1))",
                f"logs = tl.load(lse + row.to(tl.int64) * n_s + rows, mask=rows < n_s, other=float('inf')) * {LOG2E}",
                "tl.store(logs2 + line + rows, logs)"]
        return indented(out)

    def keys(self):
        """dk and dv of one block of keys, over the queries of every head that reads them."""
        self.pointers += ["go", "q", "k", "v", *(["bias"] if self.bias else []), *WORK, "dk", "dv"]
        out = self.begin("t", "g", False)
        out += ["group = head.to(tl.int64)", "places = block * HELD + tl.arange(0, HELD)", "columns = tl.arange(0, STEP)",
                *(self.base(name, "group") for name in ("k", "v", "dk", "dv")),
                f"keys = {self.load('k', 'places', True)}", f"values = {self.load('v', 'places', True)}",
                "into_keys = tl.zeros([HELD, SIZE], tl.float32)", "into_values = tl.zeros([HELD, WIDE], tl.float32)", f"scale2 = scale * {LOG2E}"]
        if self.causal:             # queries above see none of these keys; from `whole` on they see all
            out += ["first = block * HELD // STEP * STEP", "whole = tl.minimum(tl.cdiv((block + 1) * HELD - 1, STEP) * STEP, tl.cdiv(n_s, STEP) * STEP)"]
        out += ["sharing = n_h // n_g", "for which in range(0, sharing):"]
        inner = ["each = group * sharing + which", self.line("(batch * n_h + each)"),
                 *(self.base(name, "each") for name in ("go", "q", *(["bias"] if self.bias else [])))]
        for start, end, masked in (("first", "whole", True), ("whole", "n_s", False)) if self.causal else (("0", "n_s", False),):
            inner.append(f"for start in range({start}, {end}, STEP):")
            loop = ["rows = start + columns", f"queries = {self.load('q', 'rows', True)}", "scores = tl.dot(keys, tl.trans(queries))",
                    "logs = tl.load(logs2 + line + rows)"]
            added = f" + {self.biases('rows', 'places', True)}" if self.bias else ""
            loop.append(f"weights = tl.exp2(scores * scale2{added} - logs[None, :])")
            if masked:
                loop.append(f"weights = tl.where({self.seen('rows', 'places', True)}, weights, 0.0)")
            loop += [f"gradients = {self.load('go', 'rows', True)}", "into_values = tl.dot(weights.to(gradients.dtype), gradients, into_values)",
                     "products = tl.dot(values, tl.trans(gradients))", "less = tl.load(delta + line + rows)",
                     "changes = (weights * (products - less[None, :])).to(queries.dtype)", "into_keys = tl.dot(changes, queries, into_keys)"]
            inner += ["    " + line for line in loop]
        out += ["    " + line for line in inner]
        out += [self.store("dk", "places", "into_keys * scale"), self.store("dv", "places", "into_values")]
        return indented(out)

    def queries(self):
        """dq of one block of queries."""
        self.pointers += ["go", "q", "k", "v", *(["bias"] if self.bias else []), *WORK, "dq"]
        out = self.queries_first(["go", "q", "k", "v", *(["bias"] if self.bias else []), "dq"])
        out += [f"queries = {self.load('q', 'rows', True)}", f"gradients = {self.load('go', 'rows', True)}",
                self.line("row"), "logs = tl.load(logs2 + line + rows)", "less = tl.load(delta + line + rows)", "into = tl.zeros([HELD, SIZE], tl.float32)",
                f"scale2 = scale * {LOG2E}"]
        for first, end, masked in (("0", "whole", False), ("whole", "last", True)):
            out.append(f"for start in range({first}, {end}, STEP):")
            added = f" + {self.biases('rows', 'places', False)}" if self.bias else ""
            inner = ["places = start + columns", f"keys = {self.load('k', 'places', masked)}", "scores = tl.dot(queries, tl.trans(keys))",
                     f"weights = tl.exp2(scores * scale2{added} - logs[:, None])"]
            if masked:
                inner.append(f"weights = tl.where({self.seen('rows', 'places', False)}, weights, 0.0)")
            inner += [f"values = {self.load('v', 'places', masked)}", "products = tl.dot(gradients, tl.trans(values))",
                      "changes = (weights * (products - less[:, None])).to(keys.dtype)", "into = tl.dot(changes, keys, into)"]
            out += ["    " + line for line in inner]
        out.append(self.store("dq", "rows", "into * scale"))
        return indented(out)


def indented(lines):
    return "\n".join("    " + line for line in lines)


def chosen(shape, phase, capability, even):
    if phase == "deltas":
        return Tile(64, 16, 4, 1)
    table = TILES[90 if capability >= 90 else 80, phase]
    return table[min(SIZES[-1], max(shape.size, shape.value_size) << (0 if even else WIDER))]
