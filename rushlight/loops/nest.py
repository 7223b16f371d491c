"""Stores of expressions -> the sections of a kernel: a pass over the row for each level of fold, then one for the stores.

Takes stores whose values still hold Fold nodes; returns sections in which every value is a Name, Load, Apply or Cast of names.
A costly value that a later pass needs again is kept in the output's own memory where that is free (softmax computes its
exponential once), or, where the length of a row is known and small, in a local row.
"""
from rushlight import dtypes

from .expr import (
    Apply,
    Axis,
    Cast,
    Element,
    Extent,
    Fold,
    Load,
    Name,
    Section,
    Store,
    level,
    postorder,
    text,
    traced,
    varies,
)

COSTLY = {"exp", "exp2", "log", "log1p", "expm1", "erf", "tanh", "sin", "cos", "pow", "sigmoid", "uniform", "erfc"}


LOCAL = 1 << 15                     # bytes of a kernel's local rows, at most: they should stay in the first cache


def sections(stores, extent, rows):
    """`extent`: the expression of a row's length. `rows` False: no row axes, everything is elements."""
    return Nest(stores, extent, rows).run()


class Nest:
    def __init__(self, stores, extent, rows, length=None):
        """`length`: the elements of a row, where values may be kept in local rows (`locals`, afterwards)."""
        self.stores, self.rows, self.count, self.length, self.locals = list(stores), rows, 0, length, []
        self.held = {}                                  # a value that is kept -> the load that reads it back
        roots = self.roots(self.stores)
        self.names = {e: extent for e in postorder(roots) if isinstance(e, Extent)}
        self.done = []

    def run(self):
        folds = [e for e in postorder(self.roots(self.stores)) if isinstance(e, Fold)]
        for depth in sorted({level(f) for f in folds}):
            self.later = [f.value for f in folds if level(f) > depth] + self.roots(self.stores)
            self.fold_pass([f for f in folds if level(f) == depth])
        row = [s for s in self.stores if self.rows and not self.along(s)]
        rest = [s for s in self.stores if s not in row]
        if rest:
            self.add("elements", self.roots(rest), (), rest)
        if row:
            self.add("row", self.roots(row), (), row)
        return tuple(self.done)

    @staticmethod
    def roots(stores):
        return [e for s in stores for e in (s.value, *(t for t, _ in s.terms))]

    @staticmethod
    def along(store):
        return any(varies(e) for e in (store.value, *(t for t, _ in store.terms)))

    def fold_pass(self, folds):
        kept = self.keep([f.value for f in folds])
        kept += self.spill(folds, {s.value for s in kept})
        self.add("elements", [f.value for f in folds] + [s.value for s in kept], folds, kept)
        for s in kept:                                  # from now on it is read back
            self.names[s.value] = self.held[s.value] = Load(s.buffer, s.terms, s.value.dtype)

    def keep(self, roots):
        """Costly values of this pass that the last pass needs too: one a suitable output."""
        taken = {read.buffer for read in self.held.values()}         # what is kept there may still be needed
        final = [s for s in self.stores if s.combine is None and self.along(s) and s.buffer not in taken]
        now = [e for e in postorder(roots, self.names) if isinstance(e, Apply) and e.word in COSTLY and varies(e)]
        kept = []
        for s in final:
            later = set(postorder([s.value]))
            found = [e for e in now if e in later and e.dtype == s.value.dtype and e is not s.value and not self.reads(s)]
            if found:
                kept.append(Store(s.buffer, s.terms, found[-1]))
        return kept

    def spill(self, folds, kept):
        """Values of this pass that later passes start from, and that are costly to compute again: each to a local row."""
        if self.length is None:
            return []
        now = set(postorder([f.value for f in folds], [*self.names, *kept]))
        later = [e for e in postorder(self.later, [*self.names, *kept]) if e not in now and e not in folds]
        start = {a for e in later for a in e.args} | set(self.later)
        made = []
        for e in now:
            if e in start and varies(e) and isinstance(e, (Apply, Cast)) and self.costly(e):
                size = self.length * dtypes.TABLE[e.dtype].itemsize
                if sum(n * dtypes.TABLE[d].itemsize for _, d, n in self.locals) + size <= LOCAL:
                    name = f"w{len(self.locals)}"
                    self.locals.append((name, e.dtype, self.length))
                    made.append(Store(name, ((Axis("k0", "int64"), "n_k1"), (Axis("k1", "int64"), 1)), e))
        return made

    def costly(self, e):
        return any(isinstance(x, Apply) and x.word in COSTLY for x in postorder([e], self.names))

    def reads(self, store):
        """Whether something after this pass still reads memory that the output may alias: never for fresh outputs."""
        return False

    def name(self, e, names):
        return names[e] if e in names else e.rebuilt(lambda a: self.name(a, names))

    def add(self, over, roots, folds, stores):
        """One section, preceded by a row section for what does not change along the row."""
        row, inside, local = [], [], dict(self.names)
        for e, read in self.held.items():               # no store may overwrite what another one reads back
            if any(s.buffer != read.buffer and reached(e, self.roots([s]), self.names) for s in stores):
                bound = local[e] = Name(f"t{self.count}", e.dtype)
                self.count += 1
                inside.append((bound, read))
        for e in postorder(roots, self.names):
            if not isinstance(e, (Load, Apply, Cast)):
                continue
            bound = Name(f"t{self.count}", e.dtype)
            self.count += 1
            value = traced(e.rebuilt(lambda a: self.name(a, local)), e)
            if self.rows and not varies(e):
                row.append((bound, value))
                self.names[e] = local[e] = bound
            else:
                inside.append((bound, value))
                local[e] = bound
        if over == "row":
            row, inside = row + inside, []
        if row:
            self.done.append(Section("row", tuple(row)))
        made = []
        for f in folds:
            bound = Name(f"{f.combine}{self.count}", f.dtype)
            self.count += 1
            made.append((bound, f.combine, self.name(f.value, local)))
            self.names[f] = bound
        written = tuple(Store(s.buffer, tuple((self.name(e, local), n) for e, n in s.terms), self.name(s.value, local),
                              s.combine) for s in stores)
        if inside or made or written or over == "elements":
            self.done.append(Section(over, tuple(inside), tuple(made), written))


def reached(e, roots, names):
    """Whether e is used under the roots, not looking under what has a name."""
    return e in roots or any(e in x.args for x in postorder(roots, names))


__all__ = ["sections", "text", "Element"]
