# ruff: noqa: E501, B007
"""Public bug reports of compile stacks, rewritten as small differential cases.

Contract (every entry of CASES and EXTRA is ``(name, build_fn)``):
    fn, args = build_fn(T)          # T: a torch-like namespace (torch itself, or your own)
    T.compile(fn)(*args)  must equal  fn(*args)
Always build twice (once for eager, once for compiled): many cases mutate their inputs.

``build_fn`` returns a ``Built`` - a 2-tuple (fn, args) with three optional extras that make the
check stronger; ``run_case`` below honours them, a plain harness may ignore them:
    .steps    [(setup or None, args), ...]  calls made in order on ONE compiled object
              (stale-guard / recompile / caching bugs need more than one call)
    .post     post(out, args) -> value       run outside the compiled region (backward, iteration)
    .observe  observe() -> value             state the caller can see after all calls
META[name] = dict(ref=..., fault=..., topic=...).  Values are compared by ``same`` (NaN == NaN,
-0.0 != 0.0, dtype and shape included, strides not).
"""

import contextlib
import dataclasses
import math
from collections import OrderedDict


class Built(tuple):
    def __new__(cls, fn, args, steps=None, post=None, observe=None):
        self = super().__new__(cls, (fn, tuple(args)))
        self.steps, self.post, self.observe = steps, post, observe
        return self


CASES, EXTRA, META = [], [], {}


def _case(bucket, ref, topic, fault, tol=1e-5):
    def deco(f):
        bucket.append((f.__name__, f))
        META[f.__name__] = dict(ref=ref, topic=topic, fault=fault, tol=tol)
        return f

    return deco


def main40(ref, topic, fault, tol=1e-5):
    return _case(CASES, ref, topic, fault, tol)


def extra(ref, topic, fault, tol=1e-5):
    return _case(EXTRA, ref, topic, fault, tol)


# ---------------------------------------------------------------- Python semantics / capture
@main40(
    "pytorch/pytorch#134030",
    "dynamo: generator",
    "A generator's body was executed when the generator was created, not at next(), so side effects came too early.",
)
def case_01_generator_is_lazy(T):
    def fn(x):
        order = []

        def produce():
            order.append("body")
            yield x * 2
            order.append("after-yield")

        g = produce()
        order.append("created")
        first = next(g)
        order.append("resumed")
        return first, order

    return Built(fn, (T.tensor([1.0, 2.0]),))


@main40(
    "pytorch/pytorch#198190",
    "dynamo: generator",
    "A generator that leaves the compiled region comes back as a tuple iterator; its return value becomes None and send() is gone.",
)
def case_02_generator_escapes(T):
    def fn(x):
        def produce():
            got = yield x + 1
            yield x * (got or 1)
            return "finished"

        return produce()

    def post(g, args):
        seen = [next(g), g.send(5)]
        try:
            next(g)
            tail = "no stop"
        except StopIteration as stop:
            tail = stop.value
        return seen, tail, type(g).__name__

    return Built(fn, (T.tensor([1.0, 2.0]),), post=post)


@main40(
    "pytorch/pytorch#175855",
    "dynamo: list mutation",
    "A for loop over a list that grows inside the loop did not visit the appended items.",
)
def case_04_list_grows_in_loop(T):
    def fn(x):
        work = [x.sum()]
        total = x.sum() * 0
        for t in work:
            if len(work) < 4:
                work.append(t + 1)
            total = total + t
        return total, len(work)

    return Built(fn, (T.ones(2),))


@main40(
    "pytorch/pytorch#198189",
    "dynamo: dict order",
    "OrderedDict.move_to_end on a caller's dict was not replayed, so an LRU cache evicts the wrong key.",
)
def case_07_move_to_end(T):
    lru = OrderedDict(a=1, b=2, c=3)

    def fn(cache, x):
        cache.move_to_end("a")  # the only mutation: this is what gets lost
        return x * len(cache)

    return Built(fn, (lru, T.ones(2)), observe=lambda: list(lru.items()))


@main40(
    "pytorch/pytorch#176599",
    "dynamo: properties",
    "obj.prop = v inside the region skipped the property's setter and getter.",
)
def case_09_property_setter(T):
    class Knob:
        def __init__(self, v):
            self._raw = v

        @property
        def level(self):
            return self._raw + 1

        @level.setter
        def level(self, v):
            self._raw = v * 2

    def fn(x):
        k = Knob(3)
        before = k.level
        k.level = 5
        return x + k.level, before, k._raw

    return Built(fn, (T.zeros(1),))


