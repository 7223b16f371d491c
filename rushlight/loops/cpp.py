"""Kernel -> C++ without headers: functions of the kernel ABI (csrc/rt/kernels.h).

One body is written as an always-inlined function whose innermost strides are parameters; the entry calls it with literal
strides where the call's strides allow (all one; one operand repeated), so that the compiler makes a vector loop of each,
and with run-time strides otherwise. Row kernels have one more form, for rows that lie across memory: many rows side by side;
and some have one for short rows (short_rows.py).
Folds follow the order that the loop IR states: blocks of BLOCK elements, LANES lanes, then a tree.
"""
from rushlight import dtypes

from .expr import (
    LANES,
    Apply,
    Axis,
    Cast,
    Const,
    Kernel,
    Load,
    Name,
    Scalar,
    Section,
    chain,
    postorder,
    text,
)
from .nest import COSTLY
from .row_forms import Together, tail
from .short_rows import FEW, put_short
from .short_rows import pays as pays_short
from .short_rows import test as short_test
from .tiles import LEAST, TILE, swapped, tiled, turned
from .words import (
    BITS,
    SHORT,
    C,
    apply,
    cast,
    combined,
    cuts_quotients,
    divides,
    identity,
    literal,
    nan_back,
    watched,
)

BLOCK = 4096                        # elements of a row that one set of lanes adds up
OTHER_STRIDES = -1                  # what a specialised kernel returns when called with other strides (no index gives it)
STAGED = 512                        # elements of a block that the stages of a long body run over
COLUMNS = 256                       # rows side by side in the form for rows that lie across memory: long runs of each line
ROW_LANE = "_lane[l]"               # where a row's lanes are


