"""Modules of torch's that have no room in Rushlight, made when a program imports them: what they
can truthfully answer on one process and without their device.

`content(name)` gives the names of such a module, or None.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rushlight import config
from rushlight.reasons import refuse

HOLDING = ("torch._dynamo",)  # their submodules are attributes
LIMITS = ("cache_size_limit", "recompile_limit")  # of torch._dynamo.config: ours has one
CONFIG = {  # the rest of it: settings of a compiler that is another one here
    "accumulated_cache_size_limit": 256,
    "accumulated_recompile_limit": 256,
    "assume_static_by_default": True,
    "automatic_dynamic_shapes": True,
    "capture_dynamic_output_shape_ops": False,
    "capture_scalar_outputs": False,
    "dynamic_shapes": True,
    "guard_nn_modules": True,
    "inline_inbuilt_nn_modules": True,
    "log_level": 30,
    "optimize_ddp": True,
    "suppress_errors": False,
    "verbose": False,
}


def no(*args: Any, **kwargs: Any) -> bool:
    return False


def zero(*args: Any, **kwargs: Any) -> int:
    return 0


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


def without_group(name: str) -> Callable[..., Any]:
    """A function of torch.distributed that needs a process group."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"[distributed.{name}] the default process group is not initialised")

    return refuse


def init_process_group(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "[distributed.init_process_group] torch.distributed is not available: programs run on one "
        "process here (is_available() says so)"
    )


def distributed() -> dict[str, Any]:
    from enum import IntEnum

    names = (
        "all_gather all_gather_into_tensor all_gather_object all_reduce all_to_all barrier "
        "broadcast broadcast_object_list destroy_process_group gather get_backend get_rank "
        "get_world_size isend irecv new_group recv reduce reduce_scatter scatter send"
    ).split()
    return {
        **{name: without_group(name) for name in names},
        "init_process_group": init_process_group,
        "is_available": no,
        "is_initialized": no,
        "is_gloo_available": no,
        "is_mpi_available": no,
        "is_nccl_available": no,
        "is_torchelastic_launched": no,
        "ReduceOp": IntEnum("ReduceOp", "SUM AVG PRODUCT MIN MAX BAND BOR BXOR", start=0),
    }


ABSENT = {  # what does nothing on a kind of device that is not there
    "torch.mps": "empty_cache manual_seed seed synchronize",
    "torch.mtia": "empty_cache manual_seed manual_seed_all seed seed_all synchronize",
    "torch.xpu": "empty_cache manual_seed manual_seed_all seed seed_all synchronize",
}


def cpu() -> dict[str, Any]:
    return {
        "current_device": lambda: "cpu",
        "device_count": lambda: 1,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "set_device": nothing,
        "synchronize": nothing,
    }


def version_of_cuda() -> str | None:
    """The driver's, as "12.4"; None where there is no GPU."""
    from rushlight import cuda

    if not cuda.is_available():
        return None
    number = cuda.driver_version()
    return f"{number // 1000}.{number % 1000 // 10}"


def multiprocessing() -> dict[str, Any]:
    """Python's, for tensors can be pickled; memory is shared within a message."""
    import multiprocessing

    names = [n for n in dir(multiprocessing) if not n.startswith("_")]
    return {
        **{n: getattr(multiprocessing, n) for n in names},
        "get_all_sharing_strategies": lambda: {"file_descriptor"},
        "get_sharing_strategy": lambda: "file_descriptor",
        "set_sharing_strategy": nothing,
    }


class Settings(ModuleType):
    """Settings under torch's names. Limits of recompiling are `config.flags.recompile_limit`. The
    rest is kept and changes nothing, with a recorded reason; other names are refused."""

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        if name in LIMITS:
            return config.flags.recompile_limit
        raise AttributeError(f"{self.__name__}.{name} is no setting")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in LIMITS:
            config.flags.recompile_limit = value
            return
        if name not in self.__dict__ and not name.startswith("__"):
            raise AttributeError(f"{self.__name__}.{name} is no setting")
        if name in CONFIG and value != CONFIG[name]:
            what = f"{self.__name__}.{name} = {value!r}"
            refuse("interop.setting", what, "it is a setting of torch's compiler")
        self.__dict__[name] = value

    @contextlib.contextmanager
    def patch(self, changes: Any = None, **more: Any) -> Any:
        """A context with changed settings."""
        given = {**({} if changes is None else changes), **more}
        before = {name: getattr(self, name) for name in given}
        for name, value in given.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


def dynamo() -> dict[str, Any]:
    from rushlight import dynamo

    names = "allow_in_graph disable explain graph_break is_compiling mark_dynamic reset".split()
    return {
        **{n: getattr(dynamo, n) for n in names},
        "config": Settings("torch._dynamo.config", dict(CONFIG)),
        "list_backends": lambda *args, **kwargs: sorted(dynamo.BACKENDS),
        "OptimizedModule": dynamo.OptimizedModule,
    }


def content(name: str, version: str) -> dict[str, Any] | None:
    """The names of a module, or None for one that is not known here."""
    if name == "torch.distributed":
        return distributed()
    if name == "torch.version":
        none = {"hip": None, "xpu": None, "debug": False}
        return {"__version__": version, "cuda": version_of_cuda(), **none}
    if name in ABSENT:
        return {
            "is_available": no,
            "device_count": zero,
            **dict.fromkeys(ABSENT[name].split(), nothing),
        }
    if name == "torch.cpu":
        return cpu()
    if name == "torch.multiprocessing":
        return multiprocessing()
    if name == "torch._dynamo":
        return dynamo()
    if name == "torch.types":
        return types()
    return None


def types() -> dict[str, Any]:
    from typing import Any as Anything
    from typing import Union

    from rushlight import _core, eager

    return {
        "Number": Union[int, float, bool],  # noqa: UP007
        "Device": Union[eager.device, str, int, None],  # noqa: UP007
        "Tensor": eager.Tensor,
        "_size": Union[eager.Size, list[int], tuple[int, ...]],  # noqa: UP007
        "_dtype": _core.dtype,
        "_device": eager.device,
        "Any": Anything,
    }
