"""Layouts, and the named layout rules that declarations choose from.

A rule has two faces. `infer(arguments, dtypes)` gives the outputs' layouts; `space(arguments)` gives the loops: the full
shape, its row dims (reduced or normalised over) and every operand's layout in it. Ints and symbolic ints both go through.
`native(arguments)` describes the same rule to csrc/rt/loops.cpp; tests hold the two equal.
"""
from dataclasses import dataclass, replace
from functools import cached_property

from rushlight import dtypes


class ShapeError(RuntimeError):
    """Shapes that do not fit: `relu(ones(2, 3) + ones(4))`. Make the sizes equal, or 1 where they should repeat."""


@dataclass(frozen=True)
class Layout:
    """Shape and strides in elements, dtype, element offset, device. Immutable; sizes may be symbolic."""
    shape: tuple
    strides: tuple
    dtype: str
    offset: object = 0
    device: str = "cpu"

    def __hash__(self):
        return self.hashed

    @cached_property
    def hashed(self):
        return hash((self.shape, self.strides, self.dtype, self.offset, self.device))

    @cached_property
    def fixed(self):
        """Whether all sizes, strides and the offset are ints."""
        return type(self.offset) is int and all(type(n) is int for n in (*self.shape, *self.strides))

    def __reduce__(self):           # without the hash, which is another one in another process
        return Layout, (self.shape, self.strides, self.dtype, self.offset, self.device)

    @property
    def rank(self):
        return len(self.shape)

    @property
    def contiguous(self):
        expected = dense(self.shape, self.dtype).strides
        return all(n == 1 or s == t for n, s, t in zip(self.shape, self.strides, expected))

    @property
    def is_dense(self):
        """Every element once, without gaps, in whatever order of dims."""
        step = 1
        for n, s in sorted((p for p in self.pairs() if not p[0] == 1), key=lambda p: int(p[1])):
            if not s == step:
                return False
            step = step * n
        return True

    def __str__(self):
        return f"{dtypes.short(self.dtype)}[{', '.join(map(str, self.shape))}]"

    def of(self, pairs, offset=None):
        """The same memory as (size, stride) pairs."""
        return replace(self, shape=tuple(p[0] for p in pairs), strides=tuple(p[1] for p in pairs),
                       offset=self.offset if offset is None else offset)

    def pairs(self):
        return list(zip(self.shape, self.strides))

    def permute(self, dims):
        pairs = self.pairs()
        return self.of([pairs[d] for d in dims])

    def at(self, dim, start, size=None, step=1):
        """Narrow `dim` to `size` elements from `start`; without a size, drop it."""
        pairs, stride = self.pairs(), self.strides[dim]
        pairs[dim:dim + 1] = () if size is None else ((size, stride * step),)
        return self.of(pairs, self.offset + start * stride)

    def expand(self, shape):
        lead = len(shape) - self.rank
        if lead < 0:
            raise ShapeError(f"[expand] {self} has more dimensions than {list(shape)}")
        pairs = [(n, 0) for n in shape[:lead]]
        for n, m, s in zip(shape[lead:], self.shape, self.strides):
            if m == n:
                pairs.append((n, s))
            elif m == 1:
                pairs.append((n, 0))
            else:
                raise ShapeError(f"[expand] {self} does not broadcast to {list(shape)}")
        return self.of(pairs)

    def view(self, shape):
        """The same elements in another shape, or None where that needs a copy."""
        shape = tuple(shape)
        if any(n == 0 for n in self.shape):
            same = len(shape) == self.rank and all(m == n for m, n in zip(shape, self.shape))
            return self if same else replace(self, shape=shape, strides=dense(shape, self.dtype).strides)
        # As csrc/rt/views.cpp does, strides of dims of size 1 and all: other rules read those (is_channels_last).
        blocks, size = [], 1                            # innermost first: (stride, size) of dims that continue one another
        step = self.strides[-1] if self.rank else 1
        for d in reversed(range(self.rank)):
            size = size * self.shape[d]
            if d and (self.shape[d - 1] == 1 or self.strides[d - 1] == size * step):
                continue
            blocks.append((step, size))
            if d:
                step, size = self.strides[d - 1], 1
        strides, d = [1] * len(shape), len(shape) - 1
        for step, left in blocks or [(1, 1)]:           # each is cut up exactly by new dims
            while d >= 0 and (shape[d] == 1 or not left == 1):
                if not left % shape[d] == 0:
                    return None
                strides[d] = step
                step, left = step * shape[d], left // shape[d]
                d -= 1
            if not left == 1:
                return None
        return replace(self, shape=shape, strides=tuple(strides))


