"""`rushlight.random`: the default stream of random numbers, under PyTorch's names."""

from contextlib import contextmanager

from .eager.randomness import (
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)


@contextmanager
def fork_rng(devices=None, enabled=True, device_type="cuda"):
    """What is drawn inside leaves the default stream as it was. devices, device_type: of GPUs,
    which are not there.
    """
    if not enabled:
        yield
        return
    state = default_generator.position()
    try:
        yield
    finally:
        default_generator.move_to(state)


__all__ = [
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]
