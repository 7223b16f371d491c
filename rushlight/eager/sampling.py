"""Random numbers as PyTorch offers them: tensors overwritten with draws of a distribution, draws by
given parameters, dropout. All are made of Philox uniform and normal numbers (`randomness`).
"""

from math import log1p

from rushlight import _core, dtypes
from rushlight.ops import TABLE

from . import factories, randomness

Tensor = _core.Tensor
WHOLE = {"bool": 1, "uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63}
MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def op(name):
    return TABLE[name].native


def name_of(dtype):
    """A recorded value names its dtype."""
    return getattr(dtype, "name", dtype)


def floating(name, self):
    if not dtypes.is_floating(name_of(self.dtype)):
        raise NotImplementedError(f'[{name}] "{name}" not implemented for {name_of(self.dtype)!r}')


def place(x):
    """The device of a tensor; None for recorded values."""
    return x.device if isinstance(x, Tensor) else None


def uniform(shape, generator, dtype=_core.float32, device=None):
    return randomness.filled("uniform", _core.empty(tuple(shape), dtype, device), generator)


def unit(self, generator):
    """Uniform numbers for every element of `self`, float64 only where it is."""
    wide = _core.float64 if name_of(self.dtype) == "float64" else _core.float32
    return uniform(self.shape, generator, wide, place(self))


def written(self, drawn):
    return op("copy").inplace(self, drawn)


def uniform_(self, from_=0.0, to=1.0, *, generator=None, **named):
    """Overwrite with numbers uniform on [from, to)."""
    low = named.pop("from", from_)
    if named:
        raise TypeError(f"uniform_() got an unexpected keyword argument {next(iter(named))!r}")
    floating("uniform_", self)
    if not low <= to:
        raise RuntimeError(f"[uniform_] the interval runs upward, got from={low} to={to}")
    randomness.filled("uniform", self, generator)
    return self if (low, to) == (0, 1) else op("mul").inplace(self, to - low).add_(low)


def normal_(self, mean=0.0, std=1.0, *, generator=None):
    """Overwrite with normal numbers."""
    floating("normal_", self)
    if std < 0:
        raise RuntimeError(f"[normal_] std is not negative, got {std}")
    randomness.filled("normal", self, generator)
    return self if (mean, std) == (0, 1) else op("mul").inplace(self, std).add_(mean)


def log_normal_(self, mean=1.0, std=2.0, *, generator=None):
    """Overwrite with exp of normal numbers."""
    if std <= 0:
        raise RuntimeError(f"[log_normal_] std is positive, got {std}")
    return normal_(self, mean, std, generator=generator).exp_()


def exponential_(self, lambd=1.0, *, generator=None):
    """Overwrite with exponential numbers of the rate `lambd`."""
    floating("exponential_", self)
    if lambd <= 0:
        raise RuntimeError(f"[exponential_] expects lambd > 0.0, but found lambd={lambd}")
    return written(self, op("log1p")(-unit(self, generator)) * (-1.0 / lambd))


def cauchy_(self, median=0.0, sigma=1.0, *, generator=None):
    """Overwrite with Cauchy numbers."""
    floating("cauchy_", self)
    if sigma <= 0:
        raise RuntimeError(f"[cauchy_] sigma is positive, got {sigma}")
    angle = (unit(self, generator) - 0.5) * 3.141592653589793
    return written(self, op("tan")(angle) * sigma + median)


def geometric_(self, p, *, generator=None):
    """Overwrite with the number of trials up to the first success of probability p."""
    if not 0 < p < 1:
        raise RuntimeError(f"[geometric_] p lies strictly between 0 and 1, got {p}")
    u = uniform(self.shape, generator, _core.float64, place(self))
    trials = op("ceil")(op("log1p")(-u) / log1p(-p))
    return written(self, op("clamp")(trials, 1.0).to(self.dtype))


def random_(self, from_=None, to=None, *, generator=None, **named):
    """Overwrite with integers on [from, to): `random_(to)`, `random_(from, to)`; without bounds, on
    all that the dtype holds exactly from 0 on.
    """
    low = named.pop("from", from_)
    if named:
        raise TypeError(f"random_() got an unexpected keyword argument {next(iter(named))!r}")
    if low is not None and to is None and "from" not in named:
        low, to = 0, low
    name = name_of(self.dtype)
    if to is None:
        low = low or 0
        to = 2 ** WHOLE[name] if name in WHOLE else 2 ** MANTISSA[name] + 1
    low = low or 0
    if low >= to:
        raise RuntimeError(f"[random_] expects 'from' < 'to', but got from={low} >= to={to}")
    return written(self, integers(self.shape, low, to, generator, place(self)).to(self.dtype))


def integers(shape, low, high, generator, device=None):
    """int64 on [low, high): the bits of two draws where a float64 does not hold the range."""
    span = high - low
    if span <= 2**53:
        drawn = (uniform(shape, generator, _core.float64, device) * float(span)).to(_core.int64)
        return drawn.add_(low)
    word = lambda: (uniform(shape, generator, _core.float64, device) * float(2**32)).to(_core.int64)
    drawn = (word() << 32) + word()  # 64 random bits
    if span < 2**63:
        drawn = op("remainder")(drawn & (2**63 - 1), span)
    elif span == 2**63:
        drawn = drawn & (2**63 - 1)
    return drawn + low


def checked_probability(name, p):
    if isinstance(p, Tensor):
        if p.numel() and not bool(((p >= 0) & (p <= 1)).all()):
            raise RuntimeError(f"[{name}] expected probabilities in [0, 1]")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"[{name}] p lies in [0, 1], got {p}")


