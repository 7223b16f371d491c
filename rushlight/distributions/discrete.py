"""Bernoulli, Geometric, Categorical and OneHotCategorical: given by probabilities or by logits.

Exactly one of probs and logits is given (ValueError otherwise); the other is computed when it is
asked for.
"""

import math

from rushlight import eager
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, broadcast_all, lazy_property
from rushlight.eager.inquiry import finfo


def clamp_probs(probs):
    """Probabilities a little away from 0 and 1, so that logarithms are finite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs, is_binary=False):
    p = clamp_probs(probs)
    return p.log() - eager.log1p(-p) if is_binary else p.log()


def logits_to_probs(logits, is_binary=False):
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def one_of(kind, probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError(f"[{kind}] give either probs or logits, and not both")


class Binary(Distribution):
    """What Bernoulli and Geometric share: one probability an element."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        one_of(type(self).__name__, probs, logits)
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
        else:
            (self.logits,) = broadcast_all(logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def _param(self):
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self):
        return self._param.size()

    def expand(self, batch_shape, _instance=None):
        return self._expanded(type(self), ("probs", "logits"), batch_shape, _instance)


class Bernoulli(Binary):
    """1 with probability probs, else 0; samples have the dtype of the parameter."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    @property
    def mean(self):
        return self.probs

    @property
    def mode(self):
        made = (self.probs >= 0.5).to(self.probs.dtype)
        return eager.where(self.probs == 0.5, math.nan, made)

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        with eager.no_grad():
            return eager.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return value * logits - softplus(logits)

    def entropy(self):
        return softplus(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand=True):
        values = eager.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1, *(1,) * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values


def softplus(x):
    """log(1 + exp(x)), for any x."""
    return x.clamp(min=0) + eager.log1p(eager.exp(-x.abs()))


class Geometric(Binary):
    """How many trials fail before the first that succeeds, each with probability probs."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        super().__init__(probs, logits, validate_args)
        if self._validate_args and probs is not None and not bool((self.probs > 0).all()):
            raise ValueError(f"[Geometric] probs must be positive, got {self.probs}")

    @property
    def mean(self):
        return 1 / self.probs - 1

    @property
    def mode(self):
        return eager.zeros_like(self.probs)

    @property
    def variance(self):
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with eager.no_grad():
            tiny = finfo(self.probs.dtype).tiny
            u = eager.rand(shape, dtype=self.probs.dtype, device=self.probs.device).clamp(min=tiny)
            return (u.log() / eager.log1p(-self.probs)).floor()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        failing = eager.where((probs == 1) & (value == 0), 0.0, probs)
        return value * eager.log1p(-failing) + self.probs.log()

    def entropy(self):
        return (softplus(self.logits) - self.probs * self.logits) / self.probs


class Categorical(Distribution):
    """One of the indices 0 .. n-1 of the last dim, with probabilities that are normalised, or with
    logits, which may lack a constant. Samples are int64.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        one_of("Categorical", probs, logits)
        given = probs if probs is not None else logits
        if given.dim() < 1:
            raise ValueError("[Categorical] the parameter must have at least one dim")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @property
    def _param(self):
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits)

    @property
    def param_shape(self):
        return self._param.size()

    def expand(self, batch_shape, _instance=None):
        new = self._expanded(Categorical, ("probs", "logits"), batch_shape, _instance, event=1)
        new._num_events = self._num_events
        return new

    @constraints.dependent_property(is_discrete=True)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self):
        return eager.full(
            self._extended_shape(), math.nan, dtype=self.probs.dtype, device=self.probs.device
        )

    variance = mean

    @property
    def mode(self):
        return self.probs.argmax(-1)

    def sample(self, sample_shape=()):
        count = math.prod(sample_shape)
        flat = self.probs.detach().reshape(-1, self._num_events)
        drawn = eager.multinomial(flat, count, True)
        return drawn.t().reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value = value.long().unsqueeze(-1)
        value, table = eager.broadcast_tensors(value, self.logits)
        return table.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        least = finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        values = eager.arange(self._num_events, dtype=eager.int64, device=self._param.device)
        values = values.view((-1, *(1,) * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values


class OneHotCategorical(Distribution):
    """A Categorical whose samples are one-hot vectors, of the dtype of the parameter."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(
            self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args
        )

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(OneHotCategorical, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def probs(self):
        return self._categorical.probs

    @property
    def logits(self):
        return self._categorical.logits

    @property
    def param_shape(self):
        return self._categorical.param_shape

    @property
    def mean(self):
        return self.probs

    @property
    def mode(self):
        return self._one_hot(self.probs.argmax(-1))

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def _one_hot(self, indices):
        n = self._event_shape[0]
        places = eager.arange(n, device=self.probs.device)
        return (indices.unsqueeze(-1) == places).to(self.probs.dtype)

    def sample(self, sample_shape=()):
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self._event_shape[0]
        values = eager.eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.view((n, *(1,) * len(self._batch_shape), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """Its rsample lets gradients pass as if the sample were the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
