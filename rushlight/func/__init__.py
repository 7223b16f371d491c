"""`rushlight.func`: functions of functions. Derivatives (`grad`, `vjp`, `jacrev`, ...) by the tape,
`vmap` by a loop, modules as functions of their parameters.
"""

from rushlight.nn.utils.stateless import functional_call

from .batching import vmap
from .modules import replace_all_batch_norm_modules_, stack_module_state
from .transforms import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
