"""Masks of causal attention for queries and keys of different lengths."""

from rushlight import eager


def causal_upper_left(*size):
    """[T, S] bool: query t sees keys 0 to t."""
    return mask(size, 0)


def causal_lower_right(*size):
    """[T, S] bool: the last query sees all keys, each one before it one key less."""
    return mask(size, size[1] - size[0] if len(size) == 2 else 0)


def mask(size, diagonal):
    if len(size) != 2:
        raise AssertionError("[CausalBias] takes 2 dims (2D)")
    return eager.ones(size, dtype=eager.bool).tril(diagonal)  # type: ignore[attr-defined]
