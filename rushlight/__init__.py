"""Rushlight: PyTorch's execution stack, built again to be read.

`import rushlight as torch` is meant to be enough for ordinary model code. Importing loads the
native core and the operator declarations; numpy, the compile stack and the reports load at first
use.
"""

import os as _os

# How long an idle OpenMP thread spins before it sleeps, read when libgomp loads: some 0.3 ms, so
# that one operator's threads are awake for the next (MiniLM: 2.3 times as fast as with sleeping
# threads), but never so long that a busy machine waits for spinning ones, as with the default.
if "OMP_WAIT_POLICY" not in _os.environ:
    _os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from . import _core  # noqa: E402

_here = _os.path.dirname(__file__)
_core.kernels_load(_os.path.join(_here, "lib"))

from . import eager as _eager  # noqa: E402
from .eager import *  # noqa: E402, F403
from .eager import formats as _formats  # noqa: E402
from .eager import storage as _storage  # noqa: E402
from .eager import traits as _traits  # noqa: E402

for _alias, _name in _eager.ALIASES.items():
    globals()[_alias] = getattr(_core, _name)
for _name in _eager.PUBLIC:
    globals()[_name] = getattr(_eager, _name)


def _libraries():
    """Where OpenBLAS and oneDNN lie; they are opened at the first matrix product."""
    import importlib.util

    found = importlib.util.find_spec("scipy_openblas32")
    openblas = (
        _os.path.join(_os.path.dirname(found.origin), "lib", "libscipy_openblas.so")
        if found and found.origin
        else None
    )
    onednn = _os.path.join(_here, "lib", "libdnnl.so.3")
    _core.libraries_set(
        openblas if openblas and _os.path.exists(openblas) else None,
        onednn if _os.path.exists(onednn) else None,
    )


_libraries()
__version__ = "0.1.0"
from math import e, inf, nan, pi  # noqa: E402, F401

newaxis = None
if {"RUSHLIGHT_LOGS", "RUSHLIGHT_COMPILE_DEBUG", "RUSHLIGHT_NVTX"} & _os.environ.keys():
    from .call_log import start_logs

    start_logs()
