// What the tests and benchmarks of the prelude measure it against: libm in long double (64-bit
// mantissa), and the distance of a result from it in units of the last place of its format.
#include <math.h>

typedef long double L;

static L sigmoid_ref(L x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }
static L rsqrt_ref(L x) { return 1 / sqrtl(x); }
static L reciprocal_ref(L x) { return 1 / x; }
static L round_ref(L x) { return rintl(x); }
// glibc's powl takes -2^63 for an odd exponent of infinity.
static L pow_ref(double x, double y) { return isinf(x) ? (L)pow(x, y) : powl(x, y); }
static L sign_ref(L x) { return (x > 0) - (x < 0); }

// Python's remainder and floor division, as torch computes them on the CPU.
template <class T> static T remainder_of(T x, T y) {
    T r = fmod(x, y);
    return r != 0 && (y < 0) != (r < 0) ? r + y : r;
}
template <class T> static T floor_div_of(T x, T y) {
    if (y == 0) return x / y;
    T r = fmod(x, y), q = (x - r) / y;
    if (r != 0 && (y < 0) != (r < 0)) q -= 1;
    if (q == 0) return copysign(T(0), x / y);
    T f = floor(q);
    return q - f > T(0.5) ? f + 1 : f;
}

// Infinity where NaN, infinity or the sign of a zero is wrong.
template <class T> static double distance(T got, L want) {
    const int digits = sizeof(T) == 4 ? 24 : 53, least = sizeof(T) == 4 ? -125 : -1021;
    T w = (T)want;
    if (want != want || got != got) return (want != want) == (got != got) ? 0 : INFINITY;
    if (isinf(got) || isinf(w)) {
        if (got == w) return 0;
        // Within one unit of overflow the two may fall on either side.
        const L top = ldexpl(1, sizeof(T) == 4 ? 128 : 1024), unit = ldexpl(top, -digits);
        return !isinf(want) && signbit(got) == signbit(w) && fabsl(want) > top - 2 * unit
                       && fabsl((L)got) > top - 2 * unit ? 1 : INFINITY;
    }
    if (got == 0 && w == 0) return signbit(got) == signbit(w) ? 0 : INFINITY;
    int e;
    frexpl(want, &e);
    return (double)(fabsl((L)got - want) / ldexpl(1, (e < least ? least : e) - digits));
}

#define UNARY(name, ref)                                                                            \
    template <class T> static double worst_##name(const T *x, const T *got, long n, long *at) {    \
        double worst = -1;                                                                          \
        for (long i = 0; i < n; i++) {                                                              \
            double d = distance(got[i], ref((L)x[i]));                                              \
            if (d > worst) worst = d, *at = i;                                                      \
        }                                                                                           \
        return worst;                                                                               \
    }                                                                                               \
    extern "C" double worst_##name##_f32(const float *x, const float *g, long n, long *at) {        \
        return worst_##name(x, g, n, at);                                                           \
    }                                                                                               \
    extern "C" double worst_##name##_f64(const double *x, const double *g, long n, long *at) {      \
        return worst_##name(x, g, n, at);                                                           \
    }

#define BINARY(name, ref)                                                                           \
    extern "C" double worst_##name##_f32(const float *x, const float *y, const float *g, long n,    \
                                         long *at) {                                                \
        typedef float T;                                                                            \
        double worst = -1;                                                                          \
        for (long i = 0; i < n; i++) {                                                              \
            double d = distance(g[i], (L)(ref));                                                    \
            if (d > worst) worst = d, *at = i;                                                      \
        }                                                                                           \
        return worst;                                                                               \
    }                                                                                               \
    extern "C" double worst_##name##_f64(const double *x, const double *y, const double *g, long n, \
                                         long *at) {                                                \
        typedef double T;                                                                           \
        double worst = -1;                                                                          \
        for (long i = 0; i < n; i++) {                                                              \
            double d = distance(g[i], (L)(ref));                                                    \
            if (d > worst) worst = d, *at = i;                                                      \
        }                                                                                           \
        return worst;                                                                               \
    }

UNARY(exp, expl) UNARY(exp2, exp2l) UNARY(expm1, expm1l) UNARY(log, logl) UNARY(log2, log2l)
UNARY(log10, log10l) UNARY(log1p, log1pl) UNARY(sin, sinl) UNARY(cos, cosl) UNARY(tan, tanl)
UNARY(asin, asinl) UNARY(acos, acosl) UNARY(atan, atanl) UNARY(sinh, sinhl) UNARY(cosh, coshl)
UNARY(tanh, tanhl) UNARY(asinh, asinhl) UNARY(acosh, acoshl) UNARY(atanh, atanhl) UNARY(erf, erfl)
UNARY(erfc, erfcl) UNARY(lgamma, lgammal) UNARY(sigmoid, sigmoid_ref) UNARY(sqrt, sqrtl)
UNARY(rsqrt, rsqrt_ref) UNARY(reciprocal, reciprocal_ref) UNARY(floor, floorl) UNARY(ceil, ceill)
UNARY(trunc, truncl) UNARY(round, round_ref) UNARY(abs, fabsl) UNARY(sign, sign_ref)
BINARY(pow, pow_ref(x[i], y[i])) BINARY(atan2, atan2l((L)x[i], (L)y[i]))
BINARY(fmod, fmod(x[i], y[i])) BINARY(remainder, remainder_of<T>(x[i], y[i]))
BINARY(floor_div, floor_div_of<T>(x[i], y[i])) BINARY(copysign, copysign(x[i], y[i]))
BINARY(nextafter, nextafter(x[i], y[i]))
BINARY(fmin, x[i] != x[i] ? y[i] : y[i] != y[i] ? x[i] : x[i] < y[i] ? x[i] : y[i])
BINARY(fmax, x[i] != x[i] ? y[i] : y[i] != y[i] ? x[i] : x[i] > y[i] ? x[i] : y[i])
BINARY(minimum, x[i] != x[i] ? x[i] : x[i] < y[i] ? x[i] : y[i])
BINARY(maximum, x[i] != x[i] ? x[i] : x[i] > y[i] ? x[i] : y[i])
