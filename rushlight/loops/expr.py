"""Loop expressions: what one element of a kernel computes. The whole grammar of the loop IR, with its printer.

    Expr    = Const(value) | Scalar(slot) | Axis(name) | Extent() | Element() | ElementAt(index) | Load(buffer, terms)
            | Apply(word, args) | Cast(value) | Fold(combine, value) | Put(value, index) | Name(text)     each with a dtype
    Terms   = ((Expr, stride), ...)                 an address: the sum of Expr * stride (an int or the name of a number)
    Section = Section(over, lets, folds, stores)    over "row" (once a row) or "elements" (every element of the row)
    Store   = Store(buffer, terms, value, combine)
    Kernel  = Kernel(name, buffers, outer, inner, sections, numbers, origins)

Expressions are interned in an Arena: equal is identical, so sharing needs no pass. Rows run over the axes named k*. Folds
run in a fixed order of LANES lanes, so that their bits depend neither on the instruction set nor on fusion.
"""
from contextlib import contextmanager
from dataclasses import dataclass, field

from rushlight import dtypes
from rushlight.ops.declare import FACTORIES
from rushlight.ops.values import Value

LANES = 16                          # of every fold; csrc and both emitters rely on it
IDENTITY = {"add": 0, "mul": 1, "max": float("-inf"), "min": float("inf")}
FOLDS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "any_rows": "max", "all_rows": "min"}


class Arena:
    """Where the expressions of one lowering live, and where each came from."""

    def __init__(self):
        self.table, self.origins, self.stack = {}, {}, []
        self.facts = {}             # (name of a walk, expression) -> its answer

    def intern(self, node, key):
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = node
            if self.stack and isinstance(node, (Apply, Fold, Cast, Put)):
                self.origins[node] = tuple(self.stack)
        return found


ARENAS = []                         # the innermost is current


@contextmanager
def arena(rows=True):
    """`rows`: whether the kernel has rows; where it has none, no cotangent is summed along one."""
    ARENAS.append(Arena())
    ARENAS[-1].rows = rows
    FACTORIES.insert(0, Expr.call)
    try:
        yield ARENAS[-1]
    finally:
        ARENAS.pop()
        FACTORIES.remove(Expr.call)


class Interned(type):
    def __call__(cls, *args):
        key = (cls, *((type(a), repr(a)) if isinstance(a, (bool, int, float)) else a for a in args))
        return ARENAS[-1].intern(super().__call__(*args), key)


class Expr(Value, metaclass=Interned):
    """A loop value: one element of the row being computed. It has a dtype and no shape."""
    priority = 3
    tier = 2
    args: tuple                     # the expressions that this one is made of

    @classmethod
    def call(cls, op, a):
        if op.kind == "view":                           # views only broadcast here
            return a.tensors[0]
        here = ARENAS[-1].stack
        here.append((op.name, op.where))
        try:
            return op.define(a)
        finally:
            here.pop()

    @classmethod
    def form(cls, kind, op, args):
        if kind == "fold":
            return Fold(FOLDS[op.name], args[0], args[0].dtype)
        if kind == "take":
            return taken(args[0], args[-1])
        if kind == "leaf":
            return leaf(op.name, args)
        if kind == "put":
            return Put(args[0], args[1].to("int64"), args[0].dtype)
        if op.name == "to":
            return args[0] if args[0].dtype == args[1] else Cast(args[0], args[1])
        if op.name == "clone":
            return args[0]
        return applied(op, args)

    def extent(self, dims):
        return Cast(Extent("int64"), self.dtype)

    def kept(self, like, dims, keepdim):
        return self

    spread = kept

    def filled(self, number):
        return Const(number, self.dtype)

    def number(self, n, dtype):
        return Const(n, dtype)

    def viewed(self, shape):
        return self

    def sum_to(self, like):
        return Fold("add", self, self.dtype) if ARENAS[-1].rows and varies(self) and not varies(like) else self

    def rebuilt(self, change):
        return self

    __eq__, __ne__, __hash__ = object.__eq__, object.__ne__, object.__hash__      # interned: equal is identical


def applied(op, args):
    """A word on loop values; Python numbers become constants of the others' dtype."""
    typed = [v for v in args if isinstance(v, Value)]
    dtype = typed[-1].dtype
    values = tuple(v if isinstance(v, Value) else Const(v, dtype) for v in args)
    if op.name == "mul":                                # a default alpha is the constant 1; 1 * x is x, bit for bit
        for one, other in (values, values[::-1]):
            if isinstance(one, Const) and one.value == 1 and type(one.value) is int:
                return other
    return Apply(op.name, values, op.promote.result or dtype)


