"""Forms of kernels with rows that compiled graphs ask for: the last elements of a row in vectors, and several rows at once.

A fold adds up 16 lanes in a fixed order, so each step waits for the one before it. Rows are independent: the steps of
TOGETHER rows, one after another in one loop, keep the processor busy. The order within each row stays, and so do the bits.
Takes a cpp.Body whose kernel has folds; puts its statements.
"""
from rushlight import dtypes

from .expr import LANES, Axis, Load, Name, Section, Store, arena, postorder
from .words import SHORT, watched

TOGETHER = 4                        # rows at once, at most
CACHED = 1 << 17                    # bytes that the rows' operands may take together: they are read again


def rows_at_once(kernel, length):
    """How many rows of `length` elements are folded together; 1: each by itself."""
    body_reads = sum(dtypes.TABLE[b.dtype].itemsize for b in kernel.buffers if not b.written and not b.per_row)
    local = sum(n * dtypes.TABLE[d].itemsize for _, d, n in kernel.locals)
    folding = [s for s in kernel.sections if s.folds]
    if not folding or not all(dtypes.is_floating(name.dtype) for s in folding for name, _, _ in s.folds):
        return 1
    each = length * body_reads + local
    return next((n for n in (TOGETHER, 2) if n * each <= CACHED), 1)


# ---- the end of a row

def tail(body, section, axis, C, storage, cast, combined):
    """The last elements of a row, fewer than the lanes: operands are copied, the first one over and over where there are
    no more, and the lanes beyond keep what they have."""
    values = [v for _, v in section.lets] + [v for _, _, v in section.folds] + [s.value for s in section.stores]
    loads = [e for e in postorder(values) if isinstance(e, Load) and any(isinstance(x, Axis) and x.name == axis for x, _ in e.terms)]
    body.open("if (next < stop)")
    body.put("const int rest = (int)(stop - next);")
    for i, e in enumerate(loads):
        body.put(f"{C[e.dtype]} pad{i}[{LANES}];")
        body.put(f"for (int l = 0; l < {LANES}; ++l) {{ const rl_i64 {axis} = next + (l < rest ? l : 0); pad{i}[l] = {body.expr(e)}; }}")
    for i, s in enumerate(section.stores):
        body.put(f"{storage(body.dtype[s.buffer])} made{i}[{LANES}];")
    body.simd(section)
    body.open(f"for (int l = 0; l < {LANES}; ++l)")
    body.put(f"const rl_i64 {axis} = next + l; (void){axis};")
    body.padded = {e: f"pad{i}[l]" for i, e in enumerate(loads)}
    body.lets(section)
    for name, combine, value in section.folds:
        at = f"{name.text}_lane[l]"
        if watched(name, combine):
            v, top = body.expr(value), f"{name.text}_top[l]"
            body.put(f"{at} = l < rest && {v} {'<' if combine == 'min' else '>'} {at} ? {v} : {at};")
            body.put(f"{top} = l < rest ? rl_larger_magnitude_{SHORT[name.dtype]}({top}, {v}) : {top};")
            continue
        body.put(f"{at} = l < rest ? ({C[name.dtype]}){combined(combine, at, body.expr(value), name.dtype)} : {at};")
    for i, s in enumerate(section.stores):
        body.put(f"made{i}[l] = {cast(body.expr(s.value), s.value.dtype, body.dtype[s.buffer])};")
    body.padded = {}
    body.close()
    for i, s in enumerate(section.stores):
        body.put(f"for (int l = 0; l < rest; ++l) {{ const rl_i64 {axis} = next + l; {s.buffer}[{body.address(s.terms)}] = made{i}[l]; }}")
    body.close()


# ---- rows at once

