"""Averages of a model's weights along training: stochastic weight averaging (Izmailov et al., 2018)
and exponential moving averages.
"""

import math
from copy import deepcopy
from itertools import chain

from rushlight import eager
from rushlight.nn.module import Module
from rushlight.optim.lr_scheduler.scheduler import LRScheduler
from rushlight.optim.optimizer import Optimizer


def get_swa_avg_fn():
    """(average, value, how many so far) -> the mean with the value in it."""

    def average(averaged, value, count):
        return averaged + (value - averaged) / (float(count) + 1)

    return average


def get_ema_avg_fn(decay=0.999):
    """(average, value, how many so far) -> decay average + (1 - decay) value."""
    _check_decay(decay)

    def average(averaged, value, count):
        return averaged + (value - averaged) * (1 - decay)

    return average


def get_swa_multi_avg_fn():
    """As get_swa_avg_fn, over lists of tensors and in place."""

    def average(averaged, values, count):
        _move_towards(averaged, values, 1.0 / (float(count) + 1))

    return average


def get_ema_multi_avg_fn(decay=0.999):
    """As get_ema_avg_fn, over lists of tensors and in place."""
    _check_decay(decay)

    def average(averaged, values, count):
        _move_towards(averaged, values, 1 - decay)

    return average


def _check_decay(decay):
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"[swa_utils] decay lies in [0, 1], got {decay}")


def _move_towards(averaged, values, weight):
    with eager.no_grad():
        for a, v in zip(averaged, values, strict=True):
            if a.is_floating_point():
                a.add_(v - a, alpha=weight)
            else:
                a.copy_(a + (v - a) * weight)


class AveragedModel(Module):
    """A copy of ``model`` (``module``) whose parameters are the average of those it has been shown.

    avg_fn(average, value, count) gives the new average; multi_avg_fn(averages, values, count)
    changes lists in place; neither: the mean. use_buffers: buffers are averaged too, else copied.
    Buffer ``n_averaged``: how often ``update_parameters`` was called.
    """

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("[AveragedModel] takes avg_fn or multi_avg_fn, got both")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", eager.tensor(0, dtype=eager.int64))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _values(self, module):
        return list(chain(module.parameters(), module.buffers() if self.use_buffers else ()))

    def update_parameters(self, model):
        """Takes the present parameters of ``model`` into the average."""
        mine = [p.detach() for p in self._values(self.module)]
        theirs = [p.detach().to(a.device) for p, a in zip(self._values(model), mine, strict=True)]
        count = self.n_averaged.item()
        with eager.no_grad():
            if count == 0:
                for a, v in zip(mine, theirs, strict=True):
                    a.copy_(v)
            elif self.avg_fn is not None:
                for a, v in zip(mine, theirs, strict=True):
                    a.copy_(self.avg_fn(a, v, self.n_averaged))
            else:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(mine, theirs, self.n_averaged)
            if not self.use_buffers:
                for a, v in zip(self.module.buffers(), model.buffers(), strict=True):
                    a.copy_(v)
            self.n_averaged.add_(1)


def update_bn(loader, model, device=None):
    """Runs the batches of ``loader`` through ``model`` so that the running statistics of its batch
    norms are means over them. A batch may be a tensor, or a list or tuple that begins with one.
    """
    norms = [
        m
        for m in model.modules()
        if getattr(m, "running_mean", None) is not None and hasattr(m, "reset_running_stats")
    ]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    training = model.training
    model.train()
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    with eager.no_grad():
        for batch in loader:
            batch = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(batch if device is None else batch.to(device))
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """From the rate of each group to swa_lr over anneal_epochs steps, then constant.

    swa_lr: one, or one a group. anneal_strategy: 'cos' or 'linear'.
    """

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ValueError(
                f"[SWALR] swa_lr has {len(rates)} values for {len(groups)} parameter groups"
            )
        for rate, group in zip(rates, groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"[SWALR] anneal_strategy is 'cos' or 'linear', got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"[SWALR] anneal_epochs is not negative, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _part(self, step):
        """How much of swa_lr the rate holds after so many steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self):
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for rate, group in zip(self._rates(), self.optimizer.param_groups, strict=True):
            goal = group["swa_lr"]
            start = goal if before == 1 else (rate - goal * before) / (1 - before)
            rates.append(goal * now + start * (1 - now))
        return rates
