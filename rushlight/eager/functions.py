"""`autograd.Function`: an operation with a backward of one's own, and `grad`."""

from rushlight import _core


class Context:
    """What forward leaves for backward: `save_for_backward`, `saved_tensors`, plain attributes,
    `needs_input_grad`.
    """

    def __init__(self):
        self.kept, self.versions, self.dirty, self.undefined, self.without = (), (), (), True, ()

    def save_for_backward(self, *tensors):
        self.kept = tensors
        self.versions = tuple(t._version if isinstance(t, _core.Tensor) else 0 for t in tensors)

    @property
    def saved_tensors(self):
        for t, version in zip(self.kept, self.versions):
            if isinstance(t, _core.Tensor) and t._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: a saved tensor of shape {list(t.shape)} is at version "
                    f"{t._version}; expected "
                    f"version {version} instead"
                )
        return self.kept

    def mark_dirty(self, *tensors):
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors):
        self.without = tensors

    def set_materialize_grads(self, value):
        self.undefined = bool(value)


class Function:
    """Subclass with static `forward(ctx, *args)` and `backward(ctx, *grads)`; call `.apply(*args)`.

    `backward` returns one gradient (or None) for each argument of `forward`.
    """

    @staticmethod
    def forward(ctx, *args):
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(
            "You must implement the backward function for custom autograd.Function."
        )

    @classmethod
    def apply(cls, *args):
        ctx = Context()
        tensors = [a for a in args if isinstance(a, _core.Tensor)]
        ctx.needs_input_grad = tuple(isinstance(a, _core.Tensor) and a.requires_grad for a in args)
        wanted = _core.is_grad_enabled() and any(ctx.needs_input_grad)
        before = _core.mode()
        _core.set_grad_enabled(False)
        try:
            if cls.setup_context is not Function.setup_context:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
        finally:
            _core.set_mode(before)
        if not wanted:
            return result
        outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        outs = tuple(
            o.detach() if any(o is a for a in tensors) and not any(o is d for d in ctx.dirty) else o
            for o in outs
        )

        def backward(*grads):
            if ctx.undefined:
                from .factories import zeros_like

                grads = tuple(zeros_like(o) if g is None else g for g, o in zip(grads, outs))
            given = cls.backward(ctx, *grads)
            given = given if isinstance(given, (tuple, list)) else (given,)
            if len(given) < len(args) or any(g is not None for g in given[len(args) :]):
                raise RuntimeError(
                    f"function {cls.__name__}Backward returned an incorrect number of gradients "
                    "(expected "
                    f"{len(args)}, got {len(given)})"
                )
            return tuple(g for a, g in zip(args, given) if isinstance(a, _core.Tensor))

        outs = _core.python_node(tuple(tensors), backward, outs, f"{cls.__name__}Backward")
        return outs if isinstance(result, (tuple, list)) else outs[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        raise NotImplementedError


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """Gradients of the outputs with respect to the inputs, without touching `.grad`: a tuple, one
    an input.
    """
    listed = lambda v: tuple(v) if isinstance(v, (tuple, list)) else (v,)
    outputs, inputs = listed(outputs), listed(inputs)
    seeds = (None,) * len(outputs) if grad_outputs is None else listed(grad_outputs)
    retain = create_graph if retain_graph is None else retain_graph
    found = _core.grad(
        outputs, inputs, seeds, retain, create_graph, bool(allow_unused) or materialize_grads
    )
    if materialize_grads:
        from .factories import zeros_like

        return tuple(zeros_like(x) if g is None else g for g, x in zip(found, inputs))
    return found


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """`.backward()` of several tensors at once."""
    tensors = tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,)
    if grad_tensors is None:
        grads = (None,) * len(tensors)
    else:
        grads = tuple(grad_tensors) if isinstance(grad_tensors, (tuple, list)) else (grad_tensors,)
    retain = create_graph if retain_graph is None else retain_graph
    _core.backward(tensors, grads, retain, create_graph, inputs)
