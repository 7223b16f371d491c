# ruff: noqa: E501, B007
"""Further public cases (case_table.py says what a case is)."""


from .case_table import Built, extra


@extra(
    "pytorch/pytorch#148475",
    "dynamo: exceptions from ops",
    "An op error inside try/except became a hard compile error instead of reaching the handler.",
)
def extra_01_except_catches_op_error(T):
    def fn(x):
        try:
            y = x.reshape(7)
        except RuntimeError:
            return x * 10
        return y

    return Built(fn, (T.ones(2, 3),))


@extra(
    "pytorch/pytorch#118470",
    "capture: **kwargs order",
    "A traced function bound keyword arguments by their position in the dict.",
)
def extra_03_kwargs_order(T):
    def inner(**kw):
        total = 0
        for i, (k, v) in enumerate(kw.items()):
            total = total + v * (i + 1)
        return total, list(kw)

    def fn(a, b):
        p = inner(a=a, b=b)
        q = inner(**{"b": b, **{"a": a}})
        return p, q

    return Built(fn, (T.tensor([1.0]), T.tensor([10.0])))


@extra(
    "pytorch/pytorch#113894",
    "dynamo: zip(strict=True)",
    "zip(strict=True) was unknown; a naive fix ignores the length check.",
)
def extra_04_zip_strict(T):
    def fn(x, ys, zs):
        for y, z in zip(ys, zs, strict=True):
            x = x + y * z
        return x

    x = T.ones(1)
    return Built(
        fn,
        (x, [1.0, 2.0], [3.0, 4.0]),
        steps=[(None, (x, [1.0, 2.0], [3.0, 4.0])), (None, (x, [1.0, 2.0], [3.0]))],
    )


@extra(
    "pytorch/pytorch#124717 (also #98928, #124357)",
    "guards: module attribute",
    "A flag on a module flipped between calls; the compiled module kept the first branch.",
)
def extra_05_module_flag(T):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.off = False

        def forward(self, x):
            return x * x if self.off else x * x + 1

    m = Net()

    def to(v):
        def setup():
            m.off = v

        return setup

    x = T.tensor([3.0])
    return Built(m, (x,), steps=[(to(False), (x,)), (to(True), (x,)), (to(False), (x,))])


@extra(
    "pytorch/pytorch#91468",
    "aot: tensor hooks",
    "register_hook on an intermediate inside the region had no effect on the gradient.",
)
def extra_07_hook_on_intermediate(T):
    x = T.tensor([1.0, 2.0], requires_grad=True)

    def fn(x):
        y = x * x
        y.register_hook(lambda g: g * 3)
        return (y * x).sum()

    def post(out, args):
        out.backward()
        return args[0].grad

    return Built(fn, (x,), post=post)


@extra(
    "pytorch/pytorch#115750, #117265",
    "guards: module hooks",
    "A full backward hook registered after the first compiled call was ignored.",
)
def extra_08_backward_hook_added_later(T):
    layer = T.nn.Linear(2, 2, bias=False)
    with T.no_grad():
        layer.weight.copy_(T.tensor([[1.0, 0.0], [0.0, 1.0]]))
    xs = [T.ones(1, 2, requires_grad=True) for _ in range(2)]

    def fn(x):
        return layer(x)

    def add_hook():
        layer.register_full_backward_hook(lambda m, gi, go: tuple(g * 2 for g in gi))

    def post(out, args):
        out.sum().backward()
        return args[0].grad

    return Built(fn, (xs[0],), steps=[(None, (xs[0],)), (add_hook, (xs[1],))], post=post)


@extra(
    "pytorch/pytorch#198096 (PR)",
    "inductor: reinplacing",
    "slice_scatter reused the input's buffer although the input is overwritten before the result is read.",
)
def extra_10_scatter_then_zero_input(T):
    def fn(x, src):
        y = T.slice_scatter(x, src, 0, 1, 3)
        x.zero_()
        return y

    x = T.arange(4) * 1.0 + 1
    return Built(fn, (x, T.tensor([20.0, 30.0])), observe=lambda: x)


