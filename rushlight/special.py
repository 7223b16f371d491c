"""`rushlight.special`: functions that also have other names, under those of this module."""

from rushlight import eager

NAMES = {
    "expit": "sigmoid",
    "psi": "digamma",
    "gammaln": "lgamma",
    "xlog1py": "special_xlog1py",
    "i0": "i0",
    **{
        name: f"special_{name}"
        for name in "entr erfcx i0e i1 i1e log_ndtr ndtr ndtri".split()
    },
    **{
        name: name
        for name in (
            "digamma erf erfc erfinv exp2 expm1 log1p log_softmax logit logsumexp polygamma "
            "round sinc softmax xlogy"
        ).split()
    },
}


def __getattr__(name):
    found = eager.operators.TABLE.get(NAMES.get(name, ""))
    if found is None:
        raise AttributeError(f"module 'rushlight.special' has no attribute {name!r}")
    return found.native


def __dir__():
    return sorted(n for n, op in NAMES.items() if op in eager.operators.TABLE)
