"""Copies of inputs, what a call of them gives, and graphs run as they stand.

outcome(f, inputs, position)    results, inputs after the call, gradients; or the error
differences(got, want)          where two outcomes differ by more than the numerics contract
interpreted(graph, ends)        what a compiled graph gives, operator by operator
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import rushlight as rl
from rushlight import _core, sym  # type: ignore[attr-defined]
from rushlight.eager.randomness import default_generator
from rushlight.forms import CASTING
from rushlight.fx.graph import Graph
from rushlight.fx.interpreter import evaluated, run, sizes_of
from rushlight.inductor.checking import Difference, compare, wider

COTANGENTS = (20261, 0)  # where the stream of numbers stands from which gradients are seeded
SMALL = 64  # numbers that stand in a reproduction as they are


def is_tensor(x: Any) -> bool:
    return hasattr(x, "data_ptr")


def tensors_in(v: Any) -> list:
    if isinstance(v, dict):
        v = tuple(v.values())
    if isinstance(v, (tuple, list)):
        return [x for y in v for x in tensors_in(y)]
    return [v] if is_tensor(v) else []


def copies(values: Sequence[Any], change: Callable = lambda x: x) -> tuple:
    """The values again, tensors on memory of their own, with their strides; tensors that share
    memory share it again. `change`: what becomes of each memory (a tensor of one dim)."""
    extent: dict[tuple, int] = {}
    for x in values:
        if is_tensor(x) and x.numel():
            end = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride())) + 1
            key = (x.untyped_storage_ptr(), x.dtype.name)
            extent[key] = max(extent.get(key, 0), end)
    memory: dict[tuple, Any] = {}

    def copied(x: Any) -> Any:
        if not is_tensor(x):
            return x
        plain = x.detach()
        if not x.numel():
            made = change(plain.clone())
        else:
            key = (x.untyped_storage_ptr(), x.dtype.name)
            if key not in memory:
                memory[key] = change(plain.as_strided((extent[key],), (1,), 0).clone())
            made = memory[key].as_strided(tuple(x.shape), tuple(x.stride()), x.storage_offset())
        if not x.requires_grad:
            return made
        made.requires_grad_()
        return made if x.is_leaf or not made.is_contiguous() else made * 1

    return tuple(map(copied, values))


@dataclass
class Outcome:
    results: list = field(default_factory=list)
    given: list = field(default_factory=list)  # the inputs after the call
    gradients: list = field(default_factory=list)  # of inputs, None where nothing reaches them
    error: BaseException | None = None


def outcome(f: Callable, inputs: Sequence[Any], position: tuple, wide: bool = False) -> Outcome:
    """What `f` gives for copies of the inputs, with the random numbers from `position` on; `wide`:
    for their float64 forms."""
    before, mode = default_generator.position(), _core.mode()
    default_generator.move_to(position)
    made = Outcome()
    try:
        mine = copies(inputs, (lambda x: x.to(wider(x))) if wide else (lambda x: x))
        made.results = tensors_in(f(*mine))
        made.given = tensors_in(mine)
        made.gradients = gradients(made.results, made.given)
    except Exception as error:
        made.error = error
    finally:
        _core.set_mode(mode)
        default_generator.move_to(before)
    return made


def gradients(results: list, given: list) -> list:
    """For random cotangents, which are the same for results of the same shapes."""
    if not _core.is_grad_enabled():
        return []
    outs = [x for x in results if x.requires_grad]
    wanted = [x for x in given if x.requires_grad]
    if not outs or not wanted:
        return []
    default_generator.move_to(COTANGENTS)
    seeds = [rl.randn(tuple(x.shape), device=x.device).to(x.dtype) for x in outs]
    return list(rl.autograd.grad(outs, wanted, seeds, allow_unused=True))


def differences(
    got: Outcome, want: Outcome, exact: Callable[[], Outcome] | None = None
) -> str | None:
    """The first difference as a sentence, or None. `exact`: gives the same in float64, asked only
    where two values are not near each other."""
    if got.error is not None or want.error is not None:
        if type(got.error) is type(want.error):
            return None
        if got.error is None:
            return f"it raises nothing, where eager mode raises {told(want.error)}"
        return f"it raises {told(got.error)}"
    wide: list[Outcome] = []
    for what, mine, theirs in (
        ("result", got.results, want.results),
        ("input, after the call,", got.given, want.given),
        ("gradient", got.gradients, want.gradients),
    ):
        if len(mine) != len(theirs):
            return f"{len(mine)} {what.split(',')[0]}s, not {len(theirs)}"
        for i, (x, y) in enumerate(zip(mine, theirs)):
            if x is None or y is None:
                if x is not y and not nothing(x if y is None else y):
                    return f"{what} {i} is {'missing' if x is None else 'there'}"
                continue
            found = near(f"{what} {i}", x, y)
            if found is not None and exact is not None:
                wide = wide or [exact()]
                z = same_place(wide[0], what, i, y)
                found = near(f"{what} {i}", x, y, z) if z is not None else found
            if found is not None:
                return str(found)
    return None


def same_place(exact: Outcome, what: str, i: int, like: Any) -> Any:
    lists = {"result": exact.results, "gradient": exact.gradients}
    values = lists.get(what, exact.given)
    x = values[i] if exact.error is None and i < len(values) else None
    return x if x is not None and tuple(x.shape) == tuple(like.shape) else None


def near(what: str, x: Any, y: Any, exact: Any = None) -> Difference | None:
    x, y = x.detach(), y.detach()
    if tuple(x.shape) == tuple(y.shape) and x.dtype is y.dtype and bool((x == y).all()):
        return None
    return compare(what, x, y, exact)


def nothing(x: Any) -> bool:
    return not bool((x.detach() != 0).any())


def told(error: BaseException | None) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# ---- graphs as they stand


class Interpreted:
    """Stands where a compiled graph does (inductor/pipeline.py): `program` runs the graph's
    operators one by one, and then does with the results what `ends` says."""

    def __init__(self, graph: Graph, ends: Any, frozen: bool, seen: list | None = None) -> None:
        self.graph, self.ends, self.frozen, self.seen = graph, ends, frozen, seen
        self.milliseconds: dict[str, float] = {}

    def program(self, *values: Any) -> Any:
        if self.seen is not None:
            self.seen.append((self, copies(values)))
        with plainly():
            results = run(self.graph, *values)
            if self.ends is None or self.ends.outputs is None:
                return results
            known = sizes_of(self.graph, values) | dict(
                zip(self.graph.numbers, values[len(self.graph.inputs) :])
            )
            for i, value in zip(self.ends.written, results[self.ends.own :]):
                values[i].copy_(value)
            return self.placed(self.ends.outputs, results, values, known)

    __call__ = program

    def placed(self, o: Any, results: tuple, values: tuple, known: dict) -> Any:
        match o:
            case ("own", k):
                return results[k]
            case ("given", i):
                return values[i]
            case ("view", base, views):
                x = self.placed(base, results, values, known)
                for op, rest in views:
                    x = op.native(x, *evaluated(tuple(rest), known))
                return x
            case ("tuple", items):
                return tuple(self.placed(x, results, values, known) for x in items)
            case ("value", v):
                return v.evaluate(known) if isinstance(v, sym.Sym) else v
        raise TypeError(f"[bisect] an end {o!r}")


def interpreted(graph: Graph, ends: Any = None, frozen: bool = False) -> Interpreted:
    return Interpreted(graph, ends, frozen)


@contextmanager
def plainly() -> Iterator[None]:
    """Without gradients and casts: a graph has what it needs of both."""
    before = _core.mode()
    _core.set_mode(before & ~CASTING)
    _core.set_grad_enabled(False)
    try:
        yield
    finally:
        _core.set_mode(before)


# ---- what reproductions are made of


def strided(values: Any, dtype: str, shape: tuple, strides: tuple) -> Any:
    """A tensor of these strides. `values`: as `tolist` gives them, in the order of the memory."""
    memory = rl.tensor(values, dtype=getattr(rl, dtype))
    return memory.as_strided(shape, strides)


def seeded(seed: int, dtype: str, shape: tuple, strides: tuple, low: float, high: float) -> Any:
    """Random values between `low` and `high`, the same for the same seed."""
    made = rl.Generator().manual_seed(seed)
    count = extent(shape, strides)
    kind = getattr(rl, dtype)
    memory = rl.rand(count, generator=made) * (high - low) + low
    if not kind.is_floating_point:
        memory = memory.round()
    return memory.to(kind).as_strided(shape, strides)


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
