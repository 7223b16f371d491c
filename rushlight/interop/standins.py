"""Modules of torch's that have no room in Rushlight, made when a program imports them: what they
can truthfully answer on one process and without their device.

`content(name)` gives the names of such a module, or None; `name(name)` what a single name of
another module stands for.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rushlight import config
from rushlight.reasons import refuse

from . import elsewhere, private_names

# Data types of torch's alone: bytes, whether signed; of floats also eps, max, min, tiny.
INTEGERS = {
    **{f"uint{8 << n}": (1 << n, False) for n in (1, 2, 3)},
    "qint8": (1, True),
    "quint8": (1, False),
    "qint32": (4, True),
    "quint4x2": (1, False),
    "quint2x4": (1, False),
}
FLOATS = {
    "float8_e4m3fn": (0.125, 448.0, -448.0, 2.0**-6),
    "float8_e4m3fnuz": (0.125, 240.0, -240.0, 2.0**-7),
    "float8_e5m2": (0.25, 57344.0, -57344.0, 2.0**-14),
    "float8_e5m2fnuz": (0.25, 57344.0, -57344.0, 2.0**-15),
    "float8_e8m0fnu": (1.0, 2.0**127, 2.0**-127, 2.0**-127),
    "float4_e2m1fn_x2": None,
}
# Their submodules are attributes.
HOLDING = ("torch._dynamo", "torch._functorch", "torch._inductor")
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


class TorchDtype:
    """A data type that only torch has: to be compared and looked up, for no tensor can have it."""

    is_complex = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_floating_point = name in FLOATS
        self.itemsize, self.is_signed = INTEGERS.get(name, (1, True))

    @property
    def floating_limits(self) -> dict[str, Any] | None:
        known = FLOATS.get(self.name)
        if known is None:
            return None
        eps, most, least, tiny = known
        return {
            "bits": 8 * self.itemsize,
            "eps": eps,
            "max": most,
            "min": least,
            "smallest_normal": tiny,
            "tiny": tiny,
            "resolution": 1.0,
            "dtype": self.name,
        }

    @property
    def integer_limits(self) -> TorchDtype | None:
        return self if self.name.startswith("uint") else None

    def __repr__(self) -> str:
        return f"torch.{self.name}"


@functools.cache
def torch_dtype(name: str) -> TorchDtype:
    refuse("interop.dtype", f"torch.{name}", "Rushlight has no tensors of it")
    return TorchDtype(name)


def name(full: str) -> Any:
    """What stands for a single name of torch's, or None."""
    known = elsewhere.found(full)
    if known is not None:
        return known
    parent, _, last = full.rpartition(".")
    if parent == "torch" and (last in INTEGERS or last in FLOATS):
        return torch_dtype(last)
    if parent == "torch.ops":
        from .namespaces import Namespace

        return Namespace(last)
    return None


def distribution(version: str) -> Any:
    """torch as an installed package, for who asks for its version."""
    from importlib.metadata import Distribution

    class Torch(Distribution):
        def read_text(self, filename: str) -> str | None:
            text = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
            return text if filename == "METADATA" else None

        def locate_file(self, path: Any) -> Any:
            raise FileNotFoundError(f"torch, which Rushlight stands for, has no file {path}")

    return Torch()


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
        "group": type("group", (), {"WORLD": None}),
        "ReduceOp": IntEnum("ReduceOp", "SUM AVG PRODUCT MIN MAX BAND BOR BXOR", start=0),
    }


