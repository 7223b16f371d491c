"""All parameters as one vector, and back."""

from rushlight import eager


def parameters_to_vector(parameters):
    """1-D tensor of all elements of all parameters, in order."""
    return eager.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec, parameters):
    """Gives each parameter its slice of ``vec`` as its data (memory shared). TypeError unless vec
    is a Tensor.
    """
    if not isinstance(vec, eager.Tensor):
        raise TypeError(f"expected Tensor, but got: {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec.detach()[start : start + count].view(parameter.shape)
        start += count
