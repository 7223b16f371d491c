"""Which kernels `scaled_dot_product_attention` may use, under PyTorch's names."""

from contextlib import contextmanager
from enum import IntEnum

from rushlight.eager.attention_kernels import ENABLED


class SDPBackend(IntEnum):
    """PyTorch's kernels of `scaled_dot_product_attention`."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


FLAGS = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


@contextmanager
def sdpa_kernel(backends, set_priority=False):
    """A block in which attention may use these kernels alone: one SDPBackend or a list of them.

    There is one way of computing attention here for each device, so the result is the same under
    each. AssertionError for what is no backend.
    """
    backends = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(backends, (list, tuple)) or not all(
        isinstance(b, SDPBackend) for b in backends
    ):
        raise AssertionError(
            f"[sdpa_kernel] takes an SDPBackend or a list of them, got {backends!r}"
        )
    before = dict(ENABLED)
    ENABLED.update({flag: backend in backends for backend, flag in FLAGS.items()})
    try:
        yield {}
    finally:
        ENABLED.update(before)
