"""Hooks on the tensors that are saved for the backward pass."""

from rushlight import _core

Node = _core.Node


class saved_tensors_hooks:
    """`with saved_tensors_hooks(pack, unpack):` what operators save inside is `pack(tensor)`, and
    backward reads `unpack` of that, which must give a tensor of the same values. The innermost
    pair counts.
    """

    refused = None  # the message of autograd.graph.disable_saved_tensors_hooks

    def __init__(self, pack_hook, unpack_hook):
        self.pair, self.before = (pack_hook, unpack_hook), []

    def __enter__(self):
        if saved_tensors_hooks.refused is not None:
            raise RuntimeError(saved_tensors_hooks.refused)
        self.before.append(_core.set_saved_hooks(self.pair))

    def __exit__(self, *_):
        _core.set_saved_hooks(self.before.pop())
