"""The names that PyTorch's checkpoints use, and what they stand for here.

`NAMES[module, name]` is a Global: harmless by construction, since every call checks its arguments.
Storages reach these functions as UntypedStorage objects whose memory is there already.
"""

import math
import warnings
from weakref import WeakKeyDictionary

from rushlight import _core, eager, nn
from rushlight.eager.storage import STORAGES as DTYPES
from rushlight.eager.storage import UntypedStorage

from .torch_version import TorchVersion
from .unpickler import PLAIN, Global, demand, reject

STORAGES = {name: kind for kind, name in DTYPES.items()}


class StorageType:
    """What `torch.FloatStorage` is in a persistent id; bytes: torch.UntypedStorage."""

    def __init__(self, name, bytes=False):
        self.name, self.dtype, self.bytes = name, getattr(_core, DTYPES.get(name, "uint8")), bytes


def ints(x, what):
    """A tuple of ints, and nothing else."""
    demand(isinstance(x, (tuple, list)) and all(type(n) is int for n in x), what)
    return tuple(x)


def rebuild_tensor(storage, offset, size, stride, requires_grad=False, hooks=None, marks=None):
    return tensor_on(storage, storage, offset, size, stride, requires_grad, marks)


def rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, marks=None):
    demand(isinstance(dtype, _core.dtype), "_rebuild_tensor_v3")
    return tensor_on(storage, dtype, offset, size, stride, requires_grad, marks)


def tensor_on(storage, kind, offset, size, stride, requires_grad, marks=None):
    """marks: {"conj": True}, {"neg": True}: the tensor is the conjugate, or the negative, of what
    lies in memory."""
    demand(isinstance(storage, UntypedStorage) and type(offset) is int, "a tensor")
    dtype = kind.dtype if isinstance(kind, UntypedStorage) else kind
    demand(marks is None or isinstance(marks, dict), "a tensor")
    for mark, on in (marks or {}).items():
        demand(mark in ("conj", "neg") and isinstance(on, bool), "the marks of a tensor")
        storage = marked(storage, dtype, mark) if on else storage
    out = storage.tensor(dtype, offset, ints(size, "a shape"), ints(stride, "strides"))
    return out.requires_grad_() if requires_grad is True else out


_MARKED = WeakKeyDictionary()  # a storage -> {(dtype, mark): the storage of its numbers so}


