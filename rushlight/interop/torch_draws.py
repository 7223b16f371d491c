"""What a graph of torch's draws: by torch's own calls, so that a seed gives the numbers that it
gives in torch's eager mode, and in the order of the graph.

Invariant: no draw changes its place among those that are left in a graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from rushlight.interop.aten import name_of


def is_random(torch: Any, node: Any) -> bool:
    """Whether an operator draws, as torch marks it (attention too, where its dropout is not 0).
    Draws stay torch's, so that a seed gives the numbers that it gives in torch's eager mode."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    for i, argument in enumerate(node.target._schema.arguments):
        if argument.name == "dropout_p":
            p = node.args[i] if i < len(node.args) else node.kwargs.get("dropout_p", 0)
            return p != 0
    return True


def draw_masks_first(torch: Any, gm: Any) -> None:
    """Takes what dropout draws to the beginning of a graph, in the same order and so with the same
    numbers: what is left of it are products, which need not end a compiled part."""
    draw_at_once(torch, gm)
    nodes = list(gm.graph.nodes)
    found = [n for n in nodes if n.op == "call_function" and draws(torch, n)]
    if any(not movable(torch, node) for node in found):
        return  # an order among other draws would change their numbers
    inputs = [n for n in nodes if n.op == "placeholder"]
    if not found or not inputs:
        return
    last = inputs[-1]
    for node in found:
        if name_of(node.target) != "native_dropout":
            last.append(node)
            last = node
            continue
        x, p = node.args[:2]
        value, kept = node.meta["val"]
        with gm.graph.inserting_after(last):
            drawn: tuple = (tuple(kept.shape), kept.stride(), 1.0 - p)
            draw: Callable = bernoulli
            if value.device.type != "cpu":
                drawn = (tuple(value.shape), value.stride(), value.dtype, value.device, p)
                draw = dropout_mask
            last = mask = gm.graph.call_function(draw, drawn)
        with gm.graph.inserting_before(node):
            times = torch.ops.aten.mul.Tensor
            masked = gm.graph.call_function(times, (x, mask))
            result = gm.graph.call_function(times, (masked, 1.0 / (1.0 - p)))
        mask.meta["val"], masked.meta["val"], result.meta["val"] = kept, value, value
        for user in list(node.users):
            user.replace_all_uses_with((result, mask)[user.args[1]])
            gm.graph.erase_node(user)
        gm.graph.erase_node(node)
    gm.recompile()


def draw_at_once(torch: Any, gm: Any) -> None:
    """A mask that is drawn over new memory hangs on nothing: one call makes it."""
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or str(node.target) != "aten.bernoulli.p" or node.kwargs:
            continue
        (memory,), value = node.all_input_nodes, node.meta["val"]
        if name_of(memory.target) != "empty" or memory.all_input_nodes:
            continue
        drawn = (tuple(value.shape), value.stride(), node.args[1], value.dtype, value.device)
        with gm.graph.inserting_before(node):
            mask = gm.graph.call_function(bernoulli, drawn)
        mask.meta.update(node.meta)
        node.replace_all_uses_with(mask)
        gm.graph.erase_node(node)
        if not memory.users:
            gm.graph.erase_node(memory)


def keep_order(torch: Any, gm: Any) -> None:
    """Makes each draw an operand of the next. What joins nodes into parts sorts a graph by its
    operands alone: a draw whose own operand is in a part that waits for a later draw would come
    after that one, and both would get other numbers than in eager mode."""
    nodes = [n for n in gm.graph.nodes if n.op == "call_function" and draws(torch, n)]
    if all(not n.all_input_nodes for n in nodes):
        return  # nothing that they could wait for
    for first, then in itertools.pairwise(nodes):
        then.args, then.target = (first, *then.args), Behind(then.target)
    gm.recompile()


def draws(torch: Any, node: Any) -> bool:
    """Whether a node of a graph draws, or may: programs inside it are not looked into."""
    own = node.target in (bernoulli, dropout_mask)
    inside = isinstance(node.target, torch._ops.HigherOrderOperator)
    return own or inside or is_random(torch, node)


class Behind:
    """An operator whose call comes after another, and does not read its result."""

    def __init__(self, target: Callable) -> None:
        self.target, self.__name__ = target, name_of(target)

    def __call__(self, before: Any, *args: Any, **named: Any) -> Any:
        return self.target(*args, **named)


def movable(torch: Any, node: Any) -> bool:
    """Whether what a node draws depends on nothing that the graph computes."""
    if name_of(node.target) != "native_dropout":
        return not node.all_input_nodes
    rest = node.kwargs or node.args[1] in (0, 1) or node.args[2] is False
    return not rest and all(type(n) is int for n in node.meta["val"][0].shape)


def bernoulli(
    shape: tuple, stride: tuple, p: float, dtype: Any = None, device: Any = None
) -> Any:  # fmt: skip
    """A mask that is true (or 1) with probability p, drawn from torch's stream."""
    import torch

    x = torch.empty_strided(shape, stride, dtype=dtype or torch.bool, device=device)
    return x.bernoulli_(p)


def dropout_mask(shape: tuple, stride: tuple, dtype: Any, device: Any, p: float) -> Any:
    """The mask that torch's dropout draws on a GPU, where it hangs on the operand's layout and
    dtype: of an operand whose numbers do not matter."""
    import torch

    x = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    return torch.native_dropout(x, p, True)[1]
