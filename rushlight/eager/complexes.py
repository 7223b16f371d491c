"""Calls with complex operands: worked out on their real and imaginary parts.

Takes an operator and its arguments on first sight; gives a program of calls on real tensors. Scalar
bodies run on pairs (`Complex`), whose bottom forms are below; operators that are linear or only
move elements run once on each part; products are four real ones. The program is transparent: its
parts record themselves, and their gradients are PyTorch's (by the conjugate convention).
Invariant: what is in none of the tables is refused with the operator's name, never guessed.
"""

from math import log, pi

from rushlight import _core, dtypes
from rushlight.ops import TABLE
from rushlight.ops.declare import Arguments, many
from rushlight.ops.recording import NumberSymbol, Recorder, Symbol
from rushlight.ops.values import Value
from rushlight.ops.views import select

from . import program
from .complex_folds import as_real, row_product, running_product

# Their own way (native copies, with a derivative rule each): a move of whole elements.
COPIES = frozenset(("clone", "to", "copy", "with_data"))
# f(re + i im) = f(re) + i f(im), for the operands that take part in promotion.
LINEAR = frozenset(
    """
    sum mean cumsum index index_fill index_backward index_write index_select index_add index_copy
    gather gather_backward scatter scatter_add masked_select_counted masked_select_backward
    masked_scatter_same masked_taken flip roll lower_rows upper_rows
    """.split()
)
# Compositions whose definition means something else there, or nothing: PyTorch refuses them too.
REFUSED = frozenset("cdist cosine_similarity deg2rad glu logit mse_loss nanmean rad2deg".split())
PRODUCTS = frozenset(("mm", "bmm", "addmm", "convolution"))
TRUTHS = frozenset(
    ("all_rows", "any_rows", "count_rows", "logical_and", "logical_or", "logical_xor")
)  # only ask which elements are not 0
MAGNITUDES = frozenset(("euclidean_norm", "var_rows", "std_rows", "isinf", "isfinite", "isnan"))
# Scalar operators whose bodies mean the same on pairs; beside those with a form of their own.
BODIES = frozenset(
    """
    addcdiv addcmul logical_not masked_fill reciprocal silu softsign tanhshrink
    """.split()
)


def is_complex(v):
    """Whether an argument makes the call a complex one."""
    if isinstance(v, _core.Tensor):
        return v.dtype.is_complex
    if isinstance(v, (list, tuple)):
        return any(isinstance(x, _core.Tensor) and x.dtype.is_complex for x in v)
    return isinstance(v, complex) or isinstance(v, _core.dtype) and v.is_complex


def by_parts(op, values):
    """Whether the gradient of a call is that of its parts, whatever rule the operator has: rules
    are written for real numbers.
    """
    return planned_apart(op, values) or op.kind == "composition" and any(map(is_complex, values))


def planned_apart(op, values):
    """Whether a call goes through the parts, rather than the way of all others."""
    if op.kind in ("view", "assemble", "composition") or op.name in COPIES:
        return False
    return any(map(is_complex, values))


def make_plan(op, values):
    """The program of one call."""
    from .plan import named_dtypes, symbols

    recorder = Recorder()
    inputs = symbols(recorder, op, values)
    a = Arguments(op, named_dtypes(op, inputs))
    with recorder:
        out = worked_out(op, a)
    return program.build(recorder, inputs, out, transparent=op.rule not in (None, "none"))


def unsupported(op, dtype):
    raise NotImplementedError(f'[{op.name}] "{op.name}" not implemented for {dtype!r}')


