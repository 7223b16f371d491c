"""Distributions made of others: Independent, TransformedDistribution, LogNormal and
MixtureSameFamily.
"""

from rushlight import eager
from rushlight.distributions import constraints
from rushlight.distributions.discrete import Categorical
from rushlight.distributions.distribution import Distribution
from rushlight.distributions.normal import Normal
from rushlight.distributions.transforms import (
    ComposeTransform,
    ExpTransform,
    Transform,
    sum_rightmost,
)


class Independent(Distribution):
    """Takes the last reinterpreted_batch_ndims dims of the batch into the event: their log_probs
    are added up. ValueError where the batch has fewer dims.
    """

    arg_constraints = {}

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        shape = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(shape):
            raise ValueError(
                f"[Independent] {reinterpreted_batch_ndims} dims of the batch are asked for, "
                f"but it has {len(shape)}: {tuple(shape)}"
            )
        shape = (*shape, *base_distribution.event_shape)
        event = reinterpreted_batch_ndims + len(base_distribution.event_shape)
        cut = len(shape) - event
        self.base_dist, self.reinterpreted_batch_ndims = (
            base_distribution,
            reinterpreted_batch_ndims,
        )
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Independent, _instance)
        batch_shape = eager.Size(batch_shape)
        inner = self._event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*batch_shape, *inner))
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    @property
    def has_enumerate_support(self):
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self):
        inner, n = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(inner, n) if n else inner

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("[Independent] enumerating a product of supports")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self):
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """What a variable of base_distribution becomes through transforms, one or a list.

    log_prob adds the logarithms of the Jacobians of the way back.
    """

    arg_constraints: dict = {}

    def __init__(self, base_distribution, transforms, validate_args=None):
        one = isinstance(transforms, Transform)
        self.transforms = [transforms] if one else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(
                f"[TransformedDistribution] takes a Transform or a list of them, got {transforms!r}"
            )
        whole = ComposeTransform(self.transforms)
        base, event = base_distribution, len(base_distribution.event_shape)
        shape = (*base.batch_shape, *base.event_shape)
        domain = whole.domain.event_dim
        if len(shape) < domain:
            raise ValueError(
                f"[TransformedDistribution] the base needs at least {domain} dims, got {shape}"
            )
        after = whole.forward_shape(shape)
        base = base.expand(after[: len(after) - event])
        if domain > event:
            base = Independent(base, domain - event)
        self.base_dist = base
        event = max(whole.codomain.event_dim, event)
        cut = len(after) - event
        super().__init__(after[:cut], after[cut:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(TransformedDistribution, _instance)
        shape = (*batch_shape, *self._event_shape)
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        cut = len(shape) - len(self.base_dist.event_shape)
        new.base_dist, new.transforms = self.base_dist.expand(shape[:cut]), self.transforms
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property(is_discrete=False)
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        space, event = self.transforms[-1].codomain, len(self._event_shape)
        more = event - space.event_dim
        return constraints.independent(space, more) if more > 0 else space

    def _through(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape=()):
        with eager.no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=()):
        return self._through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        event, made, y = len(self._event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform._inv_call(y)
            event += transform.domain.event_dim - transform.codomain.event_dim
            jacobian = transform.log_abs_det_jacobian(x, y)
            made = made - sum_rightmost(jacobian, event - transform.domain.event_dim)
            y = x
        inner = self.base_dist.log_prob(y)
        return made + sum_rightmost(inner, event - len(self.base_dist.event_shape))

    def _sign(self):
        made = 1
        for transform in self.transforms:
            made = made * transform.sign
        return made

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        for transform in reversed(self.transforms):
            value = transform._inv_call(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value):
        return self._through(self.base_dist.icdf(self._turned(value)))

    def _turned(self, value):
        """A probability, seen from the other end where the transforms decrease."""
        sign = self._sign()
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5


class LogNormal(TransformedDistribution):
    """exp of a normal variable."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return super().expand(batch_shape, self._get_checked_instance(LogNormal, _instance))

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)

    @property
    def mean(self):
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self):
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self):
        squared = self.scale.pow(2)
        return eager.expm1(squared) * (2 * self.loc + squared).exp()

    def entropy(self):
        return self.base_dist.entropy() + self.loc


class MixtureSameFamily(Distribution):
    """A mixture: mixture_distribution, a Categorical, chooses along the last dim of the batch of
    component_distribution. ValueError where they do not fit.
    """

    arg_constraints: dict = {}
    has_rsample = False

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        mixture, component = mixture_distribution, component_distribution
        if not isinstance(mixture, Categorical):
            raise ValueError("[MixtureSameFamily] the mixture must be a Categorical")
        if not isinstance(component, Distribution):
            raise ValueError("[MixtureSameFamily] the components must be a Distribution")
        inner = component.batch_shape[:-1]
        for a, b in zip(reversed(mixture.batch_shape), reversed(inner), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"[MixtureSameFamily] batches do not fit: {tuple(mixture.batch_shape)} and "
                    f"{tuple(inner)}"
                )
        if mixture.param_shape[-1] != component.batch_shape[-1]:
            raise ValueError(
                f"[MixtureSameFamily] {mixture.param_shape[-1]} weights for "
                f"{component.batch_shape[-1]} components"
            )
        self._mixture_distribution, self._component_distribution = mixture, component
        self._num_component, self._event_ndims = (
            component.batch_shape[-1],
            len(component.event_shape),
        )
        super().__init__(inner, component.event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        wanted = (*batch_shape, self._num_component)
        new._component_distribution = self._component_distribution.expand(wanted)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @constraints.dependent_property
    def support(self):
        return self._component_distribution.support

    def _weights(self):
        probs = self._mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * self._event_ndims)

    def _over_components(self, x):
        return x.sum(-1 - self._event_ndims)

    @property
    def mean(self):
        return self._over_components(self._weights() * self._component_distribution.mean)

    @property
    def variance(self):
        inner, weights = self._component_distribution, self._weights()
        within = self._over_components(weights * inner.variance)
        apart = inner.mean - self.mean.unsqueeze(-1 - self._event_ndims)
        return within + self._over_components(weights * apart.pow(2))

    def _pad(self, value):
        return value.unsqueeze(-1 - self._event_ndims)

    def cdf(self, x):
        inner = self._component_distribution.cdf(self._pad(x))
        return (inner * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        if self._validate_args:
            self._validate_sample(x)
        inner = self._component_distribution.log_prob(self._pad(x))
        return (inner + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape=()):
        with eager.no_grad():
            drawn = self._component_distribution.sample(sample_shape)
            chosen = self._mixture_distribution.sample(sample_shape)
            place = len(sample_shape) + len(self._batch_shape)
            chosen = chosen.reshape(*chosen.shape, 1, *(1,) * self._event_ndims)
            wide = chosen.expand((*drawn.shape[:place], 1, *self._event_shape))
            return drawn.gather(place, wide).squeeze(place)

    def __repr__(self):
        return (
            f"MixtureSameFamily({self._mixture_distribution!r}, {self._component_distribution!r})"
        )
