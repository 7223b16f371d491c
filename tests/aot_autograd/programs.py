"""Random small programs over operators, views, writes and dtypes, for compiled against eager.

    function, inputs, exact = program(seed)

The function draws the same calls whatever it is called on: tensors, or the proxies of a tracer.
`exact`: it computes in no half type and calls no library, so that forward is equal to the bit; only
such a program looks at the sizes of its values (rounds, compares), where a last bit decides.
"""

import random

import numpy as np

import rushlight as rl
from rushlight.nn import functional as F

SMOOTH = ("tanh", "sigmoid", "relu", "neg", "sin", "cos", "erf", "square", "exp", "abs")
STEPS = ("floor", "ceil", "round", "trunc", "sign")
BINARY = ("add", "sub", "mul", "maximum", "minimum")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
FLOATS, HALVES = ("float32", "float64"), ("float16", "bfloat16")
WHOLE = ("int64", "int32", "uint8")


def program(seed):
    rng = random.Random(seed)
    shape = rng.choice([(6, 8), (3, 5), (4, 3, 6), (2, 1, 7), (9,), (4, 4), (2, 3, 4, 5), (1, 33)])
    rl.manual_seed(seed)
    kinds = rng.choice([("float32",), ("float32",), ("float64", "float32"), HALVES])
    exact = kinds != HALVES and rng.random() < 0.8
    inputs = [drawn(rng, shape, rng.choice(kinds)) for _ in range(2)]
    inputs.append(drawn(rng, shape[-1:], kinds[0]))
    count = int(np.prod(shape))
    whole = rl.from_numpy(np.arange(count).reshape(shape) % 7)
    inputs.append(whole.to(getattr(rl, rng.choice(WHOLE))))
    if rng.random() < 0.3 and len(shape) == 2:
        inputs[0] = drawn(rng, shape[::-1], kinds[0]).t()

    def function(*given):
        draw = random.Random(seed + 1)
        live = list(given)
        for _ in range(draw.randrange(3, 12)):
            made = step(draw, live, exact)
            live.extend(made if isinstance(made, (tuple, list)) else [made] if shown(made) else [])
        return tuple(live[-draw.randrange(1, 5) :])

    return function, inputs, exact


def drawn(rng, shape, dtype):
    return rl.randn(*shape).to(getattr(rl, dtype))


def shown(v):
    return v is not None


def name_of(a):
    return getattr(a.dtype, "name", a.dtype)


def is_floating(a):
    return name_of(a) in FLOATS + HALVES


def category(a):
    name = name_of(a)
    return 0 if name == "bool" else 1 if name in WHOLE else 2


def fits(a, b):
    return all(m == n or m == 1 or n == 1 for m, n in zip(a[::-1], b[::-1]))


def smaller(a, b):
    return len(a) <= len(b) and all(m in (n, 1) for m, n in zip(a[::-1], b[::-1]))


def step(draw, live, exact):
    a = draw.choice(live[-6:])
    others = [b for b in live if fits(a.shape, b.shape)]
    b = draw.choice(others) if others else a
    size = np.prod([int(n) for n in a.shape], dtype=np.int64)
    kind = draw.choice(KINDS)
    if not size or size > 4000:
        kind = view
    return kind(draw, a, b, live, exact)


def unary(draw, a, b, live, exact):
    if not is_floating(a):
        return draw.choice((lambda: a * 2 + 1, lambda: a.to(rl.float32) / 3, lambda: ~(a > 2)))()
    if draw.random() < 0.2 and exact:
        return getattr(rl, draw.choice(STEPS))(a)
    how = draw.randrange(5)
    if how == 0:
        return draw.choice((F.gelu, F.silu, F.softplus, F.elu, F.leaky_relu))(a)
    if how == 1:
        return draw.choice((lambda v: rl.log(v * v + 1), lambda v: rl.rsqrt(v * v + 1)))(a)
    if how == 2:
        return rl.clamp(a, -0.5, draw.choice((None, 1.5)))
    return getattr(rl, draw.choice(SMOOTH))(a * 0.25)