@extra(
    "pytorch/pytorch#191571",
    "inductor: size-1 scatter then gather",
    "A gather fused with scatter_add_ into a size-1 dim read the buffer before the add.",
)
def extra_11_size1_scatter_gather(T):
    def fn(x, idx):
        acc = T.zeros(1, x.shape[1])
        acc.scatter_add_(0, idx.unsqueeze(-1).expand(-1, x.shape[1]), x)
        return T.index_select(acc, 0, idx)

    return Built(fn, (T.arange(8).reshape(4, 2) * 1.0, T.zeros(4, dtype=T.int64)))


@extra(
    "pytorch/pytorch#183082, #183894, #178964",
    "inductor: argmax over a transposed fused producer",
    "argmax/argmin after an in-place op and a transpose used the wrong index order; (a+b).max gave all-zero indices.",
)
def extra_13_argmax_transposed(T):
    def fn(x, a, b):
        y = x.clone()
        y.sin_()
        v, i = (a.t() + b).max(dim=1)
        return y.t().argmax(), y.t().argmin(), v, i

    x = T.tensor([[-1.5, -0.75, 0.25], [0.3, 1.6, -2.0], [0.9, -0.1, 0.4], [1.2, -3.0, 2.2]])
    a = T.tensor([[(i * 7 + j * 5) % 11 * 1.0 for j in range(8)] for i in range(8)])
    b = T.tensor([[(i * 3 + j * 8) % 13 * 1.0 for j in range(8)] for i in range(8)])
    return Built(fn, (x, a, b))


@extra(
    "pytorch/pytorch#108520, #190764",
    "inductor: int32 overflow",
    "int32 + int32 then cast to int64 kept 64-bit arithmetic; eager wraps.",
)
def extra_15_int32_wraps(T):
    def fn(x):
        return (x + x).to(T.int64), (x * x).to(T.int64), x.to(T.int64) + x

    return Built(fn, (T.tensor([2147483647, -2147483648, 65536], dtype=T.int32),))


@extra(
    "pytorch/pytorch#197089",
    "inductor: accumulation precision of std/var",
    "float32 accumulation gives 0 or inf where CPU eager (double accumulation) is right.",
    tol=1e-3,
)
def extra_17_std_extreme_scale(T):
    def fn(x):
        return T.std(x), T.std(x * 1e30), T.std(x * 1e-30)

    return Built(fn, (T.tensor([1.0, 2.0, 4.0, 7.0]),))


@extra(
    "pytorch/pytorch#98149",
    "inductor: pow on small ints",
    "uint8 ** 5 wraps to 0 in eager; the fused kernel kept the wide value.",
)
def extra_19_pow_uint8(T):
    def fn(x, f):
        return T.cos(x.pow(5)), x.pow(0), f.pow(0.5), f.pow(2), f.pow(-1), f**0.0

    return Built(
        fn, (T.tensor([4, 3, 0], dtype=T.uint8), T.tensor([-0.0, float("-inf"), float("nan"), 4.0]))
    )


@extra(
    "pytorch/pytorch#189518, #193263",
    "inductor: cumsum of a constant",
    "cumsum(full) rewrite ignored dtype= ; on a 0-dim constant it crashed.",
)
def extra_20_cumsum_dtype(T):
    def fn(x):
        ones = T.ones((2, 3), dtype=T.bool)
        return ones.cumsum(1, dtype=T.float32), ones.cumsum(0), T.tensor(5.0).cumsum(0) + x

    return Built(fn, (T.zeros(1),))


@extra(
    "pytorch/pytorch#100793",
    "inductor: reflect pad backward with a negative pad",
    "Gradient of reflect padding was wrong when one side is negative.",
)
def extra_22_reflect_pad_backward(T):
    x = (T.arange(8).reshape(1, 4, 2) * 1.0).requires_grad_(True)

    def fn(x):
        return T.nn.functional.pad(x.unsqueeze(0), (-1, 0, 2, 2), mode="reflect")

    def post(out, args):
        (out * (T.arange(out.numel()).reshape(out.shape) * 1.0)).sum().backward()
        return out.detach(), args[0].grad

    return Built(fn, (x,), post=post)