def taken(x, index):
    """x at another place of its row: gather along the row. The index is checked against the row's length."""
    index = Apply("checked", (index.to("int64"), Extent("int64")), "int64")
    table = {Axis("k0", "int64"): Const(0, "int64"), Axis("k1", "int64"): index, Element("int64"): ElementAt(index, "int64")}

    def change(e, look):
        if isinstance(e, Fold):                         # over all places of the row, whichever is taken
            return e
        return table[e] if e in table else traced(e.rebuilt(look), e)
    return memo(change)(x)


def leaf(name, args):
    """What has no operands of its own: a place in the row, a place in the whole, a random number for that place."""
    if name == "positions":
        return Axis("k1", "int64")
    if name == "element":
        return Element("int64")
    x, *counter = args                                  # uniform, normal: (x, seed, offset)
    seed, offset = (v if isinstance(v, Value) else Const(v, "int64") for v in counter)
    dtype = "float64" if x.dtype == "float64" else "float32"
    return Apply(name, (seed, Apply("add", (offset, Element("int64")), "int64")), dtype)


class Leaf(Expr):
    args = ()


node = dataclass(frozen=True, eq=False)


@node
class Const(Leaf):
    value: object
    dtype: str


@node
class Scalar(Leaf):
    slot: str                       # a run-time number of the kernel
    dtype: str


@node
class Axis(Leaf):
    name: str
    dtype: str


@node
class Extent(Leaf):                 # the number of elements of a row
    dtype: str


@node
class Element(Leaf):                # the logical position in the full shape
    dtype: str


@node
class ElementAt(Expr):              # the same of another place of the row
    index: Expr
    dtype: str
    args = property(lambda self: (self.index,))

    def rebuilt(self, change):
        return ElementAt(change(self.index), self.dtype)


@node
class Name(Leaf):
    text: str
    dtype: str


@node
class Load(Expr):
    buffer: str
    terms: tuple
    dtype: str
    args = property(lambda self: tuple(e for e, _ in self.terms))

    def rebuilt(self, change):
        return Load(self.buffer, tuple((change(e), s) for e, s in self.terms), self.dtype)


@node
class Apply(Expr):
    word: str
    args: tuple
    dtype: str

    def rebuilt(self, change):
        return Apply(self.word, tuple(map(change, self.args)), self.dtype)


@node
class Cast(Expr):
    value: Expr
    dtype: str
    args = property(lambda self: (self.value,))

    def rebuilt(self, change):
        return Cast(change(self.value), self.dtype)


@node
class Fold(Expr):
    combine: str
    value: Expr
    dtype: str
    args = property(lambda self: (self.value,))

    def rebuilt(self, change):
        return Fold(self.combine, change(self.value), self.dtype)


@node
class Put(Expr):                    # added to the output's row at `index`
    value: Expr
    index: Expr
    dtype: str
    args = property(lambda self: (self.value, self.index))

    def rebuilt(self, change):
        return Put(change(self.value), change(self.index), self.dtype)


@dataclass(frozen=True)
class Store:
    buffer: str
    terms: tuple
    value: Expr
    combine: str | None = None      # "add": accumulated


@dataclass(frozen=True)
class Section:
    """One stretch of a row's work: once for the row, or for every element of it."""
    over: str
    lets: tuple                     # ((Name, Expr), ...) in order
    folds: tuple = ()               # ((Name, combine, Expr), ...)
    stores: tuple = ()


@dataclass(frozen=True)
class Buffer:
    name: str
    dtype: str
    per_row: bool                   # one number a row
    written: bool
    across: bool = False            # one number for all rows that lie side by side


@dataclass(frozen=True)
class Kernel:
    name: str
    buffers: tuple                  # operands, then outputs
    outer: tuple                    # ((axis, size), ...): sizes are ints or names of numbers
    inner: tuple
    sections: tuple
    numbers: tuple = ()             # run-time numbers: (name, "f" or "i")
    symbols: tuple = ()             # names of sizes that a compiled kernel takes at run time
    origins: dict = field(default_factory=dict, hash=False, compare=False)
    locals: tuple = ()              # rows of its own: (name, dtype, elements)

    def verify(self):
        """Raises AssertionError where a name is used before it is bound, or a store goes to an operand."""
        own = {name for name, _, _ in self.locals}
        known = {b.name for b in self.buffers} | own
        written = {b.name for b in self.buffers if b.written} | own
        bound = set()
        for s in self.sections:
            assert s.over in ("row", "elements"), s.over
            for name, value in s.lets:
                check(value, bound, known)
                bound.add(name.text)
            for _, combine, value in s.folds:
                check(value, bound, known)
                assert combine in IDENTITY, combine
            bound |= {n.text for n, _, _ in s.folds}
            for store in s.stores:
                assert store.buffer in written, f"{store.buffer} is not an output of {self.name}"
                check(store.value, bound, known)
        return self


def check(e, bound, buffers):
    for x in postorder([e]):
        assert not isinstance(x, Name) or x.text in bound, f"{x.text} is used before it is bound"
        assert not isinstance(x, Load) or x.buffer in buffers, f"no buffer {x.buffer}"


