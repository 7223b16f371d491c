"""Single names of torch's that programs ask for, and where ours are; `found(name)` gives one.

Most are base classes and helpers that torch keeps in files of `torch.nn.modules` and `torch.optim`
under a leading underscore, and that programs test and derive from all the same. Helpers that have
no counterpart in Rushlight are the functions below.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rushlight import eager
from rushlight.autograd.function import (  # noqa: F401  asked for by name
    FunctionCtx,
    InplaceFunction,
    once_differentiable,
)

NN = {  # the file of ours: names of torch's there, and ours where they differ
    "batchnorm": "_BatchNorm _InstanceNorm _NormBase",
    "conv": "_ConvNd _ConvTransposeNd=_ConvTranspose",
    "dropout": "_DropoutNd=_Dropout",
    "lazy": "_LazyConvXdMixin=_LazyConv _LazyNormBase=_LazyNorm",
    "linear": "NonDynamicallyQuantizableLinear=Linear",
    "loss": "_Loss _WeightedLoss",
    "padding": "_ConstantPadNd=_ConstantPad",
    "pooling": "_AdaptiveAvgPoolNd=_AdaptiveAvgPool _AdaptiveMaxPoolNd=_AdaptiveMaxPool "
    "_AvgPoolNd=_AvgPool _LPPoolNd=_LPPool _MaxPoolNd=_MaxPool _MaxUnpoolNd=_MaxUnpool",
    "state_dict": "_IncompatibleKeys=IncompatibleKeys",
    "transformer": "_get_activation_fn=_activation _get_clones=_copies",
}
HERE = {  # a module of torch's as a program knows it: names that are defined below
    "nn": "_addindent _ntuple _pair _quadruple _reverse_repeat_tuple _single _triple",
    "nn.functional": "_Reduction",
    "nn.init": "_no_grad_fill_ _no_grad_normal_ _no_grad_trunc_normal_ _no_grad_uniform_ "
    "_no_grad_zero_",
    "autograd": "BackwardCFunction=FunctionCtx FunctionCtx InplaceFunction once_differentiable",
    "profiler": "kineto_available",
    "optim.optimizer": "_default_to_fused_or_foreach _dispatch_sqrt _get_value _params_t "
    "_stack_if_compiling _use_grad_for_differentiable _view_as_real",
}
# Files of torch.nn.modules whose names are not those of files of ours.
FILES = frozenset(
    "adaptive batchnorm channelshuffle container conv distance dropout fold instancenorm linear "
    "loss module normalization padding pixelshuffle pooling rnn sparse transformer upsampling "
    "utils".split()
)
PRIVATE = "rushlight.interop.private_names"
PLACES = {
    "cuda.CUDAGraph": f"{PRIVATE}:CUDAGraph",
    "cuda.graph": f"{PRIVATE}:CUDAGraph",
    "jit._overload": f"{PRIVATE}:itself",
    "jit._overload_method": f"{PRIVATE}:itself",
    "jit._script_if_tracing": f"{PRIVATE}:itself",
    "ops.load_library": f"{PRIVATE}:load_library",
    "utils.data._BaseDataLoaderIter": f"{PRIVATE}:DataLoaderIter",
    "utils.data._MultiProcessingDataLoaderIter": f"{PRIVATE}:DataLoaderIter",
    "utils.data._SingleProcessDataLoaderIter": f"{PRIVATE}:DataLoaderIter",
    "PyTorchFileReader": f"{PRIVATE}:PyTorchFileReader",
    "fx.GraphModule": f"{PRIVATE}:GraphModule",
    "fx.wrap": f"{PRIVATE}:leaf",
    "Future": "rushlight.futures:Future",
    "ScriptFunction": "rushlight.jit:ScriptFunction",
    "ScriptModule": "rushlight.jit:ScriptModule",
    "nn.init._calculate_correct_fan": "rushlight.nn.init:_fan",
    **{
        f"nn.{one.partition('=')[0]}": f"rushlight.nn.{file}:{one.rpartition('=')[2]}"
        for file, names in NN.items()
        for one in names.split()
    },
    **{
        f"{module}.{one.partition('=')[0]}": f"{__name__}:{one.rpartition('=')[2]}"
        for module, names in HERE.items()
        for one in names.split()
    },
}


def found(full: str) -> Any:
    """What stands for torch's name `full`, or None."""
    if full == "torch.cuda._initialized":
        return ours().cuda.is_initialized()
    place = PLACES.get(full.removeprefix("torch."))
    if place is None:
        parent, _, last = full.rpartition(".")
        if parent == "torch.nn" and last in FILES:  # torch.nn.modules.container, as an attribute
            return importlib.import_module("rushlight.nn")
        return None
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def ours() -> Any:
    """The package, with all its functions."""
    return sys.modules["rushlight"]


