"""`rushlight.cuda`, under PyTorch's names. Without a GPU it imports, says so (`is_available()` is
False), and whatever needs one raises RuntimeError with one sentence.
"""

from .devices import (
    current_device,
    device,
    device_count,
    device_of,
    driver_version,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    ipc_collect,
    is_available,
    is_bf16_supported,
    is_initialized,
    is_tf32_supported,
    set_device,
    synchronize,
)
from .memory import (
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .seeds import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    set_stream,
    stream,
)
from .waits import (
    Wait,
    counts,
    get_sync_debug_mode,
    set_sync_debug_mode,
    sync_debug,
    take_waits,
)


def __getattr__(name):
    if name == "amp":
        from importlib import import_module

        return import_module("rushlight.cuda.amp")
    if name == "OutOfMemoryError":
        from rushlight.errors import OutOfMemoryError

        return OutOfMemoryError
    raise AttributeError(f"module 'rushlight.cuda' has no attribute {name!r}")


__all__ = [
    "is_current_stream_capturing",
    "ExternalStream",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "ipc_collect",
    "is_tf32_supported",
    "Event",
    "Stream",
    "StreamContext",
    "Wait",
    "counts",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "driver_version",
    "empty_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "get_sync_debug_mode",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "sync_debug",
    "synchronize",
    "take_waits",
]
