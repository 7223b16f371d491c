"""Optimizers that scale each element's step by its own gradients: RMSprop, Adagrad, Adadelta,
Adamax, NAdam, RAdam, Rprop, and averaged SGD.
"""

import math

from rushlight import eager
from rushlight.optim.each import (
    Each,
    averaged,
    averaged_square,
    counted,
    step_count,
    towards,
)
from rushlight.optim.optimizer import check_betas, check_flags, check_options, check_rate


def _zeros(state, parameter, *names):
    for name in names:
        state[name] = eager.zeros_like(parameter)


class RMSprop(Each):
    """s = alpha s + (1 - alpha) g^2;  p -= lr g / (sqrt(s) + eps) (Hinton, 2012).

    centered: s less the square of the mean gradient. momentum: of the scaled gradients.
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        check_rate(lr)
        check_options(
            {
                "epsilon value": eps,
                "momentum value": momentum,
                "weight_decay value": weight_decay,
                "alpha value": alpha,
            }
        )
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "alpha": alpha,
                "eps": eps,
                "centered": centered,
                "weight_decay": weight_decay,
                "capturable": capturable,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
            },
        )

    def _begin(self, state, parameter, group):
        state["step"] = step_count()
        _zeros(state, parameter, "square_avg")
        if group["momentum"] > 0:
            _zeros(state, parameter, "momentum_buffer")
        if group["centered"]:
            _zeros(state, parameter, "grad_avg")

    def _update(self, parameter, g, state, group):
        lr, alpha, momentum = float(group["lr"]), group["alpha"], group["momentum"]
        state["step"].add_(1)
        g = towards(g, parameter, group)
        s = averaged_square(state["square_avg"], g, alpha)
        if group["centered"]:
            mean = averaged(state["grad_avg"], g, 1 - alpha)
            s = s - mean * mean
        scaled = g / (s.sqrt() + group["eps"])
        if momentum > 0:
            scaled = state["momentum_buffer"].mul_(momentum).add_(scaled)
        parameter.add_(scaled, alpha=-lr)


class Adagrad(Each):
    """s += g^2;  p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps) (Duchi et al., 2011)."""

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        check_rate(lr)
        check_options(
            {
                "lr_decay value": lr_decay,
                "weight_decay value": weight_decay,
                "initial_accumulator_value value": initial_accumulator_value,
                "epsilon value": eps,
            }
        )
        check_flags(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "fused": fused,
            },
        )
        for (
            group
        ) in self.param_groups:  # here a state begins with the optimizer, not its first step
            for parameter in group["params"]:
                self._begin(self.state[parameter], parameter, group)

    def _begin(self, state, parameter, group):
        state["step"] = step_count()
        state["sum"] = eager.full_like(parameter, group["initial_accumulator_value"])

    def _update(self, parameter, g, state, group):
        t = counted(state)
        g = towards(g, parameter, group)
        rate = float(group["lr"]) / (1 + (t - 1) * group["lr_decay"])
        s = state["sum"].add_(g * g)
        parameter.add_(g / (s.sqrt() + group["eps"]), alpha=-rate)

    def share_memory(self):
        """Nothing to do: states are plain memory of this process."""


class Adadelta(Each):
    """d = sqrt(u + eps) / sqrt(s + eps) g;  p -= lr d, with running means s of g^2 and u of d^2
    (Zeiler, 2012).
    """

    def __init__(
        self,
        params,
        lr=1.0,
        rho=0.9,
        eps=1e-6,
        weight_decay=0,
        foreach=None,
        *,
        capturable=False,
        maximize=False,
        differentiable=False,
    ):
        check_rate(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"[Adadelta] rho lies in [0, 1], got {rho}")
        check_options({"epsilon value": eps, "weight_decay value": weight_decay})
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "capturable": capturable,
                "foreach": foreach,
                "differentiable": differentiable,
            },
        )

    def _begin(self, state, parameter, group):
        state["step"] = step_count()
        _zeros(state, parameter, "square_avg", "acc_delta")

    def _update(self, parameter, g, state, group):
        rho, eps = group["rho"], group["eps"]
        state["step"].add_(1)
        g = towards(g, parameter, group)
        s = averaged_square(state["square_avg"], g, rho)
        delta = (state["acc_delta"] + eps).sqrt() / (s + eps).sqrt() * g
        averaged_square(state["acc_delta"], delta, rho)
        parameter.add_(delta, alpha=-float(group["lr"]))


class Adamax(Each):
    """Adam by the largest decayed gradient: u = max(b2 u, |g| + eps);  p -= lr / (1 - b1^t) m / u
    (Kingma and Ba, 2015).
    """

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        check_rate(lr)
        check_options({"epsilon value": eps})
        check_betas(betas)
        check_options({"weight_decay value": weight_decay})
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _begin(self, state, parameter, group):
        state["step"] = step_count()
        _zeros(state, parameter, "exp_avg", "exp_inf")

    def _update(self, parameter, g, state, group):
        beta1, beta2 = group["betas"]
        t = counted(state)
        g = towards(g, parameter, group)
        m = averaged(state["exp_avg"], g, 1 - beta1)
        largest = state["exp_inf"]
        largest.copy_(eager.maximum(largest * beta2, g.abs() + group["eps"]))
        parameter.add_(m / largest, alpha=-float(group["lr"]) / (1 - beta1**t))


class _Decoupled(Each):
    """What NAdam and RAdam share: moments as Adam's, with coupled or decoupled weight decay."""

    def _moments(self, parameter, g, state, group):
        decay, (beta1, beta2) = group["weight_decay"], group["betas"]
        if group["decoupled_weight_decay"]:
            g = -g if group["maximize"] else g
            if decay != 0:
                parameter.mul_(1 - float(group["lr"]) * decay)
        else:
            g = towards(g, parameter, group)
        return (
            g,
            averaged(state["exp_avg"], g, 1 - beta1),
            averaged_square(state["exp_avg_sq"], g, beta2),
        )