def marked(storage, dtype, mark):
    """The numbers of a storage conjugated or negated: once each, however many tensors have them."""
    demand(dtype.is_complex if mark == "conj" else dtype is not _core.bool, f"a {mark} tensor")
    found = _MARKED.setdefault(storage, {})
    if (dtype, mark) not in found:
        flat = storage.tensor(dtype, 0, (storage.nbytes() // dtype.itemsize,), (1,))
        found[dtype, mark] = UntypedStorage(flat.conj().clone() if mark == "conj" else -flat)
    return found[dtype, mark]


def rebuild_meta(dtype, size, stride, requires_grad):
    """A tensor without data."""
    demand(isinstance(dtype, _core.dtype), "a meta tensor")
    size, stride = ints(size, "a shape"), ints(stride, "strides")
    demand(len(size) == len(stride) and min(size + stride, default=0) >= 0, "a meta tensor")
    out = eager.empty_strided(size, stride, dtype=dtype, device="meta")
    return out.requires_grad_() if requires_grad is True else out


def rebuild_parameter(data, requires_grad, hooks=None, state=None):
    demand(isinstance(data, eager.Tensor), "_rebuild_parameter")
    parameter = nn.Parameter(data, bool(requires_grad))
    parameter.__dict__.update(attributes(state))
    return parameter


def attributes(state):
    """The instance dictionary of a saved tensor; slots, which the second half of a pair would
    give, are none of ours.
    """
    if isinstance(state, tuple) and len(state) == 2:
        demand(not state[1], "the slots of a tensor")
        state = state[0]
    demand(state is None or isinstance(state, dict), "the attributes of a tensor")
    demand(all(isinstance(key, str) for key in state or ()), "the attributes of a tensor")
    return state or {}


def rebuild_from_type(function, cls, args, state):
    """A tensor with attributes, or of a subclass."""
    demand(function in REBUILDERS and isinstance(args, tuple), "_rebuild_from_type_v2")
    demand(isinstance(cls, type) and issubclass(cls, eager.Tensor), "_rebuild_from_type_v2")
    out, state = function(*args), attributes(state)
    if cls is eager.Tensor and state.get("_is_buffer"):
        return nn.Buffer(out, persistent=bool(state.get("persistent", True)))
    if cls is not eager.Tensor:
        out = cls._make_subclass(cls, out, out.requires_grad)
        out.__dict__.update(state)
    elif state:
        warnings.warn(
            f"[load] attributes of a Tensor are left out: {', '.join(sorted(state))}", stacklevel=2
        )
    return out


def make_size(sizes=()):
    return eager.Size(ints(sizes, "torch.Size"))


def make_device(kind, index=None):
    demand(isinstance(kind, str) and (index is None or type(index) is int), "torch.device")
    return eager.device(kind, index)


def make_version(text):
    demand(isinstance(text, str), "torch.torch_version.TorchVersion")
    return TorchVersion(text)


REBUILDERS = (rebuild_tensor, rebuild_tensor_v3, rebuild_parameter)
NAMES = dict(PLAIN)
for _name in eager.DTYPES:
    NAMES["torch", _name] = Global(f"torch.{_name}", getattr(_core, _name))
for _name in DTYPES:
    NAMES["torch", _name] = Global(f"torch.{_name}", StorageType(_name))
_untyped = Global("torch.UntypedStorage", StorageType("UntypedStorage", bytes=True))
for _module, _name, _value, _make in (
    ("torch._utils", "_rebuild_tensor", rebuild_tensor, rebuild_tensor),
    ("torch._utils", "_rebuild_tensor_v2", rebuild_tensor, rebuild_tensor),
    ("torch._utils", "_rebuild_tensor_v3", rebuild_tensor_v3, rebuild_tensor_v3),
    ("torch._utils", "_rebuild_meta_tensor_no_storage", rebuild_meta, rebuild_meta),
    ("torch._utils", "_rebuild_parameter", rebuild_parameter, rebuild_parameter),
    ("torch._utils", "_rebuild_parameter_with_state", rebuild_parameter, rebuild_parameter),
    ("torch._tensor", "_rebuild_from_type_v2", rebuild_from_type, rebuild_from_type),
    ("torch", "Tensor", eager.Tensor, None),
    ("torch.nn.parameter", "Parameter", nn.Parameter, None),
    ("torch", "Size", eager.Size, make_size),
    ("torch", "device", eager.device, make_device),
    ("torch.serialization", "_get_layout", None, lambda name: "strided"),
):
    NAMES[_module, _name] = Global(f"{_module}.{_name}", _value, _make)
NAMES["torch.torch_version", "TorchVersion"] = Global(
    "torch.torch_version.TorchVersion", TorchVersion, make_version, make_version
)
NAMES["torch.storage", "UntypedStorage"] = NAMES["torch", "UntypedStorage"] = _untyped


# ---- numpy's scalars and arrays of numbers and text


def make_numpy_dtype(text, align=False, copy=True):
    import numpy

    demand(isinstance(text, str), "numpy.dtype")
    dtype = numpy.dtype(text)
    if dtype.kind not in "biufcSUmM":
        reject(f"a numpy array of {text!r}, which may hold anything; numbers and text are read")
    return dtype


def make_numpy_scalar(dtype, data):
    import numpy

    demand(isinstance(dtype, numpy.dtype) and isinstance(data, bytes), "a numpy scalar")
    demand(len(data) == dtype.itemsize, "a numpy scalar")
    return numpy.frombuffer(data, dtype)[0] if data else dtype.type()


def make_numpy_array(cls, shape, code):
    """An empty one; its state follows."""
    import numpy

    demand(cls is Ndarray and shape == (0,), "a numpy array")
    return numpy.ndarray((0,), numpy.int8)


def make_numpy_from_buffer(data, dtype, shape, order):
    import numpy

    demand(isinstance(data, (bytes, bytearray)) and isinstance(dtype, numpy.dtype), "an array")
    demand(order in ("C", "F"), "a numpy array")
    return numpy.frombuffer(bytearray(data), dtype).reshape(ints(shape, "a shape"), order=order)


def build_numpy(target, state):
    """Whether target is numpy's; its state is then checked and set."""
    kind = f"{type(target).__module__}.{type(target).__name__}"
    if kind.startswith("numpy.dtype"):
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", "|", "="):
            reject(f"a numpy dtype of byte order {order!r}; only little-endian ones are read")
        return True
    if kind != "numpy.ndarray":
        return False
    import numpy

    demand(isinstance(state, tuple) and len(state) == 5, "a numpy array")
    _, shape, dtype, fortran, data = state
    demand(isinstance(dtype, numpy.dtype) and isinstance(data, bytes), "a numpy array")
    shape = ints(shape, "a shape")
    demand(min(shape, default=0) >= 0, "a numpy array")
    demand(len(data) == math.prod(shape) * dtype.itemsize, "a numpy array")
    target.__setstate__((1, shape, dtype, bool(fortran), data))
    return True


class Ndarray:
    """Stands for numpy.ndarray, so that numpy is loaded only where an array is."""


for _numpy in ("numpy.core", "numpy._core"):
    for _name, _make in (
        ("multiarray.scalar", make_numpy_scalar),
        ("multiarray._reconstruct", make_numpy_array),
        ("numeric._frombuffer", make_numpy_from_buffer),
    ):
        _module, _, _last = f"{_numpy}.{_name}".rpartition(".")
        NAMES[_module, _last] = Global(f"{_numpy}.{_name}", _make, _make)
NAMES["numpy", "dtype"] = Global("numpy.dtype", make_numpy_dtype, make_numpy_dtype)
NAMES["numpy", "ndarray"] = Global("numpy.ndarray", Ndarray)
