"""Module: a tree of parameters, buffers and submodules with a ``forward``.

Takes tensors in ``forward`` and hands its result on. Invariants: parameters, buffers and
submodules live in ``_parameters``, ``_buffers`` and ``_modules``, never in ``__dict__``; every
change made through ``__setattr__``, ``__delattr__`` or a ``register`` method moves
``change_clock()`` forward and stamps the module with the new time, so that "nothing changed" is
one comparison. Hook tables exist once a hook is registered; until then all modules share one
empty table.
"""

import sys

from rushlight import eager
from rushlight.nn import state_dict as state
from rushlight.nn.hooks import BackwardTaps, Hooked
from rushlight.nn.parameter import Buffer, Parameter

Tensor = eager.Tensor
_dtype = eager.dtype
_clock = 0


def change_clock():
    """The number of changes made to all modules of this process so far. ``module._changed_at`` is
    its value at the last change of that module.
    """
    return _clock


def type_name(value):
    """The qualified type name that error messages show."""
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


class Module(Hooked):
    """Base of all networks: assign submodules and parameters as attributes in ``__init__``,
    compute in ``forward``.
    """

    training: bool
    call_super_init = False
    _version = 1

    def __init_subclass__(cls, **kwargs):
        """Look-ups of parameters and submodules become native, unless the class has its own."""
        super().__init_subclass__(**kwargs)
        own = (cls.__getattr__, cls.__getattribute__)
        if own == (Module.__getattr__, object.__getattribute__):
            eager.module_attributes(cls)

    def __init__(self, *args, **kwargs):
        if not self.call_super_init and (args or kwargs):
            name = f"{type(self).__name__}.__init__()"
            if kwargs:
                raise TypeError(f"{name} got an unexpected keyword argument '{next(iter(kwargs))}'")
            raise TypeError(f"{name} takes 1 positional argument but {len(args) + 1} were given")
        fields = self.__dict__
        fields["training"] = True
        fields["_parameters"] = {}
        fields["_buffers"] = {}
        fields["_non_persistent_buffers_set"] = set()
        fields["_modules"] = {}
        self._changed()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def _changed(self):
        global _clock
        _clock += 1
        self.__dict__["_changed_at"] = _clock

    # ---- calling

    def forward(self, *args, **kwargs):
        raise NotImplementedError(
            f'[{type(self).__name__}] a module is missing the required "forward"'
        )

    def __call__(self, *args, **kwargs):
        # Captured without a frame of its own: what changes here changes dynamo/calls.py too.
        if (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
        ):
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args, kwargs):
        called = set()
        result = None
        try:
            args, kwargs = self._run_forward_pre_hooks(args, kwargs)
            taps = None
            if self._backward_hooks or self._backward_pre_hooks:
                taps = BackwardTaps(
                    self,
                    list(self._backward_hooks.values()),
                    list(self._backward_pre_hooks.values()),
                )
                args = taps.enter(args)
            result = self.forward(*args, **kwargs)
            for key, hook in list(self._forward_hooks.items()):
                if key in self._forward_hooks_always_called:
                    called.add(key)
                result = self._run_forward_hook(key, hook, args, kwargs, result)
            return taps.leave(result) if taps else result
        except Exception:
            for key, hook in list(self._forward_hooks.items()):
                if key in self._forward_hooks_always_called and key not in called:
                    try:
                        result = self._run_forward_hook(key, hook, args, kwargs, result)
                    except Exception as error:
                        import warnings

                        warnings.warn(
                            "[Module] an always_call hook raised after forward had raised; this "
                            f"one is only told of: {error}",
                            stacklevel=2,
                        )
            raise

    def _run_forward_pre_hooks(self, args, kwargs):
        for key, hook in list(self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                answer = hook(self, args, kwargs)
                if answer is not None:
                    if not (isinstance(answer, tuple) and len(answer) == 2):
                        raise RuntimeError(
                            "[Module] a forward pre-hook with kwargs must return None or a tuple "
                            f"(args, kwargs), got {answer}"
                        )
                    args, kwargs = answer
            else:
                answer = hook(self, args)
                if answer is not None:
                    args = answer if isinstance(answer, tuple) else (answer,)
        return args, kwargs

    def _run_forward_hook(self, key, hook, args, kwargs, result):
        with_kwargs = key in self._forward_hooks_with_kwargs
        answer = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
        return result if answer is None else answer

    # ---- attributes

    def _check_name(self, kind, name, table):
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type_name(name)}")
        if "." in name:
            raise KeyError(
                f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else "")
            )
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a buffer. tensor: Tensor or None. persistent: part of ``state_dict``."""
        self._check_name("buffer", name, self.__dict__.get("_buffers", ()))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type_name(tensor)}' object to buffer '{name}' (Tensor or None "
                "required)"
            )
        self._buffers[name] = tensor
        (
            self._non_persistent_buffers_set.discard
            if persistent
            else self._non_persistent_buffers_set.add
        )(name)
        self._changed()

    def register_parameter(self, name, param):
        """Adds a parameter. param: Parameter or None."""
        self._check_name("parameter", name, self.__dict__.get("_parameters", ()))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type_name(param)}' object to parameter '{name}' "
                "(rushlight.nn.Parameter or None "
                "required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"[Module] '{name}' would be a parameter that was computed (it is not a leaf): "
                "compute it in forward()"
            )
        self._parameters[name] = param
        self._changed()

    def add_module(self, name, module):
        """Adds a submodule. module: Module or None."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type_name(module)} is not a Module subclass")
        self._check_name("module", name, self.__dict__.get("_modules", ()))
        self._modules[name] = module
        self._changed()

    register_module = add_module

    def __getattr__(self, name):
        fields = self.__dict__
        if "_parameters" in fields:
            for table in (fields["_parameters"], fields["_modules"], fields["_buffers"]):
                if name in table:
                    return table[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        fields = self.__dict__
        if isinstance(value, (Parameter, Module)):
            kind, table = (
                ("parameters", "_parameters")
                if isinstance(value, Parameter)
                else ("module", "_modules")
            )
            if table not in fields:
                raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
            self._forget(name, keep=table)
            if table == "_parameters":
                self.register_parameter(name, value)
            else:
                fields["_modules"][name] = value
        elif name in fields.get("_parameters", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as parameter '{name}' "
                    "(rushlight.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif name in fields.get("_modules", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as child module '{name}' "
                    "(rushlight.nn.Module or None expected)"
                )
            fields["_modules"][name] = value
        elif name in fields.get("_buffers", ()) or isinstance(value, Buffer):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as buffer '{name}' "
                    "(rushlight.nn.Buffer, rushlight.Tensor or "
                    "None expected)"
                )
            persistent = (
                value.persistent
                if isinstance(value, Buffer)
                else name not in self._non_persistent_buffers_set
            )
            self._forget(name, keep="_buffers")
            self.register_buffer(name, value, persistent)
        else:
            if name == "__dict__":
                self._changed()  # in the fields that go, too
            object.__setattr__(self, name, value)
        self._changed()

    def _forget(self, name, keep):
        """Removes ``name`` wherever it stands, except in the table ``keep`` (where it keeps its
        place in the order).
        """
        self.__dict__.pop(name, None)
        self._non_persistent_buffers_set.discard(name)
        for table in ("_parameters", "_buffers", "_modules"):
            if table != keep:
                self.__dict__[table].pop(name, None)

    def __delattr__(self, name):
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                break
        else:
            object.__delattr__(self, name)
        self._changed()

    def __dir__(self):
        names = {
            *dir(type(self)),
            *self.__dict__,
            *self._parameters,
            *self._buffers,
            *self._modules,
        }
        return sorted(name for name in names if not name[0].isdigit())

    def __setstate__(self, fields):
        self.__dict__.update(fields)
        self._changed()

    # ---- the tree

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """Yields (dotted name, module) of the tree, self first as ''."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                inside = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, inside, remove_duplicate)

    def modules(self):
        return (module for _, module in self.named_modules())

    def named_children(self):
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        return (module for _, module in self.named_children())

    def _named_members(self, table, prefix, recurse, remove_duplicate):
        seen = set()
        owners = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in owners:
            for name, tensor in module.__dict__[table].items():
                if tensor is None or id(tensor) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target):
        """The submodule at a dotted path. AttributeError when there is none."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target, module, strict=False):
        """Puts ``module`` at a dotted path. strict: it must take the place of an existing
        submodule.
        """
        if not target:
            raise ValueError("[set_submodule] the target's name is empty")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        setattr(parent, name, module)

    def get_parameter(self, target):
        """The parameter at a dotted path. AttributeError when there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if not isinstance(getattr(module, name), Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return getattr(module, name)

    def get_buffer(self, target):
        """The buffer at a dotted path. AttributeError when there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return module._buffers[name]

    # ---- state

    def get_extra_state(self):
        raise RuntimeError(
            "get_extra_state has no definition here; a class that overrides set_extra_state "
            "defines both"
        )

    def set_extra_state(self, state):
        raise RuntimeError(
            "set_extra_state has no definition here; a class that overrides get_extra_state "
            "defines both"
        )

    def state_dict(self, destination=None, prefix="", keep_vars=False):
        """OrderedDict from dotted names to parameters and persistent buffers; the tensors share
        the module's memory and are detached unless keep_vars.
        """
        return state.save_state(self, destination, prefix, keep_vars)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        state.save_own_state(self, destination, prefix, keep_vars)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies (assign: takes over) the tensors of ``state_dict``. Returns IncompatibleKeys.
        RuntimeError: see state_dict.py; then nothing has changed.
        """
        return state.load_state(self, state_dict, strict, assign)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        state.load_own_state(
            self,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    # ---- changing all of it

    def apply(self, fn):
        """Calls fn(module) for every module of the tree, children first. Returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def share_memory(self):
        """Parameters and buffers in memory that processes forked from now on share."""
        return self._apply(lambda tensor: tensor.share_memory_())

    def compile(self, *args, **kwargs):
        """From now on calls of this module run its `forward` compiled: the arguments are those of
        `rushlight.compile`. Hooks run around it, in eager mode. The module stays what it is.
        """
        if self.__dict__.pop("_compiled_forward", False):
            del self.__dict__["forward"]  # compiled again
        front_door = sys.modules[__name__.partition(".")[0]]  # imports every room; none imports it
        self.__dict__["forward"] = front_door.compile(self.forward, *args, **kwargs)
        self.__dict__["_compiled_forward"] = True
        self._changed()

    def _apply(self, fn, recurse=True):
        """Maps every parameter, its gradient and every buffer by ``fn``. Parameters keep their
        identity.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            with eager.no_grad():
                data = fn(parameter)
                grad = None if parameter.grad is None else fn(parameter.grad)
            if data is not parameter:
                parameter.grad = None
                parameter.data = data
                parameter.grad = grad
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        self._changed()
        return self

    def to(self, *args, **kwargs):
        """``to(device)``, ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)``: moves and casts
        in place; returns self. ``memory_format``: how weights of 4 or 5 dims lie from then on.

        dtype must be floating; integer parameters and buffers keep theirs.
        """
        device, dtype, layout = _parse_to(*args, **kwargs)
        if dtype is not None and not dtype.is_floating_point and not dtype.is_complex:
            raise TypeError(f"[Module.to] parameters can become floating or complex, not {dtype}")
        options = {} if device is None else {"device": device}

        def convert(tensor):
            cast = {"dtype": dtype} if dtype is not None and tensor.is_floating_point() else {}
            if layout is not None and tensor.dim() in (4, 5):
                cast["memory_format"] = layout
            if device is not None and tensor.is_meta and str(device) != "meta":
                raise NotImplementedError(
                    "[Module.to] Cannot copy out of meta tensors, which hold no data: use "
                    "Module.to_empty()"
                )
            return tensor.to(**options, **cast) if options or cast else tensor

        return self._apply(convert)

    def type(self, dst_type):
        return self._apply(lambda tensor: tensor.to(dtype=dst_type))

    def float(self):
        return self.to(eager.float32)

    def double(self):
        return self.to(eager.float64)

    def half(self):
        return self.to(eager.float16)

    def bfloat16(self):
        return self.to(eager.bfloat16)

    def cpu(self):
        return self.to("cpu")

    def cuda(self, device=None):
        return self.to(
            "cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device
        )

    def to_empty(self, *, device, recurse=True):
        """Moves to ``device`` without copying: the values are undefined."""
        return self._apply(
            lambda tensor: eager.empty(tensor.shape, dtype=tensor.dtype, device=device),
            recurse=recurse,
        )

    def train(self, mode=True):
        """Sets ``training`` in the whole tree. Returns self."""
        if not isinstance(mode, bool):
            raise ValueError("[Module.train] the mode is a bool")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        for parameter in self.parameters():
            clear_gradient(parameter, set_to_none)

    # ---- printing

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self):
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [
            f"({name}): " + indent(repr(module)) for name, module in self._modules.items()
        ]
        if len(extra_lines) == 1 and not child_lines:
            return f"{self._get_name()}({extra_lines[0]})"
        lines = extra_lines + child_lines
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


eager.module_attributes(Module)


def indent(text):
    """All lines but the first, two spaces further in."""
    return text.replace("\n", "\n  ")


def clear_gradient(parameter, set_to_none):
    """Drops the gradient or, set_to_none False, fills it with zeros."""
    grad = parameter.grad
    if grad is None:
        return
    if set_to_none:
        parameter.grad = None
    else:
        grad.detach_() if grad.grad_fn is not None else grad.requires_grad_(False)
        grad.zero_()


def _parse_to(*args, device=None, dtype=None, non_blocking=False, memory_format=None):
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, _dtype):
            dtype = value
        elif value is not None and not isinstance(value, bool):
            device = value
    return device, dtype, memory_format
