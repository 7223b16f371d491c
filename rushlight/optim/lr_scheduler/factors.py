"""Schedules that are a factor of the starting rate, or of the rate before."""

import math
import types
from bisect import bisect_right
from collections import Counter

from rushlight.optim.lr_scheduler.scheduler import LRScheduler


class LambdaLR(LRScheduler):
    """initial_lr * lr_lambda(step). lr_lambda: a function, or a list with one a group."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        groups = len(optimizer.param_groups)
        self.lr_lambdas = (
            list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        )
        if len(self.lr_lambdas) != groups:
            raise ValueError(
                f"[{type(self).__name__}] lr_lambdas are one a group, {groups}, got "
                f"{len(self.lr_lambdas)}"
            )
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [
            base * factor(self.last_epoch)
            for base, factor in zip(self.base_lrs, self.lr_lambdas, strict=True)
        ]

    def state_dict(self):
        """Functions are not saved; callable objects are, by their fields."""
        state = {
            name: value for name, value in super().state_dict().items() if name != "lr_lambdas"
        }
        state["lr_lambdas"] = [
            None if isinstance(f, types.FunctionType) else dict(f.__dict__) for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict):
        state = dict(state_dict)
        for factor, fields in zip(self.lr_lambdas, state.pop("lr_lambdas"), strict=True):
            if fields is not None:
                factor.__dict__.update(fields)
        super().load_state_dict(state)


class MultiplicativeLR(LambdaLR):
    """The rate before * lr_lambda(step)."""

    def get_lr(self):
        if self.last_epoch == 0:
            return self._rates()
        return [
            rate * factor(self.last_epoch)
            for rate, factor in zip(self._rates(), self.lr_lambdas, strict=True)
        ]


class StepLR(LRScheduler):
    """Times gamma every step_size steps."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._rates()
        return [rate * self.gamma for rate in self._rates()]

    def _closed_form_lr(self):
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times gamma at each of the milestones; a milestone given twice counts twice."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [rate * self.gamma ** self.milestones[self.last_epoch] for rate in self._rates()]

    def _closed_form_lr(self):
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times gamma every step."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return (
            self._rates() if self.last_epoch == 0 else [rate * self.gamma for rate in self._rates()]
        )

    def _closed_form_lr(self):
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class LinearLR(LRScheduler):
    """A factor that goes in a line from start_factor to end_factor over total_iters steps, and
    stays.
    """

    def __init__(
        self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1
    ):
        if not 0 < start_factor <= 1.0:
            raise ValueError(
                "[LinearLR] start_factor is above 0 and at most 1 (Starting multiplicative factor)"
            )
        if not 0 <= end_factor <= 1.0:
            raise ValueError("[LinearLR] end_factor lies in [0, 1]")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch):
        return (
            self.start_factor
            + (self.end_factor - self.start_factor)
            * min(epoch, self.total_iters)
            / self.total_iters
        )

    def get_lr(self):
        if self.last_epoch > self.total_iters:
            return self._rates()
        change = (
            self.start_factor
            if self.last_epoch == 0
            else self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)
        )
        return [rate * change for rate in self._rates()]

    def _closed_form_lr(self):
        return [base * self._factor(self.last_epoch) for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times factor until total_iters steps have passed."""

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if not 0 <= factor <= 1.0:
            raise ValueError("[ConstantLR] factor lies in [0, 1]")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        change = (
            self.factor
            if self.last_epoch == 0
            else 1 / self.factor
            if self.last_epoch == self.total_iters
            else 1
        )
        return [rate * change for rate in self._rates()]

    def _closed_form_lr(self):
        return [
            base * (self.factor if self.last_epoch < self.total_iters else 1)
            for base in self.base_lrs
        ]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from initial_lr to eta_min over T_max steps, and back up over the next
    (Loshchilov and Hutter, 2017).
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        t = self.last_epoch
        if t == 0:
            return self._rates()
        if self._step_count == 1 and t > 0:
            return self._closed_form_lr()
        before, now = (1 + math.cos(math.pi * step / self.T_max) for step in (t - 1, t))
        if (t - 1 - self.T_max) % (2 * self.T_max) == 0:  # at the bottom: nothing left to multiply
            return [
                rate + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
                for base, rate in zip(self.base_lrs, self._rates(), strict=True)
            ]
        return [now / before * (rate - self.eta_min) + self.eta_min for rate in self._rates()]

    def _closed_form_lr(self):
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Times (1 - t / total_iters)^power, and 0 afterwards."""

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch):
        return (1.0 - min(epoch, self.total_iters) / self.total_iters) ** self.power

    def get_lr(self):
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._rates()
        change = self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)
        return [rate * change for rate in self._rates()]

    def _closed_form_lr(self):
        return [base * self._factor(self.last_epoch) for base in self.base_lrs]
