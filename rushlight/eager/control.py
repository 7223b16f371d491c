"""Branches and loops that data decides, as functions: `cond` and `while_loop`.

In eager mode they are Python's. A captured graph ends at them (the answer is not known while it is
recorded) and goes on behind, with the branch that was taken.
"""

from rushlight import _core

Tensor = _core.Tensor


def decided(name, pred):
    if isinstance(pred, (bool, int, float)):
        return bool(pred)
    if not isinstance(pred, Tensor):
        raise RuntimeError(f"[{name}] the predicate is a bool or tensor of one element, got {pred}")
    if pred.numel() != 1:
        raise RuntimeError(
            f"[{name}] the predicate is a bool or a single-element tensor, got {pred}"
        )
    return bool(pred.item())


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) where pred, a bool or a tensor of one element, holds; else false_fn's."""
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("[cond] Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(
            "[cond] operands is a tuple of tensors, or of dicts, lists and tuples of them, got "
            f"{operands}"
        )
    return true_fn(*operands) if decided("cond", pred) else false_fn(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """carried_inputs = body_fn(*carried_inputs) as long as cond_fn(*carried_inputs) holds; what is
    carried at last.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("[while_loop] cond_fn and body_fn must be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            f"[while_loop] carried_inputs is a tuple or a list, got {type(carried_inputs)}"
        )
    carried = tuple(carried_inputs)
    while True:
        pred = cond_fn(*carried)
        if isinstance(pred, Tensor) and (pred.dtype is not _core.bool or pred.numel() != 1):
            raise RuntimeError(f"[while_loop] cond_fn has to give a boolean scalar, got {pred}")
        if not decided("while_loop", pred):
            return carried
        made = body_fn(*carried)
        if not isinstance(made, (tuple, list)):
            raise RuntimeError(f"[while_loop] body_fn has to give a tuple, got {type(made)}")
        if len(made) != len(carried):
            raise RuntimeError(
                f"[while_loop] body_fn gave {len(made)} values for {len(carried)} carried ones: "
                "the same number is needed"
            )
        carried = tuple(made)