def bernoulli_(self, p=0.5, *, generator=None):
    """Overwrite with 1 with probability p (a number, or a tensor of probabilities), else 0."""
    checked_probability("bernoulli_", p)
    wide = _core.float64 if isinstance(p, Tensor) and p.dtype is _core.float64 else _core.float32
    return written(self, op("lt")(uniform(self.shape, generator, wide, place(self)), p))


def bernoulli(input, p=None, *, generator=None, out=None):
    """1 with the probability that each element gives (or p), else 0."""
    if p is None and not input.dtype.is_floating_point:
        raise NotImplementedError(f"[bernoulli] not implemented for {input.dtype.name!r}")
    made = factories.empty_like(input)
    made = bernoulli_(made, input if p is None else p, generator=generator)
    return made if out is None else op("clone")(made, out=out)


def normal(mean=0.0, std=1.0, size=None, *, generator=None, dtype=None, device=None, out=None,
           requires_grad=False):  # fmt: skip
    """Normal numbers with means and deviations one an element, or of the given size."""
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    if isinstance(std, Tensor):
        if std.numel() and bool((std < 0).any()):
            raise RuntimeError("[normal] no element of std may be negative")
    elif std < 0:
        raise RuntimeError(f"[normal] std is not negative, got {std}")
    if tensors:
        from .pieces import broadcast_shapes

        like = tensors[0]
        shape = broadcast_shapes(*[v.shape for v in tensors])
        made = _core.empty(tuple(shape), like.dtype, like.device)
        drawn = randomness.filled("normal", made, generator)
        made = drawn * std + mean
    else:
        if size is None:
            raise TypeError("normal() needs a size where mean and std are numbers")
        made = factories.empty(size, dtype=dtype, device=device)
        made = normal_(made, mean, std, generator=generator)
    return factories.finished(made, requires_grad, out)


def multinomial(self, num_samples, replacement=False, *, generator=None, out=None):
    """Positions drawn by weight, of the vector or of each row: those of the largest weight over an
    exponential number (its distribution is the weights'), the `num_samples` largest where none is
    drawn twice.
    """
    if self.dim() not in (1, 2):
        raise RuntimeError(
            f"[multinomial] weights are a vector or rows of them, got {self.dim()} dims"
        )
    floating("multinomial", self)
    n, weights = self.shape[-1], self.detach()
    if num_samples <= 0:
        raise RuntimeError(f"[multinomial] cannot sample n_sample <= 0 samples, got {num_samples}")
    if not replacement and num_samples > n:
        raise RuntimeError(
            "[multinomial] cannot sample more than there are without replacement: "
            f"{num_samples} > {n}"
        )
    if not bool(((weights >= 0) & (weights < float("inf"))).all()):
        raise RuntimeError("[multinomial] a weight is negative, infinite or NaN")
    positive = op("gt")(weights, 0).sum(-1)
    if not bool((positive > 0).all()):
        raise RuntimeError("[multinomial] invalid distribution: a sum of probabilities <= 0")
    if not replacement and not bool((positive >= num_samples).all()):
        raise RuntimeError(
            "[multinomial] invalid multinomial distribution (with replacement=False, not enough "
            "non-negative category to sample)"
        )
    weights = weights.to(_core.float64)
    if replacement:
        picked = [race(weights, generator).argmax(-1) for _ in range(num_samples)]
        made = op("stack")(picked, -1)
    else:
        made = largest(race(weights, generator), num_samples)
    return made if out is None else op("clone")(made, out=out)