def worked_out(op, a):
    """The call on values, some of them complex symbols or numbers: what it gives."""
    best, results = op.dtypes(a)
    if op.name == "fill":
        shape = a.tensors[0]
        value = parts(a["value"], best)
        return joined(
            *(
                TABLE["fill"](select(TABLE["view_as_real"](shape), -1, i), v)
                for i, v in enumerate(value)
            )
        )
    if op.name == "full":
        real = dtypes.real_of(best)
        re, im = parts(a["fill_value"], best)
        return joined(*(op(a["size"], v, dtype=real) for v in (re, im)))
    if op.name == "masked_fill" and not complex_symbol(a.tensors[0]):
        raise RuntimeError(f"[masked_fill] complex values do not fit {a.tensors[0].dtype}")
    if op.name in LINEAR:
        return linear(op, a, best, results)
    if op.name in ("prod", "cumprod"):
        return (row_product if op.name == "prod" else running_product)(op, a, best)
    if op.name in PRODUCTS:
        return product(op, a, best)
    if op.name in TRUTHS:
        return op(*a.map(lambda name, v: TABLE["ne"](v, 0)).values)
    if op.name in MAGNITUDES:
        return magnitudes(op, a, best)
    if op.kind == "composition":
        return op.define(a)
    known = op.name in FORMS or op.name in BODIES or op.name == "lerp"
    if not known or a.get("rounding_mode") is not None:
        unsupported(op, best)
    paired = a.map(lambda name, v: pair(v, best) if op.promote.takes_part(name) else v)
    if op.name == "lerp":
        return form_lerp(*paired.values).joined()
    values = [
        pair(v, best) if isinstance(v, (complex, NumberSymbol)) and is_complex_number(v) else v
        for v in paired.values
    ]
    outs = [
        v.joined() if isinstance(v, Complex) else v for v in many(op.body(*values))
    ]
    return outs[0] if len(outs) == 1 else tuple(outs)


def is_complex_number(v):
    return isinstance(v, complex) or dtypes.is_complex(v.dtype)


def parts(v, best):
    """(real, imaginary) of a value as reals of the precision of `best`."""
    real = dtypes.real_of(best)
    if isinstance(v, Complex):
        return v.re, v.im
    if isinstance(v, (bool, int, float)):
        return float(v) if isinstance(v, bool) else v, 0.0
    if isinstance(v, complex):
        return v.real, v.imag
    if isinstance(v, NumberSymbol):
        if dtypes.is_complex(v.dtype):
            return v.recorder.host("real_part", v), v.recorder.host("imaginary_part", v)
        return v.recorder.host("add", v, 0.0) if v.dtype == "bool" else v, 0.0
    if dtypes.is_complex(v.dtype):
        both = TABLE["view_as_real"](v)
        return tuple(select(both, -1, i).to(real) for i in (0, 1))
    return v.to(real), 0.0


def pair(v, best):
    return v if isinstance(v, Complex) else Complex(*parts(v, best), best)


def joined(re, im):
    return TABLE["complex"](re, im)


def linear(op, a, best, results):
    """The operator on each part."""
    if not dtypes.is_complex(best):  # a sum of complex numbers in a real dtype
        if op.name not in ("sum", "mean", "cumsum"):  # writes into real numbers
            raise RuntimeError(f"[{op.name}] complex values do not fit a tensor of {best}")
        return op(*a.map(lambda name, v: as_real(v, best)).values)
    real = dtypes.real_of(best)
    takes = op.promote.takes_part if op.promote else lambda name: name != "index"
    outs = []
    for i in (0, 1):

        def part(name, v, i=i):
            return part_of(v, best, i) if takes(name) or complex_symbol(v) else v

        one = a.map(part)
        values = [
            real if isinstance(v, str) and v == best and p.type.startswith("ScalarType")
            else parts(v, best)[i]
            if is_number(v) and p.name == "value"
            else v
            for p, v in zip(op.parameters, one.values)
        ]
        outs.append(op(*values))
    return joined(*outs)


def complex_symbol(v):
    return isinstance(v, Symbol) and dtypes.is_complex(v.dtype)


def is_number(v):
    return isinstance(v, (bool, int, float, complex, NumberSymbol))


def part_of(v, best, i):
    found = parts(v, best)[i]
    if isinstance(v, Symbol) and not isinstance(found, Value):
        return TABLE["fill"](v.to(dtypes.real_of(best)), 0.0)  # of a real operand
    return found


def product(op, a, best):
    """Four real products."""
    from .plan import check_product

    check_product(op, a, best)
    at = lambda name: parts(a[name], best)
    if op.name == "convolution":
        (a_re, a_im), (b_re, b_im), rest = at("input"), at("weight"), a.values[3:]
        call = lambda x, w: op(x, w, None, *rest)
        whole = joined(
            call(a_re, b_re) - call(a_im, b_im), call(a_re, b_im) + call(a_im, b_re)
        )
        bias = a["bias"]
        if bias is None:
            return whole
        return whole + TABLE["reshape"](bias, (bias.shape[0], *(1,) * (whole.rank - 2)))
    if op.name != "addmm":
        (a_re, a_im), (b_re, b_im) = at("self"), at("mat2")
        return joined(op(a_re, b_re) - op(a_im, b_im), op(a_re, b_im) + op(a_im, b_re))
    whole = pair(TABLE["mm"](a["mat1"], a["mat2"]), best)
    alpha, beta = pair(a["alpha"], best), pair(a["beta"], best)
    return (pair(a["self"], best) * beta + whole * alpha).joined()


