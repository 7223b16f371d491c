"""Parameters computed from others: ``weight`` becomes a function of the originals in
``module.parametrizations.weight``.

Invariant: the originals stand in a ParametrizationList under ``module.parametrizations`` and are
the parameters that optimizers see; the name itself is a property of a class made for that module.
"""

from contextlib import contextmanager

from rushlight import eager
from rushlight.nn.containers import ModuleDict, ModuleList
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter

Tensor = eager.Tensor
_cache: dict = {}
_cached = 0


@contextmanager
def cached():
    """Within it each parametrized tensor is computed once, until the outermost one ends."""
    global _cached
    _cached += 1
    try:
        yield
    finally:
        _cached -= 1
        if not _cached:
            _cache.clear()


def _register(module, name, tensor):
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor in order, and what the first one takes: ``original``, or
    ``original0``, ``original1``, ... where right_inverse gave several.

    unsafe: results are not checked.
    """

    def __init__(self, modules, original, unsafe=False):
        modules = list(modules)
        if not modules:
            raise ValueError("[parametrize] takes at least one parametrization")
        super().__init__(modules)
        self.unsafe = unsafe
        new = original
        with eager.no_grad():
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    new = module.right_inverse(new)
        if not isinstance(new, Tensor) and not isinstance(new, (list, tuple)):
            raise ValueError(
                "[parametrize] right_inverse gives a tensor or a sequence of them, got "
                f"{type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        learnt = isinstance(original, Parameter)
        if self.is_tensor:
            if not unsafe and new.dtype != original.dtype:
                raise ValueError(
                    f"[parametrize] right_inverse of one tensor keeps the dtype {original.dtype}, "
                    f"got {new.dtype}"
                )
            if learnt:  # the parameter itself stays, for optimizers that hold it
                original.data = new.detach()
                new = original
            _register(self, "original", new)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        f"[parametrize] right_inverse gives tensors, element {i} is a "
                        f"{type(part).__name__}"
                    )
                if learnt:
                    part = Parameter(part.detach(), original.requires_grad)
                _register(self, f"original{i}", part)

    def originals(self):
        if self.is_tensor:
            return (self.original,)
        return tuple(getattr(self, f"original{i}") for i in range(self.ntensors))

    def right_inverse(self, value):
        """Gives the originals the values from which the parametrizations make ``value``."""
        with eager.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"[parametrize] {type(module).__name__} has no right_inverse"
                    )
                value = module.right_inverse(value)
            parts = (value,) if isinstance(value, Tensor) else tuple(value)
            if len(parts) != self.ntensors:
                raise ValueError(
                    f"[parametrize] right_inverse has to give {self.ntensors} tensors, got "
                    f"{len(parts)}"
                )
            for original, part in zip(self.originals(), parts, strict=True):
                original.data = part.detach()

    def forward(self):
        x = self.originals()
        for module in self:
            x = (module(*x),)
        return x[0]


def _computed(module, name):
    found = module.parametrizations[name]
    if not _cached:
        return found()
    key = (id(module), name)
    if key not in _cache:
        _cache[key] = found()
    return _cache[key]


def _own_class(module):
    """A class for this module alone, on which names can be properties."""
    base = type(module)

    fields = {"__reduce_ex__": _reduce, "__deepcopy__": _deepcopy}
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), fields)


def _reduce(self, protocol):
    raise RuntimeError(
        "[parametrize] a parametrized module cannot be pickled whole (Serialization of "
        "parametrized modules is by state_dict() alone)"
    )


def _deepcopy(self, memo):
    import copy

    if id(self) in memo:
        return memo[id(self)]
    new = memo[id(self)] = type(self).__new__(type(self))
    new.__dict__.update(copy.deepcopy(self.__dict__, memo))
    new._changed()
    return new


def _property(module, name):
    def compute(self):
        return _computed(self, name)

    def assign(self, value):
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(compute, assign))


def _check_result(parametrized, before, name):
    new = parametrized()
    for what, a, b in (
        ("type", Tensor, new),
        ("dtype", before.dtype, getattr(new, "dtype", None)),
        ("shape", tuple(before.shape), tuple(getattr(new, "shape", ()))),
    ):
        if what == "type":
            if not isinstance(new, Tensor):
                raise ValueError(
                    f"[parametrize] a parametrization gives a tensor, got {type(new).__name__}"
                )
        elif a != b:
            raise ValueError(
                f"[parametrize] a parametrization may not change the {what} of {name} unless "
                f"unsafe=True: {a} became {b}"
            )


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """``module.tensor_name`` becomes ``parametrization(original)``; several follow one another.

    parametrization: a Module, with ``right_inverse`` if values are to be assigned. Returns the
    module. ValueError where there is no such tensor, or the result has another dtype or shape
    (unless unsafe).
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        found = module.parametrizations[tensor_name]
        before = getattr(module, tensor_name)
        if hasattr(parametrization, "right_inverse"):
            found.right_inverse(parametrization.right_inverse(before.detach()))
        found.append(parametrization)
        if not (unsafe or found.unsafe):
            _check_result(found, before, tensor_name)
        found.unsafe = found.unsafe or unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        shape = original.detach()
        found = ParametrizationList([parametrization], original, unsafe)
        if not unsafe:
            _check_result(found, shape, tensor_name)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _own_class(module)
            module.parametrizations = ModuleDict()
        _property(module, tensor_name)
        module.parametrizations[tensor_name] = found
    else:
        raise ValueError(
            f"[parametrize] {module} does not have a parameter, buffer or parametrized tensor "
            f"{tensor_name!r}"
        )
    return module


def is_parametrized(module, tensor_name=None):
    """Whether anything, or that tensor, of the module is parametrized."""
    found = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """``module.tensor_name`` becomes a plain tensor again: of its present value or, without
    leave_parametrized, the original. Returns the module.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    found = module.parametrizations[tensor_name]
    originals = found.originals()
    if leave_parametrized:
        with eager.no_grad():
            value = getattr(module, tensor_name).detach().clone()
        if found.is_tensor:
            kept = originals[0]
            kept.data = value
        else:
            kept = Parameter(value) if isinstance(originals[0], Parameter) else value
    elif found.is_tensor:
        kept = originals[0]
    else:
        raise ValueError(
            "[parametrize] leave_parametrized=False needs a parametrization of one tensor"
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    _register(module, tensor_name, kept)
    return module


def type_before_parametrizations(module):
    """The module's class as it was made."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


__all__ = [
    "Module",
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "type_before_parametrizations",
]
