"""Bessel functions of imaginary argument, and what statistics makes of erfc: scalar bodies.

The tables are Chebyshev coefficients: exp(-x) i0(x) and exp(-x) i1(x) / x on [0, 8]; the same times sqrt(x) (i1 not over x)
beyond, by 8 / x; (1 + 2 x) exp(x^2) erfc(x) by (x - 3.75) / (x + 3.75)."""
import math

from . import promotion
from .declare import scalar
from .elementary import WIDE, erfc
from .pointwise import (
    UNARY,
    abs,
    eq,
    exp,
    ge,
    gt,
    le,
    log,
    log1p,
    lt,
    minimum,
    ne,
    sign,
    sqrt,
    where,
)
from .samples import call, t

BOTH_SIDES = UNARY + (call(t(2, 9, low=-20.0, high=20.0)),)
UNIT = (call(t(2, 3, low=0.01, high=0.99)), call(t(5, step=2, low=0.05, high=0.5)), call(t(0, 3)))
INF, NAN = math.inf, math.nan

I0_NEAR = (0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.094901097048047639, 0.049305284239670712,
        -0.023737414805899471, 0.010546460394594998, -0.0043243099950505759, 0.0016394756169413357, -0.00057637557453858236,
        0.00018850288509584165, -5.754195010082104e-05, 1.6448448070728896e-05, -4.4167383584587505e-06, 1.1173875391201037e-06,
        -2.6707938539406119e-07, 6.0469950225419186e-08, -1.300025009986248e-08, 2.6598237246823866e-09, -5.1897956016352627e-10,
        9.675809035373237e-11, -1.7268262914415559e-11, 2.9550526631296399e-12, -4.856446783111929e-13, 7.6761854986049361e-14,
        -1.1685332877993451e-14, 1.7153912855551331e-15, -2.4312798465479549e-16, 3.3307945188222384e-17)
I0_FAR = (0.40224520550705439, 0.0033691164782556943, 6.8897583469168245e-05, 2.8913705208347567e-06, 2.0489185894690638e-07,
        2.266668990498178e-08, 3.3962320257083865e-09, 4.9406023882249701e-10, 1.1889147107846439e-11, -3.1499165279632416e-11,
        -1.3215811840447713e-11, -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
        -4.1505693472872222e-14, -9.5548466988283073e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
        -2.8276239805165836e-16, 3.4612228676974612e-17, 4.4656214202967598e-17, -4.8305044859441819e-18, -7.2331804878747538e-18)
I1_NEAR = (0.12629359322181682, -0.17641651835783406, 0.10264365868984709, -0.052945981208094989, 0.024726449030626516,
        -0.010564084894626197, 0.0041564229443128882, -0.0015135724506312532, 0.00051228595616857576, -0.00016176081582589674,
        4.7815651075500542e-05, -1.3273163656039436e-05, 3.4702513081376785e-06, -8.5687202646954547e-07, 2.0032947535521353e-07,
        -4.4450591287963281e-08, 9.3815373864957726e-09, -1.8872497517228294e-09, 3.6255902815521172e-10, -6.6634897235020271e-11,
        1.1736186298890901e-11, -1.9839743977649436e-12, 3.2237933659455748e-13, -5.0421855047279118e-14, 7.6006842947354077e-15,
        -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17, 2.7779141127610464e-18)
I1_FAR = (0.38928811750914005, -0.0097610974913614687, -0.00011058893876262371, -3.8825648088776906e-06, -2.5122362378702088e-07,
        -2.6314688468895196e-08, -3.835380385964237e-09, -5.5897434621965838e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
        1.4125807436613782e-11, 2.0356285441470896e-12, -7.1985517762459084e-13, -4.0835511110921974e-13, -2.1015418427726643e-14,
        4.272440016711951e-14, 1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
        2.9626289976459501e-16, -3.2095259219934238e-17, -4.6503053684893586e-17, 4.4143483230717077e-18, 7.5172963108421052e-18)
ERFCX = (1.1775789345674017, -0.0045900545806464776, -0.084249133366517917, 0.059209939998191893, -0.026658668435305753,
        0.0090749976707052652, -0.0024131635404176081, 0.00049077583652580863, -6.916973302501207e-05, 4.1390279860730102e-06,
        7.7403830661984903e-07, -2.1886401049234397e-07, 1.076499946567091e-08, 4.5219598112182866e-09, -7.7544002088313509e-10,
        -6.3180883408866841e-11, 2.8687950109306699e-11, 1.9455868545777347e-13, -9.6546967484334393e-13, 3.2525481481487401e-14,
        3.3478119482868056e-14, -1.864562880419313e-15, -1.2507950530688648e-15, 7.4182352566240441e-17, 5.068148904796111e-17)

def series(coefficients, y):
    """The sum of c[k] T_k(y), by Clenshaw's recurrence."""
    later, last = 0.0, 0.0
    for c in reversed(coefficients[1:]):
        later, last = 2 * y * later - last + c, later
    return y * later - last + coefficients[0]


def function(schema, cost=60, samples=BOTH_SIDES, method=False, **given):
    return scalar(schema, promote=promotion.floating, domain=WIDE, cost=cost, method=method, function=method, samples=samples, **given)


@function("special_i0e(Tensor self) -> Tensor")
def special_i0e(x):
    """exp(-|x|) i0(x)."""
    a = abs(x)
    near = series(I0_NEAR, 0.25 * minimum(a, 8.0) - 1)
    far = series(I0_FAR, 16 / where(lt(a, 8), 8.0, a) - 1) / sqrt(a)
    return where(le(a, 8), near, far)


