"""Hook tables of modules and optimisers, and the taps that let a module see the gradients that
pass through it.

Takes callables, returns ``RemovableHandle``. Invariant: a table is an OrderedDict from a
process-wide unique id to the callable, called in its order; removing a handle twice is harmless.
"""

import functools
import itertools
import warnings
import weakref
from collections import OrderedDict
from types import MappingProxyType

from rushlight import eager

Tensor = eager.Tensor
_ids = itertools.count()


class RemovableHandle:
    """Removes one hook, by ``remove()`` or on leaving a ``with`` block. ``beside``: tables keyed
    by the same id.
    """

    def __init__(self, table, *, beside=()):
        self.id = next(_ids)
        self._tables = [weakref.ref(table), *map(weakref.ref, beside)]

    def remove(self):
        for reference in self._tables:
            table = reference()
            if table is not None:
                table.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()

    def __getstate__(self):
        return self.id, [reference() for reference in self._tables]

    def __setstate__(self, state):
        self.id, tables = state
        self._tables = [weakref.ref(OrderedDict() if table is None else table) for table in tables]


def add_hook(table, hook, *, prepend=False, marks=()):
    """Adds ``hook`` to ``table``. ``marks`` are further tables in which its id is set to True.
    Returns its handle.
    """
    handle = RemovableHandle(table, beside=marks)
    table[handle.id] = hook
    for mark in marks:
        mark[handle.id] = True
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


_NO_HOOKS: MappingProxyType = MappingProxyType({})