def binary(draw, a, b, live, exact):
    how = draw.randrange(8)
    if how == 0 and is_floating(b):
        return a / (b * b + 1)
    if how == 1 and exact:
        mask = getattr(rl, draw.choice(COMPARE))(a, b)
        return rl.where(mask, a, b) if draw.random() < 0.7 else mask
    if how == 2 and is_floating(a):
        return rl.add(a, b, alpha=0.5)
    if how == 3 and is_floating(a) and is_floating(b):
        return rl.atan2(a, b * b + 1)
    if how == 4:
        return a - 0.25 if is_floating(a) else a % 3
    if how == 5 and is_floating(a) and is_floating(b) and name_of(a) == name_of(b):
        return rl.lerp(a, b, 0.3) if smaller(b.shape, a.shape) else rl.hypot(a, b)
    if name_of(a) == name_of(b) == "bool":
        return rl.logical_xor(a, b)
    return getattr(rl, draw.choice(BINARY if "bool" not in (name_of(a), name_of(b)) else
                                   ("mul", "add", "maximum")))(a, b)  # fmt: skip


def reduction(draw, a, b, live, exact):
    if not a.ndim:
        return a * 2
    dim, keep = draw.randrange(-a.ndim, a.ndim), draw.random() < 0.5
    how = draw.randrange(9)
    if how < 2:
        return a.sum(dim, keep)
    if how == 2:
        return a.amax(dim, keep) if name_of(a) != "bool" else a.any(dim, keep)
    if how == 3 and exact and name_of(a) != "bool":
        return draw.choice((a.argmax, a.argmin))(dim, keep)
    if not is_floating(a):
        return a.cumsum(dim)
    if how == 4:
        return a.mean(dim, keep)
    if how == 5:
        return a.logsumexp(dim, keep)
    if how == 6:
        return a.var(dim, keepdim=keep, correction=0)
    if how == 7:
        return a.cumsum(dim)
    return a.prod(dim, keep) if a.shape[dim] < 5 else a.sum() if exact else a.mean(dim)


def rows(draw, a, b, live, exact):
    if not a.ndim or not is_floating(a):
        return a + 1
    how = draw.randrange(4)
    if how == 0:
        return F.softmax(a, draw.randrange(a.ndim))
    if how == 1:
        return F.log_softmax(a, -1)
    if how == 2:
        return F.layer_norm(a, (int(a.shape[-1]),))
    return F.normalize(a * a + 1, dim=-1)


def product(draw, a, b, live, exact):
    if exact or not is_floating(a) or a.ndim < 1:
        return a * 0.5 if is_floating(a) else a * 2
    if a.ndim == 1:
        return F.linear(a.unsqueeze(0), a.unsqueeze(0)) * 0.1
    if a.ndim == 2 and draw.random() < 0.5:
        return rl.addmm(rl.ones_like(a @ a.t()), a, a.t(), alpha=0.1)
    return (a @ a.transpose(-1, -2)) * 0.1


def joined(draw, a, b, live, exact):
    if not a.ndim:
        return rl.stack([a, a * 2])
    dim = draw.randrange(a.ndim)
    same = [x for x in live if x.shape == a.shape and name_of(x) == name_of(a)]
    how = draw.randrange(4)
    if how == 0:
        return rl.cat([a, draw.choice(same)], dim)
    if how == 1:
        return rl.stack([a, draw.choice(same)], dim)
    if how == 2:
        return list(a.chunk(2, dim))
    return rl.cat([a, a.narrow(dim, 0, 1)], dim)


def picked(draw, a, b, live, exact):
    if not a.ndim:
        return a.reshape((1,))
    dim, how = draw.randrange(a.ndim), draw.randrange(6)
    n = int(a.shape[dim])
    at = rl.arange(n + 1) % max(n - 1, 1)
    if how == 0:
        return rl.index_select(a, dim, at)
    if how == 1:
        return a[rl.arange(2) % int(a.shape[0])]
    if how == 2:
        index = rl.zeros(tuple(int(m) for m in a.shape), dtype=rl.int64) + n - 1
        return rl.gather(a, dim, index)
    if how == 3 and exact:
        return a.masked_fill(a > 0.5 if is_floating(a) else a > 2, 1)
    if how == 4 and is_floating(a):
        index = rl.zeros(tuple(int(m) for m in a.shape), dtype=rl.int64)
        return rl.scatter_add(a * 0.5, dim, index, a)
    return rl.flip(a, (dim,))


