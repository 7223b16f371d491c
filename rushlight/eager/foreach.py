"""`_foreach_*`: one operator over lists of tensors, as optimisers and utilities call it.

`foreach(name)` gives the function of a name of PyTorch's, or None. Each is a loop over the tensors:
results as theirs, without the single launch. A second argument is a list with one entry a tensor,
or one number or tensor for all.
"""

from rushlight import eager
from rushlight.eager import reducing

Tensor = eager.Tensor
PREFIX = "_foreach_"
UNARY = frozenset(
    "abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p "
    "log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc".split()
)
BINARY = {  # the name, and the operator of a list
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "pow": "pow",
    "maximum": "maximum",
    "minimum": "minimum",
    "clamp_max": "clamp_max",
    "clamp_min": "clamp_min",
}
LIMITS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # of a number
IN_PLACE_ONLY = frozenset(("copy", "zero"))
OTHERS = frozenset(("addcdiv", "addcmul", "lerp", "max", "mm", "norm"))


def foreach(name):
    """The function `_foreach_add_`, ...; None for a name that PyTorch has not."""
    kind = name.removeprefix(PREFIX)
    base = kind.removesuffix("_")
    if kind == name or base.endswith("_"):
        return None
    in_place = kind.endswith("_")
    if base in IN_PLACE_ONLY and not in_place or base in ("max", "mm", "norm") and in_place:
        return None
    if base not in UNARY | BINARY.keys() | IN_PLACE_ONLY | OTHERS:
        return None
    return _made(name, base, in_place)


def _made(name, base, in_place):
    def function(self, *args, **kwargs):
        tensors = _tensors(name, self)
        rows = [_row(name, len(tensors), a) for a in args]
        named = {key: _row(name, len(tensors), a) for key, a in kwargs.items()}
        results = [
            _one(
                base,
                in_place,
                tensor,
                [row[i] for row in rows],
                {k: r[i] for k, r in named.items()},
            )
            for i, tensor in enumerate(tensors)
        ]
        return list(tensors) if in_place else tuple(results)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{base}` of each tensor of a list{', in place' if in_place else ''}."
    return function


def _tensors(name, given):
    if not isinstance(given, (list, tuple)) or not all(isinstance(t, Tensor) for t in given):
        raise TypeError(f"[{name}] expected a list of tensors, got {type(given).__name__}")
    if not given:
        raise RuntimeError(f"[{name}] takes at least one tensor, got an empty list")
    return given


def _row(name, count, given):
    """One entry a tensor."""
    if isinstance(given, (list, tuple)):
        if len(given) != count:
            raise RuntimeError(
                f"[{name}] lists must have one entry a tensor, got {len(given)} for {count}"
            )
        return given
    if isinstance(given, Tensor) and given.dim() == 1 and name.startswith("_foreach_addc"):
        return given.tolist()
    return [given] * count


def _one(base, in_place, tensor, args, kwargs):
    if base in LIMITS and not isinstance(args[0], Tensor):
        base = LIMITS[base]
    if base == "norm":
        order = args[0] if args else kwargs.get("ord", 2)
        kind = args[1] if len(args) > 1 else kwargs.get("dtype")
        return reducing.vector_norm(tensor, order, dtype=kind)
    if base in ("addcdiv", "addcmul") and len(args) == 3:
        *args, kwargs["value"] = args
    if base == "max":
        return tensor.max()
    return getattr(tensor, f"{base}_" if in_place else base)(*args, **kwargs)
