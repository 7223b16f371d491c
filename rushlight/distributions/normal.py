"""Normal and what is made of it: LogNormal is in transformed.py."""

import math

from rushlight import eager
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, broadcast_all
from rushlight.eager.inquiry import finfo


class LocationScale(Distribution):
    """Distributions of two broadcast parameters, loc and scale > 0; samples have their dtype."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return self._expanded(type(self), ("loc", "scale"), batch_shape, _instance)

    def _standard(self, sample_shape):
        """Uniform draws over (0, 1) of the shape of a sample."""
        tiny = finfo(self.loc.dtype)
        shape = self._extended_shape(sample_shape)
        draws = eager.rand(shape, dtype=self.loc.dtype, device=self.loc.device)
        return draws.clamp(min=tiny.tiny, max=1 - tiny.eps / 2)


class Normal(LocationScale):
    """The normal distribution of mean loc and standard deviation scale."""

    @property
    def mean(self):
        return self.loc

    mode = mean

    @property
    def stddev(self):
        return self.scale

    @property
    def variance(self):
        return self.scale.pow(2)

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with eager.no_grad():
            return eager.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        draws = eager.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + draws * self.scale

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) ** 2 / (2 * self.scale**2)
        return -z - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 0.5 * (1 + eager.erf((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)))

    def icdf(self, value):
        return self.loc + self.scale * eager.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


class Laplace(LocationScale):
    """The double exponential around loc."""

    @property
    def mean(self):
        return self.loc

    mode = mean

    @property
    def variance(self):
        return 2 * self.scale.pow(2)

    @property
    def stddev(self):
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape=()):
        u = self._standard(sample_shape) - 0.5
        return self.loc - self.scale * u.sign() * eager.log1p(-2 * u.abs().clamp(max=0.5 - 1e-8))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -eager.log(2 * self.scale) - (value - self.loc).abs() / self.scale

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        z = value - self.loc
        return 0.5 - 0.5 * z.sign() * eager.expm1(-z.abs() / self.scale)

    def icdf(self, value):
        term = value - 0.5
        return self.loc - self.scale * term.sign() * eager.log1p(-2 * term.abs())

    def entropy(self):
        return 1 + eager.log(2 * self.scale)


class Cauchy(LocationScale):
    """The ratio of two normal variables, moved by loc and scaled; it has no mean."""

    @property
    def mode(self):
        return self.loc

    @property
    def mean(self):
        return eager.full_like(self.loc, math.nan)

    @property
    def variance(self):
        return eager.full_like(self.loc, math.inf)

    def rsample(self, sample_shape=()):
        return self.icdf(self._standard(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - eager.log1p(z**2)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return eager.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value):
        return eager.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


EULER = 0.57721566490153286060


class Gumbel(LocationScale):
    """Of the largest of many draws."""

    @property
    def mean(self):
        return self.loc + self.scale * EULER

    @property
    def mode(self):
        return self.loc

    @property
    def stddev(self):
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self):
        return self.stddev.pow(2)

    def rsample(self, sample_shape=()):
        return self.icdf(self._standard(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return eager.exp(-eager.exp(-(value - self.loc) / self.scale))

    def icdf(self, value):
        return self.loc - self.scale * eager.log(-eager.log(value))

    def entropy(self):
        return self.scale.log() + (1 + EULER)


class HalfNormal(Distribution):
    """The absolute value of a normal variable of mean 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale, validate_args=None):
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return self._expanded(HalfNormal, ("scale",), batch_shape, _instance)

    @property
    def _base(self):
        return Normal(eager.zeros_like(self.scale), self.scale, validate_args=False)

    @property
    def mean(self):
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self):
        return eager.zeros_like(self.scale)

    @property
    def variance(self):
        return self.scale.pow(2) * (1 - 2 / math.pi)

    def rsample(self, sample_shape=()):
        return self._base.rsample(sample_shape).abs()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        made = self._base.log_prob(value) + math.log(2)
        return eager.where(value >= 0, made, -math.inf)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self._base.cdf(value) - 1

    def icdf(self, prob):
        return self._base.icdf((prob + 1) / 2)

    def entropy(self):
        return self._base.entropy() - math.log(2)
