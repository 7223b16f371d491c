"""Which forms a kernel gets on the GPU, when each may run, how it is launched. Takes a Kernel, and the numbers of its call
where a compiled graph knows them; gives Variants, which `record` writes as docs/gpu.md says.

A kernel whose numbers are not known gets a few variants, told apart by conditions on the call: dense memory, rows of unit
stride, anything. One whose numbers are known gets the one that fits, with sizes and strides as constants.
"""
import operator
from dataclasses import dataclass, replace

from rushlight import dtypes

from . import cpp
from .expr import Kernel
from .triton import Form, emit, positions

INDEX = 2147400000                  # elements that 32-bit indices reach, with a block to spare
SMALL, ROW_MOST = 1024, 8192        # elements: of a block of a pointwise kernel; of a row that is held whole
ELEMENT = 1 << 30                   # of a record's `serial`: the kernel counts elements
OPERANDS, RESULTS = 8, 6            # of one launch: csrc/rt/kernels.h
ODD_ROWS = (1, 2048, 4)             # of a copy whose rows begin at odd places: rows and elements of a tile, warps; None: none
MULTIPROCESSORS = 132               # programs that a kernel should have at least, to feed all of them


@dataclass(frozen=True)
class Variant:
    """One way to run a kernel: `when` all conditions hold, its forms one after another. `work`: workspaces in bytes."""
    when: tuple
    forms: tuple
    work: tuple = ()
    special: bool = False           # only faster than what comes after it


@dataclass(frozen=True)
class Facts:
    """What conditions and heuristics ask of a kernel."""
    kernel: Kernel
    at: dict
    outer: tuple
    inner: tuple
    buffers: tuple
    full: tuple                     # buffers with a number for each element of a row (scalar kernels: all)
    itemsize: int                   # the largest that is walked

    @classmethod
    def of(cls, kernel):
        outer, inner = (tuple(a for a, _ in axes) for axes in (kernel.outer, kernel.inner))
        full = tuple(b for b in kernel.buffers if not (inner and b.per_row))
        size = max((dtypes.TABLE[b.dtype].itemsize for b in full), default=4)
        return cls(kernel, positions(kernel), outer, inner, kernel.buffers, full, size)

    def equal(self, name, value):
        return f"n{self.at[name]} {value} =="

    def multiple(self, name):
        return f"n{self.at[name]} 16 % 0 =="

    def pointers(self):
        return tuple(f"p{i} 16 % 0 ==" for i in range(len(self.buffers)))

    def product(self, axes):
        return " ".join([f"n{self.at[f'n_{a}']}" for a in axes] + ["*"] * (len(axes) - 1))

    def strides(self, axis, buffers=None):
        return {f"{b.name}_{axis}": 1 for b in (self.full if buffers is None else buffers)}


def variants(kernel: Kernel, known=None, likely=None):
    """The variants of a kernel, best first. `known`: its call's numbers (a list as in csrc/rt/kernels.h), or None; `likely`:
    those of the call that it is built for, where they may vary: what suits them, and what takes anything."""
    facts = Facts.of(kernel)
    if known is not None:
        return [known_variant(facts, dict(zip(facts.at, (known[i] for i in facts.at.values()))))]
    scalar = not kernel.inner or all(s.over == "row" for s in kernel.sections)
    found = scalar_variants(facts) if scalar else row_variants(facts)
    if likely is None:
        return found
    best = next(v for v in found if all(evaluate(w, likely) for w in v.when))
    return [best] if best is found[-1] else [best, found[-1]]


OPERATIONS = {"*": operator.mul, "%": operator.mod, "==": operator.eq, "<=": operator.le, "<": operator.lt, ">=": operator.ge}


def evaluate(words, numbers):
    """A condition on numbers; addresses are taken to be aligned."""
    stack = []
    for word in words.split():
        if word in OPERATIONS:
            right, left = stack.pop(), stack.pop()
            stack.append(int(OPERATIONS[word](left, right)))
        else:
            stack.append(numbers[int(word[1:])] if word[0] == "n" else 0 if word[0] == "p" else int(word))
    return stack[0]


