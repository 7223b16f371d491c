"""The same numbers for every peer: float32 arrays made by numpy from a seed of their own."""

import zlib


def array(name: str, shape: tuple[int, ...], scale: float = 1.0, shift: float = 0.0):
    import numpy as np

    generator = np.random.default_rng([20240601, zlib.crc32(name.encode())])
    values = generator.standard_normal(shape, dtype=np.float32)
    values *= np.float32(scale)
    values += np.float32(shift)
    return values


def tensor(torch, name: str, shape: tuple[int, ...], scale: float = 1.0, shift: float = 0.0):
    return torch.from_numpy(array(name, shape, scale, shift))


def fill(torch, module, name: str) -> None:
    """Numbers by its name for every parameter; the fan-in scale keeps activations near 1."""
    for key, parameter in module.named_parameters():
        shape = tuple(parameter.shape)
        if len(shape) > 1:
            values = tensor(torch, f"{name}.{key}", shape, shape[-1] ** -0.5)
        else:
            values = tensor(torch, f"{name}.{key}", shape, 0.05)
        with torch.no_grad():
            parameter.copy_(values)


def ids(torch, shape, below: int):
    """Whole numbers from 0 to below, the same for every peer."""
    import numpy as np

    return torch.from_numpy(np.random.default_rng(99).integers(0, below, size=shape))
