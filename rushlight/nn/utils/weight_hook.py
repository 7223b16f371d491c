"""Weight norm by a hook, under the names of older checkpoints: ``weight_g`` and ``weight_v``.

``parametrizations.weight_norm`` is its successor.
"""

from rushlight.nn.parameter import Parameter
from rushlight.nn.utils.parametrizations import norm_except


class WeightNorm:
    """The hook: before each forward, weight = weight_g weight_v / |weight_v|."""

    def __init__(self, name, dim):
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module):
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except(v, self.dim))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def _hook_of(module, name):
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            return key, hook
    return None, None


def apply(module, name="weight", dim=0):
    """``name`` becomes a product of magnitude and direction, computed before each forward."""
    if _hook_of(module, name)[1] is not None:
        raise RuntimeError(f"[weight_norm] {name} has a weight_norm hook already")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(norm_except(weight.detach(), hook.dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove(module, name="weight"):
    """``name`` becomes a parameter again."""
    key, hook = _hook_of(module, name)
    if hook is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    weight = hook.compute_weight(module)
    delattr(module, name)
    for suffix in ("_g", "_v"):
        del module._parameters[name + suffix]
    setattr(module, name, Parameter(weight.detach()))
    del module._forward_pre_hooks[key]
    return module