def dense(shape, dtype, order=None, device="cpu"):
    """No gaps: C order, or with the dims in `order`, outermost first."""
    strides, step = [0] * len(shape), 1
    for d in reversed(order if order is not None else range(len(shape))):
        strides[d] = step
        step = step * (shape[d] if isinstance(shape[d], int) and shape[d] > 1 or not isinstance(shape[d], int) else 1)
    return Layout(tuple(shape), tuple(strides), dtype, 0, device)


def channels_last(shape, dtype, device="cpu"):
    """[n, c, h, w] without gaps, c innermost."""
    return dense(shape, dtype, (0, 2, 3, 1), device)


def is_channels_last(x):
    """Whether an [n, c, h, w] layout lies as h, w, c in each image, and does not as well lie in C order (PyTorch's rule for
    which of two formats a result takes)."""
    if x.rank != 4 or x.strides[1] == 0:
        return False
    least = 0
    for d in (1, 3, 2, 0):
        n, s = x.shape[d], x.strides[d]
        if n == 0 or s < least or d == 0 and least == x.strides[1]:
            return False
        least = s * n if n > 1 else s
    return True


def broadcast_shape(shapes, op="broadcast"):
    rank = max(map(len, shapes), default=0)
    out = []
    for d, column in enumerate(zip(*[(1,) * (rank - len(s)) + tuple(s) for s in shapes])):
        sizes = [n for n in column if not n == 1]
        for n in sizes[1:]:
            if n != sizes[0]:
                raise ShapeError(
                    f"[{op}] shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast: dim {d} has size "
                    f"{sizes[0]} and {n}"
                )
        out.append(sizes[0] if sizes else 1)
    return tuple(out)


def positive(dims, rank):
    """Sorted non-negative dims; None and () mean all."""
    if dims is None or isinstance(dims, (tuple, list)) and not dims:
        return tuple(range(rank))
    dims = (dims,) if isinstance(dims, int) else dims
    for d in dims:
        if not -max(rank, 1) <= d < max(rank, 1):
            raise IndexError(f"dim {d} is out of range: {-max(rank, 1)} to {max(rank, 1) - 1}")
    found = tuple(sorted(d % max(rank, 1) for d in dims))
    if len(set(found)) < len(found):
        raise RuntimeError(f"dim {next(d for d in found if found.count(d) > 1)} is given twice")
    return found if rank else ()


def memory_order(layouts, rank):
    """Dims from outermost to innermost, as the operands lie in memory (PyTorch's TensorIterator); ties keep C order.
    What cannot be compared is walked past: the relation is not transitive, so the steps of the sort matter."""
    order = list(reversed(range(rank)))                 # innermost first
    for i in range(1, rank):
        at = i
        for j in range(i - 1, -1, -1):
            verdict = compare(layouts, order[j], order[at])
            if verdict > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif verdict < 0:
                break
    return order[::-1]


def like_operands(layouts, full, dtype, device):
    """Dense, as the operands lie: C order where all of them are so; their strides where they agree on a dense layout;
    else by the order of their dims. A dim of size 1 keeps the stride that PyTorch would show."""
    whole = all(x.rank == len(full) and all(m == n for m, n in zip(x.shape, full)) for x in layouts)
    if whole and all(x.contiguous for x in layouts):
        return dense(full, dtype, None, device)
    first = layouts[0]
    if whole and all(x.strides == first.strides for x in layouts) and first.is_dense:
        return Layout(tuple(full), first.strides, dtype, 0, device)
    return dense(full, dtype, memory_order([x.expand(full) for x in layouts], len(full)), device)


def compare(layouts, a, b):
    """1 where dim a should lie outside dim b, -1 where inside, 0 where the operands do not say."""
    for x in layouts:
        s, t = x.strides[a], x.strides[b]
        if s == 0 or t == 0:
            continue
        if s != t:
            return 1 if s > t else -1
        if x.shape[a] > x.shape[b]:
            return 1
    return 0


