"""The form for short rows: at most LANES elements each, LANES rows side by side.

A row of a few elements fills few of a fold's lanes, and each row pays for a tree over all of them (log_softmax of 4 x 4:
290 ns a row at a time, 80 side by side; of 1024 x 4: 73 us and 6). Here every vector holds one element of each of LANES
rows, so that folds go from vector to vector. Operands are first turned over into tiles [element][row], whatever their
strides; rows that are missing in the last group are zeros there, and are not written back; what an index fetches for them
is what it fetches for the last row. Each row keeps the order of its
folds, and so do the bits: an element is a lane of its own, and lanes that no element fell into hold the identity, which
changes nothing.

Takes a cpp.Body whose kernel has folds; puts its statements.
"""
from .expr import LANES, Apply, Load, postorder
from .nest import COSTLY
from .words import SHORT, C, combined, identity, watched

FEW = 32                            # rows across memory from which on they are read as they lie
SHARE = 4                           # a row side by side costs about as much as this many elements of one by itself


def pays(kernel):
    """Whether the kernel has this form: several folds, costly values, or a fold that keeps NaN. A sum is quick by itself."""
    if not kernel.inner or kernel.locals or any(s.combine for section in kernel.sections for s in section.stores):
        return False
    if any(checks(s) for s in kernel.sections if s.over != "row"):
        return False
    found = [(name, combine) for s in kernel.sections for name, combine, _ in s.folds]
    several = sum(bool(s.folds) for s in kernel.sections) > 1
    return several or bool(found) and (costly(kernel) or any(watched(*f) for f in found))


def costly(kernel):
    return any(isinstance(v, Apply) and v.word in COSTLY for s in kernel.sections if s.over != "row" for _, v in s.lets)


def checks(section):
    """Whether an index is checked here, or a divisor: those loops meet only rows that are there."""
    values = [v for _, v in section.lets] + [v for _, _, v in section.folds]
    return any(isinstance(e, Apply) and e.word in ("checked", "floor_divide", "trunc_divide", "fmod", "remainder")
               for e in postorder(values))


def test(kernel):
    """C: whether a call's rows are short, and enough of them. A row that fills the lanes is quick by itself, unless what is
    made of its elements costs more than its tree. Without fma, costly values of rows that are missing cost too much."""
    outer = len(kernel.outer)
    rows, row, length = (f"n[{i}]" for i in (outer - 1, outer, outer + 1))
    least = f"{rows} >= RL_LEAST_ROWS && " if costly(kernel) else ""
    most = LANES if costly(kernel) else LANES - 1
    enough = f"{rows} * {SHARE} >= {length}" + (f" * ({length} == {LANES} ? 2 : 1)" if costly(kernel) else "")
    return f"{row} == 1 && {length} > 0 && {length} <= {most} && {least}{enough}"


def place(load_or_store, inner):
    """Where an operand's tile holds it: a place on the row, one a row, or None: somewhere else, told by an index."""
    at = [e for e, step in load_or_store.terms if step != 0]
    names = {getattr(e, "name", None) for e in at}
    if None in names:
        return None
    return "[k][c]" if names & set(inner) else "[c]"


