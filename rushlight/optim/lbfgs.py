"""L-BFGS: quasi-Newton steps from the latest gradients (Nocedal and Wright, chapter 7).

All parameters are one vector. Invariant: ``state`` of the first parameter holds everything that the
next call needs, under PyTorch's names.
"""

import math

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.optim.optimizer import Optimizer, check_rate
from rushlight.optim.wolfe import strong_wolfe


class LBFGS(Optimizer):
    """Up to max_iter steps a call, each along -H g with H from the latest history_size changes.

    ``step(closure)``: the closure computes the loss and its gradients anew. line_search_fn: None
    (steps of lr) or 'strong_wolfe'. It stops early once max_eval evaluations have been made, no
    gradient element is above tolerance_grad, or neither loss nor parameters move by more than
    tolerance_change. ValueError for more than one group.
    """

    def __init__(
        self,
        params,
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
    ):
        check_rate(lr)
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueError("[LBFGS] takes one set of parameters, no parameter groups")

    # ---- parameters and gradients as vectors

    @property
    def _params(self):
        return self.param_groups[0]["params"]

    def _gradient(self):
        return eager.cat(
            [
                eager.zeros(p.numel(), dtype=p.dtype, device=place(p))
                if p.grad is None
                else p.grad.reshape(-1)
                for p in self._params
            ]
        )

    def _move(self, direction, length):
        start = 0
        for p in self._params:
            count = p.numel()
            p.add_(direction[start : start + count].view(p.shape), alpha=float(length))
            start += count

    # ---- a step

    def step(self, closure):
        """Returns the loss before the first move."""
        with eager.no_grad():
            return self._step(closure)

    def _step(self, closure):
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate():
            with eager.enable_grad():
                loss = closure()
            state["func_evals"] += 1
            return loss

        first = evaluate()
        loss, gradient = float(first), self._gradient()
        made, begun = 1, state["func_evals"]
        small = lambda g: g.abs().amax().item() <= group["tolerance_grad"]
        if small(gradient):
            return first
        for i in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, gradient, group["history_size"])
            before = loss
            slope = (gradient * direction).sum().item()
            length = float(group["lr"])
            if state["n_iter"] == 1:
                length *= min(1.0, 1.0 / gradient.abs().sum().item())
            state["prev_flat_grad"], state["prev_loss"] = gradient, loss
            state["d"], state["t"] = direction, length
            if slope > -group["tolerance_change"]:
                break
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                at = self._line(evaluate, direction)
                most = group["max_eval"] - made
                length, loss, gradient = strong_wolfe(at, length, loss, gradient, slope, most)
                self._move(direction, length)
            else:
                self._move(direction, length)
                if i < group["max_iter"]:
                    loss, gradient = float(evaluate()), self._gradient()
            state["t"] = length
            made = 1 + state["func_evals"] - begun
            if (
                made >= group["max_eval"]
                or small(gradient)
                or (direction * length).abs().amax().item() <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        return first

    def _line(self, evaluate, direction):
        """length -> (loss, gradient, slope) at that length along the direction."""
        start = [p.clone() for p in self._params]

        def at(length):
            self._move(direction, length)
            loss, gradient = float(evaluate()), self._gradient()
            for p, value in zip(self._params, start, strict=True):
                p.copy_(value)
            return loss, gradient, (gradient * direction).sum().item()

        return at

    @staticmethod
    def _direction(state, gradient, history_size):
        """-H g by the two-loop recursion; the latest change joins the history first."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -gradient
        changes, moves, ro = state["old_dirs"], state["old_stps"], state["ro"]
        change = gradient - state["prev_flat_grad"]
        move = state["d"] * state["t"]
        curvature = (change * move).sum().item()
        if curvature > 1e-10:  # else the history would lose positive definiteness
            if len(changes) == history_size:
                for kept in (changes, moves, ro):
                    kept.pop(0)
            changes.append(change)
            moves.append(move)
            ro.append(1.0 / curvature)
            state["H_diag"] = curvature / (change * change).sum().item()
        q, factors = -gradient, [0.0] * len(changes)
        for k in reversed(range(len(changes))):
            factors[k] = (moves[k] * q).sum().item() * ro[k]
            q.add_(changes[k], alpha=-factors[k])
        q.mul_(state["H_diag"])
        for k in range(len(changes)):
            q.add_(moves[k], alpha=factors[k] - (changes[k] * q).sum().item() * ro[k])
        return q if all(map(math.isfinite, factors)) else -gradient