# ---- rules

class broadcast:
    """Outputs of the broadcast shape, dense in the operands' order of dims."""
    per_row = ()                    # operands that are one number a row, by parameter name
    across = ()                     # operands that are one number for all rows side by side
    out = "S"                       # what the first output is: S full, memory order; C full, C order; K/D one a row
    rule = "broadcast"
    loops_only = False              # whether bodies mean what they say for loop values only: rows that no `dim` names

    def full(self, a):
        return broadcast_shape([x.shape for x in a.tensors], a.op_name)

    def rows(self, a):
        return ()

    def is_per_row(self, name):
        return name in self.per_row

    def out_kind(self, a, i):
        return self.out if i == 0 else "K"

    def row_output(self, i):
        """Whether output i is one number a row."""
        return i > 0

    def infer(self, a, dtypes_):
        full, rows = self.full(a), self.rows(a)
        return [self.made(a, self.out_kind(a, i), full, rows, d) for i, d in enumerate(dtypes_)]

    def made(self, a, kind, full, rows, dtype):
        device = a.device
        if kind == "S":
            inputs = [x.layout for n, x in a.operands() if hasattr(x, "layout") and not self.is_per_row(n)]
            return like_operands(inputs, full, dtype, device)
        if kind == "C":
            return dense(full, dtype, None, device)
        shape = [1 if d in rows else n for d, n in enumerate(full) if kind == "K" or d not in rows]
        return dense(shape, dtype, None, device)

    def spread(self, a, layout, i):
        """Output i's strides over the full shape: a row's dims have stride 0."""
        full, rows = self.full(a), self.rows(a)
        if self.out_kind(a, i) == "D":
            kept = iter(layout.pairs())
            layout = layout.of([(1, 0) if d in rows else next(kept) for d in range(len(full))])
        return layout.expand(full)

    def space(self, a):
        full = self.full(a)
        return full, self.rows(a), [x.layout.expand(full) for x in a.tensors]

    def keep(self, a, g):
        """A cotangent of the first output with its row dims put back."""
        if self.out_kind(a, 0) != "D":
            return g
        full, rows = self.full(a), self.rows(a)
        return g.viewed(tuple(1 if d in rows else n for d, n in enumerate(full)))

    def native(self, a, outputs):
        kinds = "".join("P" if self.is_per_row(n) else "F" for n, x in a.operands() if hasattr(x, "layout"))
        rows = sum(1 << d for d in self.rows(a))
        return self.rule, rows, kinds, "".join(self.out_kind(a, i) for i in range(outputs))


class contiguous(broadcast):
    out = "C"


class formatted(broadcast):
    """Dense in the operand's order of dims, or C order where `memory_format` says contiguous."""
    def out_kind(self, a, i):
        if a["memory_format"] not in (None, "contiguous", "preserve"):
            raise NotImplementedError(f"[{a.op_name}] memory format {a['memory_format']}: use .contiguous(memory_format=...)")
        return "C" if a["memory_format"] == "contiguous" else "S"


class same_rows(broadcast):
    """First output over the full shape; further outputs are one number a row, dims kept."""
    rule = "rows"

    def __init__(self, over="dim", per_row=(), out="S"):
        self.over, self.per_row, self.out = over, per_row, out

    def rows(self, a):
        return positive(a[self.over], len(self.full(a)))


class per_row(same_rows):
    """Every output is one number a row; `keepdim`, where the schema has it, says whether the dims stay. `nonempty`: rows of
    no elements have no result (the largest of none) and are refused."""
    def __init__(self, over="dim", per_row=(), nonempty=False):
        super().__init__(over, per_row)
        self.nonempty = nonempty

    def infer(self, a, dtypes_):
        full = self.full(a)
        if self.nonempty and any(isinstance(full[d], int) and full[d] == 0 for d in self.rows(a)):
            raise (IndexError if a[self.over] not in (None, ()) else RuntimeError)(
                f"[{a.op_name}] expected the reduced dims of {list(full)} to have a non-zero size")
        return super().infer(a, dtypes_)

    def row_output(self, i):
        return True

    def out_kind(self, a, i):
        return "K" if a.get("keepdim", True) else "D"


