"""Storage: the memory that tensors share, as an object.

`storage_of(tensor)` gives the same object for tensors that share memory, as long as somebody holds
it; a pickle does. So tensors that share memory share it again after pickling, copying, saving and
on the other side of a process boundary. Invariant: while a Storage lives, so does its memory.
"""

from weakref import WeakValueDictionary

from rushlight import _core

# The native view alone: off the tape, for tensors that are the whole of their memory.
placed = _core.Operator(
    "as_strided",
    (
        ("self", "tensor", ..., False),
        ("size", "symints", ..., False),
        ("stride", "symints", ..., False),
        ("storage_offset", "symint?", None, False),
    ),
    "view",
    None,
    view="as_strided",
    differentiable=False,
)


class UntypedStorage:
    """Bytes that tensors lie in. flat: a one-dimensional Tensor over all of them."""

    __slots__ = ("flat", "__weakref__")

    def __init__(self, flat):
        self.flat = flat

    def nbytes(self):
        return self.flat.numel() * self.flat.element_size()

    size = __len__ = nbytes

    def data_ptr(self):
        return self.flat.data_ptr()

    @property
    def dtype(self):
        """The dtype of the tensor that it was found through."""
        return self.flat.dtype

    @property
    def device(self):
        return self.flat.device

    def cpu(self):
        """The same bytes on the CPU."""
        return self if self.flat.is_cpu else UntypedStorage(self.flat.cpu())

    def memory(self):
        """The bytes themselves, as a writable memoryview that keeps them alive."""
        from pickle import PickleBuffer

        if self.dtype is not _core.bfloat16:
            return PickleBuffer(self.flat).raw()
        if not self.nbytes():
            return memoryview(bytearray())
        import ctypes

        array = (ctypes.c_ubyte * self.nbytes()).from_address(self.data_ptr())
        array.owner = self.flat
        return PickleBuffer(array).raw()

    def tensor(self, dtype, offset, shape, stride):
        """A tensor on this memory; offset and stride in elements. RuntimeError where they lead
        out of it. It is the root of its own view family.
        """
        flat = self.flat
        if dtype is not flat.dtype:
            flat = _core.from_buffer(self.memory(), dtype, (self.nbytes() // dtype.itemsize,), 0)
        check_extent(flat.numel(), offset, shape, stride)
        return placed(flat, tuple(shape), tuple(stride), offset).data

    def __deepcopy__(self, memo):
        return UntypedStorage(self.flat.clone())

    def __reduce_ex__(self, protocol):
        """Protocol 5 hands the memory over as a buffer: out of band nothing is copied."""
        from pickle import PickleBuffer

        if self.flat.is_meta:
            return empty_storage, (self.dtype.name, self.flat.numel(), "meta")
        if not self.flat.is_cpu:
            return sent_storage, (self.cpu(), str(self.device))

        memory = self.memory()
        data = PickleBuffer(memory) if protocol >= 5 else memory.tobytes()
        return rebuild_storage, (self.dtype.name, data)

    def __repr__(self):
        return f"UntypedStorage(nbytes={self.nbytes()}, device={str(self.device)!r})"


class TypedStorage:
    """Memory as elements of one dtype: PyTorch's older form of a storage.

    `TypedStorage(size, dtype=...)`: memory as it is found; `TypedStorage(sequence, dtype=...)`;
    `TypedStorage(wrap_storage=untyped, dtype=...)`. `tensor.storage()` gives that of a tensor.
    """

    __slots__ = ("_untyped", "dtype")
    default: object = None  # of the classes named after a dtype

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None):
        self.dtype = dtype or self.default or _core.get_default_dtype()
        if wrap_storage is not None:
            if args or not isinstance(wrap_storage, UntypedStorage):
                raise TypeError("arguments besides wrap_storage, or it is no UntypedStorage")
            self._untyped = wrap_storage
            return
        if len(args) > 1:
            raise TypeError(f"TypedStorage takes one size or sequence, got {len(args)} arguments")
        given = args[0] if args else 0
        if isinstance(given, int):
            flat = _core.empty((given,), self.dtype, device)
        else:
            flat = _core.tensor(list(given), self.dtype, "cpu" if device is None else device)
        self._untyped = storage_of(flat)

    def _flat(self):
        """All elements, as a one-dimensional tensor on this memory."""
        return self._untyped.tensor(self.dtype, 0, (self.size(),), (1,))

    def untyped(self):
        return self._untyped

    @property
    def device(self):
        return self._untyped.device

    def size(self):
        return self._untyped.nbytes() // self.dtype.itemsize

    __len__ = size

    def element_size(self):
        return self.dtype.itemsize

    def nbytes(self):
        return self._untyped.nbytes()

    def data_ptr(self):
        return self._untyped.data_ptr()

    def tolist(self):
        return self._flat().tolist()

    def __iter__(self):
        return iter(self.tolist())

    def __getitem__(self, place):
        if not isinstance(place, int):
            raise RuntimeError("[TypedStorage] slices are for UntypedStorage")
        return self._flat()[place].item()

    def __setitem__(self, place, value):
        self._flat()[place] = value

    def fill_(self, value):
        self._flat().fill_(value)
        return self

    def copy_(self, source, non_blocking=None):
        self._flat().copy_(source._flat())
        return self

    def clone(self):
        return TypedStorage(wrap_storage=storage_of(self._flat().clone()), dtype=self.dtype)

    def cpu(self):
        return TypedStorage(wrap_storage=self._untyped.cpu(), dtype=self.dtype)

    def type(self):
        return f"rushlight.{type_name(self.dtype)}"

    def __eq__(self, other):
        if not isinstance(other, TypedStorage) or self.dtype is not other.dtype:
            return False
        same = self._flat()._address() == other._flat()._address()
        return same and self.size() == other.size()

    __hash__ = object.__hash__

    def __repr__(self):
        numbers = "\n ".join(str(v) for v in self)
        what = f"dtype={self.dtype}, device={self.device}"
        return f" {numbers}\n[TypedStorage({what}) of size {self.size()}]"

    @classmethod
    def __class_getitem__(cls, item):
        return cls


# Classes named after a dtype: constructors of a TypedStorage of that dtype.
STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}


