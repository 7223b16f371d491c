"""Kullback-Leibler divergences between pairs of distributions, found by their classes."""

import math

from rushlight import eager
from rushlight.distributions.composed import Independent, LogNormal, TransformedDistribution
from rushlight.distributions.discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    OneHotCategorical,
    softplus,
)
from rushlight.distributions.distribution import Distribution
from rushlight.distributions.multivariate import MultivariateNormal, divergence
from rushlight.distributions.normal import Cauchy, Gumbel, HalfNormal, Laplace, Normal
from rushlight.distributions.positive import Exponential, Uniform
from rushlight.distributions.transforms import sum_rightmost

_RULES = {}


def register_kl(type_p, type_q):
    """A decorator: the function (p, q) is the divergence of these classes and their subclasses.
    TypeError for what is not a class of distributions."""
    for given in (type_p, type_q):
        if not (isinstance(given, type) and issubclass(given, Distribution)):
            raise TypeError(f"[register_kl] expected a subclass of Distribution, got {given!r}")

    def register(rule):
        _RULES[type_p, type_q] = rule
        return rule

    return register


def kl_divergence(p, q):
    """KL(p || q), of the shape of the batch. NotImplementedError where no rule fits; of several,
    that of the closest classes."""
    best, rule = None, None
    for (a, b), candidate in _RULES.items():
        if isinstance(p, a) and isinstance(q, b):
            far = type(p).__mro__.index(a), type(q).__mro__.index(b)
            if best is None or far < best:
                best, rule = far, candidate
    if rule is None:
        names = f"{type(p).__name__}, {type(q).__name__}"
        raise NotImplementedError(f"[kl_divergence] no rule for ({names})")
    return rule(p, q)


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).pow(2)
    apart = ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + apart - 1 - ratio.log())


register_kl(MultivariateNormal, MultivariateNormal)(divergence)


@register_kl(LogNormal, LogNormal)
def _log_normal(p, q):
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return kl_divergence(p._base, q._base)


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    far = ratio * eager.exp(-apart / p.scale)
    return -ratio.log() + apart / q.scale + far - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    apart = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return apart.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, euler = p.scale / q.scale, 0.57721566490153286060
    first, second = q.loc / q.scale, p.loc / q.scale
    gamma = eager.exp(first - second + eager.lgamma(ratio + 1))
    return -ratio.log() - first + second + ratio * euler + gamma - (1 + euler)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    made = ((q.high - q.low) / (p.high - p.low)).log()
    return eager.where((q.low > p.low) | (q.high < p.high), math.inf, made)


@register_kl(Uniform, Normal)
def _uniform_normal(p, q):
    width, middle = p.high - p.low, (p.high + p.low - 2 * q.loc) / 2
    first = (math.sqrt(math.pi * 2) * q.scale / width).log()
    return first + (width.pow(2) / 12 + middle.pow(2)) / (2 * q.scale.pow(2))


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Exponential, Normal)
def _exponential_normal(p, q):
    scaled = q.scale.pow(2) * p.rate.pow(2)
    first = 0.5 * eager.log(scaled * 2 * math.pi)
    rate, apart = p.rate.reciprocal(), q.loc
    return (
        first
        - 1
        + rate.pow(2) / q.scale.pow(2)
        - apart * rate / q.scale.pow(2)
        + (apart.pow(2) / (2 * q.scale.pow(2)))
    )


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    one = eager.where(q.probs == 0, math.inf, one)
    one = eager.where(p.probs == 0, 0.0, one)
    other = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    other = eager.where(q.probs == 1, math.inf, other)
    return one + eager.where(p.probs == 1, 0.0, other)


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - eager.log1p(-q.probs) / p.probs - q.logits


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    made = p.probs * (p.logits - q.logits)
    made = eager.where(q.probs == 0, math.inf, made)
    return eager.where(p.probs == 0, 0.0, made).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("[kl_divergence] events of different numbers of dims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("[kl_divergence] variables that were transformed differently")
    return kl_divergence(p.base_dist, q.base_dist)
