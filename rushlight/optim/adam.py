"""Adam (Kingma and Ba, 2015), AMSGrad (Reddi et al., 2018) and AdamW (Loshchilov and Hutter,
2019).
"""

import math

from rushlight import eager
from rushlight.optim.optimizer import Optimizer, check_flags, check_options


class Adam(Optimizer):
    """m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= lr / (1 - b1^t) m / (sqrt(v / (1 -
    b2^t)) + eps).

    weight_decay adds weight_decay p to g or, decoupled, shrinks p by 1 - lr weight_decay before.
    amsgrad: v is the largest so far. maximize: g is taken negative. ValueError for options out of
    range.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
    ):
        check_options({"learning rate": lr, "epsilon value": eps})
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        check_options({"weight_decay value": weight_decay})
        check_flags(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
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

    def _new_state(self, parameter, amsgrad):
        names = (
            ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if amsgrad else ("exp_avg", "exp_avg_sq")
        )
        zeros = {name: eager.zeros_like(parameter) for name in names}
        return {"step": eager.tensor(0.0, dtype=eager.float32), **zeros}

    def _update(self, parameter, g, group):
        lr, decay = float(group["lr"]), group["weight_decay"]
        beta1, beta2 = group["betas"]
        state = self.state[parameter]
        if not state:
            state.update(self._new_state(parameter, group["amsgrad"]))
        state["step"].add_(1)
        t = state["step"].item()
        if group["maximize"]:
            g = -g
        if decay != 0:
            if group["decoupled_weight_decay"]:
                parameter.mul_(1 - lr * decay)
            else:
                g = g.add(parameter, alpha=decay)
        m, v = state["exp_avg"], state["exp_avg_sq"]
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).add_(g * g, alpha=1 - beta2)
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            largest.copy_(eager.maximum(largest, v))
            v = largest
        scale = v.sqrt().div_(math.sqrt(1 - beta2**t)).add_(group["eps"])
        parameter.add_(m / scale, alpha=-lr / (1 - beta1**t))


class AdamW(Adam):
    """Adam with decoupled weight decay, 0.01 by default."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
