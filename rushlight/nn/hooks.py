"""Hook tables of modules and optimisers, and the taps that let a module see the gradients that
pass through it.

Takes callables, returns ``RemovableHandle``. Invariant: a table is an OrderedDict from a
process-wide unique id to the callable, called in its order; removing a handle twice is harmless.
"""

import itertools
import warnings
import weakref
from collections import OrderedDict

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
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                "Tensors but received "
                f"{type(result)}",
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
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no "
                "inputs require gradients.",
                stacklevel=2,
            )
            for hook in self.hooks:
                answer = hook(self.module, (None,) * self.inputs, gradients)
                if answer is not None and not (
                    isinstance(answer, tuple) and all(g is None for g in answer)
                ):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should "
                        "always return None or "
                        "None for all gradients."
                    )
            self.grad_output = None
        return gradients

    def _input_gradients(self, gradients):
        if self.grad_output is None:
            raise RuntimeError(
                "Module backward hook for grad_input is called before the grad_output one. This "
                "happens because "
                "the gradient in your nn.Module flows to the Module's input without passing "
                "through the Module's "
                "output. Make sure that the output depends on the input and that the loss is "
                "computed based on "
                "the output."
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
            f"Backward hook returned an invalid number of {what}, got {len(answer)}, but "
            f"expected {len(gradients)}"
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