def type_name(dtype):
    return next(name for name, known in STORAGES.items() if known == dtype.name)


class OfOneType(type):
    """`isinstance(x, FloatStorage)` asks for the dtype."""

    def __instancecheck__(cls, x):
        return isinstance(x, TypedStorage) and x.dtype is cls.default


def storage_type(name):
    """The class of that name, e.g. "FloatStorage"."""
    fields = {
        "default": getattr(_core, STORAGES[name]), "__module__": "rushlight", "__slots__": (),
        "__doc__": f"TypedStorage of {STORAGES[name]}.",
    }  # fmt: skip
    return OfOneType(name, (TypedStorage,), fields)


def typed_storage_of(tensor):
    """PyTorch's older form of `untyped_storage`, with the tensor's dtype."""
    return TypedStorage(wrap_storage=storage_of(tensor), dtype=tensor.dtype)


KNOWN = WeakValueDictionary()  # (address, bytes) -> UntypedStorage


def storage_of(tensor):
    """The storage of a tensor; one object for all tensors that share it."""
    key = tensor.untyped_storage_ptr(), tensor.untyped_storage_nbytes()
    found = KNOWN.get(key)
    if found is None:
        count = key[1] // tensor.element_size()
        found = UntypedStorage(placed(tensor.detach(), (count,), (1,), 0).data)
        if count:  # empty ones have no memory to share, nor an address of their own
            KNOWN[key] = found
    return found


def check_extent(count, offset, shape, stride):
    """RuntimeError unless offset, shape and stride stay within `count` elements."""
    if len(shape) != len(stride):
        raise RuntimeError(f"[storage] {len(shape)} sizes and {len(stride)} strides")
    if offset < 0 or any(n < 0 for n in shape) or any(s < 0 for s in stride):
        raise RuntimeError(
            f"[storage] negative offset {offset}, size {list(shape)} or stride {list(stride)}"
        )
    if any(n >= 2**63 for n in (offset, *shape, *stride)):
        raise RuntimeError(f"[storage] size {list(shape)}, stride {list(stride)} out of range")
    total = 1
    for n in shape:
        total *= max(n, 1)
    if total >= 2**59:  # more bytes than an address can tell apart
        raise RuntimeError(f"[storage] a shape of {list(shape)} is too large")
    end = offset + sum((n - 1) * s for n, s in zip(shape, stride)) + 1
    if all(shape) and end > count:
        raise RuntimeError(
            f"[storage] size {list(shape)}, stride {list(stride)} and offset {offset} need "
            f"{end} elements, the storage has {count}"
        )


def rebuild_storage(dtype, data):
    """Out-of-band memory (a writable memoryview) is used as it is, bytes are copied."""
    dtype = getattr(_core, dtype)
    view = memoryview(data)
    if not isinstance(data, (bytes, bytearray)) and view.nbytes and not view.readonly:
        return UntypedStorage(_core.from_buffer(view, dtype))
    storage = UntypedStorage(_core.empty((view.nbytes // dtype.itemsize,), dtype, "cpu"))
    storage.memory()[:] = view.cast("B")
    return storage


def empty_storage(dtype, count, device):
    return UntypedStorage(_core.empty((count,), getattr(_core, dtype), device))


def sent_storage(storage, device):
    return UntypedStorage(storage.flat.to(device))


def rebuild_tensor(cls, storage, dtype, offset, shape, stride, requires_grad, attributes=None):
    """What a pickled tensor is made from."""
    out = storage.tensor(getattr(_core, dtype), offset, shape, stride)
    if cls is _core.Tensor:
        return out.requires_grad_(requires_grad)
    out = cls._make_subclass(cls, out, requires_grad)
    out.__dict__.update(attributes or {})
    return out


def reduce_ex(self, protocol):
    return rebuild_tensor, (
        type(self),
        storage_of(self),
        self.dtype.name,
        self.storage_offset(),
        tuple(self.shape),
        tuple(self.stride()),
        self.requires_grad,
        dict(getattr(self, "__dict__", ())) or None,
    )


def deepcopy(self, memo):
    """A copy whose memory is shared with the copies of those that shared it."""
    import copy

    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("[deepcopy] only graph leaves can be copied deeply: detach() first")
    storage = copy.deepcopy(storage_of(self), memo)
    out = storage.tensor(self.dtype, self.storage_offset(), self.shape, self.stride())
    out.requires_grad_(self.requires_grad)
    if type(self) is not _core.Tensor:
        out = type(self)._make_subclass(type(self), out.detach(), self.requires_grad)
    memo[id(self)] = out
    if type(self) is not _core.Tensor:
        out.__dict__.update(copy.deepcopy(getattr(self, "__dict__", {}), memo))
    if self.grad is not None:
        out.grad = copy.deepcopy(self.grad, memo)
    return out


METHODS = {
    "untyped_storage": storage_of,
    "storage": typed_storage_of,
    "__reduce_ex__": reduce_ex,
    "__deepcopy__": deepcopy,
}