class Together:
    """The statements of the form. What is made once a row is kept in arrays, an element a row."""

    def __init__(self, body, count, C, storage):
        self.body, self.count, self.C, self.storage = body, count, C, storage
        self.axis, self.size = body.kernel.outer[-1]
        self.known = []                                 # names of the row made so far

    def put(self):
        body, kernel = self.body, self.body.kernel
        made = [n for s in kernel.sections for n in self.makes(s)]
        for n in made:
            body.put(f"{self.C[n.dtype]} {n.text}_at[{self.count}];")
        for name, d, n in kernel.locals:
            body.put(f"{self.storage(d)} {name}_at[{self.count}][{n}];")
        for a, n in kernel.outer[:-1]:
            body.loop(a, n)
        body.open(f"for (rl_i64 row = 0; row < {self.size}; row += {self.count})")
        body.put(f"const int count = {self.size} - row < {self.count} ? (int)({self.size} - row) : {self.count};")
        for section in kernel.sections:
            if section.folds:
                body.open(f"if (count == {self.count})")
                self.fold(section)
                body.close()
                body.open("else")
                self.each(section, lambda s=section: body.fold(s))
                body.close()
            elif section.over == "row":
                self.each(section, lambda s=section: (body.lets(s), [body.store(x) for x in s.stores]))
            else:
                self.each(section, lambda s=section: body.elements(s))
            self.known += self.makes(section)
        for _ in range(len(kernel.outer)):
            body.close()

    @staticmethod
    def makes(section):
        return [n for n, _, _ in section.folds] + ([n for n, _ in section.lets] if section.over == "row" else [])

    def names(self, at, suffix=""):
        """The row's names, for row `at`, and where it is."""
        body = self.body
        body.put(f"const rl_i64 {self.axis}{suffix} = row + {at}; (void){self.axis}{suffix};")
        for n in self.known:
            body.put(f"const {self.C[n.dtype]} {n.text}{suffix} = {n.text}_at[{at}]; (void){n.text}{suffix};")
        for name, d, _ in body.kernel.locals:
            body.put(f"{self.storage(d)}* const {name}{suffix} = {name}_at[{at}]; (void){name}{suffix};")

    def each(self, section, statements):
        body = self.body
        body.open("for (int at = 0; at < count; ++at)")
        self.names("at")
        statements()
        for n in self.makes(section):
            body.put(f"{n.text}_at[at] = {n.text};")
        body.close()

    def fold(self, section):
        body, kernel = self.body, self.body.kernel
        copies = [self.copy(section, r) for r in range(self.count)]
        for r in range(self.count):
            self.names(r, f"_{r}")
        *outer, (axis, size) = kernel.inner
        for s in copies:
            body.lanes(s, "_all")
            body.lanes(s, "_lane")
        for a, n in outer:
            body.loop(a, n)
        body.blocks_of(axis, size, copies)
        for _ in outer:
            body.close()
        for r, s in enumerate(copies):
            body.tree(s)
            for (n, _, _), (copy, _, _) in zip(section.folds, s.folds):
                body.put(f"{n.text}_at[{r}] = {copy.text};")

    def copy(self, section, r):
        """The section for one of the rows: its names, its place and its local rows with a suffix."""
        suffix, known = f"_{r}", {}
        local = {name for name, _, _ in self.body.kernel.locals}
        self.body.dtype |= {name + suffix: self.body.dtype[name] for name in local}

        def buffer(name):
            return name + suffix if name in local else name

        def change(e):
            if e not in known:
                if isinstance(e, Name):
                    new = Name(e.text + suffix, e.dtype)
                elif isinstance(e, Axis) and e.name == self.axis:
                    new = Axis(e.name + suffix, e.dtype)
                elif isinstance(e, Load):
                    new = Load(buffer(e.buffer), tuple((change(x), s) for x, s in e.terms), e.dtype)
                else:
                    new = e.rebuilt(change)
                known[e] = new
            return known[e]

        with arena():
            return Section(section.over, tuple((change(n), change(v)) for n, v in section.lets),
                           tuple((change(n), c, change(v)) for n, c, v in section.folds),
                           tuple(Store(buffer(s.buffer), tuple((change(x), t) for x, t in s.terms), change(s.value), s.combine)
                                 for s in section.stores))
