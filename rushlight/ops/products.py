"""The matrix product's family: vectors, outer products, products added to something, contractions by einsum's language."""
from rushlight import dtypes

from .complexes import conj_physical
from .creation import steps
from .declare import composition
from .indexing import index
from .layouts import ShapeError
from .matrix import bmm, matmul, mm
from .pointwise import add, mul
from .reductions import sum
from .samples import call, t
from .views import expand, permute, product, reshape, unsqueeze


def of_rank(op, *pairs):
    for name, x, rank in pairs:
        if x.rank != rank:
            raise RuntimeError(f"[{op}] expected {name} to have {rank} dimension{'s' * (rank > 1)}, got {x.layout}")


def same_dtypes(op, *values):
    if len({v.dtype for v in values}) > 1:
        raise RuntimeError(f"[{op}] expected all operands to have the same dtype, but got: {', '.join(v.dtype for v in values)}")


@composition("mv(Tensor self, Tensor vec) -> Tensor", autocast="off", samples=(call(t(2, 3), t(3)), call(t(3, 2, order=(1, 0)), t(2))))
def mv(x, v):
    """x[m, k] @ v[k]."""
    of_rank("mv", ("self", x, 2), ("vec", v, 1))
    return matmul(x, v)


def dotted(op):
    def body(x, y):
        of_rank(op, ("self", x, 1), ("other", y, 1))
        same_dtypes(op, x, y)
        if not x.shape[0] == y.shape[0]:
            raise RuntimeError(
                f"[{op}] two vectors of one length are needed, got {list(x.shape)} and {list(y.shape)}"
            )
        x = conj_physical(x) if op == "vdot" and dtypes.is_complex(x.dtype) else x
        return sum(mul(x, y), None, False, dtype=x.dtype)
    body.__name__ = op
    return body


dot = composition("dot(Tensor self, Tensor tensor) -> Tensor", samples=(call(t(40), t(40)), call(t(3, dtype="int32"), t(3, dtype="int32"))))(dotted("dot"))
vdot = composition("vdot(Tensor self, Tensor other) -> Tensor", samples=(call(t(5), t(5)),))(dotted("vdot"))


@composition("inner(Tensor self, Tensor other) -> Tensor", samples=(call(t(3), t(3)), call(t(2, 3), t(4, 5, 3)), call(t(2, 3), t())))
def inner(x, y):
    """Sums of products over the last dims; a tensor without dims multiplies."""
    if x.rank == 0 or y.rank == 0:
        return mul(x, y)
    if x.rank == y.rank == 1:
        return dot(x, y)
    if not x.shape[-1] == y.shape[-1]:
        raise RuntimeError(f"[inner] the last dims are equal, got shapes {list(x.shape)} and {list(y.shape)}")
    flat = lambda v: reshape(v, (product(v.shape[:-1]), v.shape[-1]))
    return reshape(mm(flat(x), permute(flat(y), (1, 0))), (*x.shape[:-1], *y.shape[:-1]))


@composition("outer(Tensor self, Tensor vec2) -> Tensor", samples=(call(t(3), t(4)), call(t(3), t(2, dtype="int64"))))
def outer(x, y):
    """x[m] times y[n], every pair."""
    of_rank("outer", ("self", x, 1), ("vec2", y, 1))
    return mul(unsqueeze(x, 1), y)


@composition("ger(Tensor self, Tensor vec2) -> Tensor", samples=(call(t(3), t(4)),))
def ger(x, y):
    return outer(x, y)


def weighed(x, by):
    return x if isinstance(by, int) and by == 1 else mul(x, by)


def added(self, beta, out, alpha):
    """beta * self + alpha * out; with beta 0 self is not looked at."""
    if dtypes.category(out.dtype) == 1:                 # integers count whole times
        beta, alpha = int(beta), int(alpha)
    out = weighed(out, alpha)
    if beta == 0:
        return out
    return add(weighed(expand(self, out.shape) if self.shape != out.shape else self, beta), out)


SCALED = dict(structural=("beta", "alpha"))


@composition("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor", **SCALED, autocast="off",
             samples=(call(t(2), t(2, 3), t(3)), call(t(2), t(2, 3), t(3), beta=0.5, alpha=2), call(t(1), t(2, 3), t(3), beta=0)))
def addmv(x, mat, vec, beta, alpha):
    """beta * x + alpha * (mat @ vec)."""
    same_dtypes("addmv", x, mat, vec)
    return added(x, beta, mv(mat, vec), alpha)


