"""Sample inputs: `t` describes a tensor, `call` a call. Every consumer materialises them for itself."""
from dataclasses import dataclass, field


@dataclass(frozen=True)
class t:
    """A tensor: sizes, dtype, order of dims in memory, step of the last dim, range of values."""
    shape: tuple
    dtype: str = "float32"
    order: tuple | None = None
    step: int = 1
    low: float = -2.0
    high: float = 2.0

    def __init__(self, *shape, dtype="float32", order=None, step=1, low=-2.0, high=2.0):
        for name, value in dict(shape=shape, dtype=dtype, order=order, step=step, low=low, high=high).items():
            object.__setattr__(self, name, value)

    def __str__(self):
        notes = (f" order={self.order}" if self.order else "") + (f" step={self.step}" if self.step != 1 else "")
        return f"{self.dtype}{list(self.shape)}{notes}"


@dataclass(frozen=True)
class call:
    """A call: positional and keyword arguments, with `t` where tensors go."""
    args: tuple
    kwargs: dict = field(default_factory=dict, hash=False)

    def __init__(self, *args, **kwargs):
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "kwargs", kwargs)

    def __str__(self):
        return ", ".join([*map(str, self.args), *(f"{k}={v}" for k, v in self.kwargs.items())])
