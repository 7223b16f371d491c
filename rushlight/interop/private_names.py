"""`torch._C` and other private names of torch's that libraries ask for: what is known here.

`core()` gives the names of `torch._C`. What switches a part of torch that is not here does nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any

SWITCHES = (
    "_jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu _jit_set_bailout_depth "
    "_jit_set_fusion_strategy _jit_set_nvfuser_enabled _jit_set_nvfuser_guard_mode "
    "_jit_set_profiling_executor _jit_set_profiling_mode _jit_set_texpr_fuser_enabled "
    "_log_api_usage_once _set_math_sdp_allow_fp16_bf16_reduction"
)
QUESTIONS = (
    "_are_functorch_transforms_active _cuda_isInBadFork _jit_can_fuse_on_cpu _jit_can_fuse_on_gpu "
    "_jit_texpr_fuser_enabled _is_tracing _has_mps _has_cuda"
)
CLASSES = "Graph Node ScriptFunction ScriptModule ScriptObject TensorType Value"  # nothing is one


def no(*args: Any) -> bool:
    return False


def itself(x: Any) -> Any:
    return x


def nothing(*args: Any) -> None:
    return None


def core() -> dict[str, Any]:
    from types import SimpleNamespace

    from rushlight import _core, eager
    from rushlight.eager import randomness

    def no_torch_function(*args: Any, **kwargs: Any) -> Any:
        return NotImplemented

    return {
        **dict.fromkeys(SWITCHES.split(), nothing),
        **dict.fromkeys(QUESTIONS.split(), no),
        **{n: type(n, (), {"__module__": "torch._C"}) for n in CLASSES.split()},
        "DispatchKey": DispatchKey,
        "DispatchKeySet": frozenset_of,
        "_ExcludeDispatchKeyGuard": contextlib.nullcontext,
        "Generator": type(randomness.default_generator),
        "_TensorMeta": type(eager.Tensor),
        "_disabled_torch_function_impl": no_torch_function,
        "_get_default_device": lambda: "cpu",
        "_get_tracing_state": nothing,
        "_nn": SimpleNamespace(_parse_to=parse_to),
        "dtype": _core.dtype,
    }


def leaf(fn_or_name: Any) -> Any:
    """torch.fx.wrap: a function that a symbolic trace records as one call. Nothing traces so."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(f"[fx.wrap] expected a function or a name, got {fn_or_name!r}")
    return fn_or_name


class Names(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class DispatchKey(metaclass=Names):
    """torch's dispatch keys, as names: nothing here dispatches by them."""


def frozenset_of(key: str) -> frozenset[str]:
    return frozenset((key,))


class DataLoaderIter:
    """To be named and tested for: the iterators of a DataLoader here are generators."""


class CUDAGraph:
    """To be named. NotImplementedError for one that is made: nothing records launches by hand."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("[cuda.CUDAGraph] launches are not recorded by hand in Rushlight")


class GraphModule:
    """What a symbolic trace of torch.fx makes, to be tested for: nothing here makes one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("[fx.GraphModule] Rushlight has no symbolic traces of modules")


def load_library(path: Any) -> None:
    """torch.ops.load_library: OSError, for such a library holds code against torch's C++."""
    raise OSError(f"[ops.load_library] {path} is for torch, not for Rushlight")


class PyTorchFileReader:
    """The records of a zip file that `torch.save` wrote. RuntimeError for other files."""

    def __init__(self, file: Any) -> None:
        import zipfile

        try:
            self.archive = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise RuntimeError(f"[PyTorchFileReader] {file} is no zip archive") from error
        names = self.archive.namelist()
        self.start = names[0].split("/")[0] + "/" if names else ""

    def get_all_records(self) -> list[str]:
        return [name.removeprefix(self.start) for name in self.archive.namelist()]

    def has_record(self, name: str) -> bool:
        return self.start + name in self.archive.NameToInfo

    def get_record(self, name: str) -> bytes:
        if not self.has_record(name):
            raise RuntimeError(f"[PyTorchFileReader] there is no record {name}")
        return self.archive.read(self.start + name)


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory format) of the arguments of `to`. TypeError for others.

    They are (device, dtype, non_blocking, copy), (dtype, non_blocking, copy) or a tensor.
    """
    from rushlight import _core, eager

    form = kwargs.pop("memory_format", None)
    kwargs.pop("copy", None)
    given = list(args)
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    waits_not = kwargs.pop("non_blocking", False)
    other = kwargs.pop("tensor", None) or kwargs.pop("other", None)
    if given and isinstance(given[0], eager.Tensor):
        other = given.pop(0)
    elif given and isinstance(given[0], _core.dtype):
        dtype = given.pop(0)
    elif given and (given[0] is None or isinstance(given[0], (str, int, eager.device))):
        device = given.pop(0)
        if given and (given[0] is None or isinstance(given[0], _core.dtype)):
            dtype = given.pop(0)
    if given and isinstance(given[0], bool):
        waits_not = given.pop(0)
        if given and isinstance(given[0], bool):
            given.pop(0)  # copy
    if given or kwargs:
        raise TypeError(f"[to] arguments that are not known: {given} {kwargs}")
    if other is not None:
        device, dtype = other.device, other.dtype
    return None if device is None else eager.device(device), dtype, waits_not, form