class Body:
    """The statements of one form of a kernel."""

    def __init__(self, kernel: Kernel, vector=True):
        self.kernel, self.vector, self.lines, self.depth, self.arrays = kernel, vector, [], 1, set()
        self.staged, self.tiles, self.padded, self.even = False, set(), {}, False
        self.near = False                               # near: no quotient is far
        self.placed = lambda x: None                    # where a load or store goes instead of memory
        self.cuts = False                               # whether a float became an integer
        self.dtype = {b.name: b.dtype for b in kernel.buffers} | {name: d for name, d, _ in kernel.locals}

    def put(self, line):
        self.lines.append("    " * self.depth + line)

    def open(self, line):
        self.put(line + " {")
        self.depth += 1

    def close(self):
        self.depth -= 1
        self.put("}")

    def loop(self, axis, size, start="0"):
        self.open(f"for (rl_i64 {axis} = {start}; {axis} < {size}; ++{axis})")

    # ---- expressions

    def cast(self, v, to):
        value, source = self.expr(v), v.dtype
        if source in dtypes.INTEGERS and dtypes.is_floating(to) and self.cuts:
            # The compiler makes (float)(int)x a rounding of x, which leaves -0 where there is none.
            wide = dtypes.opmath(to)
            return cast(f"({value} ? {cast(value, source, wide)} : 0)", wide, to)
        self.cuts |= dtypes.is_floating(source) and to in dtypes.INTEGERS
        return cast(value, source, to)

    def expr(self, e):
        match e:
            case Const(v, d):
                return literal(v, d)
            case Scalar(s, d):
                return f"({C[d]}){s}" if s[0] == "s" else s
            case Axis(s, _):
                return s
            case Name(s, _):
                return f"{s}[c]" if s in self.arrays else s
            case Cast(v, d):
                return self.cast(v, d)
            case Load() if e in self.padded:
                return self.padded[e]
            case Load(b, terms, d):
                place = self.placed(e) or (f"{b}[{self.address(terms)}]" if b not in self.tiles else f"{turned(b)}[d * {TILE} + c]")
                return f"({place} != 0)" if d == "bool" else place
            case Apply(w, args, d):
                return apply(w, [self.expr(a) for a in args], d, args[-1].dtype, self.near)
        raise TypeError(f"no C++ for {text(e)}")

    def address(self, terms):
        used = [(e, s) for e, s in terms if s != 0]
        one = lambda e, s: self.expr(e) if s == 1 else f"{self.expr(e)} * {s}"
        return " + ".join(one(e, s) for e, s in used) or "0"

    # ---- statements

    def lets(self, section, declare=True):
        for name, value in section.lets:
            origin = self.kernel.origins.get(value)
            note = f"  // {chain(origin)}" if origin else ""
            put = self.expr(value)
            if name.text in self.arrays:
                self.put(f"{name.text}[c] = {put};{note}")
            else:
                self.put(f"const {C[name.dtype]} {name.text} = {put};{note}")

    def store(self, s):
        target = self.placed(s) or f"{s.buffer}[{self.address(s.terms)}]"
        value = cast(self.expr(s.value), s.value.dtype, self.dtype[s.buffer])
        if s.combine == "add" and self.dtype[s.buffer] in dtypes.HALVES:
            short = SHORT[self.dtype[s.buffer]]
            wide = cast(self.expr(s.value), s.value.dtype, "float32")
            value = f"rl_f32_to_{short}(rl_{short}_to_f32({target}) + {wide})"
            self.put(f"{target} = {value};")
        else:
            self.put(f"{target} {'+' if s.combine else ''}= {value};")

    def gathers(self, section):
        """Whether an index is checked here: such loops are not vectorised."""
        values = [v for _, v in section.lets] + [v for _, _, v in section.folds]
        return any(isinstance(v, Apply) and (v.word == "checked" or divides(v)) for v in values) or \
            any(s.combine for s in section.stores)

    def simd(self, section):
        if self.vector and not self.gathers(section):
            self.put("#pragma omp simd")

    def flat(self):
        """Scalar bodies: the innermost axis is the vector loop."""
        *outer, (axis, size) = self.kernel.outer
        for a, n in outer:
            self.loop(a, n)
        for section in self.kernel.sections:
            if any(cuts_quotients(v) for _, v in section.lets) and not self.gathers(section):
                self.near_or_far(axis, size, section)
                continue
            stages = self.stages(section) if self.staged else [section]
            if len(stages) > 1:
                self.in_stages(axis, size, stages)
                continue
            self.simd(section)
            self.loop(axis, size)
            self.lets(section)
            for s in section.stores:
                self.store(s)
            self.close()
        for _ in outer:
            self.close()

    def near_or_far(self, axis, size, section):
        """Blocks of elements: where no quotient in one is far, which is asked first, a vector loop; else the slow way."""
        self.open(f"for (rl_i64 first = 0; first < {size}; first += {STAGED})")
        self.put(f"const int count = {size} - first < {STAGED} ? (int)({size} - first) : {STAGED};")
        self.put("int far = 0;")
        last = max(i for i, (_, v) in enumerate(section.lets) if cuts_quotients(v))
        self.near = True
        if self.vector:
            self.put("#pragma omp simd reduction(|:far)")
        self.open("for (int c = 0; c < count; ++c)")
        self.put(f"const rl_i64 {axis} = first + c;")
        for name, value in section.lets[:last + 1]:
            if cuts_quotients(value):
                self.put(f"far |= rl_far_{SHORT[value.dtype]}({', '.join(self.expr(a) for a in value.args)});")
            self.put(f"const {C[name.dtype]} {name.text} = {self.expr(value)};")
        self.close()
        body = lambda: (self.lets(section), [self.store(s) for s in section.stores])
        self.open("if (!far)")
        self.across(axis, section, body)
        self.close()
        self.near = False
        self.open("else")
        vector, self.vector = self.vector, False
        self.across(axis, section, body)
        self.vector = vector
        self.close()
        self.close()

    def stages(self, section):
        """A long body cut at each costly word: one that waits for another leaves the processor idle, where a short loop
        over many elements keeps it busy (five tanh in a row: 4.4 ms in stages, 9.3 in one loop)."""
        cuts, costly = [[]], False
        for name, value in section.lets:
            if isinstance(value, Apply) and value.word in COSTLY:
                if costly:
                    cuts.append([])
                costly = True
            cuts[-1].append((name, value))
        return [Section(section.over, tuple(lets), (), section.stores if i == len(cuts) - 1 else ())
                for i, lets in enumerate(cuts)]

    def in_stages(self, axis, size, stages):
        """The stages one after another over blocks of elements; what a later one needs is kept in an array."""
        for name in self.live(stages):
            self.declare(name, STAGED)
        self.open(f"for (rl_i64 first = 0; first < {size}; first += {STAGED})")
        self.put(f"const int count = {size} - first < {STAGED} ? (int)({size} - first) : {STAGED};")
        for s in stages:
            self.across(axis, s, lambda s=s: (self.lets(s), [self.store(x) for x in s.stores]))
        self.close()

    @staticmethod
    def live(stages):
        """What a stage makes and a later one reads."""
        made = [{n for n, _ in s.lets} for s in stages]
        read = [set(postorder([v for _, v in s.lets] + [x.value for x in s.stores])) for s in stages]
        live = {n for i, names in enumerate(made) for n in names if any(n in r for r in read[i + 1:])}
        return sorted(live, key=lambda n: int(n.text[1:]))

    def declare(self, name, length):
        """From here on the name stands for an array over the elements of a block."""
        self.put(f"{C[name.dtype]} {name.text}[{length}];")
        self.arrays.add(name.text)

    def rows(self):
        """Row bodies, a row at a time."""
        for a, n in self.kernel.outer:
            self.loop(a, n)
        for section in self.kernel.sections:
            if section.over == "row":
                self.lets(section)
                for s in section.stores:
                    self.store(s)
            elif section.folds:
                self.fold(section)
            else:
                self.elements(section)
        for _ in self.kernel.outer:
            self.close()

    def elements(self, section):
        *outer, (axis, size) = self.kernel.inner
        for a, n in outer:
            self.loop(a, n)
        self.simd(section)
        self.loop(axis, size)
        self.lets(section)
        for s in section.stores:
            self.store(s)
        self.close()
        for _ in outer:
            self.close()

    def fold(self, section):
        *outer, (axis, size) = self.kernel.inner
        self.lanes(section, "_all")
        self.lanes(section, "_lane")
        for a, n in outer:
            self.loop(a, n)
        self.blocks_of(axis, size, [section])
        for _ in outer:
            self.close()
        self.tree(section)

    def blocks_of(self, axis, size, sections):
        """Every block of a row folded into the lanes; of several rows side by side, where there are more sections."""
        self.open(f"for (rl_i64 start = 0; start < {size}; start += {BLOCK})")
        self.block(*sections)
        for s in sections:
            self.add_lanes(s, lambda name, _: f"{name.text}_lane[l]")
        self.close()

    def lanes(self, section, suffix):
        for name, combine, _ in section.folds:
            self.put(f"{C[name.dtype]} {name.text}{suffix}[{LANES}];")
            if suffix == "_all":
                self.put(f"for (int l = 0; l < {LANES}; ++l) {name.text}_all[l] = {identity(combine, name.dtype)};")
            elif watched(name, combine):
                self.put(f"{BITS[name.dtype]} {name.text}_top[{LANES}];")

    def block(self, *sections):
        """The elements from `start` on, at most BLOCK of them, folded into the lanes."""
        axis, size = self.kernel.inner[-1]
        self.put(f"const rl_i64 stop = start + {BLOCK} < {size} ? start + {BLOCK} : {size};")
        for name, combine, _ in [f for s in sections for f in s.folds]:
            start = identity(combine, name.dtype)
            self.put(f"for (int l = 0; l < {LANES}; ++l) {name.text}_lane[l] = {start};")
            if watched(name, combine):
                self.put(f"for (int l = 0; l < {LANES}; ++l) {name.text}_top[l] = 0;")
        self.put("rl_i64 next = start;")
        self.open(f"for (; next + {LANES} <= stop; next += {LANES})")
        for section in sections:
            self.simd(section)
            self.open(f"for (int l = 0; l < {LANES}; ++l)")
            self.put(f"const rl_i64 {axis} = next + l;")
            self.step(section, ROW_LANE)
            self.close()
        self.close()
        for section in () if self.even else sections:
            floats = all(dtypes.is_floating(name.dtype) for name, _, _ in section.folds)     # GCC 12 fails on some of integers
            if self.staged and self.vector and floats and not self.gathers(section):
                tail(self, section, axis, C, storage, cast, combined)
                continue
            head = "for (int l = 0; next < stop; ++next, ++l)"
            self.open(head if len(sections) == 1 else "for (rl_i64 from = next, l = 0; from < stop; ++from, ++l)")
            self.put(f"const rl_i64 {axis} = {'next' if len(sections) == 1 else 'from'};")
            self.step(section, ROW_LANE)
            self.close()
        for name, combine, _ in [f for s in sections for f in s.folds]:
            if watched(name, combine):
                self.put(f"for (int l = 0; l < {LANES}; ++l) {nan_back(name)}")

    def add_lanes(self, section, lane):
        """A block's lanes added to those of the blocks before it. `lane`: where lane l of a fold, of so many bytes on, is."""
        at = 0
        for name, combine, _ in section.folds:
            both = combined(combine, f"{name.text}_all[l]", lane(name, at), name.dtype)
            self.put(f"for (int l = 0; l < {LANES}; ++l) {name.text}_all[l] = ({C[name.dtype]}){both};")
            at += lane_bytes(name)

    def tree(self, section):
        for name, combine, _ in section.folds:
            both = combined(combine, f"{name.text}_all[l]", f"{name.text}_all[l + w]", name.dtype)
            self.put(f"for (int w = {LANES // 2}; w; w /= 2) for (int l = 0; l < w; ++l) "
                     f"{name.text}_all[l] = ({C[name.dtype]}){both};")
            self.put(f"const {C[name.dtype]} {name.text} = {name.text}_all[0];")

    # One long row on several threads: the same order, cut between its blocks and the adding up of their lanes.

    def one_row(self):
        for a, _ in self.kernel.outer + self.kernel.inner[:-1]:
            self.put(f"const rl_i64 {a} = 0; (void){a};")

    def blocks(self):
        """The lanes of blocks `begin` to `end`, each left at its own place in `kept`."""
        self.one_row()
        section = next(s for s in self.kernel.sections if s.folds)
        for s in self.kernel.sections[:self.kernel.sections.index(section)]:
            self.lets(s)
        size = sum(lane_bytes(name) for name, _, _ in section.folds)
        self.open("for (rl_i64 block = begin; block < end; ++block)")
        self.put(f"const rl_i64 start = block * {BLOCK};")
        self.lanes(section, "_lane")
        self.block(section)
        at = 0
        for name, _, _ in section.folds:
            self.put(f"__builtin_memcpy(kept + block * {size} + {at}, {name.text}_lane, {lane_bytes(name)});")
            at += lane_bytes(name)
        self.close()

    def join(self):
        """The kept lanes of blocks 0 to `end`, added up in order, and what the kernel makes of them."""
        self.one_row()
        for section in self.kernel.sections:
            if not section.folds:
                self.lets(section)
                for s in section.stores:
                    self.store(s)
                continue
            size = sum(lane_bytes(name) for name, _, _ in section.folds)
            self.lanes(section, "_all")
            self.open("for (rl_i64 block = begin; block < end; ++block)")
            self.add_lanes(section, lambda name, at, size=size: f"((const {C[name.dtype]}*)(kept + block * {size} + {at}))[l]")
            self.close()
            self.tree(section)

    def step(self, section, where):
        self.lets(section)
        for name, combine, value in section.folds:
            at = name.text + where
            if watched(name, combine) and where == ROW_LANE:
                v, t, top = self.expr(value), SHORT[name.dtype], f"{name.text}_top[l]"
                self.put(f"{at} = {v} {'<' if combine == 'min' else '>'} {at} ? {v} : {at};")
                self.put(f"{top} = rl_larger_magnitude_{t}({top}, {v});")
                continue
            self.put(f"{at} = ({C[name.dtype]}){combined(combine, at, self.expr(value), name.dtype)};")
        for s in section.stores:
            self.store(s)

    def columns(self):
        """Row bodies, COLUMNS rows side by side along the last outer axis: the same order within each row."""
        *outer, (across, width) = self.kernel.outer
        for section in self.kernel.sections:
            self.arrays |= {n.text for n, _, _ in section.folds}
            if section.over == "row":
                self.arrays |= {n.text for n, _ in section.lets}
        for a, n in outer:
            self.loop(a, n)
        self.open(f"for (rl_i64 first = 0; first < {width}; first += {COLUMNS})")
        self.put(f"const int count = {width} - first < {COLUMNS} ? (int)({width} - first) : {COLUMNS};")
        for section in self.kernel.sections:
            if section.over == "row":
                for name, _ in section.lets:
                    self.put(f"{C[name.dtype]} {name.text}[{COLUMNS}];")
                self.across(across, section, lambda s=section: (self.lets(s), [self.store(x) for x in s.stores]))
            elif section.folds:
                self.fold_across(section, across)
            else:
                for a, n in self.kernel.inner:
                    self.loop(a, n)
                self.across(across, section, lambda s=section: (self.lets(s), [self.store(x) for x in s.stores]))
                for _ in self.kernel.inner:
                    self.close()
        self.close()
        for _ in outer:
            self.close()

    def across(self, axis, section, body):
        self.simd(section)
        self.open("for (int c = 0; c < count; ++c)")
        self.put(f"const rl_i64 {axis} = first + c;")
        body()
        self.close()

    def fold_across(self, section, across):
        *outer, (axis, size) = self.kernel.inner
        for name, combine, _ in section.folds:
            t = C[name.dtype]
            start = identity(combine, name.dtype)
            self.put(f"{t} {name.text}[{COLUMNS}], {name.text}_all[{LANES}][{COLUMNS}], {name.text}_lane[{LANES}][{COLUMNS}];")
            self.lanes_across(f"{name.text}_all[l][c] = {start};")
        for a, n in outer:
            self.loop(a, n)
        self.open(f"for (rl_i64 start = 0; start < {size}; start += {BLOCK})")
        self.put(f"const rl_i64 stop = start + {BLOCK} < {size} ? start + {BLOCK} : {size};")
        for name, combine, _ in section.folds:
            start = identity(combine, name.dtype)
            self.lanes_across(f"{name.text}_lane[l][c] = {start};")
        self.loop(axis, "stop", "start")
        self.put(f"const int l = (int)(({axis} - start) % {LANES});")
        hidden = self.arrays
        self.across(across, section, lambda: self.step(section, "_lane[l][c]"))
        self.arrays = hidden
        self.close()
        for name, combine, _ in section.folds:
            both = combined(combine, f"{name.text}_all[l][c]", f"{name.text}_lane[l][c]", name.dtype)
            self.lanes_across(f"{name.text}_all[l][c] = ({C[name.dtype]}){both};")
        self.close()
        for _ in outer:
            self.close()
        for name, combine, _ in section.folds:
            both = combined(combine, f"{name.text}_all[l][c]", f"{name.text}_all[l + w][c]", name.dtype)
            self.open(f"for (int w = {LANES // 2}; w; w /= 2)")
            self.lanes_across(f"{name.text}_all[l][c] = ({C[name.dtype]}){both};", "w")
            self.close()
            top = f"{name.text}_all[0][c]"
            if watched(name, combine):      # as rows give it: one NaN, whatever came by
                top = f"{top} != {top} ? RL_NAN_{SHORT[name.dtype].upper()} : {top}"
            self.put(f"for (int c = 0; c < count; ++c) {name.text}[c] = {top};")

    def lanes_across(self, statement, lanes=LANES):
        """A statement for each lane of each of the rows side by side."""
        self.open(f"for (int l = 0; l < {lanes}; ++l)")
        if self.vector:
            self.put("#pragma omp simd")
        self.put(f"for (int c = 0; c < count; ++c) {statement}")
        self.close()


