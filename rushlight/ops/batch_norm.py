"""Normalisation over channels: rows are all dims but the channels'. Batch norm in training is one kernel forward and one
backward; with fixed statistics it is a line, x * scale + shift. Group norm is rows of [n, groups, channels, pixels].
"""
from . import promotion
from .declare import composition, none, rows, scalar
from .derivatives import gradients
from .layouts import ShapeError, is_channels_last, same_rows
from .pointwise import clone, rsqrt, sqrt
from .reductions import mean, sum
from .samples import call, t
from .views import permute, product, reshape

SINGLES = ("float32", "float64")                # half types go through float32


class rows_over(same_rows):
    """Rows over the dims `over(rank)`; operands of `per_row` are one number a row, with the row's dims left out. `maps`: the
    first output is over the full shape; the others are one number a row."""
    def __init__(self, over, per_row=(), maps=True):
        self.over_rank, self.per_row, self.maps = over, per_row, maps

    def full(self, a):
        return tuple(next(x for n, x in a.operands() if not self.is_per_row(n)).shape)

    def rows(self, a):
        return self.over_rank(len(self.full(a)))

    def row_output(self, i):
        return i > 0 or not self.maps

    def out_kind(self, a, i):
        return "D" if self.row_output(i) else "S"

    def space(self, a):
        full, rows = self.full(a), self.rows(a)
        layouts = []
        for name, x in a.operands():
            if self.is_per_row(name):
                kept = iter(x.layout.pairs())
                layouts.append(x.layout.of([(n, 0) if d in rows else next(kept) for d, n in enumerate(full)]))
            else:
                layouts.append(x.layout.expand(full))
        return full, rows, layouts


def but_channels(rank):
    return (0, *range(2, rank))


def fixed(*dims):
    return lambda rank: dims


def dims_of(x, over):
    """The row's dims. A loop value knows one row only."""
    return over(x.rank) if hasattr(x, "layout") else None


def along(v, x, over):
    """One number a row, laid along x's rows."""
    if v is None or not hasattr(x, "layout"):
        return v
    kept = iter(v.shape)
    rows = over(x.rank)
    return reshape(v, tuple(1 if d in rows else next(kept) for d in range(x.rank)))


def statistics(x, dim, eps):
    mu = mean(x, dim, True)
    var = mean((x - mu) * (x - mu), dim, True)
    return mu, var, 1 / sqrt(var + eps)


# ---- batch norm

@rows("_batch_norm_rows(Tensor input, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
      name="batch_norm_rows", layout=rows_over(but_channels, ("weight", "bias")), promote=promotion.floats.of("input"),
      others={"weight": "opmath", "bias": "opmath"}, domain=SINGLES, patterns=("TTT", "T00"), method=False, function=False, cost=6,
      samples=(call(t(4, 3, 5), t(3), t(3), 1e-5), call(t(2, 3, 4, 5), None, None, 1e-3), call(t(6, 3), t(3), t(3), 1e-5),
               call(t(1, 3, 4, 5, order=(0, 2, 3, 1)), t(3), t(3), 1e-5), call(t(2, 3, 5, dtype="bfloat16"), None, None, 1e-5)))
def batch_norm_rows(x, weight, bias, eps):
    """x in rows of mean 0 and deviation 1, then scaled and shifted; the rows' mean, variance and reciprocal deviation."""
    mu, var, rstd = statistics(x, dims_of(x, but_channels), eps)
    y = (x - mu) * rstd
    if weight is not None:
        y = y * along(weight, x, but_channels) + along(bias, x, but_channels)
    return y, mu, var, rstd


@batch_norm_rows.derivative
def _(g, x, weight, bias, outs):
    _, mu, _, rstd = outs
    dx, dweight, dbias = batch_norm_backward(g, x, mu, rstd, weight)
    return dx, None if weight is None else dweight, None if bias is None else dbias


@rows("_batch_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight) -> (Tensor, Tensor, Tensor)",
      name="batch_norm_backward", layout=rows_over(but_channels, ("mean", "rstd", "weight")),
      promote=promotion.floating.of("grad_out", "input"), others={"mean": "opmath", "rstd": "opmath", "weight": "opmath"},
      domain=SINGLES, patterns=("TTTTT", "TTTT0"), method=False, function=False, cost=6,
      samples=(call(t(4, 3, 5), t(4, 3, 5), t(3), t(3, low=0.5), t(3)), call(t(4, 3), t(4, 3), t(3), t(3, low=0.5), None)))
