"""Parameter and Buffer: tensors that a Module recognises when they are assigned to it.

Takes tensors, returns tensors of these two classes that share the data. Invariant: an operator's
result is a plain Tensor; only the assigned object itself is a Parameter, and it is always a leaf
of the tape.
"""

from collections import OrderedDict

from rushlight import eager

Tensor = eager.Tensor


class Parameter(Tensor):  # type: ignore[valid-type, misc]
    """A leaf tensor that belongs to a module's parameters.

    data: Tensor of any shape and dtype (default: an empty float32 tensor); its memory is shared,
    its history is not. requires_grad: whether the tape follows it. RuntimeError if True and the
    dtype is not floating.
    """

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = eager.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"[Parameter] takes a Tensor, got {type(data).__name__}")
        return Tensor._make_subclass(cls, data, requires_grad)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = copy = type(self)(self.data.clone(), self.requires_grad)
            copy.__dict__.update(self.__dict__)
        return memo[id(self)]

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, protocol):
        return _rebuild_parameter, (self.data, self.requires_grad, OrderedDict(self.__dict__))


def _rebuild_parameter(data, requires_grad, attributes):
    parameter = Parameter(data, requires_grad)
    parameter.__dict__.update(attributes)
    return parameter


class Buffer(Tensor):  # type: ignore[valid-type, misc]
    """A tensor that belongs to a module's buffers once assigned to it.

    data: Tensor of any shape and dtype; memory shared. persistent: whether it is part of the
    module's ``state_dict``.
    """

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = eager.empty(0)
        buffer = Tensor._make_subclass(cls, data.detach(), data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = copy = type(self)(self.data.clone(), persistent=self.persistent)
            copy.requires_grad = self.requires_grad
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return _rebuild_buffer, (self.data, self.persistent)


def _rebuild_buffer(data, persistent):
    return Buffer(data, persistent=persistent)


# ---- without a shape yet

# What may be asked of a parameter that has no shape; everything else is refused.
_ANSWERED = frozenset(
    """
    bfloat16 cls_to_become cpu cuda data device double dtype float get_device grad grad_fn half
    is_complex is_cuda is_floating_point is_leaf is_meta is_sparse layout materialize ndim
    persistent register_hook requires_grad requires_grad_ retain_grad share_memory_ shape size to
    """.split()
)
_CASTS = ("bfloat16", "cpu", "cuda", "double", "float", "half")
_OPERATORS = (
    "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv rfloordiv mod "
    "rmod pow rpow ipow matmul rmatmul imatmul and rand iand or ror ior xor rxor ixor lshift "
    "rshift lt le gt ge eq ne neg pos abs invert getitem setitem len bool int float iter contains"
)


def _refuse(self, name):
    kind = type(self).__name__
    raise ValueError(
        f"[Tensor.{name}] the parameter is uninitialized (a lazy module's "
        f"`rushlight.nn.parameter.{kind}`): call forward once first"
    )


class UninitializedTensorMixin:
    """A tensor whose dtype and device are known and whose shape is not: it can be moved and cast,
    and becomes ``cls_to_become`` by `materialize`. ValueError for anything else that is asked of
    it; functions that get it as an argument see a tensor without elements.
    """

    cls_to_become: type

    def __getattribute__(self, name):
        if name[:1] == "_" or name in _ANSWERED:
            return super().__getattribute__(name)
        return _refuse(self, name)

    @property
    def shape(self):
        raise RuntimeError(
            "[UninitializedParameter] the shape of an uninitialized parameter is not known: call "
            "forward once before reading it or loading it into an initialized one"
        )

    def share_memory_(self):
        raise RuntimeError(
            "[UninitializedParameter] there is no memory to share yet: call forward once before "
            "share_memory()"
        )

    def materialize(self, shape, device=None, dtype=None):
        """From here on a tensor of that shape (its values as memory is found) and class."""
        device = self.data.device if device is None else device
        dtype = self.data.dtype if dtype is None else dtype
        self.data = eager.empty(shape, device=device, dtype=dtype)
        self.__class__ = self.cls_to_become

    def to(self, *args, **kwargs):
        """Of another dtype or device, as shapeless as before."""
        return self._kept(self.data.to(*args, **kwargs))

    def _kept(self, data):
        if data.dtype is self.data.dtype and data.device == self.data.device:
            return self
        return type(self)(self.requires_grad, data.device, data.dtype, **self._more())

    def _more(self):
        """What its constructor takes besides."""
        return {}

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            there = self.data.device, self.data.dtype
            memo[id(self)] = type(self)(self.requires_grad, *there, **self._more())
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        there = str(self.data.device), self.data.dtype
        return type(self), (self.requires_grad, *there, *self._more().values())

    def __repr__(self):
        return f"<{type(self).__name__}>"

    __str__ = __repr__
    __hash__ = Tensor.__hash__


for _name in _OPERATORS.split():
    setattr(
        UninitializedTensorMixin,
        f"__{_name}__",
        lambda self, *args, _name=_name: _refuse(self, f"__{_name}__"),
    )
for _name in _CASTS:
    setattr(
        UninitializedTensorMixin,
        _name,
        lambda self, *args, _name=_name: self._kept(getattr(self.data, _name)(*args)),
    )


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter that gets its shape by `materialize`."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        data = eager.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, data, requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A Buffer that gets its shape by `materialize`."""

    cls_to_become = Buffer

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        data = eager.empty(0, device=device, dtype=dtype)
        buffer = Tensor._make_subclass(cls, data, requires_grad)
        buffer.persistent = persistent
        return buffer

    def _more(self):
        return {"persistent": self.persistent}


def is_lazy(param):
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)
