"""ReduceLROnPlateau: a schedule by how training goes."""

import math

from rushlight.optim.lr_scheduler.scheduler import LRScheduler
from rushlight.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Times factor once ``patience`` steps have passed without a better metric.

    mode 'min' or 'max': which is better. threshold: by how much, relative ('rel') or absolute
    ('abs'). cooldown: steps after a change during which nothing counts. min_lr: one, or one a
    group. Changes smaller than eps are not made.
    """

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-8,
    ):
        if factor >= 1.0:
            raise ValueError("[ReduceLROnPlateau] factor is below 1")
        self.factor = factor
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != groups:
                raise ValueError(
                    f"[ReduceLROnPlateau] min_lr is one a group, {groups}, got {len(min_lr)}"
                )
            self.min_lrs = list(min_lr)
        else:
            self.min_lrs = [min_lr] * groups
        if mode not in ("min", "max"):
            raise ValueError(f"[ReduceLROnPlateau] no mode {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"[ReduceLROnPlateau] no threshold_mode {threshold_mode!r}")
        self.patience, self.cooldown = patience, cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._rates()
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self):
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self):
        return self.cooldown_counter > 0

    def is_better(self, a, best):
        """Whether a improves on best by more than the threshold."""
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1)
        if self.mode == "min":
            return a < best - margin if math.isfinite(best) else a < best
        return a > best + margin if math.isfinite(best) else a > best

    def step(self, metrics, epoch=None):
        """metrics: the number to watch, or a tensor of one."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                old = float(group["lr"])
                new = max(old * self.factor, least)
                if old - new > self.eps:
                    self._put(group, new)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()
