"""Parametrizations ready to use: weight norm (Salimans and Kingma, 2016), spectral norm (Miyato et
al., 2018).
"""

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.nn import functional as F
from rushlight.nn.module import Module
from rushlight.nn.utils import parametrize


def norm_except(v, dim):
    """The 2-norm over all dims but ``dim`` (None or -1: over all), dims kept."""
    if dim is None or dim == -1:
        return eager.sqrt((v * v).sum())
    dims = tuple(d for d in range(v.dim()) if d != dim % v.dim())
    return eager.sqrt((v * v).sum(dims, keepdim=True)) if dims else eager.abs(v)


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight):
        return norm_except(weight, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """``name`` as magnitude (original0) times direction (original1) of each slice along ``dim``."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        ndim = weight.dim()
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"[spectral_norm] dim {dim} is out of range: -{ndim} to {ndim - 1}")
        if n_power_iterations <= 0:
            raise ValueError(
                f"[spectral_norm] n_power_iterations is positive, got {n_power_iterations}"
            )
        self.dim, self.eps = dim if dim >= 0 else dim + ndim, eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            rows, columns = matrix.shape
            for buffer, size in (("_u", rows), ("_v", columns)):
                start = eager.randn(size, dtype=weight.dtype, device=place(weight))
                self.register_buffer(buffer, F.normalize(start, dim=0, eps=eps))
            self._power(matrix, 15)

    def _matrix(self, weight):
        """(size of dim, everything else)."""
        if self.dim:
            order = (self.dim, *(d for d in range(weight.dim()) if d != self.dim))
            weight = weight.permute(order)
        return weight.reshape((weight.shape[0], -1))

    def _power(self, matrix, steps):
        """Power iteration: u and v towards the first singular vectors, in place."""
        with eager.no_grad():
            for _ in range(steps):
                self._u.copy_(F.normalize(matrix @ self._v, dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t() @ self._u, dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._power(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """``name`` divided by its largest singular value, estimated by power iteration.

    dim: which dim counts as rows (0; 1 for transposed convolutions).
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, eager.Tensor):
        raise ValueError(f"[spectral_norm] {module} has no parameter or buffer {name!r}")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    norm = _SpectralNorm(weight.detach(), n_power_iterations, dim, eps)
    parametrize.register_parametrization(module, name, norm)
    return module