HELPERS = """
typedef union { double f; rl_i64 i; } rl_number;

#ifdef __FMA__
#define RL_LEAST_ROWS 1 // rows side by side, short_rows.py
#else
#define RL_LEAST_ROWS 8
#endif

RL_FN rl_i64 rl_checked(rl_i64 index, rl_i64 size, rl_i64* error) {
    if (index >= 0 && index < size) return index;
    if (!*error) *error = 1 + (index < 0 ? -2 * index - 1 : 2 * index);
    return 0;
}

template <class T> RL_FN T rl_divisor(T y, rl_i64* error) { // no index out of range gives this error
    if (y == 0 && !*error) *error = 0x7fffffffffffffffll;
    return y;
}
"""


def numbers(kernel: Kernel, skip=()):
    """The C declarations that name the ABI's numbers."""
    axes = [a for a, _ in kernel.outer + kernel.inner]
    n, lines = len(axes), []
    for i, (_, size) in enumerate(kernel.outer + kernel.inner):
        lines.append(f"const rl_i64 {size} = n[{i}];")
    for b, buffer in enumerate(kernel.buffers):
        for i, axis in enumerate(axes):
            name = f"{buffer.name}_{axis}"
            if name not in skip:
                lines.append(f"const rl_i64 {name} = n[{n * (1 + b) + i}]; (void){name};")
    if uses_element(kernel):
        count = len(kernel.buffers)
        for i, axis in enumerate(axes):
            lines.append(f"const rl_i64 e_{axis} = n[{n * (1 + count) + i}]; (void)e_{axis};")
        lines.append(f"const rl_i64 e_base = n[{n * (2 + count)}];")
    for i, (name, kind) in enumerate(kernel.numbers):
        lines.append(f"const {'double' if kind == 'f' else 'rl_i64'} {name} = s[{i}].{kind}; (void){name};")
    return lines


