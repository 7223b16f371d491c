"""`rushlight.distributions`: random variables with densities, under PyTorch's names.

What is here: Bernoulli, Categorical, Cauchy, Exponential, Geometric, Gumbel, HalfNormal,
Independent, Laplace, LogNormal, MixtureSameFamily, MultivariateNormal, Normal, OneHotCategorical,
TransformedDistribution and Uniform; constraints, transforms and `kl_divergence` for them. Those
that draw from a gamma distribution (Beta, Dirichlet, Gamma, ...) are not.
"""

from . import constraints, kl, transforms
from .composed import Independent, LogNormal, MixtureSameFamily, TransformedDistribution
from .constraint_registry import biject_to, transform_to
from .discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from .distribution import Distribution
from .kl import kl_divergence, register_kl
from .multivariate import MultivariateNormal
from .normal import Cauchy, Gumbel, HalfNormal, Laplace, Normal
from .positive import Exponential, Uniform
from .transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AffineTransform",
    "Bernoulli",
    "Categorical",
    "Cauchy",
    "ComposeTransform",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Geometric",
    "Gumbel",
    "HalfNormal",
    "Independent",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "PowerTransform",
    "SigmoidTransform",
    "SoftplusTransform",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "constraints",
    "biject_to",
    "identity_transform",
    "kl",
    "kl_divergence",
    "transform_to",
    "register_kl",
    "transforms",
]