# ---- numbers that are not known


def scalar_variants(f: Facts):
    """Bodies without a walk along rows: pointwise, and tables (their rows only bound the index)."""
    *lead, last = f.outer
    table = bool(f.kernel.inner)
    unit = {f"{b.name}_{last}": 0 if table and is_index(b) else 1 for b in f.buffers}
    found, small = [], f"{f.product(f.outer)} {INDEX} <="
    block = min(2048, max(512, SMALL * 4 // f.itemsize))
    names = frozenset(b.name for b in f.buffers)
    if not table:
        known = {f"n_{a}": 1 for a in lead} | unit
        when = [f.equal(n, v) for n, v in known.items()] + [small, *f.pointers()]
        found.append(Variant(tuple(when), (Form("flat", 1, block, 4, known, names, branch=True),)))
    steps = [f"{b.name}_{a}" for b in f.buffers for a in lead]
    when = [f.equal(n, v) for n, v in unit.items()] + [f.multiple(n) for n in (f"n_{last}", *steps)]
    when += [f"n{f.at[f'n_{last}']} 128 >=", small, *f.pointers()]
    aligned = names | {f"n_{last}", *steps}
    found.append(Variant(tuple(when), (Form("tile", 4, 256, 4, unit, aligned),), special=True))
    if ODD_ROWS and f.kernel.name.split(".")[0] in COPIES:
        # Out of padded memory, or into it: element by element, but no division by sizes that are not known.
        when = [f.equal(n, v) for n, v in unit.items()] + [f"n{f.at[f'n_{last}']} 4096 >=", small]
        found.append(Variant(tuple(when), (Form("tile", *ODD_ROWS, unit),), special=True))
    found.append(Variant((small,), (Form("flat", 1, 512, 4),)))
    found.append(Variant((), (Form("tile", 4, 256, 4, wide=True),)))
    return found


COPIES = ("clone", "to")            # as cuda_copy_within asks for them


def is_index(buffer):
    return not buffer.written and buffer.dtype in ("int64", "int32")


def row_variants(f: Facts):
    row, last, beside = f.inner[0], f.inner[-1], f.outer[-1]
    n, rows = f"n{f.at[f'n_{last}']}", f.product(f.outer)
    small = (f"{rows} {INDEX} <=", f"{f.product(f.inner)} {INDEX} <=")
    one = {f"n_{row}": 1} if row != last else {}
    unit = one | f.strides(last)
    steps = [f"{b.name}_{a}" for b in f.full for a in f.outer]
    aligned = frozenset([b.name for b in f.buffers] + [f"n_{last}", *steps])
    base = tuple(f.equal(k, v) for k, v in unit.items()) + small
    smooth = tuple(f.multiple(x) for x in (f"n_{last}", *steps)) + f.pointers()
    upright = one | {f"{b.name}_{beside}": 0 if b.across else 1 for b in f.full}
    lying = tuple(f.equal(k, v) for k, v in upright.items()) + small + (f"n{f.at[f'n_{beside}']} 16 >=",)
    found = []
    if cpp.has_long_row(f.kernel):
        names = frozenset([*(b.name for b in f.buffers), *steps])
        even = tuple(map(f.multiple, steps)) + f.pointers()
        found.append(split(f, (*base, f"{rows} 256 <", f"{n} 16384 >=", *even), unit, names, 1, 2048, 8, 4))
        several = split(f, lying + (f"{rows} 8192 <", f"{n} 256 >="), upright, frozenset(), 32, 32, 4, 2)
        found.append(replace(several, special=True))
    found.append(Variant(base + (f"{n} 128 <=",), (Form("block", 8, 128, 4, unit),), special=True))
    found.append(Variant(base + (f"{n} 1024 <=", *smooth), (Form("block", 1, 1024, 4, unit, aligned),), special=True))
    found.append(Variant(base + smooth, (Form("loop", 1, 2048, 8, unit, aligned),)))
    if cpp.folds(f.kernel) and not cpp.addressed(f.kernel):
        found.append(Variant(lying, (Form("loop", 32, 32, 4, upright),), special=True))
    found.append(Variant((), (Form("loop", 1, 1024, 4, wide=True),)))
    return found


def split(f: Facts, when, known, aligned, x, r, warps, least):
    """A long row in pieces of at least `least` blocks; no more pieces than a second program folds at once."""
    def size(axes):
        words = [str(known.get(f"n_{a}", f"n{f.at[f'n_{a}']}")) for a in axes]
        words = [w for w in words if w != "1"] or ["1"]
        return " ".join([*words, *["*"] * (len(words) - 1)])
    length, rows = size(f.inner), size(f.outer)
    pieces = f"{length} {r * least} cdiv 1024 min"
    piece = f"{length} {pieces} cdiv {r} cdiv {r} *"
    folds = next(s.folds for s in f.kernel.sections if s.folds)
    work = tuple((f"{rows} {pieces} * {dtypes.TABLE[v.dtype].itemsize} *", False) for _, _, v in folds)
    part = Form("part", x, r, warps, known, aligned, pieces=pieces, piece=piece)
    join = replace(part, kind="join", r=256 if x == 1 else 32, warps=4 if x == 1 else warps)
    return Variant(when, (part, join), work)


# ---- numbers that are known


def known_variant(f: Facts, numbers):
    """The one variant for known sizes and strides. It asks that they are as they were said to be."""
    axes = f.outer + f.inner
    known = {name: v for name, v in numbers.items() if name[:2] != "e_" and (name[:2] == "n_" or numbers[f"n_{name.split('_')[1]}"] > 1)}
    when = tuple(f.equal(k, v) for k, v in known.items()) + f.pointers()
    wide = any(span(b, axes, numbers) > INDEX for b in f.buffers) or size_of(f.outer, numbers) * size_of(f.inner, numbers) > INDEX
    aligned = frozenset(b.name for b in f.buffers)
    choose = known_scalar if not f.inner or all(s.over == "row" for s in f.kernel.sections) else known_rows
    found = choose(f, numbers, known)
    if isinstance(found, Variant):
        return replace(found, when=when, forms=tuple(replace(x, wide=wide, aligned=aligned) for x in found.forms))
    return Variant(when, (replace(found, known=known | found.known, wide=wide, aligned=aligned),))


def span(buffer, axes, numbers):
    """The furthest element that a buffer is walked to."""
    return sum((numbers[f"n_{a}"] - 1) * abs(numbers[f"{buffer.name}_{a}"]) for a in axes)


def size_of(axes, numbers):
    total = 1
    for a in axes:
        total *= numbers[f"n_{a}"]
    return total


def power(n, most):
    """The smallest power of two that is at least n, at most `most`."""
    return min(most, 1 << max(0, n - 1).bit_length())


def known_scalar(f: Facts, numbers, known):
    left = [a for a in f.outer if numbers[f"n_{a}"] > 1]
    total = size_of(f.outer, numbers)
    block = min(2048, max(512, SMALL * 4 // f.itemsize))
    while block > 128 and total < block * MULTIPROCESSORS:      # few elements: more, smaller programs
        block //= 2
    warps = 4 if block >= 512 else max(1, block // 128)
    if len(left) <= 1:
        return Form("flat", 1, power(total, block) if total > 32 else 32, warps)
    last, size = left[-1], numbers[f"n_{left[-1]}"]
    beside = across_memory(f, numbers, left)
    if beside is not None:                              # transposed: squares keep both sides in whole lines
        side = 64 if f.itemsize <= 2 else 32
        return Form("tile", side, side, 8 if side == 64 else 4, {"row_axis": beside})
    if size >= 64 and last == f.outer[-1]:
        r = power(size, block)
        while r > 64 and size % r and size / (r * -(-size // r)) < 0.8:
            r //= 2                                     # less than four fifths of the block would be used
        return Form("tile", max(1, min(block // r, power(numbers[f"n_{left[-2]}"], block))), r, warps,
                    {} if left[-2] == f.outer[-2] else {"row_axis": left[-2]})
    return Form("flat", 1, block, warps)


def across_memory(f: Facts, numbers, left):
    """The axis that some buffer walks by ones where others do so along the last; None where all agree."""
    last = left[-1]
    if last != f.outer[-1] or numbers[f"n_{last}"] < 16:
        return None
    for b in f.buffers:
        for a in left[:-1]:
            if numbers[f"{b.name}_{a}"] == 1 and numbers[f"n_{a}"] >= 16 and numbers[f"{b.name}_{last}"] > 1:
                return a
    return None


def known_rows(f: Facts, numbers, known):
    rows, length = size_of(f.outer, numbers), size_of(f.inner, numbers)
    beside = lying_side_by_side(f, numbers)
    long = cpp.has_long_row(f.kernel)
    if beside:
        width = power(numbers[f"n_{f.outer[-1]}"], 64 if f.itemsize < 4 else 32)
        programs = -(-rows // width)
        if long and programs < 2 * MULTIPROCESSORS and length >= 256:
            return split(f, (), known, frozenset(), width, 1024 // width, 4, 2)
        return Form("loop", width, min(power(length, 1024), 1024 // width * 2), 4)
    if long and rows < MULTIPROCESSORS and length >= 16384:
        return split(f, (), known, frozenset(), 1, 2048, 8, 4)
    if length <= ROW_MOST * (1 if walked(f) > 4 else 2):
        r = max(power(length, 1 << 20), 1)
        x = max(1, min(2048 // r, power(rows // (2 * MULTIPROCESSORS), 64)))
        return Form("block", x, r, max(1, min(16, x * r // 512 or 1)) if x * r > 256 else 1)
    return Form("loop", 1, 4096 if f.itemsize < 4 else 2048, 8)


def walked(f: Facts):
    """How many blocks of a row are alive at once, about: every full operand and result."""
    return len(f.full)


def lying_side_by_side(f: Facts, numbers):
    """Whether rows lie across memory: neighbours are of neighbouring rows."""
    near, last = f.outer[-1], f.inner[-1]
    if not cpp.folds(f.kernel) or numbers[f"n_{near}"] < 8:
        return False
    reads = [b for b in f.full if not b.written] or list(f.full)
    return any(numbers[f"{b.name}_{near}"] == 1 and numbers[f"{b.name}_{last}"] > 1 for b in reads)


# ---- the record


def entry_name(name):
    """A kernel's name as an identifier; it shows in profiles."""
    return "".join(c if c.isalnum() else "_" for c in name)[:80]


def record(kernel: Kernel, numbers=None, *, likely=None, general=False, key="", cost=1, origin=""):
    """(the kernel record without images, the Source of each launch in order), for `runtime.triton.build`. `numbers` and
    `likely`: as in `variants`; `general`: without the variants that are only faster, for rare dtypes. Raises NotImplementedError for what cannot be said in Triton."""
    key, inputs = key or kernel.name, sum(not b.written for b in kernel.buffers)
    if inputs > OPERANDS or len(kernel.buffers) - inputs > RESULTS:
        raise NotImplementedError(f"[{key}] {inputs} operands and {len(kernel.buffers) - inputs} results; a launch takes "
                                  f"{OPERANDS} and {RESULTS}")
    found, name = variants(kernel, numbers, likely), entry_name(key)
    found = [v for v in found if not (general and v.special)]
    facts = {"key": key, "serial": ELEMENT if cpp.uses_element(kernel) else 0, "cost": cost, "origin": origin}
    sources, told = [], []
    for i, v in enumerate(found):
        launches = []
        for form in v.forms:
            source = emit(kernel, form, f"{name}_{i}{'_' + form.kind if len(v.forms) > 1 else ''}")
            launches.append({"cubin": len(sources), "entry": source.name, "warps": source.warps, "shared": 0,
                             "params": [word for _, _, word, _ in source.params], "grid": [source.grid, "1", "1"]})
            sources.append(source)
        told.append({"when": list(v.when), "work": [list(w) for w in v.work], "launches": launches})
    made = {**facts, "outer": len(kernel.outer), "inner": len(kernel.inner), "inputs": inputs,
            "outputs": len(kernel.buffers) - inputs, "numbers": len(kernel.numbers), "variants": told}
    return made, sources
