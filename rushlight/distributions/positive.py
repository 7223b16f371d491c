"""Uniform and Exponential: over an interval, over the positive numbers."""

from rushlight import eager
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, broadcast_all


class Uniform(Distribution):
    """Over [low, high); ValueError unless low < high."""

    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}
    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError(f"[Uniform] low must be below high, got {self.low} and {self.high}")

    def expand(self, batch_shape, _instance=None):
        return self._expanded(Uniform, ("low", "high"), batch_shape, _instance)

    @constraints.dependent_property
    def support(self):
        return constraints.interval(self.low, self.high)

    @property
    def mean(self):
        return (self.high + self.low) / 2

    @property
    def mode(self):
        return self.high * float("nan")

    @property
    def variance(self):
        return (self.high - self.low).pow(2) / 12

    @property
    def stddev(self):
        return (self.high - self.low) / 12**0.5

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        draws = eager.rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + draws * (self.high - self.low)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        inside = (self.low <= value) & (self.high > value)
        return eager.log(inside.to(self.low.dtype)) - eager.log(self.high - self.low)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return eager.log(self.high - self.low)


class Exponential(Distribution):
    """Of the time until an event that comes at `rate`."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return self._expanded(Exponential, ("rate",), batch_shape, _instance)

    @property
    def mean(self):
        return self.rate.reciprocal()

    @property
    def mode(self):
        return eager.zeros_like(self.rate)

    @property
    def stddev(self):
        return self.rate.reciprocal()

    @property
    def variance(self):
        return self.rate.pow(-2)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        draws = eager.empty(shape, dtype=self.rate.dtype, device=self.rate.device).exponential_()
        return draws / self.rate

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 1 - eager.exp(-self.rate * value)

    def icdf(self, value):
        return -eager.log1p(-value) / self.rate

    def entropy(self):
        return 1 - eager.log(self.rate)
