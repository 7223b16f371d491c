"""What the caching allocator holds, in bytes. Memory that tensors left is kept for the next ones:
`memory_reserved` counts it.
"""

from __future__ import annotations

from typing import Any

from rushlight import _core

from .devices import index_of, is_initialized


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    if not is_initialized():
        return {}
    return _core.cuda_memory_stats(index_of(device))


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Counts by name, as PyTorch names them: "allocated_bytes.all.peak", "num_ooms", ..."""
    flat: dict[str, Any] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                add(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat[prefix] = value

    add("", memory_stats_as_nested_dict(device))
    return dict(sorted(flat.items()))


def count(name: str, what: str, device: Any) -> int:
    return memory_stats(device).get(f"{name}_bytes.all.{what}", 0)


def memory_allocated(device: Any = None) -> int:
    """Bytes in tensors."""
    return count("allocated", "current", device)


def max_memory_allocated(device: Any = None) -> int:
    return count("allocated", "peak", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes held of the device: in tensors, and cached."""
    return count("reserved", "current", device)


def max_memory_reserved(device: Any = None) -> int:
    return count("reserved", "peak", device)


def reset_peak_memory_stats(device: Any = None) -> None:
    _core.cuda_memory_reset(index_of(device), False)


def reset_max_memory_allocated(device: Any = None) -> None:
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    _core.cuda_memory_reset(index_of(device), True)


def empty_cache() -> None:
    """Memory that no tensor uses goes back to the driver, on every device that was used."""
    if is_initialized():
        for index in range(_core.cuda_device_count()):
            _core.cuda_memory_empty(index)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a device, as the driver says."""
    return _core.cuda_memory_info(index_of(device))


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """At most so much of a device's memory is held; beyond, an allocation fails as if there were no
    more.
    """
    if not isinstance(fraction, float):
        raise TypeError(
            "[set_per_process_memory_fraction] the fraction is a float, got "
            f"{type(fraction).__name__}"
        )
    if not 0 <= fraction <= 1:
        raise ValueError(
            f"[set_per_process_memory_fraction] a fraction lies in [0, 1], got {fraction}"
        )
    index = index_of(device)
    total = _core.cuda_properties(index)["total_memory"]
    _core.cuda_memory_limit(index, max(1, int(total * fraction)) if fraction < 1 else 0)


def get_per_process_memory_fraction(device: Any = None) -> float:
    index = index_of(device)
    limit = _core.cuda_memory_stats(index)["limit"]
    return limit / _core.cuda_properties(index)["total_memory"] if limit else 1.0


def get_allocator_backend() -> str:
    """"native": the package's own caching allocator."""
    return "native"


def memory_snapshot() -> list[dict[str, Any]]:
    """The allocator's segments and their blocks, on every device."""
    segments: dict[tuple[int, int], dict[str, Any]] = {}
    for index in range(_core.cuda_device_count() if is_initialized() else 0):
        for start, whole, at, size, asked, state, small, stream in _core.cuda_memory_blocks(index):
            segment = segments.setdefault(
                (index, start),
                {
                    "device": index,
                    "address": start,
                    "total_size": whole,
                    "allocated_size": 0,
                    "active_size": 0,
                    "stream": stream,
                    "segment_type": "small" if small else "large",
                    "blocks": [],
                },
            )
            segment["allocated_size"] += size if state == "active_allocated" else 0
            segment["active_size"] += size if state != "inactive" else 0
            segment["blocks"].append(
                {"address": at, "size": size, "requested_size": asked, "state": state}
            )
    return list(segments.values())


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counts as a table."""
    stats = memory_stats_as_nested_dict(device)
    index = index_of(device)
    names = {
        "allocated_bytes": "in tensors",
        "active_bytes": "in tensors, or waiting for a stream",
        "requested_bytes": "asked for",
        "reserved_bytes": "held",
        "inactive_split_bytes": "cached, in pieces",
        "allocation": "allocations",
        "segment": "segments",
    }
    lines = [f"memory of cuda:{index}", f"{'':38}{'current':>14}{'peak':>14}{'in all':>16}"]
    for name, told in names.items():
        for pool in ("all",) if abbreviated else ("all", "large_pool", "small_pool"):
            c = stats[name][pool]
            label = told if pool == "all" else "  " + pool.replace("_", " ")
            lines.append(f"{label:38}{c['current']:14,}{c['peak']:14,}{c['allocated']:16,}")
    lines.append(
        f"out of memory {stats['num_ooms']} times; cache emptied to make room "
        f"{stats['num_alloc_retries']} times"
    )
    return "\n".join(lines)