class Short:
    def __init__(self, body, storage):
        self.body, self.kernel, self.storage = body, body.kernel, storage
        self.inner = [a for a, _ in self.kernel.inner]
        (_, _), (self.axis, self.size) = self.kernel.inner
        self.row, self.rows = self.kernel.outer[-1]

    def put(self):
        body, kernel = self.body, self.kernel
        found = {}                                      # (buffer, place) -> a load or store there
        self.gathers = False                            # whether an index tells where something is read
        for section in kernel.sections:
            values = [v for _, v in section.lets] + [v for _, _, v in section.folds] + [s.value for s in section.stores]
            for x in [e for e in postorder(values) if isinstance(e, Load)] + list(section.stores):
                if place(x, self.inner):
                    found.setdefault((x.buffer, place(x, self.inner)), x)
                else:
                    self.gathers = True
        for a, n in kernel.outer[:-1]:
            body.loop(a, n)
        body.put(f"const rl_i64 {self.inner[0]} = 0; (void){self.inner[0]};")
        body.open(f"for (rl_i64 first = 0; first < {self.rows}; first += {LANES})")
        body.put(f"const int count = {self.rows} - first < {LANES} ? (int)({self.rows} - first) : {LANES};")
        written = {b.name for b in kernel.buffers if b.written}
        for (name, at), x in found.items():
            body.put(f"{self.type(name)} {self.tile(name, at)}{f'[{LANES}]' if at == '[k][c]' else ''}[{LANES}];")
            if name not in written:
                self.fetch(name, at, x)
        body.held = {(name, at): self.tile(name, at) + at for name, at in found}
        body.placed = lambda x: body.held.get((x.buffer, place(x, self.inner)))
        for section in kernel.sections:
            body.arrays |= {n.text for n, _, _ in section.folds}
            if section.over == "row":
                body.arrays |= {n.text for n, _ in section.lets}
        for section in kernel.sections:
            if section.over == "row":
                for name, _ in section.lets:
                    body.put(f"{C[name.dtype]} {name.text}[{LANES}];")
                self.side_by_side(section, lambda s=section: (body.lets(s), [body.store(x) for x in s.stores]))
                if checks(section):                     # rows that are missing have what the last row has
                    for name, _ in section.lets:
                        body.put(f"for (int c = count; c < {LANES}; ++c) {name.text}[c] = {name.text}[count - 1];")
            elif section.folds:
                self.fold(section)
            else:
                self.along(lambda s=section: self.side_by_side(s, lambda: (body.lets(s), [body.store(x) for x in s.stores])))
        body.placed = lambda x: None
        for (name, at), x in found.items():
            if name in written:
                self.give(name, at, x)
        for _ in kernel.outer:
            body.close()

    def type(self, name):
        return self.storage(self.body.dtype[name])

    def tile(self, name, at):
        return f"{name}_{'tile' if at == '[k][c]' else 'side'}"

    def along(self, statements):
        """For each element of the row."""
        self.body.open(f"for (int k = 0; k < (int){self.size}; ++k)")
        self.body.put(f"const rl_i64 {self.axis} = k; (void){self.axis};")
        statements()
        self.body.close()

    def each(self, at, statement):
        """For each row that is there, and where that is meant for each of its elements."""
        inside = f"for (int k = 0; k < (int){self.size}; ++k) {{ const rl_i64 {self.axis} = k; {statement} }}"
        self.body.open("for (int c = 0; c < count; ++c)")
        self.body.put(f"const rl_i64 {self.row} = first + c; (void){self.row};")
        self.body.put(inside if at == "[k][c]" else statement)
        self.body.close()

    def fetch(self, name, at, x):
        target = f"{self.tile(name, at)}{at}"
        self.body.open(f"if (count < {LANES})" + (f" for (int k = 0; k < (int){self.size}; ++k)" if at == "[k][c]" else ""))
        self.body.put("#pragma omp simd")               # or it becomes a call, for a vector a row
        self.body.put(f"for (int c = 0; c < {LANES}; ++c) {target} = 0;")
        self.body.close()
        self.each(at, f"{target} = {name}[{self.body.address(x.terms)}];")

    def give(self, name, at, x):
        self.each(at, f"{name}[{self.body.address(x.terms)}] = {self.tile(name, at)}{at};")

    def side_by_side(self, section, statements):
        body, alone = self.body, checks(section)
        if not alone and body.vector:
            body.put("#pragma omp simd")
        body.open(f"for (int c = 0; c < {'count' if alone else LANES}; ++c)")
        at = "(c < count ? c : count - 1)" if self.gathers and not alone else "c"
        body.put(f"const rl_i64 {self.row} = first + {at}; (void){self.row};")
        statements()
        body.close()

    def fold(self, section):
        body = self.body
        for name, _, _ in section.folds:
            body.put(f"{C[name.dtype]} {name.text}[{LANES}], {name.text}_lane[{LANES}][{LANES}];")
        hidden = body.arrays
        body.arrays = hidden - {n.text for n, _, _ in section.folds}

        def step():
            body.lets(section)
            for name, combine, value in section.folds:
                begun = combined(combine, identity(combine, name.dtype), body.expr(value), name.dtype)
                body.put(f"{name.text}_lane[k][c] = ({C[name.dtype]}){begun};")
            for s in section.stores:
                body.store(s)
        self.along(lambda: self.side_by_side(section, step))
        body.arrays = hidden
        for name, combine, _ in section.folds:
            t = C[name.dtype]
            both = combined(combine, f"{name.text}_lane[l][c]", f"{name.text}_lane[l + w][c]", name.dtype)
            body.open(f"for (int w = {LANES // 2}; w; w /= 2) for (int l = 0; l < w && l + w < (int){self.size}; ++l)")
            body.put("#pragma omp simd")
            body.put(f"for (int c = 0; c < {LANES}; ++c) {name.text}_lane[l][c] = ({t}){both};")
            body.close()
            top = f"{name.text}_lane[0][c]"
            if watched(name, combine):                  # as rows give it: one NaN, whatever came by
                top = f"{top} != {top} ? RL_NAN_{SHORT[name.dtype].upper()} : {top}"
            body.put("#pragma omp simd")
            body.put(f"for (int c = 0; c < {LANES}; ++c) {name.text}[c] = {top};")


def put_short(body, storage):
    Short(body, storage).put()

