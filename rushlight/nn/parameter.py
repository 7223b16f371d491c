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
            raise TypeError(f"Parameter data should be a Tensor, got {type(data).__name__}")
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
