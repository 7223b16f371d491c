"""Adafactor (Shazeer and Stern, 2018): the mean squares of a matrix's gradients are kept as one
number a row and one a column.
"""

import math

from rushlight import eager
from rushlight.dtypes import EPSILON
from rushlight.optim.each import Each, counted_in_graph, refuse_complex, step_count
from rushlight.optim.optimizer import Tensor


def _rms(x):
    """The root of the mean of the squares, as a 0-dim tensor."""
    return (x * x).sum().sqrt() / math.sqrt(x.numel())


def _moved(average, value, weight):
    """average += weight (value - average), in place; weight a number or a 0-dim tensor."""
    return average.add_((value - average) * weight)


class Adafactor(Each):
    """v = r c / mean(r), with r and c running means of g^2 by row and by column (of a vector: v
    itself, by element);  u = g / sqrt(v), cut to a root mean square of d;  p -= a u.

    a: the root mean square of p (at least eps[1]) times min(lr, 1 / sqrt(t)). The running means
    forget by 1 - t^beta2_decay. eps[0]: the least root of v (None: the dtype's epsilon).
    weight_decay: p shrinks by lr weight_decay before. Dims before the last two are a batch.
    """

    def __init__(
        self,
        params,
        lr=1e-2,
        beta2_decay=-0.8,
        eps=(None, 1e-3),
        d=1.0,
        weight_decay=0.0,
        *,
        foreach=None,
        maximize=False,
    ):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("[Adafactor] a tensor for lr has 1 element")
        for bad, text in (
            (not lr >= 0, f"Learning rate should be >= 0 but is: {lr}"),
            (not beta2_decay <= 0, f"[Adafactor] beta2_decay is not positive, got {beta2_decay}"),
            (not (eps[0] is None or eps[0] >= 0), f"epsilon1 should be >= 0 but is: {eps[0]}"),
            (not eps[1] >= 0, f"epsilon2 should be >= 0 but is: {eps[1]}"),
            (not d >= 1, f"[Adafactor] the threshold d is at least 1, got {d}"),
            (not weight_decay >= 0, f"weight_decay should be >= 0 but is: {weight_decay}"),
        ):
            if bad:
                raise ValueError(text)
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": eps,
                "d": d,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
            },
        )

    def _begin(self, state, parameter, group):
        refuse_complex(parameter, "Adafactor")
        state["step"] = step_count()
        g = parameter.grad
        if g.dim() > 1:
            state["row_var"] = g.new_zeros((*g.shape[:-1], 1))
            state["col_var"] = g.new_zeros((*g.shape[:-2], 1, g.shape[-1]))
        else:
            state["variance"] = eager.zeros_like(g)

    def _update(self, parameter, g, state, group):
        lr, (least, floor) = float(group["lr"]), group["eps"]
        least = EPSILON[parameter.dtype.name] if least is None else least
        t = counted_in_graph(state)
        weight = t ** group["beta2_decay"]
        rate = min(lr, t**-0.5) if isinstance(t, float) else (t**-0.5).clamp(max=lr)
        if group["maximize"]:
            g = -g
        size = _rms(parameter).clamp(min=floor) * rate
        if group["weight_decay"] != 0:
            parameter.mul_(1 - lr * group["weight_decay"])
        squares = g * g
        if g.dim() > 1:
            rows = _moved(state["row_var"], squares.mean(-1, keepdim=True), weight)
            columns = _moved(state["col_var"], squares.mean(-2, keepdim=True), weight)
            variance = rows @ columns / rows.mean(-2, keepdim=True).clamp(min=least)
        else:
            variance = _moved(state["variance"], squares, weight)
        update = variance.clamp(min=least * least).rsqrt() * g
        parameter.sub_(update * (size / (_rms(update) / group["d"]).clamp(min=1.0)))
