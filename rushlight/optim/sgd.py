"""Stochastic gradient descent with momentum, Nesterov momentum and weight decay."""

from rushlight import eager
from rushlight.optim.optimizer import Optimizer, check_flags, check_options


class SGD(Optimizer):
    """d = grad + weight_decay p;  b = momentum b + (1 - dampening) d;  p -= lr (b, or d +
    momentum b if nesterov).

    The first b is d itself. maximize: grad is taken negative. ValueError for a negative option,
    or nesterov without momentum or with dampening (Sutskever et al., 2013).
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        check_options(
            {"learning rate": lr, "momentum value": momentum, "weight_decay value": weight_decay}
        )
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_flags(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    def step(self, closure=None):
        loss = self._loss(closure)
        with eager.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter, d, group):
        momentum = group["momentum"]
        if group["maximize"]:
            d = -d
        if group["weight_decay"] != 0:
            d = d.add(parameter, alpha=group["weight_decay"])
        if momentum != 0:
            state = self.state[parameter]
            b = state.get("momentum_buffer")
            if b is None:
                b = state["momentum_buffer"] = d.detach().clone()
            else:
                b.mul_(momentum).add_(d, alpha=1 - group["dampening"])
            d = d.add(b, alpha=momentum) if group["nesterov"] else b
        parameter.add_(d, alpha=-float(group["lr"]))