_LAZY = {
    "accelerator": "accelerator",
    "cpu": "cpu",
    "nn": "nn",
    "optim": "optim",
    "autograd": "autograd",
    "report": "report",
    "func": "func",
    "fx": "fx",
    "interop": "interop",
    "cuda": "cuda",
    "linalg": "linalg",
    "special": "special",
    "return_types": "return_types",
    "serialization": "serialization",
    "utils": "utils",
    "dynamo": "dynamo",
    "compiler": "compiler",
    "amp": "amp",
    "random": "random",
    "backends": "backends",
    "testing": "testing",
    "profiler": "profiler",
    "distributions": "distributions",
    "futures": "futures",
    "hub": "hub",
    "library": "library",
    "jit": "jit",
    "fft": "fft",
    "signal": "signal",
}
# Functions that load their room when they are first asked for.
_LAZY_FUNCTIONS = {
    "explain": "observation",
    **dict.fromkeys(
        (
            "autocast",
            "autocast_decrement_nesting",
            "autocast_increment_nesting",
            "clear_autocast_cache",
            "get_autocast_cpu_dtype",
            "get_autocast_dtype",
            "get_autocast_gpu_dtype",
            "is_autocast_cpu_enabled",
            "set_autocast_cpu_dtype",
            "set_autocast_cpu_enabled",
            "set_autocast_gpu_dtype",
            "is_autocast_cache_enabled",
            "is_autocast_enabled",
            "set_autocast_cache_enabled",
            "set_autocast_dtype",
            "set_autocast_enabled",
        ),
        "eager.casting",
    ),
    **dict.fromkeys(
        (
            "are_deterministic_algorithms_enabled",
            "can_cast",
            "finfo",
            "get_default_device",
            "get_deterministic_debug_mode",
            "get_device_module",
            "get_float32_matmul_precision",
            "get_num_interop_threads",
            "iinfo",
            "is_complex",
            "is_deterministic_algorithms_warn_only_enabled",
            "is_floating_point",
            "is_inference_mode_enabled",
            "is_nonzero",
            "is_storage",
            "is_tensor",
            "is_warn_always_enabled",
            "numel",
            "promote_types",
            "result_type",
            "set_default_device",
            "set_default_dtype",
            "set_default_tensor_type",
            "set_deterministic_debug_mode",
            "set_flush_denormal",
            "set_float32_matmul_precision",
            "set_num_interop_threads",
            "set_warn_always",
            "typename",
            "use_deterministic_algorithms",
        ),
        "eager.inquiry",
    ),
    **dict.fromkeys(
        (
            "asarray",
            "bartlett_window",
            "blackman_window",
            "combinations",
            "corrcoef",
            "cov",
            "cross",
            "cumulative_trapezoid",
            "diagonal_scatter",
            "frombuffer",
            "hamming_window",
            "hann_window",
            "kaiser_window",
            "pdist",
            "trapezoid",
            "trapz",
            "unravel_index",
            "vander",
        ),
        "eager.series",
    ),
    **dict.fromkeys(("cond", "while_loop"), "eager.control"),
    **dict.fromkeys(("istft", "stft"), "eager.spectra"),
    **dict.fromkeys(
        ("frexp", "gcd", "gcd_", "gradient", "histogram", "histogramdd", "lcm", "lcm_"),
        "eager.sampled",
    ),
    **dict.fromkeys(
        ("is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_anomaly_enabled"),
        "autograd.anomaly",
    ),
    **dict.fromkeys(
        (
            *_traits.SOLVED,
            "frobenius_norm",
            "lu",
            "lu_unpack",
            "norm_except_dim",
            "nuclear_norm",
        ),
        "eager.older_solving",
    ),
    **dict.fromkeys(("empty_permuted", "range"), "eager.rare_factories"),
    **dict.fromkeys(
        (
            "as_strided_",
            "as_strided_scatter",
            "unsafe_chunk",
            "unsafe_split",
            "unsafe_split_with_sizes",
        ),
        "eager.copies",
    ),
    **dict.fromkeys(
        (
            "SymBool",
            "SymFloat",
            "SymInt",
            "sym_float",
            "sym_int",
            "sym_ite",
            "sym_max",
            "sym_min",
            "sym_not",
            "sym_sqrt",
            "sym_sum",
        ),
        "eager.symbolic",
    ),
    **dict.fromkeys(
        (
            "affine_grid_generator",
            "batch_norm",
            "bilinear",
            "binary_cross_entropy_with_logits",
            "celu_",
            "channel_shuffle",
            "conv_tbc",
            "cosine_embedding_loss",
            "ctc_loss",
            "embedding_bag",
            "embedding_renorm_",
            "grid_sampler",
            "grid_sampler_2d",
            "grid_sampler_3d",
            "hinge_embedding_loss",
            "instance_norm",
            "kl_div",
            "margin_ranking_loss",
            "max_pool1d_with_indices",
            "native_batch_norm",
            "native_channel_shuffle",
            "native_dropout",
            "pixel_shuffle",
            "pixel_unshuffle",
            "poisson_nll_loss",
            "rms_norm",
            "rrelu_",
            "selu_",
            "threshold_",
            "triplet_margin_loss",
        ),
        "nn.functional.native",
    ),
    **dict.fromkeys(
        (
            "gru",
            "gru_cell",
            "lstm",
            "lstm_cell",
            "rnn_relu",
            "rnn_relu_cell",
            "rnn_tanh",
            "rnn_tanh_cell",
        ),
        "nn.functional.native_rnn",
    ),
    **dict.fromkeys(("Event", "Stream"), "cuda.streams"),
    **dict.fromkeys(("TypedStorage", "UntypedStorage"), "eager.storage"),
    **dict.fromkeys(_formats.LAYOUTS, "eager.formats"),
    "GradScaler": "amp",
    "vmap": "func",
    "OutOfMemoryError": "errors",
    "layout": "eager.formats",
    "default_generator": "eager.randomness",
    **dict.fromkeys(("angle", "conj", "imag", "polar", "real"), "eager.traits"),
    "fill": "eager.traits",
    "set_printoptions": "eager.printing",
    "save": "interop.checkpoint",
    "load": "interop.checkpoint",
    "compile": "pipeline",
    "legacy_contiguous_format": "eager.formats",
    **dict.fromkeys(("pca_lowrank", "svd_lowrank"), "eager.lowrank"),
    **dict.fromkeys(
        (
            "_assert",
            "_check",
            "_check_index",
            "_check_is_size",
            "_check_not_implemented",
            "_check_tensor_all",
            "_check_type",
            "_check_value",
        ),
        "eager.checks",
    ),
}
_PLANNED = ("distributed", "export")


def __getattr__(name):
    import importlib

    if name in _LAZY:
        return importlib.import_module(f"rushlight.{_LAZY[name]}")
    if name in _LAZY_FUNCTIONS:
        found = getattr(importlib.import_module(f"rushlight.{_LAZY_FUNCTIONS[name]}"), name)
        globals()[name] = found
        return found
    for names, made in (
        (_traits.TYPES, _traits.tensor_type),
        (_traits.WRITTEN, _traits.written),
        (_storage.STORAGES, _storage.storage_type),
    ):
        if name in names:
            globals()[name] = found = made(name)
            return found
    if name.endswith("_copy"):
        from .eager.copies import copy_form

        found = copy_form(name)
        if found is not None:
            globals()[name] = found
            return found
    if name.startswith("_foreach_"):
        from .eager.foreach import foreach

        found = foreach(name)
        if found is not None:
            globals()[name] = found
            return found
    if name in _PLANNED:
        raise AttributeError(f"rushlight.{name} is planned and not there yet (README, Status)")
    raise AttributeError(f"module 'rushlight' has no attribute {name!r}")