@main40(
    "pytorch/pytorch#178365",
    "guards: default args; stale cache keyed by code",
    "Functions with the same code but different default values reused one graph with the first default baked in.",
)
def case_10_default_args_guard(T):
    def make(k):
        def scale(x, k=k, *, bias=k * 10):
            return x * k + bias

        return scale

    def fn(g, x):
        return g(x)

    x = T.tensor([1.0, 2.0])
    return Built(fn, (make(2), x), steps=[(None, (make(k), x)) for k in (2, 3, 2, 5)])


@main40(
    "pytorch/pytorch#176851",
    "guards: class attribute",
    "A class attribute changed between calls; the compiled function kept the value of the first trace.",
)
def case_11_class_attribute_guard(T):
    class Config:
        factor = 1.0

    def fn(x):
        return x * Config.factor

    def to(v):
        def setup():
            Config.factor = v

        return setup

    x = T.tensor([4.0])
    return Built(
        fn, (x,), steps=[(to(1.0), (x,)), (to(10.0), (x,)), (to(1.0), (x,)), (to(-2.5), (x,))]
    )


@main40(
    "pytorch/pytorch#93722",
    "guards: aliased containers",
    "Traced with two different lists, then called with the same list twice (or the reverse): aliasing was not guarded.",
)
def case_13_list_alias_guard(T):
    def fn(left, right, x):
        left.append(x + 1)
        right.append(x - 1)
        return len(left), len(right), left[-1], right[0]

    a, b, c = [], [], []
    x = T.zeros(1)
    return Built(
        fn,
        (a, b, x),
        steps=[(None, (a, b, x)), (None, (c, c, x)), (None, (a, b, x))],
        observe=lambda: (list(a), list(b), list(c)),
    )


_DEPTH = 0


@contextlib.contextmanager
def _deeper():
    global _DEPTH
    _DEPTH += 1
    try:
        yield _DEPTH
    finally:
        _DEPTH -= 1


@main40(
    "pytorch/pytorch#103706 (and PR #116159)",
    "dynamo: try/finally",
    "`return` inside try with a finally clause: internal assertion, or the finally part was lost.",
)
def case_15_return_in_try_finally(T):
    def kept(x, log):
        y = x * 2
        try:
            return y
        finally:
            y.add_(1)  # the returned tensor is the same object
            log.append("closed")

    def overridden(x):
        try:
            return x * 100
        finally:
            return x - 1  # noqa: B012

    def fn(x):
        log = []
        return kept(x, log), overridden(x), log

    return Built(fn, (T.tensor([1.0, 2.0]),))


@dataclasses.dataclass
class _Point:
    px: int
    py: int


@main40(
    "pytorch/pytorch#103602, #197093",
    "dynamo: f-strings on sizes",
    "A branch on an f-string built from a size was wrong, and a format spec on a symbolic size crashed, once shapes were dynamic.",
)
def case_17_fstring_of_size(T):
    def fn(x):
        label = f"{x.shape[0]:03d} rows"
        if label.startswith("010"):
            return x.sum() + 1
        return x.sum() - 1

    return Built(fn, (T.ones(10),), steps=[(None, (T.ones(n),)) for n in (10, 3, 100, 10)])


@dataclasses.dataclass(frozen=True)
class _Span:
    lo: float
    hi: float = 2.0
    tag: str = dataclasses.field(default="t", compare=False)


@main40(
    "pytorch/pytorch#114966, #116264, #159424",
    "dynamo: dataclasses",
    "Frozen dataclasses could not be built, hashed or compared inside the region; == ignored the fields.",
)
def case_18_frozen_dataclass(T):
    def fn(x):
        a = _Span(0.5)
        b = dataclasses.replace(a, hi=9.0, tag="other")
        table = {a: 3, b: 7}
        same = a == _Span(0.5, tag="zzz")
        return x * table[_Span(0.5, 9.0)] + (1 if same else 0), a == b, len(table)

    return Built(fn, (T.ones(2),))