def batch_norm_backward(dy, x, mu, rstd, weight):
    """The cotangents of x, weight and bias."""
    dim, (mu, rstd, weight) = dims_of(x, but_channels), (along(v, x, but_channels) for v in (mu, rstd, weight))
    h = (x - mu) * rstd
    dweight, dbias = sum(dy * h, dim, True), sum(dy, dim, True)
    n = x.extent(dim)
    dx = rstd * (dy - dbias / n - h * (dweight / n))
    return dx if weight is None else dx * weight, dweight, dbias


@batch_norm_backward.derivative                 # mean and rstd depend on x too: here they are worked out again
def _(gs, dy, x, rstd, weight):
    dim = but_channels(x.rank)

    def formula():
        h, r = standardised(x, along(rstd, x, but_channels), dim)
        dweight, dbias = sum(dy * h, dim, True), sum(dy, dim, True)
        n = x.extent(dim)
        dx = r * (dy - dbias / n - h * (dweight / n))
        return dx if weight is None else dx * along(weight, x, but_channels), dweight, dbias
    grads = through_x(formula, gs, [dy, x] + ([] if weight is None else [weight]))
    return grads[0], grads[1], None, None, None if weight is None else grads[2]


def through_x(formula, gs, wanted):
    """Cotangents of `formula`, whose statistics come from x, for cotangents `gs` of its outputs."""
    def total():
        terms = [sum(out * constant(reshape(g, out.shape))) for out, g in zip(formula(), gs) if g is not None]
        found = terms[0]
        for term in terms[1:]:
            found = found + term
        return found
    return gradients(total, wanted)


def standardised(x, rstd, dim):
    """((x - mean) rstd, rstd) as functions of x; the given rstd tells eps."""
    mu = mean(x, dim, True)
    var = mean((x - mu) * (x - mu), dim, True)
    r = rsqrt(var + constant(1 / (rstd * rstd) - var))
    return (x - mu) * r, r


@scalar("_constant(Tensor self) -> Tensor", name="constant", derivative=none, method=False, function=False, domain=SINGLES,
        samples=(call(t(2, 3)),))
def constant(x):
    """x, whose derivative is taken for 0."""
    return x * 1


@scalar("_scale_shift(Tensor self, Tensor scale, Tensor shift) -> Tensor", name="scale_shift", promote=promotion.floats.of("self"),
        others={"scale": "opmath", "shift": "opmath"}, domain=("float32", "float64", "bfloat16", "float16"), method=False,
        function=False, cost=2,
        samples=(call(t(2, 3, 4), t(3, 1), t(3, 1)), call(t(2, 3, 2, 2, order=(0, 2, 3, 1)), t(3, 1, 1), t(3, 1, 1))))
def scale_shift(x, scale, shift):
    return x * scale + shift


@scale_shift.derivative
def _(g, x, scale, shift):
    return g * scale.to(g.dtype), g * x, g


@rows("_scale_shift_rows(Tensor self, Tensor scale, Tensor shift) -> Tensor", name="scale_shift_rows",
      layout=rows_over(but_channels, ("scale", "shift")), promote=promotion.floats.of("self"),
      others={"scale": "opmath", "shift": "opmath"}, domain=("float32", "float64", "bfloat16", "float16"), method=False,
      function=False, cost=2, samples=(call(t(2, 3, 4), t(3), t(3)), call(t(2, 3, 4, 5), t(3), t(3))))
def scale_shift_rows(x, scale, shift):
    """x * scale + shift, a row at a time: where channels are not innermost, both numbers stay in registers."""
    return x * along(scale, x, but_channels) + along(shift, x, but_channels)


@scale_shift_rows.derivative
def _(g, x, scale):
    dim = but_channels(x.rank)
    return scale_shift_rows(g, scale, scale * 0), sum(g * x, dim), sum(g, dim)


@scalar("_fixed_line(Tensor mean, Tensor var, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor)", name="fixed_line",
        promote=promotion.floating, domain=SINGLES, patterns=("TTTT", "TT00"), method=False, function=False, cost=8,
        samples=(call(t(3), t(3, low=0.2), t(3), t(3), 1e-5), call(t(3), t(3, low=0.2), None, None, 1e-3)))
def fixed_line(mu, var, weight, bias, eps):
    """scale and shift such that x * scale + shift is (x - mean) / sqrt(var + eps) * weight + bias."""
    scale = 1 / sqrt(var + eps)
    scale = scale if weight is None else scale * weight
    return scale, -mu * scale if bias is None else bias - mu * scale


