# ruff: noqa: E501, B007
"""Public cases about views, gradients and operators (case_table.py says what a case is)."""


from .case_table import Built, main40


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