@main40(
    "pytorch/pytorch#93363",
    "aot: mutation of an input that is a view",
    "In-place update of a strided view input did not reach the base tensor.",
)
def case_20_mutate_view_input(T):
    leaf = T.ones(4, requires_grad=True)
    base = leaf * 1.0
    view = base[0::2]

    def fn(v):
        v.add_(1.0)
        return v * 2

    return Built(fn, (view,), observe=lambda: base.detach())


@main40(
    "pytorch/pytorch#198095",
    "aot: views of aliased inputs",
    "Two inputs alias with an offset, one is mutated; a view of the other was rebuilt from the wrong tensor.",
)
def case_21_view_of_aliased_input(T):
    base = T.arange(12).reshape(4, 3) * 1.0

    def fn(whole, tail):
        whole.add_(100)
        return tail[0], tail.sum(0)

    return Built(fn, (base, base[1:]), observe=lambda: base)


@main40(
    "pytorch/pytorch#100348 (and PR #194760)",
    "aot: output aliases, detach",
    "Returning views of y together with y.detach() made every output non-differentiable.",
)
def case_23_detach_next_to_views(T):
    x = T.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)

    def fn(x):
        y = T.sin(x)
        return y[0:2], y[2:4], y.detach()

    def post(out, args):
        flags = [bool(o.requires_grad) for o in out]
        (out[0].sum() + 3 * out[1].sum()).backward()
        return flags, args[0].grad

    return Built(fn, (x,), post=post)


@main40(
    "pytorch/pytorch#91469 (also #183603, #181581)",
    "aot: double backward",
    "Second derivatives through a compiled function: bogus values at first, later an error; eager gives 6x.",
)
def case_24_double_backward(T):
    x = T.tensor([1.0, 2.0, -3.0], requires_grad=True)

    def fn(x):
        return (x * x * x).sum()

    def post(out, args):
        (g,) = T.autograd.grad(out, args[0], create_graph=True)
        (gg,) = T.autograd.grad(g.sum(), args[0])
        return g, gg

    return Built(fn, (x,), post=post)


@main40(
    "pytorch/pytorch#197829",
    "inductor: fusion over overlapping memory",
    "x[1:] = x[:-1].clone() lost its clone; on CPU row 0 ended in every row.",
)
def case_26_shift_rows_in_place(T):
    def fn(x):
        x[1:] = x[:-1].clone()
        return x

    return Built(fn, (T.arange(24).reshape(6, 4) * 1.0,))


@main40(
    "pytorch/pytorch#177631",
    "inductor: no-op pad",
    "A pad by zero was treated as the input itself, so a later write to the input changed the padded copy.",
)
def case_28_zero_pad_is_a_copy(T):
    def fn(a):
        b = T.nn.functional.pad(a, (0, 0))
        a[0] = 1
        return T.sort(b)[0]

    return Built(fn, (T.zeros(2, 2),))


@main40(
    "pytorch/pytorch#183986",
    "inductor: stride-0 input to an index write",
    "index_add / index_fill on an expanded tensor wrote through the shared row.",
)
def case_29_index_add_on_expanded(T):
    def fn(row, idx, src):
        x = row.expand(3, 2)
        return x.index_add(0, idx, src), x.index_fill(0, idx[:1], 9.0)

    return Built(fn, (T.zeros(1, 2), T.tensor([0, 0, 1]), T.ones(3, 2)))


@main40(
    "pytorch/pytorch#105264",
    "inductor: uint8 arithmetic",
    "uint8 + uint8 followed by a widening cast kept the C int result (256) instead of wrapping to 0.",
)
def case_31_uint8_wraps_before_cast(T):
    def fn(x):
        return (x + x).to(T.int16), (x * 3).to(T.int32), (-x).to(T.int64), x // 7

    return Built(fn, (T.tensor([128, 200, 255, 1], dtype=T.uint8),))


@main40(
    "pytorch/pytorch#198081",
    "inductor: dtype of any()",
    "any() of uint8 became bool, so later uint8 arithmetic no longer wraps (300 instead of 44).",
)
def case_32_any_of_uint8(T):
    def fn(x):
        return T.any(x), T.all(x), T.any(x) * 200 + 100

    return Built(fn, (T.tensor([[0, 3], [0, 0]], dtype=T.uint8),))


