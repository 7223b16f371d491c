"""`autograd.Function`: an operation with a backward of one's own, and `grad`."""

import weakref

from rushlight import _core

watch_nodes = _core.watch_nodes  # each node that is recorded (autograd/anomaly.py)


class Context:
    """What forward leaves for backward: `save_for_backward`, `saved_tensors`, plain attributes,
    `needs_input_grad`.
    """

    def __init__(self):
        self._given, self._saved, self._node = (), None, None
        self._dirty, self._without, self._materialize = (), (), True

    def save_for_backward(self, *tensors):
        """Tensors (or None) that backward reads; their versions are checked then."""
        for t in tensors:
            if t is not None and not isinstance(t, _core.Tensor):
                raise TypeError(
                    f"[save_for_backward] saves tensors and None; number {tensors.index(t)} is a "
                    f"{type(t).__name__}"
                )
        self._given = tensors

    @property
    def saved_tensors(self):
        if self._saved is None:
            return self._given
        node = self._node and self._node()
        return tuple(s if s is None else s.unpack(node) for s in self._saved)

    def mark_dirty(self, *tensors):
        """Arguments that forward wrote in place and gives back."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors):
        """Outputs that no gradient flows through."""
        self._without = tensors

    def set_materialize_grads(self, value):
        """Whether backward is given zeros (the default) or None for outputs that nobody used."""
        self._materialize = bool(value)

    def keep(self, outs):
        """Saved tensors become memory with a version; outputs make no cycle through their node."""
        number = {id(o): i for i, o in enumerate(outs)}
        self._saved = tuple(
            t if t is None else _core.SavedTensor(t, number.get(id(t), -1)) for t in self._given
        )
        self._given = ()
        return tuple(s for s in self._saved if s is not None)


class Function:
    """Subclass with static `forward(ctx, *args)` and `backward(ctx, *grads)`; call `.apply(*args)`.

    `backward` returns one gradient (or None) for each argument of `forward`. `forward(*args)` with
    `setup_context(ctx, inputs, output)` is the other form.
    """

    @staticmethod
    def forward(ctx, *args):
        raise NotImplementedError(
            "[autograd.Function] a subclass defines a static method `forward`"
        )

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(
            "[autograd.Function] a subclass that is differentiated defines a static method "
            "`backward`"
        )

    @staticmethod
    def setup_context(ctx, inputs, output):
        raise NotImplementedError("[autograd.Function] there is no setup_context")

    @classmethod
    def apply(cls, *args):
        """Run forward without gradients; where an argument requires one, its derivative is
        backward.
        """
        ctx = Context()
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
        return cls.recorded(ctx, args, result) if wanted else result

    @classmethod
    def recorded(cls, ctx, args, result):
        """The outputs as results of a node of the tape."""
        several = isinstance(result, (tuple, list))
        outs = list(result) if several else [result]
        among = lambda x, those: any(x is y for y in those)
        for x in ctx._dirty:
            if not among(x, args):
                raise RuntimeError(f"{cls.__name__}: a tensor given to mark_dirty is no argument")
        tensors = tuple(a for a in args if isinstance(a, _core.Tensor))
        outs = [o.detach() if among(o, tensors) and not among(o, ctx._dirty) else o for o in outs]
        saved = ctx.keep(outs)
        slots = [i for i, o in enumerate(outs) if not among(o, ctx._without)]
        count = len(outs)

        def backward(*grads):
            given = [None] * count
            for i, g in zip(slots, grads):
                given[i] = g
            return cls.gradients(ctx, args_are_tensors, given)

        args_are_tensors = tuple(isinstance(a, _core.Tensor) for a in args)
        made = _core.python_node(
            tensors,
            backward,
            tuple(outs[i] for i in slots),
            f"{cls.__name__}Backward",
            saved,
            ctx._materialize,
        )
        for i, o in zip(slots, made):
            outs[i] = o
            if isinstance(o, _core.Tensor) and o.grad_fn is not None:
                ctx._node = weakref.ref(o.grad_fn)
        return tuple(outs) if several else outs[0]

    @classmethod
    def gradients(cls, ctx, are_tensors, grads):
        """What backward returns, checked; one entry a tensor among the arguments."""
        given = cls.backward(ctx, *grads)
        given = given if isinstance(given, (tuple, list)) else (given,)
        n = len(are_tensors)
        if len(given) < n or any(g is not None for g in given[n:]):
            raise RuntimeError(
                f"[{cls.__name__}] backward gave an incorrect number of gradients: {len(given)}, "
                f"where forward took {n} arguments"
            )
        for i, g in enumerate(given):
            if g is not None and not isinstance(g, _core.Tensor):
                raise TypeError(
                    f"[{cls.__name__}] backward gave a {type(g).__name__} as gradient {i}: a "
                    "Tensor or None is needed"
                )
            if g is not None and not are_tensors[i]:
                raise RuntimeError(
                    f"[{cls.__name__}] backward gave a gradient for argument {i}, which was no "
                    "tensor: give None there"
                )
        return tuple(g for g, tensor in zip(given, are_tensors) if tensor)


def listed(v):
    return tuple(v) if isinstance(v, (tuple, list)) else (v,)


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """Gradients of the outputs with respect to the inputs, without touching `.grad`: a tuple, one
    an input. `only_inputs` has no meaning any more.
    """
    if not only_inputs:
        import warnings

        warnings.warn("[grad] only_inputs is ignored", FutureWarning, stacklevel=2)
    if is_grads_batched:
        raise NotImplementedError("[grad] is_grads_batched is not supported yet")
    if allow_unused is False and materialize_grads:
        raise ValueError(
            "[grad] materialize_grads=True answers for unused inputs, so allow_unused=False "
            "cannot hold beside it"
        )
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
    """`.backward()` of several tensors at once: one run of the engine."""
    grads = None if grad_tensors is None else listed(grad_tensors)
    _core.backward(
        listed(tensors),
        grads,
        retain_graph,
        create_graph,
        None if inputs is None else listed(inputs),
    )
