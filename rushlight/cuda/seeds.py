"""Random numbers on the GPU. All devices draw from the one default stream of the package, so that a
seed gives the same bits on every device: what seeds one seeds all.
"""

from __future__ import annotations

from typing import Any

from rushlight import eager


def manual_seed(seed: int) -> None:
    """Starts the default stream at `seed`. Without a GPU nothing happens, as in PyTorch."""
    from .devices import is_available

    if is_available():
        eager.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    manual_seed(seed)


def seed() -> None:
    """Starts the default stream at a seed from the system."""
    eager.seed()


def seed_all() -> None:
    seed()


def initial_seed() -> int:
    return eager.initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """The default stream's place, a uint8 tensor on the CPU."""
    return eager.get_rng_state()


def get_rng_state_all() -> list[Any]:
    from .devices import device_count

    return [get_rng_state() for _ in range(device_count())]


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    eager.set_rng_state(new_state)


def set_rng_state_all(new_states: Any) -> None:
    for state in new_states:
        set_rng_state(state)
