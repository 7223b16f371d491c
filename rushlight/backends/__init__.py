"""`rushlight.backends`: what scripts ask of PyTorch's back ends. Flags are remembered; devices and
libraries that are not there say so.

Kernels of this package are deterministic, and on the CPU never reduced to TF32, so `deterministic`
and `benchmark` change nothing. `cuda.matmul.allow_tf32` and `cudnn.allow_tf32` decide about
products and convolutions on a GPU, as in PyTorch.
"""

import contextlib
import sys
from types import ModuleType

from rushlight import _core
from rushlight.eager import attention_kernels
from rushlight.runtime.cuda import libraries


class Backend(ModuleType):
    """A module of flags; anything else is refused, so that a misspelled flag is told of."""

    def __init__(self, name, available=False, **flags):
        super().__init__(f"rushlight.backends.{name}", f"Flags of {name}.")
        self.__dict__.update(flags, _flags=frozenset(flags), _told={})
        self.__dict__["is_available"] = lambda: available
        self.__dict__["is_built"] = lambda: available

    def __setattr__(self, name, value):
        if not name.startswith("__") and name not in self._flags:
            raise AttributeError(f"{self.__name__} has no flag {name!r}")
        self.__dict__[name] = value
        if name in self._told:
            self._told[name](value)


cudnn = Backend(
    "cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10
)
cudnn.__dict__["version"] = lambda: None
cudnn._told["allow_tf32"] = lambda on: _core.cuda_tf32("cudnn", int(bool(on)))
cudnn.__dict__["is_available"] = lambda: (
    _core.cuda_available()[0] and not libraries.missing("cudnn")
)


@contextlib.contextmanager
def _cudnn_flags(
    enabled=False,
    benchmark=False,
    benchmark_limit=10,
    deterministic=False,
    allow_tf32=True,
    fp32_precision="none",
):
    """`cudnn.flags(...)`: a context with these flags."""
    given = {
        "enabled": enabled,
        "benchmark": benchmark,
        "benchmark_limit": benchmark_limit,
        "deterministic": deterministic,
        "allow_tf32": allow_tf32,
    }
    before = {name: getattr(cudnn, name) for name in given}
    try:
        for name, value in given.items():
            setattr(cudnn, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(cudnn, name, value)


cudnn.__dict__["flags"] = _cudnn_flags
mps = Backend("mps")
cuda = Backend("cuda")
cuda.__dict__["is_built"] = lambda: True  # the driver is looked for when a GPU is asked for
cuda.__dict__["is_available"] = lambda: _core.cuda_available()[0]
cuda.__dict__["matmul"] = Backend(
    "cuda.matmul",
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
)
cuda.matmul._told["allow_tf32"] = lambda on: _core.cuda_tf32("matmul", int(bool(on)))
cuda.__dict__.update(attention_kernels.functions())
mkldnn = Backend("mkldnn", available=True, enabled=True, deterministic=False, allow_tf32=True)
openmp = Backend("openmp", available=True)
mkl = Backend("mkl")

for _module in (cudnn, mps, cuda, mkldnn, openmp, mkl):
    sys.modules[_module.__name__] = _module  # so that `import rushlight.backends.cudnn` finds it