@special_i0e.derivative
def _(g, x, out):
    return g * (special_i1e(x) - sign(x) * out)


@function("i0(Tensor self) -> Tensor", method=True)
def i0(x):
    """The modified Bessel function of the first kind, of order 0."""
    a = abs(x)
    near = series(I0_NEAR, 0.25 * minimum(a, 8.0) - 1)
    far = series(I0_FAR, 16 / where(lt(a, 8), 8.0, a) - 1) / sqrt(a)
    half = exp(0.5 * a)                                             # exp(a) ends before the product with the small factor does
    return where(le(a, 8), near, far) * half * half


@i0.derivative
def _(g, x):
    return g * special_i1(x)


@function("special_i1e(Tensor self) -> Tensor")
def special_i1e(x):
    """exp(-|x|) i1(x)."""
    a = abs(x)
    near = series(I1_NEAR, 0.25 * minimum(a, 8.0) - 1) * a
    far = series(I1_FAR, 16 / where(lt(a, 8), 8.0, a) - 1) / sqrt(a)
    return where(lt(x, 0), -1.0, 1.0) * where(le(a, 8), near, far)


@special_i1e.derivative             # i1(x) / x is 1/2 at 0
def _(g, x, out):
    zero = eq(x, 0)
    return g * (special_i0e(x) - where(zero, 0.5, out * (sign(x) + 1 / where(zero, 1.0, x))))


@function("special_i1(Tensor self) -> Tensor")
def special_i1(x):
    """The modified Bessel function of the first kind, of order 1."""
    a = abs(x)
    near = series(I1_NEAR, 0.25 * minimum(a, 8.0) - 1) * a
    far = series(I1_FAR, 16 / where(lt(a, 8), 8.0, a) - 1) / sqrt(a)
    half = exp(0.5 * a)
    return where(lt(x, 0), -1.0, 1.0) * where(le(a, 8), near, far) * half * half


@special_i1.derivative
def _(g, x, out):
    zero = eq(x, 0)
    return g * (i0(x) - where(zero, 0.5, out / where(zero, 1.0, x)))


# ---- erfc, scaled, and the normal distribution

@function("special_erfcx(Tensor self) -> Tensor")
def special_erfcx(x):
    """exp(x^2) erfc(x), which does not vanish for large x."""
    a = abs(x)
    scaled = where(eq(a, INF), 0.0, series(ERFCX, (where(eq(a, INF), 0.0, a) - 3.75) / (where(eq(a, INF), 0.0, a) + 3.75))
                   / (1 + 2 * a))
    return where(lt(x, 0), 2 * exp(x * x) - scaled, scaled)


@special_erfcx.derivative
def _(g, x, out):
    return g * (2 * x * out - 2 / math.sqrt(math.pi))


@function("special_ndtr(Tensor self) -> Tensor", cost=30)
def special_ndtr(x):
    """The share of a standard normal distribution below x."""
    return 0.5 * erfc(x * -math.sqrt(0.5))


@special_ndtr.derivative
def _(g, x):
    return g * exp(-0.5 * (x * x)) * (1 / math.sqrt(2 * math.pi))


@function("special_log_ndtr(Tensor self) -> Tensor", cost=80, samples=UNARY)      # further out the oracle's derivative is coarse
def special_log_ndtr(x):
    """log of `special_ndtr`, also where that is too small for a number."""
    y = x * math.sqrt(0.5)
    low = lt(x, -1)
    below = where(low, y, 0.0)
    return where(low, log(0.5 * special_erfcx(-below)) - below * below, log1p(-0.5 * erfc(where(low, 0.0, y))))


@special_log_ndtr.derivative        # exp(-x^2 / 2) / ndtr(x), by erfcx where both are small
def _(g, x):
    y = x * math.sqrt(0.5)
    low = lt(x, -1)
    below, above = where(low, y, 0.0), where(low, 0.0, y)
    return g * math.sqrt(2 / math.pi) * where(low, 1 / special_erfcx(-below), exp(-(above * above)) / erfc(-above))


@function("special_ndtri(Tensor self) -> Tensor", cost=120, samples=UNIT)
def special_ndtri(p):
    """The x whose `special_ndtr` is p: Abramowitz and Stegun 26.2.23, brought to full precision by Newton's steps in the tail that
    is small."""
    small = minimum(p, 1 - p)
    r = sqrt(-2 * log(small))
    x = r - (2.515517 + r * (0.802853 + r * 0.010328)) / (1 + r * (1.432788 + r * (0.189269 + r * 0.001308)))
    for _ in range(3):              # the tail beyond x is `small`; log(tail) is nearly a parabola, so few steps are enough
        scaled = 0.5 * special_erfcx(x * math.sqrt(0.5))            # tail * exp(x^2 / 2)
        x = x + scaled * math.sqrt(2 * math.pi) * (log(scaled) - 0.5 * (x * x) - log(small))
    x = where(eq(small, 0), INF, where(eq(small, 0.5), 0.0, x))
    return where(ge(small, 0), where(lt(p, 0.5), -x, x), NAN)


@special_ndtri.derivative
def _(g, out):
    return g * math.sqrt(2 * math.pi) * exp(0.5 * (out * out))


@function("special_entr(Tensor self) -> Tensor", cost=12, samples=(call(t(2, 3, low=0.1, high=2.0)), call(t(0, 3))))
def special_entr(x):
    """-x log(x); 0 at 0, -inf below."""
    inside = -x * log(where(gt(x, 0), x, 1.0))
    return where(ne(x, x), x, where(gt(x, 0), inside, where(eq(x, 0), 0.0, -INF)))


@special_entr.derivative
def _(g, x):
    return g * (-log(x) - 1)
