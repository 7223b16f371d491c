"""Gradient checkpointing: what a function saves for backward is dropped, and computed again when
backward needs it.

In compiled code `checkpoint` itself is never captured: it calls the function with the frame hook
that it was called under, both times, so that the function's graphs save the same tensors.

Two forms, as in PyTorch. Not reentrant (use_reentrant=False): the function's operators are recorded
as ever, but each saved tensor is replaced by a placeholder; the first one that backward unpacks
runs the function again, whose saved tensors fill the placeholders in order. Reentrant: the function
runs without recording, and one node runs it again and a backward pass of its own.
"""

import contextlib
import warnings
import weakref

from rushlight import _core, eager
from rushlight.eager import casting
from rushlight.eager.functions import Function, backward
from rushlight.eager.modes import enable_grad, no_grad
from rushlight.eager.saved import saved_tensors_hooks


class CheckpointError(RuntimeError):
    """The function computed something else the second time."""


class State:
    """What decides about the results besides the arguments: the random stream and autocast."""

    def __init__(self, preserve_rng_state):
        self.rng = eager.get_rng_state() if preserve_rng_state else None
        self.autocast = {
            "dtype": casting.get_autocast_dtype("cpu"),
            "enabled": casting.is_autocast_enabled("cpu"),
            "cache_enabled": casting.is_autocast_cache_enabled(),
        }

    @contextlib.contextmanager
    def again(self):
        """As it was; the random stream then goes on where it stands now."""
        now = eager.get_rng_state()
        if self.rng is not None:
            eager.set_rng_state(self.rng)
        try:
            with casting.autocast("cpu", **self.autocast):
                yield
        finally:
            if self.rng is not None:
                eager.set_rng_state(now)


def noop_context_fn():
    """Two contexts that do nothing: for the run, and for the run again."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def detach_variable(inputs):
    """The tensors of a tuple, detached, each requiring a gradient as before; RuntimeError for what
    is no tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"[detach_variable] expected a tuple, got {type(inputs).__name__}")
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, eager.Tensor) else x
        for x in inputs
    )


def check_backward_validity(inputs):
    """Warns where no tensor among the inputs requires a gradient."""
    warn_of_inputs(inputs, 3)


def warn_of_inputs(inputs, level):
    if not any(isinstance(x, eager.Tensor) and x.requires_grad for x in inputs):
        text = "[checkpoint] None of the inputs requires grad, so no gradient will come"
        warnings.warn(text, stacklevel=level)


def get_device_states(*args):
    """The numbers of the GPUs among the tensors, and the state of each one's random stream: for
    programs that run a part again by themselves. One stream serves all devices here, and what
    stands on the CPU alone needs `get_rng_state`."""
    on = {x.device.index or 0 for x in args if isinstance(x, eager.Tensor) and x.is_cuda}
    return sorted(on), [eager.get_rng_state() for _ in on]


def set_device_states(devices, states, *, device_type=None):
    """Sets what `get_device_states` gave."""
    for state in states:
        eager.set_rng_state(state)


def checkpoint(
    function,
    *args,
    use_reentrant=None,
    context_fn=None,
    determinism_check="default",
    debug=False,
    early_stop=True,
    **kwargs,
):
    """function(*args, **kwargs), keeping its arguments instead of what its inside saves.

    use_reentrant: False is the better form (works with autograd.grad, keyword arguments, any
    nesting of arguments); True needs an argument that requires a gradient; None warns and means
    True. preserve_rng_state (keyword, default True): the second run draws the same random
    numbers. context_fn() -> (context of the first run, context of the second). determinism_check:
    'default' compares shapes and dtypes of both runs, 'none' does not. early_stop: the second run
    ends with the last tensor that is needed.
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant is None:
        warnings.warn(
            "[checkpoint] say use_reentrant: False is the better form, True still the default",
            stacklevel=2,
        )
        use_reentrant = True
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not None or debug:
            raise ValueError("[checkpoint] context_fn and debug go with use_reentrant=False")
        return Reentrant.apply(function, preserve, *args)
    if debug:
        raise NotImplementedError("[checkpoint] debug=True is not supported")
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'], got {determinism_check!r}"
        )
    first, second = context_fn() if context_fn else (contextlib.nullcontext(),) * 2
    if not _core.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    checked = determinism_check == "default"
    frame = Frame(function, args, kwargs, State(preserve), second, early_stop, checked)
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


checkpoint.__dict__["__rushlight_disabled__"] = "it runs its function again in backward"


# ---- not reentrant


class Placeholder:
    """Stands for a saved tensor."""

    __slots__ = ("__weakref__",)


class Stop(BaseException):
    """Ends the second run: everything that is needed is there. No handler of errors may take it,
    neither the function's own nor that of compiled code, which begins again in eager mode."""