class trailing_rows(same_rows):
    """Rows over the trailing dims that `normalized_shape` names, with a C-ordered first output."""
    def __init__(self, per_row=(), out="C"):
        self.per_row, self.out = per_row, out

    def rows(self, a):
        n, full = len(a["normalized_shape"]), self.full(a)
        return tuple(range(len(full) - n, len(full)))


class leading_rows(same_rows):
    """Sums over the dims before those that `normalized_shape` names; every output has that shape. `across`: operands that
    do not vary over the outputs' dims."""
    loops_only = True

    def __init__(self, across=()):
        self.per_row, self.across = (), across

    def row_output(self, i):
        return True

    def rows(self, a):
        full = self.full(a)
        return tuple(range(len(full) - len(a["normalized_shape"])))

    def out_kind(self, a, i):
        return "D"


class cotangents(broadcast):
    """Of a derived derivative: one output an operand, over the full shape of the operator it belongs to."""
    def __init__(self, rule, grad):
        self.inner = rule
        self.per_row = tuple(rule.per_row) + ((grad,) if isinstance(rule, per_row) else ())
        self.rule = rule.rule

    def row_output(self, i):
        return False

    def rows(self, a):
        return self.inner.rows(a)

    def out_kind(self, a, i):
        return "C"


class table(broadcast):
    """indices[...] into the rows of weight[V, D]: loops (*indices, D | V), and V is only ever addressed."""
    per_row = ("indices",)
    rule = "table"
    loops_only = True

    def row_output(self, i):
        return True

    def rows(self, a):
        return (len(a.tensors[-1].shape) + 1,)

    def out_kind(self, a, i):
        return "K"

    def full(self, a):
        weight, indices = a.tensors
        return (*indices.shape, weight.shape[1], weight.shape[0])

    def infer(self, a, dtypes_):
        weight, indices = a.tensors
        return [dense((*indices.shape, weight.shape[1]), dtypes_[0], None, a.device)]

    def spread(self, a, layout, i):
        return layout.of([*layout.pairs(), (self.full(a)[-1], 0)])

    def space(self, a):
        weight, indices = (x.layout for x in a.tensors)
        full = self.full(a)
        return full, self.rows(a), [weight.permute((1, 0)).expand(full),
                                    indices.of([*indices.pairs(), (full[-2], 0), (full[-1], 0)])]

    def native(self, a, outputs):
        return self.rule, 0, "FP", "C"


class into_table(table):
    """Its transpose: values[*indices, D] added into the rows of an output [size, D]."""
    per_row = ("grad_output", "indices")
    rule = "into_table"

    def __init__(self, size):
        self.size = size

    def full(self, a):
        values = a.tensors[0]
        return (*values.shape, a[self.size])

    def infer(self, a, dtypes_):
        return [dense((a[self.size], a.tensors[0].shape[-1]), dtypes_[0], None, a.device)]

    def spread(self, a, layout, i):
        return layout.permute((1, 0)).expand(self.full(a))

    def space(self, a):
        values, indices = (x.layout for x in a.tensors)
        full = self.full(a)
        return full, self.rows(a), [values.of([*values.pairs(), (full[-1], 0)]),
                                    indices.of([*indices.pairs(), (full[-2], 0), (full[-1], 0)])]

    def native(self, a, outputs):
        return self.rule, 0, "FP", "C"


class sized(broadcast):
    """The named argument is the shape; no operand decides."""
    rule = "sized"

    def __init__(self, size="size"):
        self.size = size

    def full(self, a):
        return tuple(a[self.size])

    def out_kind(self, a, i):
        return "C"

    def native(self, a, outputs):
        return self.rule, 0, "", "C"


