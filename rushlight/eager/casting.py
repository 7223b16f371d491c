"""Autocast: inside the region operators get their operands in the precision that suits them.

Which precision suits an operator stands in its declaration (`autocast="lower"`: products, in
bfloat16 or float16; `"float32"`: losses; `"promote"`: the widest of its operands; `"off"`: as they
are, inside too). The mode word says whether autocast is on; it is part of every plan key, so a
call's casts are decided once, when its plan is made (`cast_program`), and recorded on the tape like
any other operator.

Invariant: an operator with a policy runs its inside without autocast; writes in place and `out=`
are not cast, nor is anything in a backward pass.
"""

import functools
import threading
import warnings

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.values import Array

AUTOCAST, HALF = 2, 32  # docs/native.md, mode word
DTYPES = (_core.bfloat16, _core.float16)
NARROW = ("float16", "bfloat16", "float32")  # what is cast; float64 stays


class State(threading.local):
    """Of this thread, besides the mode word. dtypes: what autocast would cast to."""

    def __init__(self):
        self.dtypes = {"cpu": _core.bfloat16, "cuda": _core.float16}
        self.cache_enabled, self.depth, self.cuda = True, 0, False
        self.cache = {}  # id of a leaf -> (leaf, its version, gradients on, the cast)


state = State()


def enabled():
    """Whether autocast is on in this thread."""
    return bool(_core.mode() & AUTOCAST)


def has_cuda():
    """Whether there is a GPU to cast on."""
    return _core.cuda_available()[0]


def lower():
    """The dtype that products get now."""
    return _core.float16 if _core.mode() & HALF else _core.bfloat16


# ---- plans


def cast_program(op, values):
    """The plan of a call of an operator with a policy, under autocast: casts, then the operator
    itself without autocast. None where nothing is to be cast and nothing inside could be.
    """
    policy = op.autocast(*values) if callable(op.autocast) else op.autocast
    if policy is None:
        return None
    instructions, count = [], len(values)
    tensors = [x for v in values for x in (v if isinstance(v, (list, tuple)) else (v,))]
    target = wanted(policy, [x for x in tensors if is_narrow(x)])

    def placed(x, entry):
        nonlocal count
        if not is_narrow(x) or x.dtype is target or policy == "off":
            return entry
        if target is _core.float32:
            instructions.append((TABLE["to"].native, (entry, ("c", target)), (count,)))
        else:
            instructions.append((lowered, (entry, ("c", target)), (count,)))
        count += 1
        return ("r", count - 1)

    spec = []
    for i, v in enumerate(values):
        if isinstance(v, (list, tuple)) and any(is_narrow(x) for x in v):
            spec.append(("l", tuple(placed(x, ("i", i, k)) for k, x in enumerate(v))))
        else:
            spec.append(placed(v, ("r", i)))
    if not instructions and op.kind in ("scalar", "rows", "library", "assemble"):
        return None
    outs = tuple(range(count, count + op.outputs))
    instructions.append((op.native, tuple(spec), outs))
    results = tuple(("r", i) for i in outs)
    return _core.Program(
        len(values),
        instructions,
        results[0] if op.outputs == 1 else results,
        transparent=True,
        ranks=True,
        settled=True,
    )


def is_narrow(x):
    """Of tensors, and of the values that stand for them while a graph is recorded."""
    if isinstance(x, _core.Tensor):
        return x.dtype.name in NARROW
    return isinstance(x, Array) and x.dtype in NARROW


def wanted(policy, tensors):
    if policy == "float32":
        return _core.float32
    if policy == "promote" and any(x.dtype is _core.float32 for x in tensors):
        return _core.float32
    return lower()


def lowered(x, dtype):
    """x cast to dtype. Within a region a leaf that needs a gradient is cast once: weights that are
    used again find the same cast, as long as nobody wrote to them.
    """
    if (
        not state.cache_enabled
        or not state.depth
        or x.dtype is not _core.float32
        or not x.requires_grad
        or not x.is_leaf
    ):
        return TABLE["to"].native(x, dtype=dtype)
    grad = _core.is_grad_enabled()
    found = state.cache.get((id(x), dtype, grad))
    if found is None or found[1] != x._version:
        found = x, x._version, TABLE["to"].native(x, dtype=dtype)
        state.cache[id(x), dtype, grad] = found
    return found[2]