def uses_element(kernel: Kernel):
    def inside(e):
        return isinstance(e, Scalar) and e.slot == "e_base" or any(inside(a) for a in e.args)
    return any(inside(v) for s in kernel.sections for v in
               [v for _, v in s.lets] + [v for _, _, v in s.folds] + [x.value for x in s.stores])


def pointers(kernel: Kernel):
    return [f"{'' if b.written else 'const '}{storage(b.dtype)}* {b.name} = ({storage(b.dtype)}*)p[{i}]; (void){b.name};"
            for i, b in enumerate(kernel.buffers)]


def storage(dtype):
    return "rl_u8" if dtype == "bool" else C[dtype]


def function(kernel: Kernel, symbol, known=None):
    """The C++ of one shape-generic kernel: its forms, and the entry that chooses one. `known`: (form, strides) where a
    compiled graph knows its layouts; then that form alone is written, and another call returns OTHER_STRIDES."""
    if known:
        return specialised(kernel, symbol, *known)
    axis = (kernel.inner or kernel.outer)[-1][0]
    free = [f"{b.name}_{axis}" for b in kernel.buffers if not (kernel.inner and b.per_row)]
    kind = "flat" if not kernel.inner else "rows"
    forms = [form(kernel, f"{symbol}_strided", kind, (), vector=False)]
    if free:
        forms.append(form(kernel, f"{symbol}_loops", kind, free))
    position = {f"{b.name}_{a}": len(kernel.outer + kernel.inner) * (1 + i) + j
                for i, b in enumerate(kernel.buffers) for j, (a, _) in enumerate(kernel.outer + kernel.inner)}
    n = lambda name: f"n[{position[name]}]"
    choices = []
    if free:
        choices.append((" && ".join(f"{n(f)} == 1" for f in free), f"{symbol}_loops(p, n, s, {', '.join('1' for _ in free)})"))
    operands = [f"{b.name}_{axis}" for b in kernel.buffers if not b.written]
    if not kernel.inner and 2 <= len(operands) <= 3:    # one operand repeated along the innermost axis
        for zero in operands:
            literals = ["0" if f == zero else "1" for f in free]
            test = " && ".join(f"{n(f)} == {v}" for f, v in zip(free, literals))
            choices.append((test, f"{symbol}_loops(p, n, s, {', '.join(literals)})"))
    if kernel.inner and folds(kernel) and not addressed(kernel):
        across = kernel.outer[-1][0]
        strides = [f"{b.name}_{across}" for b in kernel.buffers]
        forms.append(form(kernel, f"{symbol}_columns", "columns", strides))
        literals = ["0" if b.across else "1" for b in kernel.buffers]
        test = " && ".join(f"{n(f)} == {v}" for f, v in zip(strides, literals))
        size = len(kernel.outer) - 1
        choices.insert(0, (f"n[{size}] >= 8 && {test}", f"{symbol}_columns(p, n, s, {', '.join(literals)})"))
    if pays_short(kernel):
        forms.append(form(kernel, f"{symbol}_short", "short", ()))
        test = short_test(kernel)
        if kernel.inner and folds(kernel) and not addressed(kernel):    # many rows across memory: columns
            test += f" && !(n[{len(kernel.outer) - 1}] >= {FEW} && {choices[0][0].split(' && ', 1)[1]})"
        choices.insert(0, (test, f"{symbol}_short(p, n, s)"))
    lines = [f"static rl_i64 {symbol}(void* const* p, const rl_i64* n, const rl_number* s) {{"]
    lines += [f"    if ({test}) return {call};" for test, call in choices]
    lines += [f"    return {symbol}_strided(p, n, s);", "}", ""]
    return "\n".join([f"// {kernel.name}", *forms, *lines])


