"""Kernel -> Triton source: one program of one form, with what a launch must pass to it. The second emitter beside cpp.py.

    flat        scalar bodies over one index, taken apart where several axes are left
    tile        scalar bodies over two axes; the others are the program's
    block       row bodies: whole rows in registers, everything read once
    loop        row bodies: a row in pieces, one pass for each level of fold
    part, join  one fold over long rows: pieces of a row side by side, then the pieces folded

A block is a tile of X rows by R elements (one dim where X is 1). Values keep the dims that they depend on, so that what is one
number a row is read and computed once a row. Folds run over the lanes of a block and then over its threads: the same for
one form on every run, but not the CPU's order of lanes (docs/gpu.md). Nothing is contracted; half types compute in float32.
"""
import hashlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rushlight import dtypes

from .expr import Apply, Axis, Cast, Const, Kernel, Load, Name, Scalar, chain, text
from .triton_words import (
    DIVISIONS,
    POINTER,
    TYPE,
    apply,
    cast,
    combined,
    identity,
    literal,
    reduced,
)

HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice

from rushlight.loops import triton_math as rl

"""
ROW, ELEMENT = "row", "element"     # the dims of a block
ATOMIC = ("float16", "bfloat16", "float32", "float64", "int32", "int64")


@dataclass(frozen=True)
class Form:
    """How a kernel is cut into programs. `known`: sizes ("n_i0") and strides ("x0_i0") that are constants; `aligned`: buffers and
    numbers that are multiples of 16 (bytes for buffers)."""
    kind: str
    x: int                          # rows of a block (tile: of its second-last axis)
    r: int                          # elements of a row in a block
    warps: int
    known: dict = field(default_factory=dict, hash=False)
    aligned: frozenset = frozenset()
    wide: bool = False              # 64-bit sizes
    branch: bool = False            # a body without masks for the blocks that are full
    pieces: str = ""                # part, join: how many pieces a row is cut into, and elements of each, as expressions
    piece: str = ""


@dataclass(frozen=True)
class Source:
    """A Triton function. `params`: (name, type, the record's word, whether a multiple of 16), in order; `grid`: the number of
    programs as a postfix expression; `lines`: line of the text -> origins."""
    name: str
    text: str
    params: tuple
    grid: str
    warps: int
    lines: dict = field(default_factory=dict, hash=False, compare=False)
    stages: int = 1                 # steps of a loop whose loads are in flight
    contracts: bool = False         # products and sums may become one operation

    @property
    def code(self):
        """The text without its comments: they name lines of the user's program, which decide nothing."""
        rows = (row.partition("  # ")[0] for row in self.text.splitlines() if not row.startswith("#"))
        return "\n".join(rows)

    @property
    def mathematics(self):
        """The digest of what the text imports: it decides the code as much as the text does."""
        return math_digest()


@cache
def math_digest():
    return hashlib.sha256(Path(__file__).with_name("triton_math.py").read_bytes()).hexdigest()


def positions(kernel: Kernel):
    """Where each size, stride and counter stands in the numbers of a call (csrc/rt/kernels.h)."""
    axes = [a for a, _ in kernel.outer + kernel.inner]
    at = {f"n_{a}": i for i, a in enumerate(axes)}
    for b, buffer in enumerate(kernel.buffers):
        at |= {f"{buffer.name}_{a}": len(axes) * (1 + b) + i for i, a in enumerate(axes)}
    count = len(kernel.buffers)
    at |= {f"e_{a}": len(axes) * (1 + count) + i for i, a in enumerate(axes)}
    return at | {"e_base": len(axes) * (2 + count)}


def emit(kernel: Kernel, form: Form, name):
    """The Source of one form. Raises NotImplementedError for what the language lacks (atomic adds of small integers)."""
    return Program(kernel, form, name).run()


class Program:
    def __init__(self, kernel, form, name):
        self.kernel, self.form, self.name = kernel, form, name
        self.at = positions(kernel)
        self.dtype = {b.name: b.dtype for b in kernel.buffers}
        self.lines, self.depth, self.origins = [], 1, {}
        self.used, self.extra = {}, []                  # sizes, strides, numbers in order of use; workspaces and err
        self.dims = {}                                  # variable -> the dims it depends on
        self.alias = {}                                 # a name of the loop IR -> the variable that holds it
        self.scopes = [{}]                              # text of a value -> variable
        self.axes = {}                                  # axis -> (text, dims); None: always 0
        self.mask = {ROW: None, ELEMENT: None}
        self.pending = {}                               # stores of a block, by buffer and address
        self.kinds = number_types(kernel)
        self.folded = [x for x in kernel.sections if x.folds]

    # ---- text

    def put(self, line, origin=()):
        if origin:
            self.origins[len(self.lines)] = tuple(f"{what} {where}" for what, where in origin)
            line += f"  # {chain(origin)}"
        self.lines.append("    " * self.depth + line)

    def open(self, line):
        self.put(line)
        self.depth += 1
        self.scopes.append({})

    def close(self):
        self.depth -= 1
        self.scopes.pop()

    def bind(self, name, value, dims, origin=()):
        """A variable for a value; equal text is one variable."""
        for scope in self.scopes:
            if value in scope:
                self.alias[name] = scope[value]
                return scope[value]
        self.scopes[-1][value] = self.alias[name] = name
        self.dims[name] = dims
        self.put(f"{name} = {value}", origin)
        return name

    # ---- numbers of the call

    def number(self, name):
        """A size or stride: its literal, or the parameter."""
        if name in self.form.known:
            return str(self.form.known[name])
        self.used.setdefault(name)
        return name

    def one(self, axis):
        return self.form.known.get(f"n_{axis}") == 1

    def word(self, name):
        """The record's word of a number, for grids."""
        return str(self.form.known[name]) if name in self.form.known else f"n{self.at[name]}"

    def index(self, value):
        """An index as wide as addresses need."""
        return f"({value}).to(tl.int64)" if self.form.wide else value

    def divides(self, size, name):
        return name in self.form.known and self.form.known[name] % size == 0

    # ---- expressions

    def expr(self, e):
        """(text, dims)"""
        match e:
            case Const(v, d):
                return literal(v, d), frozenset()
            case Scalar(s, d):
                return self.scalar(s, d), frozenset()
            case Axis(a, _):
                value, dims = self.axes.get(a) or ("0", frozenset())
                return (f"{value}.to(tl.int64)" if dims else literal(0, "int64") if value == "0" else f"({value}).to(tl.int64)"), dims
            case Name(s, _):
                s = self.alias.get(s, s)
                return s, self.dims[s]
            case Cast(Const(v, _), d):
                return literal(v, d), frozenset()
            case Cast(v, d):
                value, dims = self.expr(v)
                return cast(value, v.dtype, d), dims
            case Load(b, terms, d):
                return self.load(b, terms, d)
            case Apply(w, args, d):
                texts, dims = zip(*map(self.expr, args))
                return apply(w, texts, d, args[-1].dtype), frozenset().union(*dims)
        raise TypeError(f"no Triton for {text(e)}")

    def scalar(self, s, d):
        if s in self.kinds:
            self.used.setdefault(s)
            return s if self.kinds[s] == TYPE[d][3:] else f"{s}.to({TYPE[d]})"
        value = self.number(s)
        return literal(int(value), "int64") if value != s else value if s[0] == "e" else f"{value}.to(tl.int64)"

    def address(self, terms):
        """(text of an offset, dims)"""
        parts, dims = [], frozenset()
        for e, stride in terms:
            if isinstance(e, Axis):
                at = self.axes.get(e.name)
            elif isinstance(e, Const):
                at = None if e.value == 0 else (str(e.value), frozenset())
            else:
                at = self.expr(e)
            step = self.number(stride) if isinstance(stride, str) and at else str(stride)
            if at is None or step == "0":
                continue
            parts.append(at[0] if step == "1" else f"{at[0]} * {step}")
            dims |= at[1]
        return " + ".join(parts) or "0", dims

    def masked(self, dims):
        found = [self.mask[d] for d in (ROW, ELEMENT) if d in dims and self.mask[d]]
        return " & ".join(found)

    def load(self, buffer, terms, dtype):
        place, dims = self.address(terms)
        held = self.pending.get((buffer, place))
        if held is not None:                            # written by this program before: the value itself
            return held[0], held[1]
        mask = self.masked(dims)
        value = f"tl.load({buffer} + ({place}){f', mask={mask}' if mask else ''})"
        return (f"({value} != 0)" if dtype == "bool" else value), dims

    # ---- statements

    def lets(self, section):
        for name, value in section.lets:
            origin = self.kernel.origins.get(value) or ()
            if isinstance(value, Apply) and value.word == "checked":
                self.checked(name, value, origin)
                continue
            if isinstance(value, Apply) and value.word in DIVISIONS and not dtypes.is_floating(value.args[-1].dtype):
                divisor, dims = self.expr(value.args[-1])
                self.error(f"{divisor} == 0", "9223372036854775807", dims)
            self.bind(name.text, *self.expr(value), origin)

    def checked(self, name, value, origin):
        (index, dims), (size, _) = map(self.expr, value.args)
        bad = f"({index} < 0) | ({index} >= {size})"
        self.error(bad, f"1 + tl.where({index} < 0, -2 * {index} - 1, 2 * {index})", dims)
        self.bind(name.text, f"tl.where({bad}, 0, {index})", dims, origin)

    def error(self, bad, code, dims):
        if "err" not in self.extra:
            self.extra.append("err")
        mask, shape = self.masked(dims), self.shape(dims)
        place = f"err + tl.zeros({shape}, tl.int32)" if shape else "err"
        self.put(f"tl.store({place}, {code}, mask={f'({bad}) & {mask}' if mask else bad})")

    def store(self, s):
        place, dims = self.address(s.terms)
        value, seen = self.expr(s.value)
        kind = self.dtype[s.buffer]
        if s.combine:
            if kind not in ATOMIC:
                raise NotImplementedError(f"[{self.kernel.name}] no atomic addition of {kind}")
            dims |= seen
            self.atomic(s.buffer, place, cast(value, s.value.dtype, kind), dims)
            return
        stored = cast(value, s.value.dtype, kind)
        stored = f"{value}.to(tl.uint8)" if kind == "bool" else stored
        self.pending[s.buffer, place] = (value, seen, stored, dims)

    def atomic(self, buffer, place, value, dims):
        shape = self.shape(dims)
        if shape:
            place, value = f"tl.broadcast_to({place}, {shape})", f"tl.broadcast_to({value}, {shape})"
        mask = self.masked(dims)
        if mask and shape:
            mask = f", mask=tl.broadcast_to({mask}, {shape})"
        self.put(f"tl.atomic_add({buffer} + ({place}), {value}{mask}, sem=\"relaxed\")")

    def flush(self):
        """The stores that wait. They wait so that what is read back, or written twice, costs no memory traffic."""
        for (buffer, place), (_, _, value, dims) in self.pending.items():
            mask = self.masked(dims)
            self.put(f"tl.store({buffer} + ({place}), {value}{f', mask={mask}' if mask else ''})")
        self.pending.clear()

    def shape(self, dims):
        """The shape of a block with these dims, as text; "" for a number."""
        if self.form.kind == "flat" or self.form.x == 1:
            return f"[{self.form.r}]" if ELEMENT in dims else ""
        sizes = [str(n) if d in dims else "1" for d, n in ((ROW, self.form.x), (ELEMENT, self.form.r))]
        return f"[{', '.join(sizes)}]" if dims else ""

    # ---- the program's place

    def arange(self, first, size, dim):
        """The indices of a block along a dim, `first` the number of blocks before it."""
        both = self.form.kind != "flat" and self.form.x > 1
        part = f"tl.arange(0, {size})" + (("[:, None]" if dim == ROW else "[None, :]") if both else "")
        return f"{first} * {size} + {part}" if first else part

    def apart(self, value, axes, dims):
        """An index over several axes, the last the fastest, taken apart."""
        axes = [a for a in axes if not self.one(a)]
        for i, a in enumerate(reversed(axes)):
            last = i == len(axes) - 1
            if last and value == a:
                break
            self.put(f"{a} = {value}" if last else f"{a} = {value} % {self.number(f'n_{a}')}")
            if not last:
                self.put(f"rest_{a} = {value} // {self.number(f'n_{a}')}")
                value = f"rest_{a}"
        self.axes |= {a: (a, dims) for a in axes}

    def count(self, axes):
        """(text, word, known value) of a product of sizes."""
        left = [f"n_{a}" for a in axes if not self.one(a)]
        known = 1
        for n in left:
            known = known * self.form.known[n] if known is not None and n in self.form.known else None
        if known is not None:
            return str(known), str(known), known
        words = [self.word(n) for n in left]
        return " * ".join(map(self.number, left)), " ".join([*words, *["*"] * (len(words) - 1)]), None

    def bound(self, dim, index, size):
        """The mask along a dim, where one is needed. `size`: as `count` gives it."""
        step = self.form.x if dim == ROW else self.form.r
        if size[2] is not None and size[2] % step == 0:
            return
        name = f"in_{dim}"
        self.put(f"{name} = {index} < {size[0]}")
        self.mask[dim] = name

    # ---- scalar bodies

    def flat(self):
        axes = [a for a, _ in self.kernel.outer]
        left = [a for a in axes if not self.one(a)] or axes[-1:]
        size, r = self.count(left), self.form.r
        self.axes = {}
        if left == axes[-1:] and self.one(axes[-1]):
            size = ("1", "1", 1)
        whole = left[0] if len(left) == 1 else "index"
        self.put(f"{whole} = {self.arange(self.index('tl.program_id(0)'), r, ELEMENT)}")
        if len(left) > 1:
            self.apart("index", left, frozenset([ELEMENT]))
        self.axes |= {a: (a, frozenset([ELEMENT])) for a in left}
        if self.form.branch and size[2] is None:
            self.open(f"if (tl.program_id(0) + 1) * {r} <= {size[0]}:")
            self.body()
            self.close()
            self.open("else:")
            self.bound(ELEMENT, whole, size)
            self.body()
            self.close()
        else:
            self.bound(ELEMENT, whole, size)
            self.body()
        return f"{size[1]} {r} cdiv"

    def tile(self):
        *outer, row, last = [a for a, _ in self.kernel.outer]
        if self.form.known.get("row_axis"):             # the axis that lies beside the last one in memory
            row = self.form.known["row_axis"]
            outer = [a for a, _ in self.kernel.outer if a not in (row, last)]
        x, r = self.form.x, self.form.r
        across, down = self.count([last]), self.count([row])
        self.put(f"tiles = tl.cdiv({across[0]}, {r})")
        self.put("rest = tl.program_id(0) // tiles")
        self.put(f"{last} = {self.arange(self.index('(tl.program_id(0) % tiles)'), r, ELEMENT)}")
        self.put(f"down = tl.cdiv({down[0]}, {x})")
        self.put(f"{row} = {self.arange(self.index('(rest % down)'), x, ROW) if x > 1 else self.index('rest % down')}")
        outer = [a for a in outer if not self.one(a)]
        if outer:
            self.put(f"{'whole' if len(outer) > 1 else outer[0]} = {self.index('rest // down')}")
            self.apart("whole" if len(outer) > 1 else outer[0], outer, frozenset())
        self.axes |= {last: (last, frozenset([ELEMENT])), row: (row, frozenset([ROW] if x > 1 else []))}
        self.bound(ELEMENT, last, across)
        if x > 1:
            self.bound(ROW, row, down)
        self.body()
        words = [f"{across[1]} {r} cdiv", f"{down[1]} {x} cdiv *"]
        return " ".join([*words, *(f"{self.word(f'n_{a}')} *" for a in outer)])

    def body(self):
        alias, dims = dict(self.alias), dict(self.dims)
        for section in self.kernel.sections:
            self.lets(section)
            for s in section.stores:
                self.store(s)
        self.flush()
        self.alias, self.dims = alias, dims

    # ---- row bodies

    def rows(self, programs="tl.program_id(0)"):
        """The rows of this program. Gives the number of programs that they need."""
        x, axes = self.form.x, [a for a, _ in self.kernel.outer]
        size, left = self.count(axes), [a for a in axes if not self.one(a)]
        if not left:
            return "1"
        whole = left[0] if len(left) == 1 else "row"
        if x == 1:
            self.put(f"{whole} = {self.index(programs)}")
            self.apart(whole, axes, frozenset())
            return size[1]
        self.put(f"{whole} = {self.arange(self.index(programs), x, ROW)}")
        self.bound(ROW, whole, size)
        self.apart(whole, axes, frozenset([ROW]))
        return f"{size[1]} {x} cdiv"

    def elements(self, first="", within=""):
        """The elements of the row that a block holds, from `first` on."""
        axes, size = [a for a, _ in self.kernel.inner], self.count([a for a, _ in self.kernel.inner])
        left = [a for a in axes if not self.one(a)] or axes[-1:]
        whole = left[0] if len(left) == 1 else "place"
        part = self.arange("", self.form.r, ELEMENT)
        self.put(f"{whole} = {f'{first} + ' if first else ''}{part}")
        if within:
            if within != "full":
                self.put(f"in_element = {whole} < {within}")
                self.mask[ELEMENT] = "in_element"
        elif not (self.one(axes[-1]) and left == axes[-1:] and self.form.r == 1):
            self.bound(ELEMENT, whole, size if left != axes[-1:] or not self.one(axes[-1]) else ("1", "1", 1))
        self.apart(whole, left, frozenset([ELEMENT]))
        self.axes |= {a: (a, frozenset([ELEMENT])) for a in left}

    def block(self):
        grid = self.rows()
        self.elements()
        for section in self.kernel.sections:
            self.lets(section)
            for name, combine, value in section.folds:
                self.reduce(name, combine, *self.full(value, combine), ())
            for s in section.stores:
                self.store(s)
        self.flush()
        return grid

    def full(self, value, combine):
        """(a fold's value as a whole block, its dtype): identities stand outside the row."""
        shape = self.shape(frozenset([ROW, ELEMENT]))
        if isinstance(value, Const):
            told = f"tl.full({shape}, {value.value!r}, {TYPE[value.dtype]})"
        else:
            told, dims = self.expr(value)
            if dims != self.both():
                told = f"tl.broadcast_to({told}, {shape})"
        mask = self.masked(self.both())
        if mask:
            told = f"tl.where({mask}, {told}, {self.identity(combine, value.dtype)})"
        return told, value.dtype

    def identity(self, combine, dtype):
        told = identity(combine, dtype)
        return f"tl.full([], {told}, {TYPE[dtype]})"

    def both(self):
        return frozenset([ROW, ELEMENT] if self.form.x > 1 else [ELEMENT])

    def reduce(self, name, combine, value, dtype, origin):
        many = self.form.x > 1
        told = reduced(combine, value, 1 if many else 0, many, dtype)
        dims = frozenset([ROW] if many else [])
        self.bind(name.text, cast(told, dtype, name.dtype), dims, origin)

    def loop(self):
        grid = self.rows()
        for section in self.kernel.sections:
            if section.over == "row":
                self.lets(section)
                for s in section.stores:
                    self.store(s)
                self.flush()
            else:
                self.passed(section, "0", self.count([a for a, _ in self.kernel.inner])[0])
        return grid

    def passed(self, section, start, stop):
        """One pass over the row, a block at a time."""
        self.start(section)
        self.blocks(section, start, stop)
        if section.stores and not all(s.combine for s in section.stores) and self.read_back(section):
            self.put("tl.debug_barrier()")              # another thread may read what this one wrote
        self.finish(section)

    def blocks(self, section, start, stop, within=""):
        """The elements from `start` to `stop`. `within`: what they must lie below, "full" where every block is."""
        self.open(f"for first in range({start}, {stop}, {self.form.r}):")
        alias, dims = dict(self.alias), dict(self.dims)
        self.elements("first", within)
        self.lets(section)
        for name, combine, value in section.folds:
            told, dtype = self.full(value, combine)
            self.put(f"{name.text}_all = {combined(combine, f'{name.text}_all', told, dtype)}")
        for s in section.stores:
            self.store(s)
        self.flush()
        self.close()
        self.alias, self.dims = alias, dims
        self.mask[ELEMENT] = None

    def finish(self, section):
        for name, combine, value in section.folds:
            self.reduce(name, combine, f"{name.text}_all", value.dtype, ())

    def start(self, section):
        for name, combine, value in section.folds:
            shape = self.shape(self.both())
            self.put(f"{name.text}_all = tl.full({shape}, {identity(combine, value.dtype)}, {TYPE[value.dtype]})")

    def read_back(self, section):
        later = self.kernel.sections[self.kernel.sections.index(section) + 1:]
        written = {s.buffer for s in section.stores}
        return any(isinstance(v, Load) and v.buffer in written for s in later for _, v in s.lets)

    # ---- long rows: pieces side by side, then what they left folded

    def part(self):
        """Folds piece number `program % pieces` of the rows into the workspaces."""
        self.extra += [f"w{i}" for i in range(len(self.folded[0].folds))]
        self.used |= dict.fromkeys(("pieces", "piece"))
        self.put("number = tl.program_id(0) % pieces")
        grid = self.rows("tl.program_id(0) // pieces")
        size = self.count([a for a, _ in self.kernel.inner])[0]
        section, = self.folded
        for s in self.kernel.sections[:self.kernel.sections.index(section)]:
            self.lets(s)
        self.put("begin = number * piece")
        self.put(f"end = tl.minimum(begin + piece, {size})")
        self.put(f"full = begin + (end - begin) // {self.form.r} * {self.form.r}")
        self.start(section)
        self.blocks(section, "begin", "full", "full")   # without masks: whole vectors, whatever the length
        self.blocks(section, "full", "end", "end")
        self.finish(section)
        rows = self.count([a for a, _ in self.kernel.outer])[0]
        for i, (name, _, value) in enumerate(section.folds):
            place, dims = self.row_number()
            mask = self.masked(dims)
            told = f"{self.alias[name.text]}.to(tl.uint8)" if value.dtype == "bool" else self.alias[name.text]
            self.put(f"tl.store(w{i} + (number * ({rows}) + {place}), {told}{f', mask={mask}' if mask else ''})")
        return f"{grid} {self.form.pieces} *"

    def row_number(self):
        left = [a for a, _ in self.kernel.outer if not self.one(a)]
        return (("row" if len(left) > 1 else left[0]) if left else "0"), frozenset([ROW] if self.form.x > 1 and left else [])

    def join(self):
        """Folds the pieces, and goes on with what the kernel makes of the result."""
        self.extra += [f"w{i}" for i in range(len(self.folded[0].folds))]
        self.used |= dict.fromkeys(("pieces",))
        grid = self.rows()
        rows = self.count([a for a, _ in self.kernel.outer])[0]
        section, = self.folded
        for s in self.kernel.sections:
            if s is not section:
                self.lets(s)
                for one in s.stores:
                    self.store(one)
                continue
            self.start(section)
            self.open(f"for first in range(0, pieces, {self.form.r}):")
            self.put(f"number = first + {self.arange('', self.form.r, ELEMENT)}")
            self.put("in_element = number < pieces")
            self.mask[ELEMENT] = "in_element"
            for i, (name, combine, value) in enumerate(section.folds):
                place, _ = self.row_number()
                told = f"tl.load(w{i} + (number * ({rows}) + {place}), mask={self.masked(self.both())})"
                told = f"({told} != 0)" if value.dtype == "bool" else told
                told = f"tl.where({self.masked(self.both())}, {told}, {self.identity(combine, value.dtype)})"
                self.put(f"{name.text}_all = {combined(combine, f'{name.text}_all', told, value.dtype)}")
            self.close()
            self.mask[ELEMENT] = None
            for name, combine, value in section.folds:
                self.reduce(name, combine, f"{name.text}_all", value.dtype, ())
        self.flush()
        return grid

    # ---- the whole

    def run(self):
        grid = getattr(self, self.form.kind)()
        params = [(b.name, POINTER[b.dtype], f"p{i}", b.name in self.form.aligned) for i, b in enumerate(self.kernel.buffers)]
        params += [self.parameter(name) for name in self.used]
        kinds = {f"w{i}": POINTER[v.dtype] for i, (_, _, v) in enumerate(self.folded[0].folds)} if self.folded else {}
        params += [(name, kinds.get(name, "*i64"), name, name != "err") for name in self.extra]
        head = f"def {self.name}({', '.join(p[0] for p in params)}):"
        notes = [f"# {line}" for line in header(self.kernel)]
        before = [*HEAD.rstrip().splitlines(), "", "", *notes, "@triton.jit", head]
        lines = {len(before) + 1 + i: told for i, told in self.origins.items()}
        return Source(self.name, "\n".join([*before, *self.lines, ""]), tuple(params), grid, self.form.warps, lines)

    def parameter(self, name):
        wide, aligned = "i64", name in self.form.aligned
        if name in self.kinds:
            kind = {"float32": "fp32", "float64": "fp64", "int32": "i32", "int64": "i64"}[self.kinds[name]]
            word = {"fp32": "f32", "fp64": "f64"}.get(kind, kind)
            return name, kind, f"{name}:{word}", False
        size = "i64" if self.form.wide else "i32"
        if name in ("pieces", "piece"):
            return name, size, f"e<{getattr(self.form, name)}>:{size}", name == "piece"
        kind = size if name.startswith("n_") else wide
        return name, kind, f"n{self.at[name]}:{kind}", aligned


def number_types(kernel):
    """The type that each run-time number is passed as: that of its uses, else the widest."""
    found = {name: set() for name, _ in kernel.numbers}

    def visit(e):
        if isinstance(e, Scalar) and e.slot in found:
            found[e.slot].add(e.dtype)
        for a in e.args:
            visit(a)
    for s in kernel.sections:
        for e in [v for _, v in s.lets] + [v for _, _, v in s.folds] + [x.value for x in s.stores] + \
                [t for x in s.stores for t, _ in x.terms]:
            visit(e)
    kinds = dict(kernel.numbers)
    wide = {"f": "float64", "i": "int64"}
    return {n: next(iter(d)) if len(d) == 1 and d <= {"float32", "float64", "int32", "int64"} else wide[kinds[n]]
            for n, d in found.items()}


def header(kernel):
    """What a source says of itself: the operators, the lines of the user's program."""
    lines = {}
    for origin in kernel.origins.values():
        for what, where in origin:
            lines.setdefault(f"{what} {where}")
    return [kernel.name, *lines][:12]
