"""What the program changed outside: containers, attributes, cells, globals. Found at the end of a
capture by comparing the stand-ins with what they stood for, and replayed after the graph."""

from __future__ import annotations

import collections
from typing import Any

from bytecode import FreeVar, Instr

from . import runtime
from .codegen import Codegen
from .emit import const
from .sources import Source
from .variables.iterators import Leaf, advance, container_of
from .variables.objects import MISSING, Cell


def changed_shadows(state: Any) -> list[Any]:
    """Shadows whose contents are no longer the same objects in the same order."""
    return [s for s in state.shadows.values() if differs(s)]


def pending(state: Any) -> bool:
    """Whether anything is to be replayed after the graph."""
    return bool(
        state.written
        or state.stepped
        or state.globals_written
        or state.effects
        or any(c.written for c in state.cells.values())
        or changed_shadows(state)
    )


def differs(shadow: Any) -> bool:
    value, before = shadow.value, shadow.before
    if before is None:  # nobody looked at it; what it holds was added
        return bool(value)
    if isinstance(value, dict):
        now = list(value.items())
        return len(now) != len(before) or any(
            a[0] is not b[0] and a[0] != b[0] or a[1] is not b[1] for a, b in zip(now, before)
        )
    if isinstance(value, set):
        return value != before
    return len(value) != len(before) or any(a is not b for a, b in zip(value, before))


def guard_identities(state: Any) -> None:
    """What is written must be other than what else was met of its kind: one object under two names
    would be changed under both."""
    written = changed_shadows(state)
    others: dict[type, list[Source]] = {}
    for s in state.shadows.values():
        others.setdefault(type(s.value), []).append(s.source)
    for s in written:
        for other in others[type(s.value)]:
            distinct(state, s.source, other)
    guard_iterators(state, written)
    instances = [v for v in state.keep if type(v).__name__ == "Instance" and v.source is not None]
    for w in state.written.values():
        for other in instances:
            if other is not w and other.cls is w.cls:
                distinct(state, w.source, other.source)


def guard_iterators(state: Any, written: list) -> None:
    """No two iterators that were stepped are one, and none goes over a container that is
    written."""
    leaves = [v for v in state.stepped if isinstance(v, Leaf)]
    for i, leaf in enumerate(leaves):
        for other in leaves[:i]:
            if type(leaf.real) is type(other.real):
                distinct(state, leaf.source, other.source)
        held = leaf.source.child("call", container_of)
        for shadow in written:
            if leaf.container is not shadow.real and isinstance(leaf.container, type(shadow.real)):
                distinct(state, held, shadow.source)


def distinct(state: Any, a: Source, b: Source) -> None:
    if a is not b and a.op != "const" and b.op != "const":
        pair = (a, b) if id(a) < id(b) else (b, a)
        state.guard("distinct", None, pair)


def prepare_effects(gen: Codegen, state: Any) -> list[Any]:
    """Everything needed is made; gives the functions that emit the changes, in order."""
    actions: list[Any] = []
    for iterator in state.stepped:  # before what they go over changes
        steps = iterator.own if isinstance(iterator, Leaf) else iterator.steps
        gen.prepare(iterator)
        if steps:
            actions.append(lambda v=iterator, n=steps: advance_by(gen, v, n))
    for shadow in changed_shadows(state):
        prepare_shadow(gen, shadow, actions)
    for instance in list(state.written.values()):
        gen.prepare(instance)
        gen.prepare_fields(instance)
        slots, fields = dict(instance.slots), dict(instance.fields)
        actions.append(lambda o=instance, s=slots, f=fields: gen.fill_fields(o, s, f))
    for cell in list(state.cells.values()):
        if cell.written:
            prepare_cell(gen, state, cell, actions)
    for namespace, name, value in state.globals_written.values():
        gen.prepare(value)
        actions.append(lambda n=namespace, k=name, v=value: write_global(gen, n, k, v))
    for kind, target in state.effects:
        if kind == "grad":
            value = target.fields["grad"]
            gen.prepare(target)
            gen.prepare(value)
            actions.append(lambda t=target, v=value: set_grad(gen, t, v))
        elif kind == "hook":
            gen.prepare(target)
        elif kind == "data":
            for part in target:
                gen.prepare(part)
            actions.append(lambda pair=target: set_data(gen, *pair))
        elif not target.fresh:
            gen.prepare(target)
            actions.append(lambda m=target: call_with(gen, runtime.replay_changed, m))
    return actions


def prepare_shadow(gen: Codegen, shadow: Any, actions: list) -> None:
    value = shadow.value
    gen.prepare(value)
    added = shadow.before is None
    if isinstance(value, dict):
        gen.prepare_items(value)
        actions.append(lambda: gen.fill_dict(value, added))
        return
    for v in value:
        gen.prepare(v)
    function: Any = runtime.fill_list
    if isinstance(value, set):
        function = set.update if added else runtime.fill_set
    elif isinstance(value, collections.deque):
        function = collections.deque.extend if added else runtime.fill_deque
    elif added:
        function = list.extend
    actions.append(lambda: gen.fill_sequence(function, value))


def prepare_cell(gen: Codegen, state: Any, cell: Cell, actions: list) -> None:
    source = state.sources[id(cell)]
    if cell.content is not MISSING:
        gen.prepare(cell.content)
    if source.op == "closure":
        name = source.name

        def write() -> None:
            if cell.content is MISSING:
                gen.emit(Instr("DELETE_DEREF", FreeVar(name)))
                return
            gen.load(cell.content)
            gen.emit(Instr("STORE_DEREF", FreeVar(name)))

        actions.append(write)
        return
    if source not in gen.source_temps:
        gen.load_cell(source)
        gen.source_temps[source] = gen.store(cell)

    def push() -> None:
        gen.load(cell)

    if cell.content is MISSING:
        actions.append(lambda: discard(gen, runtime.clear_cell, push))
    else:
        actions.append(lambda: discard(gen, runtime.set_cell, push, lambda: gen.load(cell.content)))


def discard(gen: Codegen, function: Any, *parts: Any) -> None:
    gen.call_runtime(function, *parts)
    gen.emit(Instr("POP_TOP"))


def call_with(gen: Codegen, function: Any, value: Any) -> None:
    discard(gen, function, lambda: gen.load(value))


def set_grad(gen: Codegen, tensor: Any, value: Any) -> None:
    discard(gen, runtime.set_grad, lambda: gen.load(tensor), lambda: gen.load(value))


def set_data(gen: Codegen, tensor: Any, value: Any) -> None:
    discard(gen, runtime.set_data, lambda: gen.load(tensor), lambda: gen.load(value))


def advance_by(gen: Codegen, iterator: Any, steps: int) -> None:
    discard(gen, advance, lambda: gen.load(iterator), lambda: gen.emit(const(steps)))


def write_global(gen: Codegen, namespace: dict, name: str, value: Any) -> None:
    if namespace is gen.frame.namespace:
        gen.load(value)
        gen.emit(Instr("STORE_GLOBAL", name))
        return
    discard(
        gen,
        runtime.set_item,
        lambda: gen.emit(const(namespace)),
        lambda: gen.emit(const(name)),
        lambda: gen.load(value),
    )