# ---- nn


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that repeats a number n times and makes a tuple of what is iterated over."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(itertools.repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    return tuple(x for x in reversed(t) for _ in range(n))


def _addindent(s_: str, numSpaces: int) -> str:
    """All lines but the first, moved in."""
    return s_.replace("\n", "\n" + numSpaces * " ")


class _Reduction:
    """The numbers that torch's native losses take for a reduction."""

    @staticmethod
    def get_enum(reduction: str) -> int:
        names = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}
        if reduction not in names:
            raise ValueError(f"{reduction} is not a valid value for reduction")
        return names[reduction]


def _no_grad(name: str) -> Callable[..., Any]:
    def fill(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        init = importlib.import_module("rushlight.nn.init")
        return getattr(init, name)(tensor, *args, **kwargs)

    return fill


_no_grad_fill_, _no_grad_zero_ = _no_grad("constant_"), _no_grad("zeros_")
_no_grad_normal_, _no_grad_uniform_ = _no_grad("normal_"), _no_grad("uniform_")
_no_grad_trunc_normal_ = _no_grad("trunc_normal_")


def kineto_available() -> bool:
    """True: what torch's Kineto records, `rushlight.profiler` records by itself."""
    return True


# ---- optim

_params_t = Any


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A step that is recorded where the optimiser is `differentiable`, and not elsewhere."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        on = bool(self.defaults.get("differentiable", False))
        with eager.set_grad_enabled(on):
            return func(self, *args, **kwargs)

    return step


def _default_to_fused_or_foreach(
    params: Any, differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """(False, False): one tensor after another is what Rushlight's optimisers do by default."""
    return False, False


def _get_value(x: Any) -> Any:
    return x.item() if isinstance(x, eager.Tensor) else x


def _stack_if_compiling(x: Any) -> Any:
    return x


def _dispatch_sqrt(x: Any) -> Any:
    return x.sqrt() if isinstance(x, eager.Tensor) else x**0.5


def _view_as_real(params: Any, *state_and_grads: Any) -> None:
    """Complex parameters, with their lists of gradients and state, become pairs of reals."""
    for i, parameter in enumerate(params):
        if parameter.is_complex():
            params[i] = ours().view_as_real(parameter)
            for rows in state_and_grads:
                rows[i] = ours().view_as_real(rows[i])


# ---- torch._utils


def flattened(tensors: Any) -> Any:
    """The elements of tensors of one dtype, in one dimension."""
    return ours().cat([t.reshape(-1) for t in tensors])


def unflattened(flat: Any, tensors: Any) -> tuple[Any, ...]:
    """Views of a flat tensor with the shapes of `tensors`."""
    ends = list(itertools.accumulate(t.numel() for t in tensors))
    return tuple(
        flat[end - t.numel() : end].view_as(t) for t, end in zip(tensors, ends, strict=True)
    )


def device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> Any:
    """The number of a device: of a GPU; -1 for the CPU where allowed; None stands for current."""
    if isinstance(device, int):
        return device
    if device is None:
        if optional:
            return 0
        raise ValueError("[_get_device_index] expected a device, got None")
    device = eager.device(device)
    if device.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError("[_get_device_index] expected a GPU, got cpu")
    return device.index or 0


def utilities() -> dict[str, Any]:
    return {
        "_accumulate": itertools.accumulate,
        "_flatten_dense_tensors": flattened,
        "_get_device_index": device_index,
        "_unflatten_dense_tensors": unflattened,
    }


def functional() -> dict[str, Any]:
    """torch.functional: functions that torch writes in Python."""
    names = (
        "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors "
        "cartesian_prod cdist chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft "
        "svd_lowrank tensordot unique unique_consecutive unravel_index"
    )
    return {n: getattr(ours(), n) for n in names.split() if hasattr(ours(), n)}


def extensions() -> dict[str, Any]:
    """torch.utils.cpp_extension: named by build files and in branches. Building is refused."""

    def refused(name: str) -> Callable[..., Any]:
        def build(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(
                f"[cpp_extension.{name}] such an extension is compiled against torch's C++, "
                "which is not here"
            )

        build.__name__ = name
        return build

    names = "BuildExtension CppExtension CUDAExtension load load_inline"
    return {
        **{n: refused(n) for n in names.split()},
        "CUDA_HOME": None,
        "ROCM_HOME": None,
        "IS_HIP_EXTENSION": False,
        "is_ninja_available": lambda: False,
    }


def dynamo_utilities() -> dict[str, Any]:
    return {"is_compile_supported": lambda kind: kind in ("cpu", "cuda")}


def error_records() -> dict[str, Any]:
    """torch.distributed.elastic.multiprocessing.errors: `record` leaves a function as it is."""
    return {"record": lambda fn, error_handler=None: fn}


def empty() -> dict[str, Any]:
    return {}


def onnx() -> dict[str, Any]:
    """torch.onnx: nothing is exported, so nothing is in an export. Registrations are taken."""

    def refused(name: str) -> Callable[..., Any]:
        def export(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"[onnx.{name}] Rushlight does not write ONNX")

        export.__name__ = name
        return export

    def taken(*args: Any, **kwargs: Any) -> None:
        return None

    return {
        **{n: refused(n) for n in ("dynamo_export", "export", "export_to_pretty_string", "save")},
        "is_in_onnx_export": lambda: False,
        "is_onnxrt_backend_supported": lambda: False,
        "register_custom_op_symbolic": taken,
        "unregister_custom_op_symbolic": taken,
    }


def onnx_helper() -> dict[str, Any]:
    """torch.onnx.symbolic_helper: decorators of functions that an export would call."""
    leave = lambda *kinds, **more: lambda fn: fn  # noqa: E731
    return {"parse_args": leave, "quantized_args": leave}


def flop_counter() -> dict[str, Any]:
    """torch.utils.flop_counter: a mode to be named. Entering it raises."""

    class FlopCounterMode:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def __enter__(self) -> Any:
            raise NotImplementedError("[FlopCounterMode] Rushlight does not count operations so")

        def __exit__(self, *exc: Any) -> None:
            return None

    return {"FlopCounterMode": FlopCounterMode}


def associative_scan(
    combine_fn: Callable[..., Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """What `combine_fn` makes of the slices up to each one along `dim`, of a tensor or a tree of
    tensors: one after another. ValueError for another mode than "pointwise" or "generic"."""
    from rushlight.utils import _pytree

    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"[associative_scan] unknown combine_mode {combine_mode!r}")
    leaves, spec = _pytree.tree_flatten(xs)
    count = leaves[0].shape[dim]
    order = list(range(count - 1, -1, -1) if reverse else range(count))
    rows: dict[int, list[Any]] = {}
    last = None
    for i in order:
        now = _pytree.tree_unflatten([x.select(dim, i) for x in leaves], spec)
        last = now if last is None else combine_fn(last, now)
        rows[i] = _pytree.tree_leaves(last)
    joined = [ours().stack([rows[i][k] for i in range(count)], dim) for k in range(len(leaves))]
    return _pytree.tree_unflatten(joined, spec)


def higher_order() -> dict[str, Any]:
    return {"associative_scan": associative_scan}


def versions() -> dict[str, Any]:
    from .torch_version import TorchVersion

    return {"TorchVersion": TorchVersion, "__version__": ours().__version__}
