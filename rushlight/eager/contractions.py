"""einsum, tensordot and chains of products: their calling conventions, and the order of a chain."""

from rushlight import _core
from rushlight.ops import TABLE

Tensor = _core.Tensor
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # of subscripts 0 to 51


def op(name):
    return TABLE[name].native


def einsum(*args):
    """Einstein's notation: `einsum("ij,jk->ik", x, y)`, or operands with lists of subscripts:
    `einsum(x, [0, 1], y, [1, 2], [0, 2])`.
    """
    if len(args) < 2:
        raise ValueError(
            "[einsum] takes an equation and its operands, or operands each followed by a list of "
            "subscripts"
        )
    if isinstance(args[0], str):
        equation, operands = args[0], args[1:]
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = operands[0]
        return op("einsum")(equation, list(operands))
    pairs = len(args) // 2
    equation = ",".join(map(subscripts, args[1 : 2 * pairs : 2]))
    if len(args) % 2:
        equation += "->" + subscripts(args[-1])
    return op("einsum")(equation, list(args[0 : 2 * pairs : 2]))


def subscripts(numbers):
    out = ""
    for n in numbers:
        if n is not Ellipsis and not 0 <= n < len(LETTERS):
            raise ValueError(f"[einsum] subscripts in a list are numbers from 0 to 51, got {n}")
        out += "..." if n is Ellipsis else LETTERS[n]
    return out


def tensordot(a, b, dims=2, out=None):
    """Sums of products over pairs of dims: a's last `dims` with b's first, or two lists."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"[tensordot] dims is not negative, got {dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"[tensordot] dims={dims} is more than one of the operands has")
        dims = tuple(range(-dims, 0)), tuple(range(dims))
    left, right = ((d,) if isinstance(d, int) else tuple(d) for d in dims)
    more = {} if out is None else {"out": out}
    return op("tensordot")(a, b, left, right, **more)


def chain_matmul(*matrices, out=None):
    """The product of matrices, multiplied in the order that takes the fewest operations."""
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = matrices[0]
    if not matrices:
        raise RuntimeError("[chain_matmul] takes at least one matrix")
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    for left, right in zip(matrices, matrices[1:]):
        if left.shape[1] != right.shape[0]:
            raise RuntimeError(
                f"[chain_matmul] {left.shape[0]}x{left.shape[1]} and "
                f"{right.shape[0]}x{right.shape[1]} cannot be multiplied"
            )
    found = multiplied(matrices, split_points(sizes), 0, len(matrices) - 1)
    return found if out is None else op("copy").inplace(out, found)


def split_points(sizes):
    """Where to split each stretch (i, j) of a chain: the classic dynamic program."""
    n = len(sizes) - 1
    cost, at = {(i, i): 0 for i in range(n)}, {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], at[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return at


def multiplied(matrices, at, i, j):
    if i == j:
        return matrices[i]
    k = at[i, j]
    return op("mm")(multiplied(matrices, at, i, k), multiplied(matrices, at, k + 1, j))


FUNCTIONS = {f.__name__: f for f in (einsum, tensordot, chain_matmul)}