class NAdam(_Decoupled):
    """Adam with Nesterov momentum on a schedule (Dozat, 2016)."""

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        momentum_decay=4e-3,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        check_rate(lr)
        check_options({"epsilon value": eps})
        check_betas(betas)
        check_options({"weight_decay value": weight_decay, "momentum_decay value": momentum_decay})
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
            },
        )

    def _begin(self, state, parameter, group):
        state["step"], state["mu_product"] = step_count(), step_count(1.0)
        _zeros(state, parameter, "exp_avg", "exp_avg_sq")

    def _update(self, parameter, g, state, group):
        lr, (beta1, beta2) = float(group["lr"]), group["betas"]
        t = counted(state)
        g, m, v = self._moments(parameter, g, state, group)
        now, after = (
            beta1 * (1.0 - 0.5 * 0.96 ** (step * group["momentum_decay"])) for step in (t, t + 1)
        )
        state["mu_product"].mul_(now)
        product = state["mu_product"].item()
        scale = (v / (1 - beta2**t)).sqrt() + group["eps"]
        parameter.add_(g / scale, alpha=-lr * (1.0 - now) / (1.0 - product))
        parameter.add_(m / scale, alpha=-lr * after / (1.0 - product * after))


class RAdam(_Decoupled):
    """Adam whose scaling waits until its variance is known (Liu et al., 2020)."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        check_rate(lr)
        check_options({"epsilon value": eps})
        check_betas(betas)
        check_options({"weight_decay value": weight_decay})
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "decoupled_weight_decay": decoupled_weight_decay,
                "differentiable": differentiable,
            },
        )

    def _begin(self, state, parameter, group):
        state["step"] = step_count()
        _zeros(state, parameter, "exp_avg", "exp_avg_sq")

    def _update(self, parameter, g, state, group):
        lr, (beta1, beta2) = float(group["lr"]), group["betas"]
        t = counted(state)
        _, m, v = self._moments(parameter, g, state, group)
        last = 2 / (1 - beta2) - 1  # the length of the average, in the limit and now
        length = last - 2 * t * beta2**t / (1 - beta2**t)
        step = lr / (1 - beta1**t)
        if length > 5.0:
            known = (length - 4) * (length - 2) * last / ((last - 4) * (last - 2) * length)
            step *= math.sqrt(known) * math.sqrt(1 - beta2**t)
            m = m / (v.sqrt() + group["eps"])
        parameter.add_(m, alpha=-step)


class Rprop(Each):
    """Steps by signs alone: an element's step grows while its gradient keeps its sign (Riedmiller
    and Braun, 1993).
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        etas=(0.5, 1.2),
        step_sizes=(1e-6, 50),
        *,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        check_rate(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"[Rprop] etas: 0 < eta- < 1 < eta+, got {etas[0]} and {etas[1]}")
        super().__init__(
            params,
            {
                "lr": lr,
                "etas": etas,
                "step_sizes": step_sizes,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _begin(self, state, parameter, group):
        state["step"] = step_count()
        _zeros(state, parameter, "prev")
        state["step_size"] = eager.full_like(parameter, float(group["lr"]))

    def _update(self, parameter, g, state, group):
        (less, more), (least, most) = group["etas"], group["step_sizes"]
        state["step"].add_(1)
        g = -g if group["maximize"] else g
        agreement = g * state["prev"]
        turned = agreement < 0
        factor = eager.where(agreement > 0, more, eager.where(turned, less, agreement * 0 + 1))
        size = state["step_size"] * factor
        size = eager.where(size < least, least, eager.where(size > most, most, size))
        state["step_size"].copy_(size)
        g = g.masked_fill(turned, 0.0)
        parameter.add_(g.sign() * size, alpha=-1)
        state["prev"].copy_(g)


class ASGD(Each):
    """SGD and the mean of its path, in ``state['ax']`` (Polyak and Juditsky, 1992)."""

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        check_rate(lr)
        check_options({"weight_decay value": weight_decay})
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _begin(self, state, parameter, group):
        state["step"] = step_count()
        state["eta"], state["mu"] = step_count(float(group["lr"])), step_count(1.0)
        _zeros(state, parameter, "ax")

    def _update(self, parameter, g, state, group):
        lr, lambd = float(group["lr"]), group["lambd"]
        t, eta, mu = counted(state), state["eta"].item(), state["mu"].item()
        g = towards(g, parameter, group)
        parameter.mul_(1 - lambd * eta)
        parameter.add_(g, alpha=-eta)
        mean = state["ax"]
        if mu == 1:
            mean.copy_(parameter)
        else:
            averaged(mean, parameter, mu)
        state["eta"].fill_(lr / (1 + lambd * lr * t) ** group["alpha"])
        state["mu"].fill_(1 / max(1, t - group["t0"]))