@composition("addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", **SCALED,
             samples=(call(t(2, 3), t(2), t(3)), call(t(3), t(2), t(3), beta=0.5, alpha=2)))
def addr(x, u, v, beta, alpha):
    """beta * x + alpha * outer(u, v)."""
    of_rank("addr", ("vec1", u, 1), ("vec2", v, 1))
    if dtypes.category(dtypes.promote(x.dtype, dtypes.promote(u.dtype, v.dtype))) < 2 and any(isinstance(n, (float, complex)) for n in (beta, alpha)):
        raise RuntimeError("[addr] For integral input tensors, arguments beta and alpha must not be floating point numbers, "
                           f"got {beta} and {alpha}")
    return added(x, beta, outer(u, v), alpha)


@composition("baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", **SCALED, autocast="lower",
             samples=(call(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5)), call(t(3, 1), t(2, 3, 4), t(2, 4, 5), beta=0.5, alpha=2),
                      call(t(5), t(2, 3, 4), t(2, 4, 5), beta=0)))
def baddbmm(x, a, b, beta, alpha):
    """beta * x + alpha * (a[b, m, k] @ b[b, k, n])."""
    of_rank("baddbmm", ("batch1", a, 3), ("batch2", b, 3))
    same_dtypes("baddbmm", x, a, b)
    return added(x, beta, bmm(a, b), alpha)


@composition("addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", **SCALED, autocast="lower",
             samples=(call(t(3, 5), t(2, 3, 4), t(2, 4, 5)), call(t(5), t(2, 3, 4), t(2, 4, 5), beta=0.5, alpha=2)))
def addbmm(x, a, b, beta, alpha):
    """beta * x + alpha * the sum over the batch of a[b, m, k] @ b[b, k, n]: one product, batch and k side by side."""
    of_rank("addbmm", ("batch1", a, 3), ("batch2", b, 3))
    same_dtypes("addbmm", x, a, b)
    if not (a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1]):
        raise ShapeError(f"[addbmm] batch1 and batch2 do not fit: {a.layout} and {b.layout}")
    k = a.shape[0] * a.shape[2]
    left = reshape(permute(a, (1, 0, 2)), (a.shape[1], k))
    return added(x, beta, mm(left, reshape(b, (k, b.shape[2]))), alpha)


@composition("kron(Tensor self, Tensor other) -> Tensor", samples=(call(t(2, 3), t(4, 2)), call(t(3), t(2, 2)), call(t(), t(3))))
def kron(x, y):
    """Every element of x times all of y, as blocks."""
    rank = max(x.rank, y.rank)
    a, b = ((1,) * (rank - v.rank) + tuple(v.shape) for v in (x, y))
    x = reshape(x, tuple(n for m in a for n in (m, 1)))
    y = reshape(y, tuple(n for m in b for n in (1, m)))
    return reshape(mul(x, y), tuple(m * n for m, n in zip(a, b)))


@composition("tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor", method=False, function=False,
             samples=(call(t(2, 3, 4), t(4, 3, 5), (1, 2), (1, 0)), call(t(2, 3), t(4), (), ())))
def tensordot(x, y, dims_x, dims_y):
    """Sums of products over pairs of dims, x's other dims before y's."""
    if len(dims_x) != len(dims_y):
        raise RuntimeError(f"[tensordot] both dimension lists should have same length, got {list(dims_x)} and {list(dims_y)}")
    dims_x, dims_y = [d % x.rank for d in dims_x], [d % y.rank for d in dims_y]
    for d, e in zip(dims_x, dims_y):
        n, m = x.shape[d], y.shape[e]
        if n != m and n != 1 and m != 1:
            raise RuntimeError(
                f"[tensordot] dim {d} of the first has size {n}, dim {e} of the second {m}: they cannot be contracted"
            )
    left, right = [d for d in range(x.rank) if d not in dims_x], [d for d in range(y.rank) if d not in dims_y]
    whole = [max(x.shape[d], y.shape[e]) for d, e in zip(dims_x, dims_y)]
    if any(x.shape[d] != n for d, n in zip(dims_x, whole)):
        x = expand(x, tuple(dict(zip(dims_x, whole)).get(d, n) for d, n in enumerate(x.shape)))
    if any(y.shape[d] != n for d, n in zip(dims_y, whole)):
        y = expand(y, tuple(dict(zip(dims_y, whole)).get(d, n) for d, n in enumerate(y.shape)))
    k = product(whole)
    a = reshape(permute(x, (*left, *dims_x)), (product(x.shape[d] for d in left), k))
    b = reshape(permute(y, (*dims_y, *right)), (k, product(y.shape[d] for d in right)))
    return reshape(mm(a, b), (*(x.shape[d] for d in left), *(y.shape[d] for d in right)))