@fixed_line.derivative
def _(gs, mu, var, weight, bias, eps):
    g, h = gs
    rstd = 1 / sqrt(var + eps)
    scale = rstd if weight is None else rstd * weight
    g = -mu * h if g is None else g if h is None else g - mu * h        # what reaches the scale
    dscale = g if weight is None else g * weight
    return (None if h is None else -scale * h, dscale * rstd * rstd * rstd * -0.5, None if weight is None else g * rstd,
            None if bias is None else h)


@scalar("_running_step(Tensor running_mean, Tensor running_var, Tensor mean, Tensor var, float momentum, float correction)"
        " -> (Tensor, Tensor)", name="running_step", derivative=none, domain=SINGLES, method=False, function=False, cost=3,
        promote=promotion.numeric.of("running_mean", "running_var"), others={"mean": "opmath", "var": "opmath"},
        samples=(call(t(3), t(3), t(3), t(3), 0.1, 1.25),))
def running_step(running_mean, running_var, mu, var, momentum, correction):
    """The running statistics after a batch; `correction` is n / (n - 1), which takes the bias from the variance."""
    return (running_mean + (mu - running_mean) * momentum,
            running_var + (var * correction - running_var) * momentum)


def check_channels(op, x, vectors):
    if x.rank < 2:
        raise ValueError(f"[{op}] expected at least 2 dimensions, got {x.layout}")
    for name, v in vectors.items():
        if v is not None and not (v.rank == 1 and v.shape[0] == x.shape[1]):
            raise ShapeError(f"[{op}] {name} should contain {x.shape[1]} elements not {v.numel()}: input {list(x.shape)}, "
                             f"{name} {list(v.shape)}")


@composition("_batch_norm_fixed(Tensor input, Tensor mean, Tensor var, Tensor? weight, Tensor? bias, float eps) -> Tensor",
             name="batch_norm_fixed", method=False, function=False,
             samples=(call(t(4, 3, 5), t(3), t(3, low=0.2), t(3), t(3), 1e-5), call(t(4, 3), t(3), t(3, low=0.2), None, None, 1e-5)))
def batch_norm_fixed(x, mu, var, weight, bias, eps):
    """Batch norm by given statistics."""
    check_channels("batch_norm", x, {"running_mean": mu, "running_var": var, "weight": weight, "bias": bias})
    scale, shift = fixed_line(mu, var, weight, bias, eps)
    if x.rank > 2 and x.layout.contiguous:
        return scale_shift_rows(x, scale, shift)
    return scale_shift(x, along(scale, x, but_channels), along(shift, x, but_channels))


# ---- group norm

PIXELS = fixed(2, 3)
IMAGES = fixed(0, 3)


@rows("_group_norm_rows(Tensor input, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
      name="group_norm_rows", layout=rows_over(PIXELS), promote=promotion.floats.of("input"),
      others={"weight": "opmath", "bias": "opmath"}, domain=SINGLES, patterns=("TTT", "T00"), method=False, function=False, cost=6,
      samples=(call(t(2, 3, 2, 5), t(3, 2, 1), t(3, 2, 1), 1e-5), call(t(2, 1, 4, 3), None, None, 1e-3)))
def group_norm_rows(x, weight, bias, eps):
    """x [n, groups, channels, pixels] in rows of mean 0 and deviation 1; the rows' mean and reciprocal deviation."""
    mu, _, rstd = statistics(x, dims_of(x, PIXELS), eps)
    y = (x - mu) * rstd
    return y if weight is None else y * weight + bias, mu, rstd


@group_norm_rows.derivative
def _(g, x, weight, bias, outs):
    _, mu, rstd = outs
    dx = group_norm_backward(g, x, mu, rstd, weight)
    if weight is None:
        return dx, None, None
    dweight, dbias = group_norm_backward_weight(g, x, reshape(mu, (*mu.shape, 1, 1)), reshape(rstd, (*rstd.shape, 1, 1)))
    return dx, reshape(dweight, weight.shape), reshape(dbias, weight.shape)


@rows("_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight) -> Tensor",
      name="group_norm_backward", layout=rows_over(PIXELS, ("mean", "rstd")), promote=promotion.floating.of("grad_out", "input"),
      others={"mean": "opmath", "rstd": "opmath", "weight": "opmath"}, domain=SINGLES, patterns=("TTTTT", "TTTT0"), method=False,
      function=False, cost=6,
      samples=(call(t(2, 3, 2, 5), t(2, 3, 2, 5), t(2, 3), t(2, 3, low=0.5), t(3, 2, 1)),))