def magnitudes(op, a, best):
    """What only asks how large elements are, or whether some part of them is not finite."""
    x = a.tensors[0]
    if op.name == "euclidean_norm":
        return op(*a.map(lambda name, v: TABLE["abs"](v)).values)
    re, im = parts(x, best)
    if op.name == "var_rows":
        return op(re, *a.values[1:]) + op(im, *a.values[1:])
    if op.name == "std_rows":
        return TABLE["sqrt"](TABLE["var_rows"](x, *a.values[1:]))
    both = "logical_and" if op.name == "isfinite" else "logical_or"
    return TABLE[both](op(re), op(im))


# ---- pairs


class Complex(Value):
    """A complex number an element, as two real values (or numbers)."""

    __slots__ = ("re", "im", "dtype")
    priority = 3
    transparent = True  # a call is the calls of its body

    def __init__(self, re, im, dtype):
        self.re, self.im, self.dtype = re, im, dtype

    @property
    def layout(self):
        return next(v.layout for v in (self.re, self.im) if hasattr(v, "layout"))

    @property
    def shape(self):
        return self.layout.shape if self.is_tensor else ()

    @property
    def rank(self):
        return len(self.shape)

    @property
    def is_tensor(self):
        return any(isinstance(v, Symbol) for v in (self.re, self.im))

    def to(self, dtype):
        if dtype == self.dtype:
            return self
        if not dtypes.is_complex(dtype):
            raise NotImplementedError(f"a cast of {self.dtype} to {dtype} inside of a definition")
        real = dtypes.real_of(dtype)
        cast = lambda v: v.to(real) if isinstance(v, Value) else v
        return Complex(cast(self.re), cast(self.im), dtype)

    def joined(self):
        real = dtypes.real_of(self.dtype)
        like = self.re if isinstance(self.re, Symbol) else self.im
        full = lambda v: v.to(real) if isinstance(v, Symbol) else TABLE["fill"](like.to(real), v)
        return joined(full(self.re), full(self.im))

    def filled(self, number):
        return Complex(number, 0.0, self.dtype)

    @classmethod
    def call(cls, op, a):
        """A call inside a body: the body of that operator, down to the bottom forms."""
        if op.name in FORMS and op.name not in ("add", "sub", "div"):
            return cls.form("word", op, a.values)
        if op.name not in FORMS and op.name not in BODIES:
            unsupported(op, complex_dtype(a.values))
        return op.body(*a.values)

    @classmethod
    def form(cls, kind, op, args):
        if kind != "word" or op.name not in FORMS:
            unsupported(op, complex_dtype(args))
        best = complex_dtype(args)
        return FORMS[op.name](*args) if op.name in RAW else FORMS[op.name](
            *(pair(v, best) for v in args if v is not None)
        )


def complex_dtype(args):
    return next(v.dtype for v in args if isinstance(v, Complex))


def made(x, re, im):
    return Complex(re, im, x.dtype)


def form_add(x, y):
    return made(x, x.re + y.re, x.im + y.im)


def form_sub(x, y):
    return made(x, x.re - y.re, x.im - y.im)