@main40(
    "pytorch/pytorch#178013, #143649, #154420",
    "inductor: integer division by zero",
    "Integer // or % by zero: SIGFPE or a silent 0 when compiled; eager on CPU raises.",
)
def case_34_integer_division_by_zero(T):
    def fn(a, b):
        return T.remainder(a, b)

    ok = (T.tensor([-7, 7, -7, 7]), T.tensor([3, -3, -3, 3]))
    return Built(
        fn, ok, steps=[(None, ok), (None, (T.tensor([1, 2, 3, 4]), T.tensor([1, 0, 2, 3])))]
    )


@main40(
    "pytorch/pytorch#197108",
    "inductor: empty reduction",
    "var_mean of an empty tensor gave mean 0 (Welford start value) where eager gives NaN.",
)
def case_36_var_mean_of_nothing(T):
    def fn(x):
        v, m = T.var_mean(x, dim=0, correction=1)
        v0, m0 = T.var_mean(x.reshape(0), correction=1)  # full reduction of shape (0,)
        return v, m, v0, m0, x.sum(), T.mean(x, dim=0)

    return Built(fn, (T.zeros(0, 3),))


@main40(
    "pytorch/pytorch#186281 (PR; relanded as #187580)",
    "inductor: NaN-unsafe folding",
    "x * 0 was folded to 0 for floats, which hides NaN and inf.",
)
def case_38_times_zero_keeps_nan(T):
    def fn(x):
        return x * 0, x - x, x * 0.0 + 1, T.where(x > 0, x, x * 0)

    return Built(fn, (T.tensor([1.0, float("nan"), float("inf"), -2.0]),))


@main40(
    "pytorch/pytorch#198119 (forward: #100987)",
    "inductor: pooling edge window",
    "avg_pool backward with ceil_mode divides the overhanging last window by the full kernel size.",
)
def case_39_avg_pool_ceil_backward(T):
    x = T.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]], requires_grad=True)

    def fn(x):
        return T.nn.functional.avg_pool1d(x, 3, stride=2, ceil_mode=True)

    def post(out, args):
        out.sum().backward()
        return out.detach(), args[0].grad

    return Built(fn, (x,), post=post)


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


# ---------------------------------------------------------------- comparison and runner
def freeze(v):
    """Plain-Python picture of a result (tensors become dicts)."""
    if hasattr(v, "tolist") and hasattr(v, "dtype") and hasattr(v, "shape"):
        d = v.detach() if getattr(v, "requires_grad", False) else v
        return {
            "dtype": str(v.dtype).split(".")[-1],
            "shape": [int(s) for s in v.shape],
            "data": d.tolist(),
        }
    if isinstance(v, (list, tuple)):
        return [freeze(i) for i in v]
    if isinstance(v, dict):
        return {"dict": [[freeze(k), freeze(w)] for k, w in v.items()]}
    if isinstance(v, bool) or v is None or isinstance(v, str):
        return v
    if isinstance(v, int) or hasattr(v, "__index__"):
        return int(v)
    return v


def _num_same(a, b, tol):
    if isinstance(a, complex) or isinstance(b, complex):
        return _num_same(a.real, b.real, tol) and _num_same(a.imag, b.imag, tol)
    if isinstance(a, bool) or isinstance(b, bool):
        return type(a) is type(b) and a == b
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    a, b = float(a), float(b)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == 0 and b == 0:
        return math.copysign(1, a) == math.copysign(1, b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= tol * max(1e-38, abs(a), abs(b))


def same(a, b, tol=1e-5):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, tol) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], tol) for k in a)
    num = (int, float, complex)
    if isinstance(a, num) and isinstance(b, num):
        return _num_same(a, b, tol)
    return a == b


def run_case(build, T, compiler=None):
    """Result of one case; compiler(fn) -> callable, None runs fn as it is (eager)."""
    built = build(T)
    fn, args = built
    f = compiler(fn) if compiler else fn
    out = []
    for setup, a in built.steps or [(None, args)]:
        if setup:
            setup()
        try:
            r = f(*a)
            if built.post:
                r = built.post(r, a)
            out.append(freeze(r))
        except Exception as e:  # the kind of error is part of the answer
            out.append({"raised": type(e).__name__})
    if built.observe:
        out.append({"after": freeze(built.observe())})
    return out


def check(T, compiler=None, cases=None):
    """[(name, ok, eager, compiled)] for a namespace T."""
    compiler = compiler or T.compile
    rows = []
    for name, build in cases or CASES:
        e = run_case(build, T)
        c = run_case(build, T, compiler)
        rows.append((name, same(e, c, META[name]["tol"]), e, c))
    return rows
