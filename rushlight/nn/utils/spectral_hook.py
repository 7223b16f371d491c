"""Spectral norm by a hook, under the names of older checkpoints: ``weight_orig``, ``weight_u``,
``weight_v``.

``parametrizations.spectral_norm`` is its successor.
"""

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.nn import functional as F
from rushlight.nn.conv import _ConvTranspose
from rushlight.nn.parameter import Parameter, is_lazy


class SpectralNorm:
    """The hook: before each forward, weight = weight_orig / u^T W v, where u and v come closer to
    the first singular vectors at each step of training.
    """

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        if n_power_iterations <= 0:
            raise ValueError(
                f"[spectral_norm] n_power_iterations is positive, got {n_power_iterations}"
            )
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def reshape_weight_to_matrix(self, weight):
        """(size of dim, everything else)."""
        return (weight.movedim(self.dim, 0) if self.dim else weight).reshape(
            (weight.shape[self.dim], -1)
        )

    def compute_weight(self, module, do_power_iteration):
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with eager.no_grad():
                fixed = matrix.detach()
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(fixed.t() @ u, dim=0, eps=self.eps))
                    u.copy_(F.normalize(fixed @ v, dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()  # the next step overwrites them
        return weight / (u * (matrix @ v)).sum()

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module, module.training))


def _hook_of(module, name):
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            return key, hook
    return None, None


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """``name`` is divided by its largest singular value before each forward (Miyato et al., 2018).

    dim: which dim counts as rows (0; 1 for transposed convolutions). RuntimeError the second time.
    """
    if _hook_of(module, name)[1] is not None:
        raise RuntimeError(f"[spectral_norm] {name} has a spectral_norm hook already")
    if dim is None:
        dim = 1 if isinstance(module, _ConvTranspose) else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"[spectral_norm] the parameter {name} is None")
    if is_lazy(weight):
        raise ValueError("[spectral_norm] a parameter is uninitialized: call forward once first")
    sizes = hook.reshape_weight_to_matrix(weight.detach()).shape
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.data)  # until the first forward
    for end, size in zip(("_u", "_v"), sizes):
        start = eager.randn(size, dtype=weight.dtype, device=place(weight))
        module.register_buffer(name + end, F.normalize(start, dim=0, eps=eps))
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module, name="weight"):
    """``name`` becomes a parameter again, divided as it is now."""
    key, hook = _hook_of(module, name)
    if hook is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    with eager.no_grad():
        weight = hook.compute_weight(module, False)
    for end in ("", "_u", "_v", "_orig"):
        delattr(module, name + end)
    module.register_parameter(name, Parameter(weight.detach()))
    del module._forward_pre_hooks[key]
    return module