@extra(
    "pytorch/pytorch#174891",
    "inductor: complex broadcast",
    "Broadcast add of complex tensors broadcast the real view and put 1 into the imaginary part.",
)
def extra_24_complex_broadcast(T):
    def fn(x):
        m = T.ones(2, 1, dtype=T.complex64)
        return x + m, (x * m).conj() * 1

    return Built(fn, (T.full((2, 2), 1.0 + 2.0j, dtype=T.complex64),))


@extra(
    "pytorch/pytorch#189799, #183606, #194347",
    "inductor: signed zero",
    "-0.0 handling differs in x + 0, frac and minimum, which flips the sign of a later 1/x.",
)
def extra_25_signed_zero(T):
    def fn(x, z):
        a = T.ceil(x) + T.zeros_like(x)
        return 1.0 / a, 1.0 / T.frac(z), 1.0 / T.minimum(z[:1], -z[:1]), -z

    return Built(fn, (T.tensor([-0.5, -0.9]), T.tensor([-0.0, 0.0])))


@extra(
    "pytorch/pytorch#143555, #143566",
    "inductor: shift by the bit width",
    "Shifts by 64 or more differ (eager: >> gives the sign, << gives 0).",
)
def extra_26_shift_by_width(T):
    def fn(x, k):
        return T.bitwise_right_shift(x, k), T.bitwise_left_shift(x, k)

    return Built(fn, (T.tensor([1000, -8, 7]), T.tensor([64, 64, 1])))


@extra(
    "pytorch/pytorch#182343",
    "inductor: storage offset of a slice",
    "searchsorted on offsets[1:] ignored the slice's storage offset.",
)
def extra_29_searchsorted_slice(T):
    def fn(offsets, v):
        return T.searchsorted(offsets[1:], v, right=True)

    return Built(fn, (T.tensor([0, 3, 7, 12]), T.arange(12)))


@extra(
    "pytorch/pytorch#190758 (order of RNG calls: #192635)",
    "RNG: dropout mask in backward",
    "Backward re-drew the dropout mask; the right answer is that forward and backward use one mask (value True).",
)
def extra_30_dropout_mask_is_kept(T):
    x = T.ones(64, requires_grad=True)

    def fn(x):
        return T.nn.functional.dropout(x * 1.0, 0.5, True)

    def post(out, args):
        out.sum().backward()
        kept = out.detach() != 0
        scaled = bool(((out.detach() == 0) | (out.detach() == 2)).all())
        return bool((args[0].grad == kept * 2.0).all()), scaled

    return Built(fn, (x,), post=post)


@extra(
    "pytorch/pytorch#141225, #106067",
    "dynamic shapes: sizes 0 and 1",
    "Sizes 0 and 1 are special-cased; results must not depend on the order in which sizes arrive.",
)
def extra_33_sizes_zero_and_one(T):
    def fn(x, y):
        n = x.shape[0]
        z = x + y  # broadcasts when n == 1
        return z.sum(), n, z.shape[0], (z.amax() if z.numel() else x.sum())

    sizes = (2, 3, 1, 0, 5, 1)
    return Built(
        fn,
        (T.ones(2), T.ones(2)),
        steps=[(None, (T.ones(n) * n, T.ones(4) if n == 1 else T.ones(n))) for n in sizes],
    )


@extra(
    "triton-lang/triton#3648 (PR), pytorch/pytorch#174747",
    "stale kernel: argument is None",
    "Whether an argument is None was not part of the cache key, so the wrong kernel was reused.",
)
def extra_34_none_in_cache_key(T):
    def fn(x, bias):
        y = x * 2
        return y if bias is None else y + bias

    x, b = T.ones(2), T.tensor([10.0, 20.0])
    return Built(fn, (x, None), steps=[(None, (x, a)) for a in (None, b, None, 3, b)])


@extra(
    "pytorch/pytorch#163457",
    "dynamic shapes: divmod on a size",
    "divmod(size, int) was unsupported on a symbolic size.",
)
def extra_36_divmod_of_size(T):
    def fn(x):
        q, r = divmod(x.shape[0], 4)
        return x.sum() * q + r, q, r

    return Built(fn, (T.ones(3),), steps=[(None, (T.ones(n),)) for n in (3, 5, 8, 1)])
