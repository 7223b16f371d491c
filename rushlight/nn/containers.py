"""Modules that hold modules or parameters: Sequential, ModuleList, ModuleDict, ParameterList,
ParameterDict.

They take and return what their name says; each keeps its entries in ``_modules`` or
``_parameters`` under the index or key as a string, in order, so that ``state_dict`` names are
PyTorch's.
"""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from rushlight import eager
from rushlight.nn.module import Module, indent, type_name
from rushlight.nn.parameter import Parameter

Tensor = eager.Tensor


def _position(index, length):
    """index: int or anything with __index__, from -length to length - 1. Returns it counted from
    the front.
    """
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range")
    return index % length


class _Numbered(Module):
    """A sequence of submodules named '0', '1', ..."""

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __getitem__(self, index):
        modules = list(self._modules.values())
        if isinstance(index, slice):
            return self._rebuilt(list(self._modules.items())[index])
        return modules[_position(index, len(modules))]

    def __setitem__(self, index, module):
        setattr(self, list(self._modules)[_position(index, len(self))], module)

    def __delitem__(self, index):
        names = list(self._modules)
        gone = names[index] if isinstance(index, slice) else [names[_position(index, len(names))]]
        for name in gone:
            delattr(self, name)
        _Numbered._renumber(self, list(self._modules.values()))  # names given go too, as in PyTorch

    def _renumber(self, modules):
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)
        self._changed()

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index, module):
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)

    def extend(self, modules):
        for module in modules:
            self.append(module)
        return self

    def pop(self, index):
        module = self[index]
        del self[index]
        return module


class Sequential(_Numbered):
    """Calls its modules one after the other, each with the result of the one before.

    Sequential(module, ...) or Sequential(OrderedDict(name=module, ...)).
    """

    def __init__(self, *args):
        super().__init__()
        named = (
            args[0].items()
            if len(args) == 1 and isinstance(args[0], OrderedDict)
            else ((str(i), m) for i, m in enumerate(args))
        )
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def _rebuilt(self, items):
        return type(self)(OrderedDict(items))

    def _renumber(self, modules):
        names = list(self._modules)
        if all(name.isdigit() for name in names):
            super()._renumber(modules)

    def insert(self, index, module):
        if not isinstance(module, Module):
            raise AssertionError(f"[Sequential] takes modules: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        super().insert(index, module)
        return self

    def __add__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"[Sequential] + takes another Sequential, got {type(other)}")
        return Sequential(*self, *other)

    def __iadd__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"[Sequential] += takes another Sequential, got {type(other)}")
        return self.extend(list(other))

    def __mul__(self, times):
        if not isinstance(times, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueError(
                f"[{type(self).__name__}] can be repeated a positive number of times, got {times}"
            )
        return Sequential(*(module for _ in range(times) for module in self))

    __rmul__ = __mul__


class ModuleList(_Numbered):
    """A list of modules. It has no forward."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def extend(self, modules):
        if not isinstance(modules, Iterable):
            raise TypeError(
                "[ModuleList.extend] should be called with an iterable, got "
                + type(modules).__name__
            )
        return super().extend(modules)

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return type(self)([*self, *other])

    def _rebuilt(self, items):
        return type(self)(module for _, module in items)

    def __repr__(self):
        """Equal neighbours are shown once, with their range and count."""
        runs = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        lines = [
            f"({first}): {indent(text)}"
            if first == last
            else f"({first}-{last}): {last - first + 1} x {indent(text)}"
            for first, last, text in runs
        ]
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


class ModuleDict(Module):
    """A dictionary of modules, in order. It has no forward."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        delattr(self, key)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        self._modules.clear()
        self._changed()

    def pop(self, key):
        module = self[key]
        del self[key]
        return module

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def update(self, modules):
        for key, module in _pairs(modules, "ModuleDict"):
            self[key] = module


def _pairs(entries, name):
    """(key, value) of a mapping, or of an iterable of pairs."""
    if not isinstance(entries, Iterable):
        raise TypeError(
            f"[{name}.update] takes a mapping or an iterable of key/value pairs, got "
            + type(entries).__name__
        )
    if hasattr(entries, "items"):
        return list(entries.items())
    pairs = []
    for i, pair in enumerate(entries):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{name} update sequence element #{i} should be Iterable; is {type(pair).__name__}"
            )
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(
                f"[{name}.update] number {i} of the pairs has length {len(pair)}; 2 is required"
            )
        pairs.append(pair)
    return pairs


def _as_parameter(value):
    return (
        Parameter(value)
        if isinstance(value, Tensor) and not isinstance(value, Parameter)
        else value
    )


class ParameterList(Module):
    """A list of parameters; a plain Tensor put into it becomes a Parameter. It has no forward."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self):
        return self._size

    def __iter__(self):
        return (getattr(self, str(i)) for i in range(self._size))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(getattr(self, str(i)) for i in range(self._size)[index])
        return getattr(self, str(_position(index, self._size)))

    def __setitem__(self, index, value):
        setattr(self, str(_position(index, self._size)), _as_parameter(value))

    def append(self, value):
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(
                "[ParameterList.extend] should be called with an iterable, got "
                + type(values).__name__
            )
        for value in values:
            self.append(value)
        return self

    __iadd__ = extend

    def extra_repr(self):
        return "\n".join(f"  ({i}): {_described(value)}" for i, value in enumerate(self))

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "[ParameterList] should not be called: it holds parameters, and has no forward"
        )


class ParameterDict(Module):
    """A dictionary of parameters, in order; a plain Tensor put into it becomes a Parameter. It
    has no forward.
    """

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def _attribute(self, key):
        if not isinstance(key, str):
            raise TypeError(f"[ParameterDict] keys are strings, got a '{type_name(key)}'")
        return key

    def __getitem__(self, key):
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, self._attribute(key))

    def __setitem__(self, key, value):
        self._keys[self._attribute(key)] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, self._attribute(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __contains__(self, key):
        return key in self._keys

    def keys(self):
        return self._keys.keys()

    def values(self):
        return (self[key] for key in self._keys)

    def items(self):
        return ((key, self[key]) for key in self._keys)

    def get(self, key, default=None):
        return self[key] if key in self else default

    def setdefault(self, key, default=None):
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key):
        value = self[key]
        del self[key]
        return value

    def clear(self):
        for key in list(self._keys):
            del self[key]

    def update(self, parameters):
        pairs = _pairs(parameters, "ParametersDict")
        ordered = isinstance(parameters, (OrderedDict, ParameterDict)) or not isinstance(
            parameters, Mapping
        )
        for key, value in pairs if ordered else sorted(pairs):
            self[key] = value

    def extra_repr(self):
        return "\n".join(
            f"  ({key}): {_described(value, _tensor_type)}" for key, value in self.items()
        )

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "[ParameterDict] should not be called: it holds parameters, and has no forward"
        )


_TENSOR_TYPES = {
    "float64": "Double",
    "float32": "Float",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}


def _tensor_type(dtype):
    """The old name of a dtype's tensors, which ParameterDict shows: library.FloatTensor."""
    library, _, name = str(dtype).rpartition(".")
    return f"{library}.{_TENSOR_TYPES.get(name, name)}Tensor"


def _described(value, dtype_name=str):
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    device = "" if str(value.device) == "cpu" else f" ({value.device})"
    return f"{kind} containing: [{dtype_name(value.dtype)} of size {size}{device}]"