class Hooked:
    """What a module offers for its hooks to be registered.

    A table exists once a hook is registered; until then all modules share one empty table, which is
    quick to make and quick to test.
    """

    _forward_hooks = _forward_pre_hooks = _backward_hooks = _backward_pre_hooks = _NO_HOOKS
    _forward_hooks_with_kwargs = _forward_hooks_always_called = _forward_pre_hooks_with_kwargs = (
        _NO_HOOKS
    )
    _state_dict_hooks = _state_dict_pre_hooks = _NO_HOOKS
    _load_state_dict_pre_hooks = _load_state_dict_post_hooks = _NO_HOOKS

    def _table(self, name):
        """This module's own hook table of that name, made now if it is the shared empty one."""
        self._changed()
        return self.__dict__.setdefault(name, OrderedDict())

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """``hook(module, args)`` or, with_kwargs, ``hook(module, args, kwargs)`` before forward;
        may return replacements.
        """
        marks = [self._table("_forward_pre_hooks_with_kwargs")] if with_kwargs else []
        return add_hook(self._table("_forward_pre_hooks"), hook, prepend=prepend, marks=marks)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """``hook(module, args, result)`` or, with_kwargs, ``hook(module, args, kwargs, result)``
        after forward; may return a replacement. always_call: also when forward raises.
        """
        marks = [self._table("_forward_hooks_with_kwargs")] if with_kwargs else []
        marks += [self._table("_forward_hooks_always_called")] if always_call else []
        return add_hook(self._table("_forward_hooks"), hook, prepend=prepend, marks=marks)

    def register_full_backward_hook(self, hook, prepend=False):
        """``hook(module, grad_input, grad_output)`` when the gradients of the inputs are there;
        may return a new grad_input.
        """
        return add_hook(self._table("_backward_hooks"), hook, prepend=prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """``hook(module, grad_output)`` when the gradients of the outputs are there; may return a
        new grad_output.
        """
        return add_hook(self._table("_backward_pre_hooks"), hook, prepend=prepend)

    def register_state_dict_pre_hook(self, hook):
        """``hook(module, prefix, keep_vars)`` before the state is collected."""
        return add_hook(self._table("_state_dict_pre_hooks"), hook)

    def register_state_dict_post_hook(self, hook):
        """``hook(module, state_dict, prefix, local_metadata)``; may change state_dict in place,
        must return None.
        """
        hook._public = True
        return add_hook(self._table("_state_dict_hooks"), hook)

    def _register_state_dict_hook(self, hook):
        if getattr(hook, "_public", False):
            raise RuntimeError("hook was registered by register_state_dict_post_hook before")
        return add_hook(self._table("_state_dict_hooks"), hook)

    def register_load_state_dict_pre_hook(self, hook):
        """``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)``.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return add_hook(
            self._table("_load_state_dict_pre_hooks"),
            functools.partial(hook, self) if with_module else hook,
        )

    def register_load_state_dict_post_hook(self, hook):
        """``hook(module, incompatible_keys)`` after loading; may change the two lists in place,
        must return None.
        """
        return add_hook(self._table("_load_state_dict_post_hooks"), hook)


class BackwardTaps:
    """Watches one call of one module: its inputs and outputs go through identity nodes whose
    backward calls the hooks.

    hooks: ``hook(module, grad_input, grad_output)``, may return a replacement for grad_input;
    pre_hooks: ``hook(module, grad_output)``, may return a replacement for grad_output. Gradients
    are tuples with None for what is no tensor.
    """

    def __init__(self, module, hooks, pre_hooks):
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_output = None
        self.inputs = 0
        self.inputs_tapped = False

    def enter(self, args):
        """The module's positional arguments, tapped. Nothing is done when none of them requires a
        gradient.
        """
        self.inputs = len(args)
        args, self.inputs_tapped = _tap(args, self._input_gradients)
        return args

    def leave(self, result):
        """The module's result (a Tensor or a tuple), tapped; anything else is returned as it is,
        with a warning.
        """
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "[Module] backward hooks watch the output, which is a Tensor or a tuple of them, "
                f"got {type(result)}",
                stacklevel=3,
            )
            return result
        single = isinstance(result, Tensor)
        outputs, _ = _tap((result,) if single else result, self._output_gradients)
        return (
            outputs[0]
            if single
            else type(result)(*outputs)
            if hasattr(result, "_fields")
            else outputs
        )

    def _output_gradients(self, gradients):
        for hook in self.pre_hooks:
            gradients = _replaced(hook(self.module, gradients), gradients, "grad_output")
        self.grad_output = gradients
        if not self.inputs_tapped and self.hooks:
            warnings.warn(
                "[Module] no inputs require gradients: the full backward hook sees those of the "
                "outputs alone",
                stacklevel=2,
            )
            for hook in self.hooks:
                answer = hook(self.module, (None,) * self.inputs, gradients)
                if answer is not None and not (
                    isinstance(answer, tuple) and all(g is None for g in answer)
                ):
                    raise RuntimeError(
                        "[Module] no input requires a gradient, so a backward hook has none to "
                        "replace: it returns None"
                    )
            self.grad_output = None
        return gradients

    def _input_gradients(self, gradients):
        if self.grad_output is None:
            raise RuntimeError(
                "[Module] the gradient of the input came before that of the output: does the "
                "output depend on the input, and the loss on the output?"
            )
        for hook in self.hooks:
            gradients = _replaced(
                hook(self.module, gradients, self.grad_output), gradients, "grad_input"
            )
        self.grad_output = None
        return gradients


def _replaced(answer, gradients, what):
    if answer is None:
        return gradients
    if not isinstance(answer, tuple):
        answer = (answer,)
    if len(answer) != len(gradients):
        raise RuntimeError(
            f"[Module] a backward hook gave {len(answer)} {what}, there are {len(gradients)}"
        )
    return answer


def _tap(values, on_gradients):
    """values: tuple. Its tensors go through one identity node whose backward maps their gradients
    by ``on_gradients``.
    """
    places = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    if not eager.is_grad_enabled() or not any(values[i].requires_grad for i in places):
        return values, False

    def backward(gradients):
        full = [None] * len(values)
        for i, gradient in zip(places, gradients, strict=True):
            full[i] = gradient
        full = on_gradients(tuple(full))
        return tuple(full[i] for i in places)

    tapped = list(values)
    for i, alias in zip(places, _identity()(backward, *(values[i] for i in places)), strict=True):
        tapped[i] = alias
    return tuple(tapped), True


_Identity = None


def _identity():
    """The identity as a custom Function; made at first use, because few programs have backward
    hooks.
    """
    global _Identity
    if _Identity is None:

        class ModuleTap(eager.Function):
            @staticmethod
            def forward(ctx, on_backward, *tensors):
                ctx.on_backward = on_backward
                ctx.set_materialize_grads(False)
                return tuple(tensor.view(tensor.shape) for tensor in tensors)

            @staticmethod
            def backward(ctx, *gradients):
                return None, *ctx.on_backward(gradients)

        _Identity = ModuleTap
    return _Identity.apply


def unserializable_hook(f):
    """Marks a hook on a tensor that is not saved with it, without a warning."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor):
    """Warns where a tensor that is about to be saved has hooks, which are not saved."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"[save] the backward hook {hook!r} is left out; "
                "torch.utils.hooks.unserializable_hook marks one that may be",
                stacklevel=2,
            )
