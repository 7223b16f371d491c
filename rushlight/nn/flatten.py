"""Flatten and Unflatten: neighbouring dims merged into one, and back. They take any tensor and
return a view where possible.
"""

from rushlight.nn.module import Module


class Flatten(Module):
    """Dims start_dim to end_dim (inclusive) become one."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        shape, ndim = tuple(input.shape), input.dim()
        for dim in (self.start_dim, self.end_dim):
            if not -max(ndim, 1) <= dim < max(ndim, 1):
                raise IndexError(
                    f"[Flatten] dim {dim} is out of range: {-max(ndim, 1)} to {max(ndim, 1) - 1}"
                )
        first, last = self.start_dim % max(ndim, 1), self.end_dim % max(ndim, 1)
        if first > last:
            raise RuntimeError("[Flatten] start_dim cannot come after end_dim")
        merged = 1
        for size in shape[first : last + 1]:
            merged *= size
        return input.reshape(shape[:first] + (merged,) + shape[last + 1 :])

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Dim ``dim`` becomes dims of ``unflattened_size`` (one size may be -1)."""

    def __init__(self, dim, unflattened_size):
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError("named dims are not supported: dim must be an int")
        if not all(isinstance(size, int) for size in unflattened_size):
            raise TypeError("[Unflatten] unflattened_size is a tuple of ints")
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input):
        shape = tuple(input.shape)
        dim = self.dim % len(shape)
        return input.reshape(shape[:dim] + self.unflattened_size + shape[dim + 1 :])

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