def view(draw, a, b, live, exact):
    if not a.ndim:
        return a.unsqueeze(0)
    dim, how = draw.randrange(a.ndim), draw.randrange(11)
    n = int(a.shape[dim])
    if how == 0:
        order = list(range(a.ndim))
        draw.shuffle(order)
        return a.permute(tuple(order))
    if how == 1 and n > 2:
        return a.narrow(dim, 1, n - 1) if draw.random() < 0.5 else a[:: draw.choice((1, 2))]
    if how == 2 and a.ndim > 1 and n:
        return a.select(dim, draw.randrange(-n, n))
    if how == 3:
        return a.reshape((-1,))
    if how == 4:
        return a.unsqueeze(draw.randrange(a.ndim + 1))
    if how == 5:
        return a.detach()
    if how == 6:
        return a.unsqueeze(0).expand((2, *a.shape)) if a.ndim < 4 else a.squeeze(dim)
    if how == 7 and a.ndim > 1:
        return a.diagonal(0, 0, 1)
    if how == 8 and n > 2:
        return a.unfold(dim, 2, 1)
    if how == 9 and a.ndim > 1:
        return a.flatten(0, 1)
    return a.transpose(dim, draw.randrange(a.ndim))


def converted(draw, a, b, live, exact):
    if not is_floating(a):
        return a.to(draw.choice((rl.float32, rl.float64, rl.int64)))
    wide = FLOATS if exact else (*FLOATS, *HALVES)
    if exact and draw.random() < 0.2:
        return a.to(rl.int32)
    return a.to(getattr(rl, draw.choice(wide)))


def made(draw, a, b, live, exact):
    how = draw.randrange(6)
    if how == 0:
        return rl.zeros_like(a)
    if how == 1:
        return rl.full((3,), 1.5)
    if how == 2:
        return rl.arange(5, dtype=rl.float32) * 0.5
    if not is_floating(a):
        return a.clone()
    return F.dropout(a, 0.4) if how < 5 else rl.rand_like(a)


def write(draw, a, b, live, exact):
    lower = category(b) <= category(a) and smaller(b.shape, a.shape)
    other = b if lower and draw.random() < 0.8 else 2
    how = draw.randrange(12)
    if how == 0:
        a.fill_(other) if isinstance(other, int) else a.copy_(other)
    elif how == 1 and name_of(a) != "bool":
        a.mul_(other)
    elif how == 2 and a.ndim and a.shape[0] > 1:
        a[1:] = 0.5 if is_floating(a) else 3
    elif how == 3 and is_floating(a):
        with rl.no_grad():
            a.add_(other)
    elif how == 4 and a.ndim and name_of(a) != "bool":
        a[0] += 1
    elif how == 5 and is_floating(a):
        a.clamp_(-1, 1)
    elif how == 6 and is_floating(a):
        draw.choice((a.relu_, a.tanh_, a.neg_, a.sigmoid_))()
    elif how == 7 and exact:
        a.masked_fill_(a > 0, 1)
    elif how == 8 and a.ndim and is_floating(a):
        at = rl.arange(2) % int(a.shape[0])
        if draw.random() < 0.5:
            a[at] = 0.25
        else:
            a[at] = a[at] * 2
    elif how == 9 and a.ndim > 1:
        a.t_() if a.ndim == 2 and draw.random() < 0.3 else a.select(-1, 0).zero_()
    elif how == 10 and is_floating(a):
        a.add_(other, alpha=0.5)
    elif name_of(a) != "bool":
        a.sub_(other)


KINDS = (unary, unary, binary, binary, reduction, rows, product, joined, picked, view, view, view,
         converted, made, write, write, write)  # fmt: skip
