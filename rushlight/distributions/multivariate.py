"""MultivariateNormal: vectors of normal variables with a covariance."""

import math

from rushlight import eager, linalg
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, lazy_property


def mahalanobis(scale_tril, difference):
    """The squared length of difference under the covariance L L^T; L's batch broadcasts."""
    shape = eager.broadcast_shapes(scale_tril.shape[:-1], difference.shape)
    solved = linalg.solve_triangular(
        scale_tril.expand((*shape, shape[-1])),
        difference.expand(shape).unsqueeze(-1),
        upper=False,
    )
    return solved.squeeze(-1).pow(2).sum(-1)


def inverse(matrix):
    """The inverse of a positive definite matrix."""
    return linalg.inv(matrix)


class MultivariateNormal(Distribution):
    """A normal vector of mean loc and one of covariance_matrix, precision_matrix (its inverse) or
    scale_tril (lower triangular, its Cholesky factor): ValueError unless exactly one is given.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc,
        covariance_matrix=None,
        precision_matrix=None,
        scale_tril=None,
        validate_args=None,
    ):
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if loc.dim() < 1:
            raise ValueError("[MultivariateNormal] loc must have at least one dim")
        if len(given) != 1:
            raise ValueError(
                "[MultivariateNormal] give exactly one of covariance_matrix, precision_matrix and "
                "scale_tril"
            )
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError(f"[MultivariateNormal] {name} must have at least two dims")
        batch = eager.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = matrix.expand((*batch, *matrix.shape[-2:]))
        self.loc = loc.expand((*batch, loc.shape[-1]))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        names = ("covariance_matrix", "precision_matrix", "scale_tril")
        new = self._expanded(MultivariateNormal, names, batch_shape, _instance, event=2)
        new.loc = self.loc.expand((*batch_shape, *self._event_shape))
        return new

    @lazy_property
    def scale_tril(self):
        if "covariance_matrix" in self.__dict__:
            return linalg.cholesky(self.covariance_matrix)
        return linalg.cholesky(inverse(self.precision_matrix))

    @lazy_property
    def covariance_matrix(self):
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self):
        return inverse(self.covariance_matrix)

    @property
    def mean(self):
        return self.loc

    mode = mean

    @property
    def variance(self):
        return self.scale_tril.pow(2).sum(-1).expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        draws = eager.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ draws.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        far = mahalanobis(self.scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + far) - self._half_log_det()

    def _half_log_det(self):
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def entropy(self):
        made = 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()
        return made.expand(self._batch_shape)


def divergence(p, q):
    """KL(p || q) of two of them."""
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"[kl_divergence] events of shapes {tuple(p.event_shape)} and {tuple(q.event_shape)}"
        )
    n = p.event_shape[0]
    shape = (*eager.broadcast_shapes(p.batch_shape, q.batch_shape), n, n)
    solved = linalg.solve_triangular(
        q.scale_tril.expand(shape), p.scale_tril.expand(shape), upper=False
    )
    trace, far = solved.pow(2).sum((-2, -1)), mahalanobis(q.scale_tril, q.loc - p.loc)
    return q._half_log_det() - p._half_log_det() + 0.5 * (trace + far - n)
