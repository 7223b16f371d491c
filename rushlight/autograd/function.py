"""`autograd.function`: Function, and what marks a backward that has no derivative itself."""

import functools

from rushlight.eager import Tensor
from rushlight.eager.functions import Context, Function
from rushlight.eager.modes import is_grad_enabled, no_grad

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]

FunctionCtx = BackwardCFunction = Context


class InplaceFunction(Function):
    """A Function that may write to its operands."""

    def __init__(self, inplace=False):
        self.inplace = inplace


class Once(Function):
    """Its results are its arguments; nothing goes back through them."""

    @staticmethod
    def forward(ctx, *tensors):
        return tuple(x.detach() for x in tensors)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(
            "[once_differentiable] the backward is marked to have no derivative of its own"
        )


def once_differentiable(fn):
    """Decorator of a `backward`: it runs without recording, and under create_graph=True a
    derivative of what it returns raises RuntimeError."""

    @functools.wraps(fn)
    def run(ctx, *grads):
        with no_grad():
            outs = fn(ctx, *grads)
        known = any(isinstance(g, Tensor) and g.requires_grad for g in grads)
        if not (is_grad_enabled() and known):
            return outs
        several = isinstance(outs, tuple)
        found = list(outs) if several else [outs]
        float_ = lambda x: isinstance(x, Tensor) and x.is_floating_point()
        places = [i for i, x in enumerate(found) if float_(x)]
        # an operand on the tape puts the results there
        marks = [found[i].detach().requires_grad_() for i in places]
        for i, x in zip(places, Once.apply(*marks)):
            found[i] = x
        return tuple(found) if several else found[0]

    return run