def lane_bytes(name):
    return LANES * dtypes.TABLE[name.dtype].itemsize


def has_long_row(kernel: Kernel):
    """Whether a single long row can be shared out: one fold over the row, then only what is made of its result."""
    folding = [s for s in kernel.sections if s.folds]
    at = kernel.sections.index(folding[0]) if folding else 0
    return bool(kernel.inner and len(folding) == 1 and not folding[0].stores and not addressed(kernel)
                and not uses_element(kernel) and all(s.over == "row" for s in kernel.sections if not s.folds)
                and not any(s.stores for s in kernel.sections[:at]))


def long_row(kernel: Kernel, symbol):
    """The C++ of the two halves, <symbol>_blocks and <symbol>_join, for unit strides along the row; the bytes kept a block."""
    free, lines = free_strides(kernel, "rows"), [f"// {kernel.name}"]
    for kind in ("blocks", "join"):
        body = Body(kernel)
        getattr(body, kind)()
        lines += [f"static void {symbol}_{kind}(void* const* p, const rl_i64* n, const rl_number* s, char* kept, "
                  "rl_i64 begin, rl_i64 end) {", "    (void)n; (void)s;",
                  *("    " + x for x in pointers(kernel) + numbers(kernel, free)),
                  *(f"    const rl_i64 {f} = 1; (void){f};" for f in free), *body.lines, "}"]
    size = sum(lane_bytes(name) for s in kernel.sections for name, _, _ in s.folds)
    return "\n".join([*lines, ""]), size


