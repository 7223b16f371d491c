"""`rushlight.autograd.graph`: the recorded graph and what happens to the tensors saved in it."""

import contextlib
from typing import Any, NamedTuple

from rushlight.eager.saved import Node, saved_tensors_hooks

__all__ = [
    "GradientEdge",
    "Node",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class save_on_cpu(saved_tensors_hooks):
    """`with save_on_cpu():` what operators save inside is kept in the host's memory, and copied to
    its device when backward reads it. `pin_memory`: in memory that a GPU copies from directly.
    """

    def __init__(self, pin_memory=False, device_type="cuda"):
        def pack(tensor):
            if not pin_memory or tensor.device.type != device_type:
                return tensor.device, tensor.cpu()
            return tensor.device, tensor.cpu().pin_memory()

        def unpack(packed):
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    """Inside, entering `saved_tensors_hooks` raises RuntimeError with this message."""
    before = saved_tensors_hooks.refused
    saved_tensors_hooks.refused = error_message
    try:
        yield
    finally:
        saved_tensors_hooks.refused = before


class GradientEdge(NamedTuple):
    """Where a gradient goes: a node, and which of its results."""

    node: Any
    output_nr: int


def get_gradient_edge(tensor):
    """The edge of the gradient of a tensor; RuntimeError for one without a gradient."""
    if not tensor.requires_grad:
        raise RuntimeError("[get_gradient_edge] the tensor does not require a gradient")
    node = tensor.grad_fn
    if node is None:  # a leaf: the node that adds to .grad is behind any use of it
        node = tensor.view_as(tensor).grad_fn.next_functions[0][0]
    return GradientEdge(node, tensor.output_nr)