# ---- einsum

def read_equation(equation, ranks):
    """(labels of each operand, labels of the output): "..." becomes the labels -k .. -1, aligned at the right."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    given = left.split(",")
    if len(given) != len(ranks):
        raise RuntimeError(
            f"[einsum] {equation!r} is for {'more' if len(given) > len(ranks) else 'fewer'} operands than "
            f"{len(ranks)}"
        )
    operands = [labels_of(part, rank, equation) for part, rank in zip(given, ranks)]
    dots = max((-min(labels, default=0) for labels in ([i for i in o if isinstance(i, int)] for o in operands)), default=0)
    if arrow:
        out = labels_of(right, None, equation, dots)
        for label in out:
            if out.count(label) > 1:
                raise RuntimeError(f"[einsum] output subscript {label} appears more than once in the output of {equation!r}")
            if not any(label in o for o in operands) and not isinstance(label, int):
                raise RuntimeError(f"[einsum] {label} of the output stands in no operand of {equation!r}")
    else:
        every = [i for o in operands for i in o if not isinstance(i, int)]
        out = [*range(-dots, 0), *sorted(i for i in set(every) if every.count(i) == 1)]
    return operands, out


def labels_of(part, rank, equation, dots=0):
    head, found, tail = part.partition("...")
    letters = head + tail
    if not all(c.isalpha() and c.isascii() for c in letters):
        raise RuntimeError(f"[einsum] invalid subscript given in {part!r} of {equation!r}: subscripts must be in [a-zA-Z]")
    if rank is not None:
        dots = rank - len(letters)
        if dots < 0 or dots and not found:
            raise RuntimeError(f"[einsum] {len(letters)} "
                               "subscripts "
                               f"{'are too many' if dots < 0 else 'do not fit'} "
                               f"for an operand of {rank} dims "
                               f"in {equation!r}" + (" and no ellipsis was given" if dots > 0 else ""))
    return [*head, *(range(-dots, 0) if found else ()), *tail]


def diagonal_of(x, labels):
    """One dim for each label: a repeated one walks along the diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if not x.shape[i] == x.shape[j]:
                raise RuntimeError(f"[einsum] subscript {label} is repeated for an operand but the sizes don't match, {x.shape[j]} != "
                                   f"{x.shape[i]}")
            rest = [d for d in range(x.rank) if d not in (i, j)]
            along = steps((x.shape[i],), 0, 1, dtype="int64")
            x = index(permute(x, (i, j, *rest)), [along, along], (0, 1))
            labels = [label, *(labels[d] for d in rest)]
    return x, labels


def summed(x, labels, keep):
    """x without the dims that nothing else needs."""
    drop = tuple(d for d, i in enumerate(labels) if i not in keep)
    return (sum(x, drop, False, dtype=x.dtype), [i for i in labels if i in keep]) if drop else (x, labels)


def contract(x, a, y, b, keep, sizes):
    """The product of two operands, summed over what `keep` does not name."""
    x, a = summed(x, a, [*keep, *b])
    y, b = summed(y, b, [*keep, *a])
    one = lambda v, labels, i: sizes[i] != 1 and v.shape[labels.index(i)] == 1
    inside = [i for i in a if i in b and i not in keep]
    for i in inside:                                    # a dim of 1 meets a longer one: broadcast before the product
        if one(x, a, i):
            x = expand(x, tuple(sizes[i] if k == i else n for k, n in zip(a, x.shape)))
        if one(y, b, i):
            y = expand(y, tuple(sizes[i] if k == i else n for k, n in zip(b, y.shape)))
    if not inside:
        order = list(dict.fromkeys([*a, *b]))
        return mul(spread(x, a, order), spread(y, b, order)), order
    # A batch dim that one side has at size 1 belongs to the other side alone.
    batch = [i for i in a if i in b and i in keep and one(x, a, i) == one(y, b, i)]
    left = [i for i in a if i not in batch and i not in inside and not (i in b and one(x, a, i))]
    right = [i for i in b if i not in batch and i not in inside and i not in left]
    sides = lambda v, labels, order, shape: reshape(spread(v, labels, order, drop=True), shape)
    of = lambda group: product(sizes[i] for i in group)
    p = sides(x, a, [*batch, *left, *inside], (of(batch), of(left), of(inside)))
    q = sides(y, b, [*batch, *inside, *right], (of(batch), of(inside), of(right)))
    if batch:
        out = bmm(p, q)
    else:
        out = mm(reshape(p, (of(left), of(inside))), reshape(q, (of(inside), of(right))))
    order = [*batch, *left, *right]
    return reshape(out, tuple(sizes[i] for i in order)), order