def free_strides(kernel: Kernel, kind):
    """The strides that a form takes as parameters, in order: along the innermost axis, or across the rows."""
    if kind == "columns":
        return [f"{b.name}_{kernel.outer[-1][0]}" for b in kernel.buffers]
    axis = (kernel.inner or kernel.outer)[-1][0]
    return [f"{b.name}_{axis}" for b in kernel.buffers if not (kernel.inner and b.per_row)]


def specialised(kernel: Kernel, symbol, kind, strides, tiles=(), long=False, together=1, even=False):
    """One form with literal strides, but for those that are None. A stride along an axis of one step is never asked for. `tiles`: operands to turn over;
    `long`: the call is one long row (phases.py writes how threads share it); `together`: rows that are folded at once;
    `even`: rows end with the last lane."""
    free = free_strides(kernel, kind)
    axes = [a for a, _ in kernel.outer + kernel.inner]
    axis = free[0].rsplit("_", 1)[1] if free else axes[-1]
    place = lambda name: f"n[{len(axes) * (1 + next(i for i, b in enumerate(kernel.buffers) if name == f'{b.name}_{axis}')) + axes.index(axis)}]"
    held = " && ".join([f"{place(f)} == {v}" for f, v in zip(free, strides) if v is not None] or ["true"])
    spelled = [place(f) if v is None else v for f, v in zip(free, strides)]
    call = lambda kind, n="n": f"{symbol}_{kind}(p, {n}, s{''.join(f', {v}' for v in spelled)})"
    turns = []
    near = [f.rsplit("_", 1)[0] for f, v in zip(free, strides) if v == 1]
    if tiles:                                           # either way round; small blocks are walked as they lie
        base = lambda b: len(axes) * (1 + next(i for i, x in enumerate(kernel.buffers) if x.name == b))
        for at, numbers, before in ((1, "n", ""), (0, "m", swapped(len(axes), len(kernel.buffers)) + " ")):
            test = " && ".join([f"n[{at}] >= {LEAST} && n[2] >= {LEAST}", *(f"n[{base(b) + at}] == 1" for b in tiles)])
            turns.append(f"    if ({test}) {{ {before}return {call('tiled', numbers)}; }}")
    return "\n".join([f"// {kernel.name}", form(kernel, f"{symbol}_{kind}", kind, free, staged=True, rows=(together, even)),
                      *([form(kernel, f"{symbol}_tiled", "tiled", free, staged=True, tiles=(tiles, near))] if tiles else []),
                      f"static rl_i64 {symbol}(void* const* p, const rl_i64* n, const rl_number* s) {{",
                      f"    if (n[{axes.index(axis)}] > 1 && !({held})) return {OTHER_STRIDES};",
                      *turns, f"    return {call(kind)};", "}", ""])


def folds(kernel):
    return any(s.folds for s in kernel.sections)


def addressed(kernel):
    """Whether something is addressed by an index: then rows are taken one at a time."""
    return any(isinstance(v, Apply) and v.word == "checked" for s in kernel.sections for _, v in s.lets)


def form(kernel, name, kind, free, vector=True, staged=False, tiles=(), rows=(1, False)):
    body, together = Body(kernel, vector), rows[0]
    body.staged, body.even = staged, rows[1]
    if kind == "tiled":
        tiled(body, storage, *tiles)
    elif together > 1:
        Together(body, together, C, storage).put()
    elif kind == "short":
        put_short(body, storage)
    else:
        getattr(body, kind)()
    parameters = "".join(f", const rl_i64 {f}" for f in free)
    lines = [f"RL_FN rl_i64 {name}(void* const* p, const rl_i64* n, const rl_number* s{parameters}) {{",
             "    (void)n; (void)s; rl_i64 error = 0;"]
    lines += ["    " + x for x in pointers(kernel) + numbers(kernel, free)]
    lines += [f"    {storage(d)} {name}[{n}];" for name, d, n in kernel.locals if together == 1]
    return "\n".join(lines + body.lines + ["    return error;", "}"])