MEMORY = (  # counts, of a kind of device that is not there
    "current_allocated_memory driver_allocated_memory max_memory_allocated max_memory_reserved "
    "memory_allocated memory_reserved recommended_max_memory"
)
ABSENT = {  # what does nothing on it
    "torch.mps": "empty_cache manual_seed seed set_per_process_memory_fraction synchronize",
    "torch.mtia": "empty_cache manual_seed manual_seed_all seed seed_all synchronize",
    "torch.xpu": "empty_cache manual_seed manual_seed_all reset_accumulated_memory_stats "
    "reset_peak_memory_stats seed seed_all synchronize",
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


class AnySettings(Settings):
    """Settings of torch's Inductor: all names are taken, kept and change nothing; a recorded
    reason says so. A name that nobody set is refused, but a group of settings."""

    GROUPS = ("aot_inductor", "cpp", "cuda", "trace", "triton")

    def __getattr__(self, name: str) -> Any:
        if name in self.GROUPS:
            self.__dict__[name] = found = AnySettings(f"{self.__name__}.{name}", {})
            return found
        raise AttributeError(f"{self.__name__}.{name} is no setting that Rushlight knows")

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            what = f"{self.__name__}.{name} = {value!r}"
            refuse("interop.setting", what, "it is a setting of torch's compiler")
        self.__dict__[name] = value


def inductor() -> dict[str, Any]:
    return {"config": AnySettings("torch._inductor.config", {})}


def functorch() -> dict[str, Any]:
    return {"config": AnySettings("torch._functorch.config", {})}


def overrides() -> dict[str, Any]:
    """torch.overrides: nothing here asks for `__torch_function__`."""
    from rushlight import eager

    def has_torch_function(relevant_args: Any) -> bool:
        return False

    def is_tensor_like(inp: Any) -> bool:
        return isinstance(inp, eager.Tensor)

    class TorchFunctionMode:
        """To be derived from. Entering one raises, for no call would reach it."""

        def __enter__(self) -> Any:
            raise NotImplementedError(
                f"[{type(self).__name__}] Rushlight does not ask modes of __torch_function__"
            )

        def __exit__(self, *exc: Any) -> None:
            return None

    return {
        "TorchFunctionMode": TorchFunctionMode,
        "get_default_nowrap_functions": lambda: set(),
        "has_torch_function": has_torch_function,
        "has_torch_function_unary": has_torch_function,
        "has_torch_function_variadic": no,
        "is_tensor_like": is_tensor_like,
    }


def custom_ops() -> dict[str, Any]:
    from rushlight import library

    return {n: getattr(library, n) for n in ("custom_op", "impl", "impl_abstract")}


def eager_tensor() -> type:
    from rushlight import eager

    return eager.Tensor


def printing() -> dict[str, Any]:
    """torch._tensor_str: the numbers of a tensor as text, and how they are printed."""
    from rushlight.eager import printing

    class Options:
        precision = property(lambda self: printing.PRECISION)
        threshold = property(lambda self: printing.THRESHOLD)
        edgeitems = property(lambda self: printing.EDGE)
        linewidth = property(lambda self: printing.WIDTH)
        sci_mode = property(lambda self: printing.SCIENTIFIC)

    def tensor_str(self: Any, indent: int) -> str:
        short = printing.summarised(self)
        numbers = printing.leaves(self, short)
        format_ = printing.Formatter(numbers, self.dtype.is_floating_point)
        return printing.nested(self, indent, format_, short)

    return {"PRINT_OPTS": Options(), "_str": repr, "_tensor_str": tensor_str}


def storage() -> dict[str, Any]:
    from rushlight.eager import storage

    return {n: getattr(storage, n) for n in ("TypedStorage", "UntypedStorage")}


def dlpack() -> dict[str, Any]:
    from rushlight import eager

    def to_dlpack(tensor: Any) -> Any:
        return tensor.__dlpack__()

    return {"from_dlpack": eager.from_dlpack, "to_dlpack": to_dlpack}


def dynamo() -> dict[str, Any]:
    from rushlight import dynamo

    names = "allow_in_graph disable explain graph_break is_compiling mark_dynamic reset".split()
    return {
        **{n: getattr(dynamo, n) for n in names},
        "config": Settings("torch._dynamo.config", dict(CONFIG)),
        "assume_constant_result": lambda fn: fn,
        "mark_static_address": nothing,
        "list_backends": lambda *args, **kwargs: sorted(dynamo.BACKENDS),
        "OptimizedModule": dynamo.OptimizedModule,
    }


def configuration() -> dict[str, Any]:
    """torch.__config__: how the library was built, as text."""
    from rushlight import _core, eager

    def parallel_info() -> str:
        return f"Rushlight, {eager.get_num_threads()} threads"

    def show() -> str:
        return f"Rushlight, {_core.__name__}\n{parallel_info()}\n"

    return {"show": show, "parallel_info": parallel_info, "_cxx_flags": lambda: ""}


def across_processes() -> dict[str, Any]:
    """torch.distributed.nn: collectives with derivatives."""
    names = (
        "all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce "
        "reduce_scatter scatter"
    ).split()
    return {name: without_group(f"nn.{name}") for name in names}


def rpc() -> dict[str, Any]:
    names = "init_rpc remote rpc_async rpc_sync shutdown get_worker_info".split()
    return {"is_available": no, **{name: without_group(f"rpc.{name}") for name in names}}


def version(of_torch: str) -> dict[str, Any]:
    from .torch_version import TorchVersion

    none = {"hip": None, "xpu": None, "debug": False, "git_version": None}
    return {"__version__": TorchVersion(of_torch), "cuda": version_of_cuda(), **none}


def transforms() -> dict[str, Any]:
    """Here vmap is a loop in which values may be read, so that no index has to be rewritten."""
    return {"TransformGetItemToIndex": contextlib.nullcontext}


MODULES: dict[str, Callable[[], dict[str, Any]]] = {
    "torch._C": private_names.core,
    "torch.__config__": configuration,
    "torch._custom_ops": custom_ops,
    "torch._dynamo": dynamo,
    "torch._dynamo._trace_wrapped_higher_order_op": transforms,
    "torch._dynamo.utils": elsewhere.dynamo_utilities,
    "torch._functorch": functorch,
    "torch._higher_order_ops": elsewhere.higher_order,
    "torch._higher_order_ops.associative_scan": elsewhere.higher_order,
    "torch._inductor": inductor,
    "torch._tensor": lambda: {"Tensor": eager_tensor()},
    "torch._tensor_str": printing,
    "torch._utils": elsewhere.utilities,
    "torch.distributed.elastic": elsewhere.empty,
    "torch.distributed.elastic.multiprocessing": elsewhere.empty,
    "torch.distributed.elastic.multiprocessing.errors": elsewhere.error_records,
    "torch.functional": elsewhere.functional,
    "torch.onnx": elsewhere.onnx,
    "torch.onnx.symbolic_helper": elsewhere.onnx_helper,
    **{f"torch.onnx.symbolic_opset{n}": elsewhere.empty for n in range(7, 21)},
    "torch.utils.flop_counter": elsewhere.flop_counter,
    "torch.utils.cpp_extension": elsewhere.extensions,
    "torch.cpu": cpu,
    "torch.distributed": distributed,
    "torch.distributed.nn": across_processes,
    "torch.distributed.nn.functional": across_processes,
    "torch.distributed.rpc": rpc,
    "torch.multiprocessing": multiprocessing,
    "torch.overrides": overrides,
    "torch.storage": storage,
    "torch.torch_version": elsewhere.versions,
    "torch.types": lambda: types(),
    "torch.utils.dlpack": dlpack,
}


def content(name: str, of_torch: str) -> dict[str, Any] | None:
    """The names of a module, or None for one that is not known here."""
    if name == "torch.version":
        return version(of_torch)
    if name in ABSENT:
        return {
            "is_available": no,
            "device_count": zero,
            **dict.fromkeys(MEMORY.split(), zero),
            **dict.fromkeys(ABSENT[name].split(), nothing),
        }
    return MODULES[name]() if name in MODULES else None


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