class Frame:
    """One call of checkpoint: how to run the function again, and the placeholders to be filled.

    The arguments are kept as saved tensors, so an outer checkpoint drops them too.
    """

    def __init__(self, function, args, kwargs, state, second, early_stop, checked):
        self.function, self.state, self.second = function, state, second
        self.hook = _core.FrameScope(_core.frame_hook())
        self.early_stop, self.checked = early_stop, checked
        self.placeholders, self.described = [], []  # weak references; (dtype, shape)
        self.filled = {}  # number of a backward pass -> {placeholder: tensor}
        self.names = list(kwargs)
        self.flat = [kept(x) for x in (*args, *kwargs.values())]

    def arguments(self):
        flat = [x.again() if isinstance(x, Kept) else x for x in self.flat]
        cut = len(flat) - len(self.names)
        return flat[:cut], dict(zip(self.names, flat[cut:]))

    def pack(self, x):
        placeholder = Placeholder()
        self.placeholders.append(weakref.ref(placeholder))
        self.described.append((x.dtype, tuple(x.shape)))
        return placeholder

    def unpack(self, placeholder):
        number = _core.backward_id()
        table = self.filled.get(number) if number else None
        if table is None:
            table = self.run_again()
            if number:
                self.filled[number] = table
        if placeholder not in table:  # read twice in one pass: once more, for this one alone
            return self.run_again()[placeholder]
        return table.pop(placeholder)

    def run_again(self):
        """{placeholder: tensor} for all that are still wanted."""
        table, seen, wrong = weakref.WeakKeyDictionary(), 0, []

        def pack(x):
            nonlocal seen
            i, seen = seen, seen + 1
            if i < len(self.placeholders):
                placeholder = self.placeholders[i]()
                if (x.dtype, tuple(x.shape)) != self.described[i]:
                    wrong.append((i, self.described[i], (x.dtype, tuple(x.shape))))
                if placeholder is not None:
                    table[placeholder] = x.detach()
                if self.early_stop and seen == len(self.placeholders):
                    raise Stop
            return x.detach()

        args, kwargs = self.arguments()
        try:
            with self.state.again(), enable_grad(), self.second:
                with saved_tensors_hooks(pack, lambda x: x):
                    self.hook(self.function, *args, **kwargs)
        except Stop:
            pass
        if seen != len(self.placeholders):
            raise CheckpointError(
                "[checkpoint] a different number of tensors was saved when the forward ran again: "
                f"{len(self.placeholders)} the first time, {seen} the second"
            )
        if wrong and self.checked:
            lines = (f"tensor {i}: saved {a}, recomputed {b}" for i, a, b in wrong)
            raise CheckpointError(
                "[checkpoint] tensors saved when the forward ran again have "
                "different metadata:\n" + "\n".join(lines)
            )
        return table


class Kept:
    """A tensor argument, saved."""

    def __init__(self, x):
        self.saved, self.needs = _core.SavedTensor(x), x.requires_grad

    def again(self):
        x = self.saved.unpack()
        return x.detach().requires_grad_() if self.needs else x.detach()


def kept(x):
    return Kept(x) if isinstance(x, eager.Tensor) else x


# ---- reentrant


class Reentrant(Function):
    """The function as one node: backward runs it again, recorded, and then backward through it."""

    @staticmethod
    def forward(ctx, function, preserve, *args):
        warn_of_inputs(args, 5)
        ctx.function, ctx.state = function, State(preserve)
        ctx.others = [None if isinstance(x, eager.Tensor) else x for x in args]
        ctx.places = [i for i, x in enumerate(args) if isinstance(x, eager.Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        if _core.backward_id() & 1:
            raise RuntimeError(
                "[checkpoint] use_reentrant=True is incompatible with .grad() and with "
                ".backward(inputs=...): use_reentrant=False is not"
            )
        args = list(ctx.others)
        for i, x in zip(ctx.places, ctx.saved_tensors):
            args[i] = x.detach().requires_grad_(x.requires_grad)
        with ctx.state.again(), enable_grad():
            outs = ctx.function(*args)
        outs = outs if isinstance(outs, (tuple, list)) else (outs,)
        pairs = [
            (o, g) for o, g in zip(outs, grads) if isinstance(o, eager.Tensor) and o.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "[checkpoint] no output requires grad: there is nothing to run again for"
            )
        backward([o for o, _ in pairs], [g for _, g in pairs])
        found = (x.grad if isinstance(x, eager.Tensor) else None for x in args)
        return (None, None, *found)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """functions (a Sequential, or modules) one after another in `segments` parts; each but the
    last is a checkpoint.
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant is None:
        warnings.warn(
            "[checkpoint_sequential] say use_reentrant: False is the better form, True still the "
            "default",
            stacklevel=2,
        )
        use_reentrant = True
    functions = list(functions.children() if hasattr(functions, "children") else functions)
    size = len(functions) // segments
    if not size:
        raise ValueError(
            f"[checkpoint_sequential] {segments} segments of {len(functions)} functions"
        )

    def part(start, end):
        def run(x):
            for f in functions[start:end]:
                x = f(x)
            return x

        return run

    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(
            part(start, start + size),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve,
        )
    return part(last, len(functions))(input)