def casts(policy):
    """A decorator for functions of operators that have a policy as a whole, as operators do."""

    def decorate(function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            word = _core.mode()
            if not word & AUTOCAST:
                return function(*args, **kwargs)
            tensors = [x for x in (*args, *kwargs.values()) if is_narrow(x)]
            target = wanted(policy, tensors)
            change = lambda x: lowered(x, target) if is_narrow(x) and x.dtype is not target else x
            args = [change(x) for x in args]
            kwargs = {name: change(x) for name, x in kwargs.items()}
            _core.set_mode(word & ~(AUTOCAST | HALF))
            try:
                return function(*args, **kwargs)
            finally:
                _core.set_mode(_core.mode() | word & (AUTOCAST | HALF))

        return inside

    return decorate


# ---- the context manager


class autocast:
    """`with autocast("cpu"):` or `@autocast("cpu")`: products run in bfloat16 (or dtype), losses in
    float32; gradients come back in the dtypes of the parameters.

    device_type: 'cpu' or 'cuda', which does nothing without a GPU. The region acts on calls on
    every device; where regions of two devices nest, the inner one counts. dtype: bfloat16 or
    float16. enabled=False: off inside. cache_enabled: whether weights are cast once a region.
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"[autocast] device_type is a `str`, got {type(device_type)}")
        self.device, self._enabled = device_type, bool(enabled)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.cache_enabled = state.cache_enabled if cache_enabled is None else cache_enabled
        if device_type == "cuda" and enabled and not has_cuda():
            warnings.warn("[autocast] there is no CUDA here: autocast is off", stacklevel=2)
            self._enabled = False
        elif self._enabled and self.fast_dtype not in DTYPES:
            warnings.warn(
                "[autocast] the CPU's fast dtype is rushlight.bfloat16 or rushlight.float16, got "
                f"{self.fast_dtype!r}: autocast is off",
                stacklevel=2,
            )
            self._enabled = False
        self.outer = []

    def __enter__(self):
        self.outer.append(
            (_core.mode(), state.dtypes[self.device], state.cache_enabled, state.cuda)
        )
        state.depth += 1
        state.cache_enabled = self.cache_enabled
        state.dtypes[self.device] = self.fast_dtype
        if self.device == "cpu" or has_cuda():
            state.cuda = self._enabled and self.device == "cuda"
            switch(self._enabled, self.device)
        return self

    def __exit__(self, *_):
        word, state.dtypes[self.device], state.cache_enabled, state.cuda = self.outer.pop()
        _core.set_mode(_core.mode() & ~(AUTOCAST | HALF) | word & (AUTOCAST | HALF))
        state.depth -= 1
        if not state.depth:
            state.cache.clear()
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return inside


def switch(on, device="cpu"):
    """This thread's autocast, on or off, with the dtype that is set for a kind of device."""
    half = HALF if state.dtypes[device] is _core.float16 else 0
    _core.set_mode(_core.mode() & ~(AUTOCAST | HALF) | (AUTOCAST | half if on else 0))


def known(device_type):
    if device_type not in state.dtypes:
        from .methods import device

        device(device_type)  # refuses what is no device
        raise RuntimeError(f"[autocast] unsupported device type {device_type!r}")
    return device_type


def is_autocast_enabled(device_type="cuda"):
    """Whether autocast is on for a kind of device (as in PyTorch, CUDA where none is given)."""
    on = bool(_core.mode() & AUTOCAST)
    return on and not state.cuda if known(device_type) == "cpu" else state.cuda


def set_autocast_enabled(device_type, enabled):
    if known(device_type) == "cpu":
        switch(bool(enabled))
    else:
        state.cuda = bool(enabled)
        if has_cuda():
            switch(state.cuda, "cuda")


def get_autocast_dtype(device_type):
    """What autocast casts to on a kind of device."""
    return state.dtypes[known(device_type)]


def set_autocast_dtype(device_type, dtype):
    state.dtypes[known(device_type)] = dtype
    if device_type == "cpu" and _core.mode() & AUTOCAST:
        switch(dtype in DTYPES)


def is_autocast_cache_enabled():
    return state.cache_enabled


def set_autocast_cache_enabled(enabled):
    state.cache_enabled = bool(enabled)


def clear_autocast_cache():
    """Forgets the casts of weights made in this region."""
    state.cache.clear()


def is_autocast_available(device_type):
    return device_type == "cpu"


# ---- names of the past, one a device


def is_autocast_cpu_enabled():
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype():
    """`get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype():
    """`get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")


def set_autocast_cpu_enabled(enabled):
    """`set_autocast_enabled("cpu", enabled)`."""
    set_autocast_enabled("cpu", enabled)


def set_autocast_cpu_dtype(dtype):
    """`set_autocast_dtype("cpu", dtype)`."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype):
    """`set_autocast_dtype("cuda", dtype)`."""
    set_autocast_dtype("cuda", dtype)


def autocast_increment_nesting():
    """One region more: the casts of weights are kept until the outermost one ends."""
    state.depth += 1
    return state.depth


def autocast_decrement_nesting():
    """One region less. How many there are is returned, as by its counterpart."""
    state.depth -= 1
    return state.depth


# ---- functions with a backward of their own


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """For the forward of an autograd.Function: cast_inputs (a dtype) casts its floating operands
    under autocast, and runs it without; None runs it under the autocast of the caller.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx, *args, **kwargs):
        on = is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = on and cast_inputs is None
        if not on or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            args = cast_all(args, cast_inputs)
            return fwd(ctx, *args, **cast_all(kwargs, cast_inputs))

    return forward


def cast_all(x, dtype):
    """Floating tensors (but float64) in nested containers, cast."""
    if is_narrow(x):
        return x.to(dtype)
    if isinstance(x, dict):
        return {cast_all(k, dtype): cast_all(v, dtype) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        cast = [cast_all(v, dtype) for v in x]
        return type(x)(*cast) if hasattr(x, "_fields") else type(x)(cast)
    return x


def custom_bwd(bwd=None, *, device_type):
    """For the backward of such a Function: autocast is as it was in its forward."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args, **kwargs):
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return backward
