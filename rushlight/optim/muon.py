"""Muon (Jordan et al., 2024): the momentum of a matrix, made orthogonal, is the step."""

import math

from rushlight import eager
from rushlight.optim.each import Each, refuse_complex
from rushlight.optim.optimizer import Tensor

RULES = ("original", "match_rms_adamw")
MOST_STEPS = 100


def orthogonalized(update, coefficients, steps, eps):
    """Nearly the orthogonal factor of a matrix's polar decomposition, in bfloat16: Newton and
    Schulz's iteration X <- a X + (b A + c A^2) X with A = X X^T.
    """
    if steps >= MOST_STEPS:
        raise ValueError("[Muon] ns_steps is below 100: more does not help")
    if len(coefficients) != 3:
        raise ValueError("[Muon] ns_coefficients are 3 numbers")
    a, b, c = coefficients
    tall = update.shape[0] > update.shape[1]
    x = update.to(eager.bfloat16)  # type: ignore[attr-defined]
    x = x.t() if tall else x
    wide = x.to(eager.float32)  # type: ignore[attr-defined]
    x = x / (wide * wide).sum().sqrt().to(x.dtype).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = eager.addmm(x, eager.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)  # type: ignore[attr-defined]
    return x.t() if tall else x


class Muon(Each):
    """m += (1 - momentum) (g - m);  p -= r orthogonalized(m), or with nesterov of the mean of g
    and m. For matrices only (ValueError): biases and embeddings go to another optimizer.

    adjust_lr_fn: how the rate r follows the sizes (A, B): 'original' (None) lr sqrt(max(1, A / B)),
    'match_rms_adamw' lr 0.2 sqrt(max(A, B)). weight_decay: p shrinks by lr weight_decay before.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(3.4445, -4.775, 2.0315),
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("[Muon] a tensor for lr has 1 element")
        for value, name in (
            (lr, "Learning rate"),
            (momentum, "momentum"),
            (weight_decay, "weight decay"),
        ):
            if not value >= 0:
                raise ValueError(f"[Muon] {name} is not negative, got {value}")
        if adjust_lr_fn is not None and adjust_lr_fn not in RULES:
            raise ValueError(f"[Muon] no adjust_lr_fn {adjust_lr_fn!r}")
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.dim() != 2:
                    raise ValueError(f"[Muon] takes matrices only (2D), got {parameter.shape}")

    def _begin(self, state, parameter, group):
        refuse_complex(parameter, "Muon")
        state["momentum_buffer"] = eager.zeros_like(parameter.grad)

    def _update(self, parameter, g, state, group):
        lr, momentum = float(group["lr"]), group["momentum"]
        m = state["momentum_buffer"]
        m.add_(g - m, alpha=1 - momentum)
        step = g + (m - g) * momentum if group["nesterov"] else m
        step = orthogonalized(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = parameter.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            rate = lr * 0.2 * math.sqrt(max(rows, columns))
        else:
            rate = lr * math.sqrt(max(1, rows / columns))
        parameter.mul_(1 - lr * group["weight_decay"])
        parameter.add_(step.to(parameter.dtype), alpha=-rate)