def form_mul(x, y):
    return made(x, x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def form_div(x, y):
    """By the larger part of the divisor, so that nothing overflows on the way."""
    a, b, c, d = x.re, x.im, lifted(y.re, y, x), lifted(y.im, y, x)
    where, size = TABLE["where"], TABLE["abs"]
    first = TABLE["ge"](size(c), size(d))
    large, small = where(first, c, d), where(first, d, c)
    ratio = small / large
    ratio = where(TABLE["eq"](large, 0), 0.0, ratio)
    scale = 1.0 / (large + small * ratio)
    re = where(first, a + b * ratio, a * ratio + b) * scale
    im = where(first, b - a * ratio, b * ratio - a) * scale
    return made(x, re, im)


def lifted(v, *likes):
    """A number as a tensor of the shape of the first tensor among these operands' parts."""
    parts = (part for like in likes for part in (like.re, like.im))
    model = next((part for part in parts if isinstance(part, Symbol)), None)
    return v if isinstance(v, Symbol) or model is None else TABLE["fill"](model, v)


def form_lerp(x, end, weight):
    """From the nearer end."""
    weight = made(x, lifted(weight.re, x), lifted(weight.im, x))
    gap, rest = form_sub(end, x), made(x, 1.0 - weight.re, -weight.im)
    near = TABLE["lt"](size_of(weight), 0.5)
    return form_where(
        near, form_add(x, form_mul(weight, gap)), form_sub(end, form_mul(gap, rest))
    )


def form_neg(x):
    return made(x, -x.re, -x.im)


def size_of(x):
    """|x|, with a slope of 0 at 0."""
    where = TABLE["where"]
    zero = TABLE["logical_and"](TABLE["eq"](x.re, 0), TABLE["eq"](x.im, 0))
    return where(zero, 0.0, TABLE["hypot"](where(zero, 1.0, x.re), where(zero, 0.0, x.im)))


def angle_of(x):
    return TABLE["atan2"](x.im, x.re)


def form_exp(x):
    size = TABLE["exp"](x.re)
    return made(x, size * TABLE["cos"](x.im), size * TABLE["sin"](x.im))


def form_log(x, base=1.0):
    return made(x, TABLE["log"](TABLE["hypot"](x.re, x.im)) / base, angle_of(x) / base)


def form_sqrt(x):
    """The root whose real part is not negative."""
    where, size = TABLE["where"], size_of(x)
    zero = TABLE["eq"](size, 0)
    safe = where(zero, 1.0, size)
    larger = TABLE["sqrt"](0.5 * (safe + TABLE["abs"](x.re)))
    other = 0.5 * TABLE["abs"](x.im) / larger
    right = TABLE["ge"](x.re, 0)
    sign = where(TABLE["signbit"](x.im), -1.0, 1.0)
    re = where(zero, 0.0, where(right, larger, other))
    im = where(zero, 0.0, where(right, other, larger)) * sign
    return made(x, re, im)


def form_sin(x):
    sin, cos, sinh, cosh = (TABLE[n] for n in ("sin", "cos", "sinh", "cosh"))
    return made(x, sin(x.re) * cosh(x.im), cos(x.re) * sinh(x.im))


def form_cos(x):
    sin, cos, sinh, cosh = (TABLE[n] for n in ("sin", "cos", "sinh", "cosh"))
    return made(x, cos(x.re) * cosh(x.im), -(sin(x.re) * sinh(x.im)))


def form_sinh(x):
    sin, cos, sinh, cosh = (TABLE[n] for n in ("sin", "cos", "sinh", "cosh"))
    return made(x, sinh(x.re) * cos(x.im), cosh(x.re) * sin(x.im))


def form_cosh(x):
    sin, cos, sinh, cosh = (TABLE[n] for n in ("sin", "cos", "sinh", "cosh"))
    return made(x, cosh(x.re) * cos(x.im), sinh(x.re) * sin(x.im))


def form_tanh(x):
    """sinh over cosh, both divided by cosh(re) cos(im): no part grows."""
    t, u = TABLE["tanh"](x.re), TABLE["tan"](x.im)
    below = 1 + t * t * u * u
    return made(x, t * (1 + u * u) / below, u * (1 - t * t) / below)


def form_tan(x):
    turned = form_tanh(made(x, -x.im, x.re))  # tan z = -i tanh(i z)
    return made(x, turned.im, -turned.re)


# Inverse functions: W. Kahan, Branch Cuts for Complex Elementary Functions, 1987. The roots keep
# the sign of zero, and with it the side of the cut.


def shifted(x, by, sign):
    return made(x, by + sign * x.re, sign * x.im)


def form_asin(x):
    low, high = form_sqrt(shifted(x, 1.0, -1.0)), form_sqrt(shifted(x, 1.0, 1.0))
    re = TABLE["atan2"](x.re, low.re * high.re - low.im * high.im)
    return made(x, re, TABLE["asinh"](low.re * high.im - low.im * high.re))


def form_acos(x):
    low, high = form_sqrt(shifted(x, 1.0, -1.0)), form_sqrt(shifted(x, 1.0, 1.0))
    re = 2.0 * TABLE["atan2"](low.re, high.re)
    return made(x, re, TABLE["asinh"](high.re * low.im - high.im * low.re))


def form_acosh(x):
    low, high = form_sqrt(shifted(x, -1.0, 1.0)), form_sqrt(shifted(x, 1.0, 1.0))
    re = TABLE["asinh"](low.re * high.re + low.im * high.im)
    return made(x, re, 2.0 * TABLE["atan2"](low.im, high.re))


def form_asinh(x):
    turned = form_asin(made(x, -x.im, x.re))  # asinh z = -i asin(i z)
    return made(x, turned.im, -turned.re)


def form_atanh(x):
    below = (1.0 - x.re) * (1.0 - x.re) + x.im * x.im
    re = 0.25 * TABLE["log1p"](4.0 * x.re / below)
    im = 0.5 * TABLE["atan2"](2.0 * x.im, (1.0 - x.re) * (1.0 + x.re) - x.im * x.im)
    return made(x, re, im)


def form_atan(x):
    turned = form_atanh(made(x, -x.im, x.re))  # atan z = -i atanh(i z)
    return made(x, turned.im, -turned.re)


def form_power(x, y):
    """exp(y log x); 0 to a power is 0, to the power 0 it is 1."""
    where = TABLE["where"]
    x = made(x, lifted(x.re, x, y), lifted(x.im, x, y))
    zero = TABLE["logical_and"](TABLE["eq"](x.re, 0), TABLE["eq"](x.im, 0))
    safe = made(x, where(zero, 1.0, x.re), x.im)
    power = form_exp(form_mul(form_log(safe), y))
    at = lambda v: TABLE["eq"](lifted(v, x), 0)
    at_zero = where(TABLE["logical_and"](at(y.re), at(y.im)), 1.0, 0.0).to(dtypes.real_of(x.dtype))
    return made(x, where(zero, at_zero, power.re), where(zero, 0.0, power.im))


def form_eq(x, y):
    re, im = lifted(x.re, x, y), lifted(x.im, x, y)
    return TABLE["logical_and"](TABLE["eq"](re, y.re), TABLE["eq"](im, y.im))


def form_ne(x, y):
    re, im = lifted(x.re, x, y), lifted(x.im, x, y)
    return TABLE["logical_or"](TABLE["ne"](re, y.re), TABLE["ne"](im, y.im))


def form_where(condition, x, y):
    best = next(v.dtype for v in (x, y) if isinstance(v, Complex))
    x, y = pair(x, best), pair(y, best)
    where = TABLE["where"]
    return made(x, where(condition, x.re, y.re), where(condition, x.im, y.im))


def form_sinc(x):
    at = made(x, x.re * pi, x.im * pi)
    zero = TABLE["logical_and"](TABLE["eq"](x.re, 0), TABLE["eq"](x.im, 0))
    safe = made(x, TABLE["where"](zero, 1.0, at.re), at.im)
    return form_where(zero, made(x, 1.0, 0.0), form_div(form_sin(safe), safe))


def form_sigmoid(x):
    one = made(x, 1.0, 0.0)
    grown = form_exp(form_neg(x))
    return form_div(one, made(x, 1.0 + grown.re, grown.im))


def form_expm1(x):
    grown = form_exp(x)
    return made(x, grown.re - 1.0, grown.im)


RAW = frozenset(("where", "to", "clone"))
FORMS = {
    "add": form_add,
    "sub": form_sub,
    "mul": form_mul,
    "div": form_div,
    "neg": form_neg,
    "abs": size_of,
    "exp": form_exp,
    "exp2": lambda x: form_exp(made(x, x.re * log(2), x.im * log(2))),
    "expm1": form_expm1,
    "log": form_log,
    "log2": lambda x: form_log(x, log(2)),
    "log10": lambda x: form_log(x, log(10)),
    "log1p": lambda x: form_log(made(x, x.re + 1.0, x.im)),
    "sqrt": form_sqrt,
    "rsqrt": lambda x: form_div(made(x, 1.0, 0.0), form_sqrt(x)),
    "sin": form_sin,
    "cos": form_cos,
    "tan": form_tan,
    "sinh": form_sinh,
    "cosh": form_cosh,
    "tanh": form_tanh,
    "asin": form_asin,
    "acos": form_acos,
    "atan": form_atan,
    "asinh": form_asinh,
    "acosh": form_acosh,
    "atanh": form_atanh,
    "sigmoid": form_sigmoid,
    "sinc": form_sinc,
    "power": form_power,
    "eq": form_eq,
    "ne": form_ne,
    "where": form_where,
    "to": lambda x, dtype: x.to(dtype),
    "clone": lambda x, memory_format: x,
}
