"""Adam (Kingma and Ba, 2015), AMSGrad (Reddi et al., 2018) and AdamW (Loshchilov and Hutter,
2019).
"""

import math

from rushlight import eager
from rushlight.optim.each import (
    Each,
    averaged,
    averaged_square,
    counted_in_graph,
    in_one_kernel,
    kernel,
    step_count,
)
from rushlight.optim.optimizer import check_betas, check_flags, check_options, check_rate

_adam, _amsgrad = kernel("adam_step"), kernel("amsgrad_step")


class Adam(Each):
    """m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= lr / (1 - b1^t) m / (sqrt(v / (1 -
    b2^t)) + eps).

    weight_decay adds weight_decay p to g or, decoupled, shrinks p by 1 - lr weight_decay before.
    amsgrad: v is the largest so far. maximize: g is taken negative. One kernel a parameter.
    ValueError for options out of range.
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
        check_rate(lr)
        check_options({"epsilon value": eps})
        check_betas(betas)
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

    def _begin(self, state, parameter, group):
        state["step"] = step_count()
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
        for name in names if group["amsgrad"] else names[:2]:
            state[name] = eager.zeros_like(parameter)

    def _update(self, parameter, g, state, group):
        lr, decay = float(group["lr"]), float(group["weight_decay"])
        beta1, beta2 = map(float, group["betas"])
        t = counted_in_graph(state)
        if group["maximize"]:
            g = -g
        shrink = 1.0
        if group["decoupled_weight_decay"]:
            shrink, decay = 1.0 - lr * decay, 0.0
        captured = not isinstance(t, float)
        step_size, root = lr / (1 - beta1**t), 1 - beta2**t
        root = root.sqrt() if captured else math.sqrt(root)
        m, v = state["exp_avg"], state["exp_avg_sq"]
        largest = state["max_exp_avg_sq"] if group["amsgrad"] else None
        if captured and in_one_kernel(parameter, g, group):
            numbers = (step_size, beta1, beta2, root, group["eps"], shrink, decay)
            in_graph(parameter, g, m, v, largest, *numbers)
            return
        if not captured and in_one_kernel(parameter, g, group):
            numbers = (step_size, 1 - beta1, beta2, 1 - beta2, root, group["eps"], shrink, decay)
            if largest is None:
                _adam(parameter, g, m, v, *numbers, out=(parameter, m, v))
            else:
                _amsgrad(parameter, g, m, v, largest, *numbers, out=(parameter, m, v, largest))
            return
        if shrink != 1.0:
            parameter.mul_(shrink)
        if decay:
            g = g.add(parameter, alpha=decay)
        averaged(m, g, 1 - beta1)
        averaged_square(v, g, beta2)
        if largest is not None:
            largest.copy_(eager.maximum(largest, v))
            v = largest
        change = m / (v.sqrt() / root + group["eps"])
        if captured:
            parameter.sub_(change * step_size)
        else:
            parameter.add_(change, alpha=-step_size)


def in_graph(p, g, m, v, largest, step_size, beta1, beta2, root, eps, shrink, decay):
    """The kernel's arithmetic (ops/optimizers.py) as operators, which a graph fuses into one kernel
    again: here the step is known in the run only.
    """
    shrunk = p * shrink
    if decay:
        g = g + shrunk * decay
    first, second = m + (g - m) * (1 - beta1), v * beta2 + g * g * (1 - beta2)
    top = second if largest is None else eager.maximum(largest, second)
    p.copy_(shrunk - step_size * (first / (top.sqrt() / root + eps)))
    m.copy_(first)
    v.copy_(second)
    if largest is not None:
        largest.copy_(top)


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