def race(weights, generator):
    """Weight over an exponential number, never 0: the first to arrive is drawn by weight."""
    u = uniform(weights.shape, generator, _core.float64, place(weights))
    return weights / (op("log1p")(-u) * -1.0 + 2.0**-60)


def largest(keys, count):
    """The positions of the `count` largest along the last dim, largest first."""
    if "topk" in TABLE:
        return op("topk")(keys, count, -1)[1]
    places, found = factories.arange(keys.shape[-1], device=place(keys)), []
    for _ in range(count):
        found.append(keys.argmax(-1))
        keys = op("masked_fill")(keys, places.eq(found[-1].unsqueeze(-1)), -1.0)
    return op("stack")(found, -1)


# ---- dropout


def checked_dropout(p):
    if not 0 <= p <= 1:
        raise ValueError(f"[dropout] a probability lies between 0 and 1, got {p}")


def channels(input):
    """One element a sample and channel."""
    if input.dim() < 2:
        raise RuntimeError("[feature_dropout] expected at least 2 dims in the input")
    return (*input.shape[:2], *(1,) * (input.dim() - 2))


def feature_dropout(input, p=0.5, train=True):
    """Whole channels are zeroed with probability p, the others scaled by 1 / (1 - p)."""
    checked_dropout(p)
    if not train or p == 0 or not input.numel():
        return input
    kept = op("ge")(uniform(channels(input), None, device=place(input)), p).to(input.dtype)
    return input * (kept / (1 - p) if p < 1 else kept)


ALPHA = 1.7580993408473766  # of SELU, times its scale


def alpha_mask(input, shape, p):
    """(a, b) of the affine map that keeps mean and deviation of SELU's results."""
    kept = op("ge")(uniform(shape, None, device=place(input)), p).to(input.dtype)
    a = 1.0 / ((ALPHA * ALPHA * p + 1) * (1 - p)) ** 0.5 if p < 1 else 0.0
    return kept * a, (kept - 1) * (ALPHA * a) + ALPHA * a * p


def alpha_dropout(input, p=0.5, train=False):
    """Elements are set to SELU's least value with probability p; mean and deviation stay."""
    return alpha_dropped(input, p, train, lambda x: tuple(x.shape))


def feature_alpha_dropout(input, p=0.5, train=False):
    return alpha_dropped(input, p, train, channels)


def alpha_dropped(input, p, train, shape):
    checked_dropout(p)
    if not train or p == 0 or not input.numel():
        return input
    if p == 1:
        return input * 0.0
    a, b = alpha_mask(input, shape(input), p)
    return input * a + b


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """A slope below 0, drawn for each element in training, the middle one else."""
    if lower > upper:
        raise RuntimeError(f"[rrelu] expected lower <= upper, got {lower} and {upper}")
    slope = (lower + upper) / 2
    if training:
        slope = uniform(input.shape, None, device=place(input)) * (upper - lower) + lower
        slope = slope.to(input.dtype)
    made = op("where")(op("gt")(input, 0), input, input * slope)
    return written(input, made) if inplace else made


def twin(function):
    def method(input, *args, **kwargs):
        return written(input, function(input, *args, **kwargs))

    method.__name__ = function.__name__ + "_"
    return method


METHODS = {
    "uniform_": uniform_,
    "normal_": normal_,
    "log_normal_": log_normal_,
    "exponential_": exponential_,
    "cauchy_": cauchy_,
    "geometric_": geometric_,
    "random_": random_,
    "bernoulli_": bernoulli_,
    "bernoulli": bernoulli,
    "multinomial": multinomial,
}
FUNCTIONS = {
    "bernoulli": bernoulli,
    "multinomial": multinomial,
    "normal": normal,
    "rrelu": rrelu,
    "feature_dropout": feature_dropout,
    "alpha_dropout": alpha_dropout,
    "feature_alpha_dropout": feature_alpha_dropout,
    "dropout_": twin(randomness.dropout),
    "alpha_dropout_": twin(alpha_dropout),
    "feature_dropout_": twin(feature_dropout),
    "feature_alpha_dropout_": twin(feature_alpha_dropout),
}