# ---- walks

def memo(rule):
    table = {}

    def look(e):
        key = id(e)
        found = table.get(key)
        if found is None or found[0] is not e:
            found = table[key] = (e, rule(e, look))
        return found[1]
    return look


def fact(rule):
    """A property of expressions, remembered in the arena."""
    def look(e):
        facts, key = ARENAS[-1].facts, (rule, e)
        if key not in facts:
            facts[key] = rule(e)
        return facts[key]
    return look


@fact
def varies(e):
    """Whether it changes along a row."""
    return not isinstance(e, Fold) and (isinstance(e, Element) or isinstance(e, Axis) and e.name[0] == "k" or
                                        any(map(varies, e.args)))


@fact
def level(e):
    """How many folds stand one inside another."""
    return max(map(level, e.args), default=0) + isinstance(e, Fold)


def postorder(roots, known=()):
    """Every expression under the roots, arguments first; what is known is not looked into."""
    seen = {}

    def visit(e):
        if e not in seen and e not in known:
            for a in e.args:
                visit(a)
            seen[e] = None
    for e in roots:
        visit(e)
    return list(seen)


def substitute(e, table):
    return memo(lambda e, look: table[e] if e in table else traced(e.rebuilt(look), e))(e)


def traced(new, old):
    """The expression that stands for another one, with its origins where it has none."""
    origins = ARENAS[-1].origins
    if old in origins:
        origins.setdefault(new, origins[old])
    return new


def simplify(e):
    """Half -> float32 round trips are dropped (fusion keeps the wider value); casts to the same dtype vanish."""
    def change(e, look):
        e = traced(e.rebuilt(look), e)
        if isinstance(e, Cast):
            inside = e.value
            if isinstance(inside, Cast) and inside.dtype in dtypes.HALVES and e.dtype == inside.value.dtype == "float32":
                return inside.value
            if inside.dtype == e.dtype:
                return inside
            if isinstance(inside, Put):                 # the value narrows; where it goes does not change
                return Put(Cast(inside.value, e.dtype), inside.index, e.dtype)
        return e
    return memo(change)(e)


# ---- printing, as a loop nest

def text(e):
    match e:
        case Const(v, _):
            return repr(v)
        case Scalar(s, _) | Axis(s, _) | Name(s, _):
            return s
        case Apply(w, args, _):
            return f"{w}({', '.join(map(text, args))})"
        case Cast(v, d):
            return f"{d}({text(v)})"
        case Load(b, terms, _):
            return f"{b}[{address(terms)}]"
        case Fold(c, v, _):
            return f"fold_{c}({text(v)})"
        case Put(v, i, _):
            return f"put({text(v)}, {text(i)})"
        case ElementAt(i, _):
            return f"element({text(i)})"
        case Extent() | Element():
            return type(e).__name__.lower()
    raise TypeError(e)


def address(terms):
    used = [(e, s) for e, s in terms if s != 0]
    return " + ".join(text(e) if s == 1 else f"{text(e)}*{s}" for e, s in used) or "0"


def chain(origins):
    """The user's line, where there is one, and the declaration: `model.py:8 > mul ops/pointwise.py:57`."""
    line = [where for what, where in origins[:1] if what == "line"]
    return " > ".join([*line, " ".join(origins[-1])])


def show(kernel, notes=False):
    """The kernel as a loop nest in Python's syntax; with `notes`, each value with its origin."""
    head = ", ".join([f"{b.name}: {dtypes.short(b.dtype)}*" for b in kernel.buffers] +
                     [n for n, _ in kernel.numbers] + list(kernel.symbols))
    lines, depth = [f"def {kernel.name}({head}):"], 1
    lines += [f"    {name}: {dtypes.short(d)}[{n}]" for name, d, n in kernel.locals]

    def put(line, d):
        lines.append("    " * d + line)
    for axis, n in kernel.outer:
        put(f"for {axis} in range({n}):", depth)
        depth += 1
    for s in kernel.sections:
        d = depth
        for name, combine, _ in s.folds:
            put(f"{name.text}: {dtypes.short(name.dtype)} = {IDENTITY[combine]}", d)
        if s.over == "elements":
            for axis, n in kernel.inner:
                put(f"for {axis} in range({n}):", d)
                d += 1
        for name, value in s.lets:
            note = notes and kernel.origins.get(value)
            put(f"{name.text}: {dtypes.short(name.dtype)} = {text(value)}" + (f"  # {chain(note)}" if note else ""), d)
        for name, combine, value in s.folds:
            put(f"{name.text} = {combine}({name.text}, {text(value)})", d)
        for x in s.stores:
            put(f"{x.buffer}[{address(x.terms)}] {'+' if x.combine else ''}= {text(x.value)}", d)
    return "\n".join(lines)