def spread(x, labels, order, drop=False):
    """x with its dims in `order`; labels that it lacks become dims of 1, and with `drop` those not in `order` (of 1) go."""
    if drop and any(i not in order for i in labels):
        x = reshape(x, tuple(n for i, n in zip(labels, x.shape) if i in order))
        labels = [i for i in labels if i in order]
    here = [i for i in order if i in labels]
    if here != labels:
        x = permute(x, tuple(labels.index(i) for i in here))
    for d, i in enumerate(order):
        if i not in here:
            x = unsqueeze(x, d)
    return x


@composition("einsum(str equation, Tensor[] tensors) -> Tensor", method=False, function=False,
             samples=(call("ij,jk->ik", [t(2, 3), t(3, 4)]), call("bij,bjk->bik", [t(2, 3, 4), t(2, 4, 5)]), call("iij->j", [t(3, 3, 2)]),
                      call("ij->ji", [t(2, 3)]), call("i,j->ij", [t(2), t(3)]), call("...ij,...jk", [t(2, 1, 3, 4), t(5, 4, 2)]),
                      call("ij,jk,kl->il", [t(2, 3), t(3, 4), t(4, 5)]), call("bhid,bhjd->bhij", [t(2, 2, 3, 4), t(2, 2, 5, 4)]),
                      call("ij", [t(2, 3)]), call("ijk->", [t(2, 3, 4)]), call("ij,ij->i", [t(2, 3), t(2, 3)]), call("ij,kj->ik", [t(2, 1), t(4, 3)])))
def einsum(equation, tensors):
    """Einstein's notation: products of the operands' elements, summed over the subscripts that the output lacks."""
    if not tensors:
        raise RuntimeError("[einsum] at least one operand is needed")
    operands, out = read_equation(equation, [x.rank for x in tensors])
    sizes = {}
    for x, labels in zip(tensors, operands):
        for i, n in zip(labels, x.shape):
            if sizes.setdefault(i, n) != n:
                if sizes[i] != 1 and n != 1:
                    raise RuntimeError(f"[einsum] operands do not broadcast with remapped shapes: subscript {i} of {equation!r} has "
                                       f"sizes {sizes[i]} and {n}")
                sizes[i] = n if sizes[i] == 1 else sizes[i]
    work = [diagonal_of(x, labels) for x, labels in zip(tensors, operands)]
    while len(work) > 1:
        i, j = cheapest(work, out, sizes)
        others = [label for k, (_, labels) in enumerate(work) if k not in (i, j) for label in labels]
        (x, a), (y, b) = work[i], work[j]
        made = contract(x, a, y, b, [*out, *others], sizes)
        work = [w for k, w in enumerate(work) if k not in (i, j)]
        work.insert(i, made)
    x, labels = summed(*work[0], out)
    x = spread(x, labels, out)
    return expand(x, tuple(sizes[i] for i in out)) if tuple(x.shape) != tuple(sizes[i] for i in out) else x


def cheapest(work, out, sizes):
    """The pair whose product is smallest beside what it takes away: greedy, ties to the left."""
    if len(work) == 2:
        return 0, 1
    found = None
    for i in range(len(work)):
        for j in range(i + 1, len(work)):
            others = {label for k, (_, labels) in enumerate(work) if k not in (i, j) for label in labels} | set(out)
            a, b = work[i][1], work[j][1]
            union = set(a) | set(b)
            kept = union & others
            cost = (product(sizes[k] for k in kept) - product(sizes[k] for k in a) - product(sizes[k] for k in b),
                    product(sizes[k] for k in union))
            if found is None or cost < found[0]:
                found = cost, i, j
    return found[1:]