class matmul(broadcast):
    """[..., m, k] @ [..., k, n]: batches equal; with `bias`, broadcast over the product."""
    def infer(self, a, dtypes_):
        x, y = a["mat1" if "mat1" in a else "self"], a["mat2"]
        if x.rank != y.rank or x.rank not in (2, 3):
            raise ShapeError(f"[{a.op_name}] expected two matrices (or two batches of them), got {x.layout} and {y.layout}")
        if not x.shape[-1] == y.shape[-2]:
            raise ShapeError(
                f"[{a.op_name}] {x.shape[-2]}x{x.shape[-1]} and {y.shape[-2]}x{y.shape[-1]} cannot be multiplied: "
                f"shapes {list(x.shape)} and {list(y.shape)}"
            )
        if x.rank == 3 and not x.shape[0] == y.shape[0]:
            raise ShapeError(f"[{a.op_name}] expected batches of equal size, got {x.layout} and {y.layout}")
        shape = (*x.shape[:-1], y.shape[-1])
        if "mat1" in a and tuple(broadcast_shape((a["self"].shape, shape), a.op_name)) != tuple(shape):
            raise ShapeError(f"[{a.op_name}] {a['self'].layout} does not broadcast to the product's shape {list(shape)}")
        return [dense(shape, dtypes_[0], None, a.device)]


def passed_over(x):
    """Whether `cat` takes nothing of x: a tensor of shape [0] may stand beside tensors of any rank."""
    return x.rank == 1 and isinstance(x.shape[0], int) and x.shape[0] == 0


class concatenated(broadcast):
    """Like the first tensor, with the sizes along `dim` added up."""
    def infer(self, a, dtypes_):
        if not a.tensors:
            raise ValueError(f"[{a.op_name}] expected a non-empty list of Tensors")
        tensors, dim = [x for x in a.tensors if not passed_over(x)] or a.tensors, a["dim"]
        first = tensors[0]
        for i, x in enumerate(a.tensors):
            if x.rank == 0:
                raise RuntimeError(f"[{a.op_name}] tensor {i} has no dimensions, so nothing to be joined along")
        dim = positive(dim, first.rank)[0]
        total = 0
        for x in tensors:
            if x.rank != first.rank or any(not m == n for d, (m, n) in enumerate(zip(x.shape, first.shape)) if d != dim):
                raise ShapeError(
                    f"[{a.op_name}] tensors are equal in size except along dim {dim}, got {first.layout} and "
                    f"{x.layout}"
                )
            total = total + x.shape[dim]
        return [dense([total if d == dim else n for d, n in enumerate(first.shape)], dtypes_[0], None, a.device)]


class stacked(broadcast):
    """Like the tensors, which are of one shape, with a new dim as long as the list."""
    def infer(self, a, dtypes_):
        if not a.tensors:
            raise RuntimeError(f"[{a.op_name}] expects a non-empty list of Tensors")
        first = a.tensors[0]
        for i, x in enumerate(a.tensors):
            if tuple(x.shape) != tuple(first.shape):
                raise RuntimeError(
                    f"[{a.op_name}] tensors of equal size are needed, got {list(first.shape)} and, as number {i}, "
                    f"{list(x.shape)}"
                )
        shape = list(first.shape)
        shape.insert(positive((a["dim"],), first.rank + 1)[0], len(a.tensors))
        return [dense(tuple(shape), dtypes_[0], None, a.device)]


class like_size(broadcast):
    """Dense, of the shape that the named argument gives."""
    def __init__(self, name):
        self.name = name

    def infer(self, a, dtypes_):
        return [dense(tuple(a[self.name]), dtypes_[0], None, a.device)]


class like_first(broadcast):
    """Of the first operand's shape, dense in the order of its dims in memory."""
    def infer(self, a, dtypes_):
        first = a.tensors[0].layout
        return [like_operands([first], first.shape, dtypes_[0], a.device)]


class shaped(broadcast):
    """Of routines: `shapes(*values)` gives the outputs' shapes (one shape, or a list of them), dense in C order. `dtypes`: for
    each output "result", "opmath", a dtype's name, or the parameter whose dtype it takes; all "result" where not given."""
    def __init__(self, shapes, dtypes=None):
        self.shapes, self.names = shapes, dtypes

    def dtypes(self, a, best, result):
        def of(name):
            if name in a:
                return a[name].dtype
            return {"result": result, "opmath": dtypes.opmath(best), "best": best}.get(name, name)
        return [of(name) for name in self.names or ("result",) * a.op.outputs]

    def infer(self, a, dtypes_):
        shapes = self.shapes(*a.values)
        if not isinstance(shapes, list):
            shapes = [shapes]
        return [s if isinstance(s, Layout) else dense(tuple(s), d, None, a.device) for s, d in zip(shapes, dtypes_)]
