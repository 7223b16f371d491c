"""Stochastic gradient descent with momentum, Nesterov momentum and weight decay."""

from rushlight.optim.each import Each, in_one_kernel, kernel, towards
from rushlight.optim.optimizer import check_flags, check_options, check_rate

_plain, _momentum = kernel("sgd_step"), kernel("momentum_step")


class SGD(Each):
    """d = grad + weight_decay p;  b = momentum b + (1 - dampening) d;  p -= lr (b, or d +
    momentum b if nesterov).

    The first b is d itself. maximize: grad is taken negative. One kernel a parameter. ValueError
    for a negative option, or nesterov without momentum or with dampening (Sutskever et al., 2013).
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
        check_rate(lr)
        check_options({"momentum value": momentum, "weight_decay value": weight_decay})
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("[SGD] nesterov=True needs momentum, and dampening=0")
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

    def _begin(self, state, parameter, group):
        if group["momentum"] != 0:
            state["momentum_buffer"] = None

    def _update(self, parameter, d, state, group):
        lr, decay = float(group["lr"]), float(group["weight_decay"])
        momentum, nesterov = float(group["momentum"]), bool(group["nesterov"])
        b = state.get("momentum_buffer")
        if in_one_kernel(parameter, d, group) and (b is not None or momentum == 0):
            if group["maximize"]:
                d = -d
            if momentum == 0:
                _plain(parameter, d, lr, decay, out=parameter)
            else:
                _momentum(
                    parameter,
                    d,
                    b,
                    lr,
                    momentum,
                    1.0 - group["dampening"],
                    decay,
                    nesterov=nesterov,
                    out=(parameter, b),
                )
            return
        d = towards(d, parameter, group)
        if momentum != 0:
            if b is None:
                b = state["momentum_buffer"] = d.detach().clone()
            else:
                b.mul_(momentum).add_(d, alpha=1 - group["dampening"])
            d = d.add(b, alpha=momentum) if nesterov else b
        parameter.add_(d, alpha=-lr)
