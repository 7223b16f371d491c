"""Devices: how many, which is current, what they are."""

from __future__ import annotations

from typing import Any

from rushlight import _core
from rushlight.runtime.cuda import opening


def is_available() -> bool:
    """Whether a CUDA device can be used: a driver that is new enough, and a GPU."""
    return opening.available()[0]


def device_count() -> int:
    """0 where CUDA cannot be used."""
    return _core.cuda_device_count()


def init() -> None:
    """Opens CUDA; RuntimeError, in one sentence, where it cannot be. Calls that need it do this
    themselves.
    """
    _core.resolve_device("cuda")


def is_initialized() -> bool:
    return opening.opened


def index_of(device: Any = None, optional: bool = True) -> int:
    """The number of a CUDA device given as a device, a name, a number or None (the current one)."""
    init()
    if device is None:
        if not optional:
            raise ValueError("[cuda] a CUDA device is needed, got None")
        return _core.cuda_current_device()
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            return _core.cuda_current_device()
        index = device
    else:
        found = _core.resolve_device(str(device))
        if found.type != "cuda":
            raise ValueError(f"[cuda] a CUDA device is needed, got {device}")
        index = found.index
    if index >= device_count():
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: cuda:{index} of {device_count()} devices"
        )
    return index


def current_device() -> int:
    """The number of this thread's current device."""
    init()
    return _core.cuda_current_device()


def set_device(device: Any) -> None:
    """Makes a device this thread's current one; negative numbers change nothing."""
    if isinstance(device, int) and device < 0:
        return
    _core.cuda_set_device(index_of(device))


class device:
    """``with cuda.device(1):`` makes a device the current one inside. None and negative numbers
    change nothing.
    """

    def __init__(self, device: Any) -> None:
        negative = isinstance(device, int) and device < 0
        self.idx = -1 if device is None or negative else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _core.cuda_set_device(self.idx)

    def __exit__(self, *_: object) -> None:
        if self.idx >= 0:
            _core.cuda_set_device(self.prev_idx)


class device_of(device):
    """Makes a tensor's device the current one inside, where it is a CUDA device."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.is_cuda else None)


class DeviceProperties:
    """What the driver says of a device: name, major, minor, total_memory, multi_processor_count,
    ...
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __repr__(self) -> str:
        told = self.__dict__
        return (
            f"_CudaDeviceProperties(name={told['name']!r}, "
            f"major={told['major']}, minor={told['minor']}, "
            f"total_memory={told['total_memory'] >> 20}MB, "
            f"multi_processor_count={told['multi_processor_count']}, "
            f"L2_cache_size={told['L2_cache_size'] >> 20}MB)"
        )


def get_device_properties(device: Any = None) -> Any:
    return DeviceProperties(_core.cuda_properties(index_of(device)))


def get_device_name(device: Any = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(major, minor): (9, 0) on an H200."""
    told = get_device_properties(device)
    return told.major, told.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return including_emulation or get_device_capability()[0] >= 8


def is_tf32_supported() -> bool:
    return get_device_capability()[0] >= 8


def ipc_collect() -> None:
    """No memory is shared with other processes, so there is nothing to collect."""


def get_arch_list() -> list[str]:
    """The architectures that precompiled kernels are there for."""
    if not is_available():
        return []
    from rushlight.runtime.cuda import kernels

    major, minor = get_device_capability()
    return [f"sm_{pack.target}" for pack in kernels.available(10 * major + minor)]


def driver_version() -> int:
    """What the driver supports at most: 13000 is CUDA 13.0."""
    return _core.cuda_driver_version()


def synchronize(device: Any = None) -> None:
    """The host waits for everything queued on a device. Errors that kernels found (an index out of
    range) are raised here.
    """
    _core.cuda_synchronize(index_of(device))
