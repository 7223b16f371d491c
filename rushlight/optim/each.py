"""Optimizers that update one parameter after another, each by its own gradient and state.

A subclass says what a parameter's state begins as and how one step changes both. Invariant: the
update runs without a tape unless the group is ``differentiable``.
"""

from rushlight import eager
from rushlight.eager.modes import is_compiling
from rushlight.ops import TABLE
from rushlight.optim.optimizer import Optimizer

KERNEL_TYPES = (eager.float32, eager.float64)  # type: ignore[attr-defined]


def kernel(name):
    """An operator that makes one step of one parameter in one kernel."""
    return TABLE[name].native


def in_one_kernel(parameter, gradient, group):
    """Whether a step's kernel takes these: one floating type of at least single precision."""
    return (
        parameter.dtype in KERNEL_TYPES
        and gradient.dtype is parameter.dtype
        and not group["differentiable"]
    )


class Each(Optimizer):
    """step(): for every parameter with a gradient, in order, the state (made at first) and an
    update.
    """

    def step(self, closure=None):
        """One update. closure: computes the loss and its gradients anew; its value is returned."""
        loss = self._loss(closure)
        before = eager.is_grad_enabled()
        eager.set_grad_enabled(bool(self.defaults.get("differentiable")))
        try:
            for group in self.param_groups:
                for parameter in group["params"]:
                    gradient = parameter.grad
                    if gradient is None:
                        continue
                    state = self.state.get(parameter)
                    if not state:
                        state = {}
                        self._begin(state, parameter, group)
                        if state:  # a parameter without a state is not in the table
                            self.state[parameter] = state
                    self._update(parameter, gradient, state, group)
        finally:
            eager.set_grad_enabled(before)
        return loss

    def _begin(self, state, parameter, group):
        """Fills the state of a parameter that has none."""
        raise NotImplementedError

    def _update(self, parameter, gradient, state, group):
        raise NotImplementedError


def refuse_complex(parameter, kind):
    """RuntimeError for a complex parameter, where the rule is none for those."""
    if parameter.is_complex():
        raise RuntimeError(f"{kind} does not support complex parameters")


def step_count(value=0.0):
    """A number of the state: saved with it, a 0-dim float32 tensor as in PyTorch's checkpoints."""
    return eager.tensor(value, dtype=eager.float32, device="cpu")  # type: ignore[attr-defined]


def counted(state):
    """The step that begins, as a number."""
    step = state["step"]
    step.add_(1)
    return step.item()


def counted_in_graph(state):
    """The step that begins: a number, or in a captured graph a 0-dim float64 tensor, so that the
    graph need not stop for it.
    """
    if not is_compiling():
        return counted(state)
    return state["step"].add_(1).to(eager.float64)  # type: ignore[attr-defined]


def towards(gradient, parameter, group):
    """The gradient of what is made small: negative where it is made large, plus the penalty on
    size.
    """
    if group["maximize"]:
        gradient = -gradient
    if group["weight_decay"] != 0:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    return gradient


def averaged(average, value, weight):
    """average += weight (value - average), in place."""
    return average.add_(value - average, alpha=weight)


def averaged_square(average, value, beta):
    """average = beta average + (1 - beta) value^2, in place."""
    return average.mul_(beta).add_(value * value, alpha=1 - beta)