def group_norm_backward(dy, x, mu, rstd, weight):
    dim, mu, rstd = dims_of(x, PIXELS), along(mu, x, PIXELS), along(rstd, x, PIXELS)
    h, dy = (x - mu) * rstd, dy if weight is None else dy * weight
    return rstd * (dy - mean(dy, dim, True) - h * mean(dy * h, dim, True))


@group_norm_backward.derivative
def _(g, dy, x, rstd, weight):
    dim = (2, 3)

    def formula():
        h, r = standardised(x, along(rstd, x, PIXELS), dim)
        d = dy if weight is None else dy * weight
        return (r * (d - mean(d, dim, True) - h * mean(d * h, dim, True)),)
    grads = through_x(formula, (g,), [dy, x] + ([] if weight is None else [weight]))
    return grads[0], grads[1], None, None, None if weight is None else grads[2]


@rows("_group_norm_backward_weight(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd) -> (Tensor, Tensor)",
      name="group_norm_backward_weight", layout=rows_over(IMAGES, maps=False), promote=promotion.floating.of("grad_out", "input"),
      others={"mean": "opmath", "rstd": "opmath"}, domain=SINGLES, method=False, function=False, cost=4,
      samples=(call(t(2, 3, 2, 5), t(2, 3, 2, 5), t(2, 3, 1, 1), t(2, 3, 1, 1, low=0.5)),))
def group_norm_backward_weight(dy, x, mu, rstd):
    dim = dims_of(x, IMAGES)
    return sum(dy * ((x - mu) * rstd), dim, True), sum(dy, dim, True)


@group_norm_backward_weight.derivative
def _(gs, dy, x, rstd):
    def formula():
        h, _ = standardised(x, rstd, (2, 3))
        return sum(dy * h, (0, 3), True), sum(dy, (0, 3), True)
    return (*through_x(formula, gs, [dy, x]), None, None)


@composition("native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps)"
             " -> (Tensor, Tensor, Tensor)", method=False, structural=("N", "C", "HxW"),
             samples=(call(t(2, 6, 5), t(6), t(6), 2, 6, 5, 3, 1e-5), call(t(2, 4, 2, 3), None, None, 2, 4, 6, 1, 1e-5),
                      call(t(2, 4, 2), t(4), None, 2, 4, 2, 2, 1e-5)))
def native_group_norm(x, weight, bias, n, c, pixels, groups, eps):
    """(x normalised over each group of channels, and the groups' mean and reciprocal deviation [N, group])."""
    if (weight is None) != (bias is None):              # the kernels take both or neither
        weight = full_like_channels(x, c, 1) if weight is None else weight
        bias = full_like_channels(x, c, 0) if bias is None else bias
    wide = lambda v: None if v is None else reshape(v, (groups, v.shape[0] // groups, 1))
    y, mu, rstd = group_norm_rows(reshape(x, (x.shape[0], groups, x.shape[1] // groups, product(x.shape[2:]))), wide(weight), wide(bias), eps)
    y = reshape(y, x.shape)
    if is_channels_last(x.layout):
        y = permute(clone(permute(y, (0, 2, 3, 1)), memory_format="contiguous"), (0, 3, 1, 2))
    return y, mu, rstd


@composition("group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05,"
             " bool cudnn_enabled=True) -> Tensor", method=False,
             samples=(call(t(2, 6, 5), 3, t(6), t(6)), call(t(2, 6, 2, 3), 2), call(t(2, 4, 2, 2, order=(0, 2, 3, 1)), 2, t(4), t(4))))
def group_norm(x, groups, weight, bias, eps, _):
    """Rows of num_groups groups of channels, each brought to mean 0 and deviation 1."""
    if x.rank < 2:
        raise RuntimeError(f"[group_norm] takes at least 2 dimensions, got {x.rank}")
    n, c = x.shape[:2]
    if groups <= 0:
        raise RuntimeError(f"[group_norm] num_groups is positive, got {groups}")
    if c % groups:
        raise RuntimeError(f"[group_norm] the channels of {list(x.shape)} are not divisible by num_groups={groups}")
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and tuple(v.shape) != (c,):
            raise ShapeError(
                f"[group_norm] {name} has one number a channel of {list(x.shape)}, got shape {list(v.shape)}"
            )
    return native_group_norm(x, weight, bias, n, c, product(x.shape[2:]), groups, eps)[0]


def full_like_channels(x, c, value):
    from .creation import full
    return full((c,), value, dtype=x.dtype)
