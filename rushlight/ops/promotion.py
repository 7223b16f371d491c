"""Type promotion: (arguments) -> (storage dtype of the operands, result dtype).

Tensors with dims count first, then tensors without, then Python numbers; a later tier counts only where its category is
higher (PyTorch's rule). Only the operands that take part are converted; others (indices, conditions) stay as they are.
"""
from dataclasses import dataclass, replace

from rushlight import dtypes, sym


@dataclass(frozen=True)
class Promotion:
    floor: str = None               # "float": integers and bools become the default float; "int": they become int64
    result: str = None              # a fixed result dtype
    names: tuple = None             # the operands that take part; None: all
    by: str = None                  # the argument that overrides the result ("dtype")
    no_bools: str = None            # what to say where an operand is a bool
    floats_only: bool = False       # the result must be floating
    accepts: int = 0                # the least category of the operands' common dtype: 0 bools, 1 integers, 2 floating ones
    alike: bool = False             # no promotion: the tensors are of one dtype
    scaled_by: str = None           # a number whose category may not be above the common dtype's

    def of(self, *names):
        return replace(self, names=names)

    def takes_part(self, name):
        return self.names is None or name in self.names

    def __call__(self, a):
        if self.floats_only:
            self.check_floating(a)
        if self.by and a.get(self.by, None):
            return a[self.by], self.result or a[self.by]
        if self.no_bools and any(rank_of(v)[1] == "bool" for _, v in a.operands()):
            raise RuntimeError(f"[{a.op_name}] {self.no_bools}")
        best = common(a, self.takes_part)
        if self.alike:
            best = self.check_alike(a)
        if self.accepts:
            accept(a.op_name, best, self.accepts)
        if self.scaled_by:
            self.check_scale(a, best)
        if self.floor == "float" and dtypes.category(best) < 2:
            best = dtypes.DEFAULT
        if self.floor == "int" and dtypes.category(best) < 2:
            best = "int64"
        return best, self.result or best

    def check_floating(self, a):
        given = a.get(self.by, None)
        found = given or common(a, self.takes_part)
        if dtypes.category(found) < 2:
            what = ("a dtype is given that is neither floating nor complex" if given else
                    "a mean of numbers that are neither floating nor complex needs a dtype")
            raise RuntimeError(f"[{a.op_name}] {what}. Got: {found}")

    def check_alike(self, a):
        tensors = [(name, v) for name, v in a.operands() if self.takes_part(name) and rank_of(v)[0]]
        best = tensors[0][1].dtype
        for name, v in tensors:
            if v.dtype != best:
                raise RuntimeError(f"[{a.op_name}] expected dtype {best} for `{name}` but got dtype {v.dtype}")
        return best

    def check_scale(self, a, best):
        scale = a[self.scaled_by]
        scale = getattr(scale, "hint", scale)           # a run-time number stands for its type
        given = rank_of(scale)[1]
        if given == "bool" and best != "bool":
            raise RuntimeError(f"[{a.op_name}] Boolean {self.scaled_by} only supported for Boolean results, got {best}")
        if dtypes.category(given) > 1 and dtypes.category(given) > dtypes.category(best):
            kinds = ("integral", "a floating point") if dtypes.category(best) < 2 else ("non-complex", "a complex")
            raise RuntimeError(f"[{a.op_name}] For {kinds[0]} input tensors, argument {self.scaled_by} must not be {kinds[1]} number, "
                               f"got {best} and {scale!r}")


@dataclass(frozen=True)
class Dividing(Promotion):
    """A true quotient is floating; a whole one (`rounding_mode`) is of the operands' dtype."""
    def __call__(self, a):
        return floating(a) if a.get("rounding_mode") is None else numeric(a)


@dataclass(frozen=True)
class Converting:
    """Operands are taken as they are; the result dtype is fixed, or the argument `by`."""
    result: str = None
    by: str = "dtype"

    def takes_part(self, name):
        return False

    def __call__(self, a):
        best = a.tensors[0].dtype if a.tensors else a[self.by]
        return best, self.result or a.get(self.by, None) or best


@dataclass(frozen=True)
class Creating:
    """The argument `dtype`, else what the named number's type means."""
    number: str = None

    def takes_part(self, name):
        return False

    def __call__(self, a):
        given = a.get("dtype")
        if given is None:
            v = a.get(self.number, 0.0)
            v = getattr(v, "hint", v)                   # a run-time number stands for its type
            given = rank_of(v)[1]
        return given, given


@dataclass(frozen=True)
class Copying:
    """Everything becomes the first operand's dtype."""
    def takes_part(self, name):
        return True

    def __call__(self, a):
        return a.tensors[0].dtype, a.tensors[0].dtype


def accept(name, dtype, least):
    """Refuse a dtype below the category `least` (1: bools; 2: bools and integers) as PyTorch does where it has no kernel."""
    if dtypes.category(dtype) < least:
        raise NotImplementedError(f'[{name}] "{name}" not implemented for {dtype!r}')


def common(a, takes_part=lambda name: True):
    tiers = {}                      # 2: tensors with dims, 1: without, 0: Python numbers
    for name, v in a.operands():
        if takes_part(name):
            tier, dtype = rank_of(v)
            tiers[tier] = dtypes.promote(tiers[tier], dtype) if tier in tiers else dtype
    best = None
    for tier in sorted(tiers, reverse=True):
        if best is None or dtypes.category(tiers[tier]) > dtypes.category(best):
            if best is not None and dtypes.is_floating(best):
                best = dtypes.complex_of(best)          # complex by category, in the precision of the higher tier
            else:
                best = tiers[tier]
    return best


def rank_of(v):
    if isinstance(v, bool):
        return 0, "bool"
    if isinstance(v, (float, sym.Float)):
        return 0, dtypes.DEFAULT
    if isinstance(v, (int, sym.Sym)):
        return 0, "int64"
    if isinstance(v, complex):
        return 0, dtypes.complex_of(dtypes.DEFAULT)
    return getattr(v, "tier", None) if getattr(v, "tier", None) is not None else (1 if v.rank == 0 else 2), v.dtype


numeric = Promotion()
numbers = Promotion(accepts=1)          # no bools
floats = Promotion(accepts=2)           # no integers either
floats_alike = Promotion(accepts=2, alike=True)
adding = Promotion(scaled_by="alpha")
subtracting = Promotion(scaled_by="alpha", no_bools="bool tensors cannot be subtracted: ^ or logical_xor() tells where they differ, logical_not() inverts")
rectifying = Promotion(no_bools="Boolean inputs not supported for relu")
negating = Promotion(no_bools="a bool tensor cannot be negated: ~ or logical_not() inverts it")
floating = Promotion("float")
dividing = Dividing()
accumulating = Promotion("int", by="dtype")
averaging = Promotion(by="dtype", floats_only=True)
comparing = Promotion(result="bool")
whole = Promotion(result="int64")
converting = Converting()
counting = Converting("int64", by="no")
creating = Creating
copying = Copying()
