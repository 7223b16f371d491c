"""Schedules that go up and down: restarts, cycles, one cycle; those of momentum along with the
rate's.
"""

import math

from rushlight.optim.lr_scheduler.scheduler import LRScheduler


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from initial_lr to eta_min over T_0 steps, again and again, each T_mult times
    as long as the one before (Loshchilov and Hutter, 2017).
    """

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"[CosineAnnealingWarmRestarts] T_0 is a positive integer, got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(
                f"[CosineAnnealingWarmRestarts] T_mult is a positive integer, got {T_mult}"
            )
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"[CosineAnnealingWarmRestarts] eta_min is a number, got {eta_min} of "
                f"{type(eta_min)}"
            )
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min, self.T_cur = T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        wave = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]

    def step(self, epoch=None):
        """epoch: may be given, and may be a fraction (i + batch / batches)."""
        self._warn_of_order()
        self._advance(self.last_epoch + 1 if epoch is None else epoch, jump=epoch is not None)

    def _advance(self, epoch, jump=False):
        if epoch < 0:
            raise ValueError(f"[CosineAnnealingWarmRestarts] an epoch is not negative, got {epoch}")
        self._step_count += 1
        if not jump and self.last_epoch >= 0:
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_i, self.T_cur = self.T_0, epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())


def _one_a_group(name, optimizer, value):
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ValueError(
            f"[lr_scheduler] {name} has {len(value)} values for {groups} parameter groups"
        )
    return list(value)


def _has_momentum(optimizer):
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(
            "[lr_scheduler] cycle_momentum=True needs an optimizer with momentum or betas"
        )


def _put_momentum(group, momentum):
    """SGD's momentum, or the first of Adam's betas."""
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


class CyclicLR(LRScheduler):
    """From base_lr up to max_lr over step_size_up steps and down again (Smith, 2017).

    mode: the height of a cycle stays ('triangular'), halves ('triangular2'), or is gamma^steps
    ('exp_range'); scale_fn of the cycle or (scale_mode 'iterations') step overrides it.
    cycle_momentum: momentum goes the other way, from max_momentum to base_momentum.
    """

    def __init__(
        self,
        optimizer,
        base_lr,
        max_lr,
        step_size_up=2000,
        step_size_down=None,
        mode="triangular",
        gamma=1.0,
        scale_fn=None,
        scale_mode="cycle",
        cycle_momentum=True,
        base_momentum=0.8,
        max_momentum=0.9,
        last_epoch=-1,
    ):
        base_lrs = _one_a_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups, strict=True):
                group["lr"] = rate
        self.max_lrs = _one_a_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("[CyclicLR] an unknown mode, and no scale_fn")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom, self._scale_mode = scale_fn, scale_mode
        if scale_fn is None:
            self._scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _has_momentum(optimizer)
            self.base_momentums = _one_a_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = _one_a_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for m, group in zip(self.max_momentums, optimizer.param_groups, strict=True):
                    _put_momentum(group, m)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x):
        """The height of a cycle, of the cycle's number or the step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular2":
            return 1 / (2.0 ** (x - 1))
        return self.gamma**x if self.mode == "exp_range" else 1.0

    @property
    def scale_mode(self):
        return self._scale_mode

    def get_lr(self):
        turns = self.last_epoch / self.total_size
        cycle = math.floor(1 + turns)
        x = 1.0 + turns - cycle
        ratio = self.step_ratio
        height = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
        height *= self.scale_fn(cycle if self._scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, high, group in zip(
                self.base_momentums, self.max_momentums, self.optimizer.param_groups, strict=True
            ):
                _put_momentum(group, high - (high - low) * height)
        return [
            low + (high - low) * height
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self):
        """A function is not saved; a callable object is, by its fields."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = None
        if custom is not None and hasattr(custom, "__dict__") and not hasattr(custom, "__code__"):
            state["_scale_fn_custom"] = dict(custom.__dict__)
        return state

    def load_state_dict(self, state_dict):
        state = dict(state_dict)
        fields = state.pop("_scale_fn_custom", None)
        super().load_state_dict(state)
        if fields is not None:
            self._scale_fn_custom.__dict__.update(fields)


def _cosine(start, end, part):
    return end + (start - end) / 2.0 * (1 + math.cos(math.pi * part))


def _line(start, end, part):
    return (end - start) * part + start


class OneCycleLR(LRScheduler):
    """One cycle over all of training: up from max_lr / div_factor to max_lr within pct_start of
    the steps, then down to the start / final_div_factor (Smith and Topin, 2018).

    total_steps, or epochs and steps_per_epoch. three_phase: down to the start first, as long as
    up. cycle_momentum: momentum goes the other way. ValueError at a step beyond the last.
    """

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps=None,
        epochs=None,
        steps_per_epoch=None,
        pct_start=0.3,
        anneal_strategy="cos",
        cycle_momentum=True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        self.total_steps = self._steps(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"[OneCycleLR] pct_start is a float from 0 to 1, got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"[OneCycleLR] anneal_strategy is 'cos' or 'linear', got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        up, last = float(pct_start * self.total_steps) - 1, self.total_steps - 1
        names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        rise = (up, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if three_phase:
            back = (2 * up, "max_lr", "initial_lr", "base_momentum", "max_momentum")
            phases = (rise, back, (last, "initial_lr", "min_lr", "max_momentum", "max_momentum"))
        else:
            phases = (rise, (last, "max_lr", "min_lr", "base_momentum", "max_momentum"))
        self._schedule_phases = [dict(zip(names, phase, strict=True)) for phase in phases]
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            rates = _one_a_group("max_lr", optimizer, max_lr)
            for rate, group in zip(rates, optimizer.param_groups, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            _has_momentum(optimizer)
            if last_epoch == -1:
                lows = _one_a_group("base_momentum", optimizer, base_momentum)
                highs = _one_a_group("max_momentum", optimizer, max_momentum)
                for low, high, group in zip(lows, highs, optimizer.param_groups, strict=True):
                    _put_momentum(group, high)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _steps(total_steps, epochs, steps_per_epoch):
        if total_steps is not None:
            given = {"total_steps": total_steps}
        elif epochs is not None and steps_per_epoch is not None:
            given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        else:
            raise ValueError("[OneCycleLR] takes total_steps, or epochs and steps_per_epoch")
        for name, value in given.items():
            if value <= 0 or not isinstance(value, int):
                raise ValueError(f"[OneCycleLR] {name} is a positive integer, got {value}")
        return total_steps if total_steps is not None else epochs * steps_per_epoch

    def get_lr(self):
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"[OneCycleLR] Tried to step {step} times: total_steps is {self.total_steps}"
            )
        start = 0.0
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if step <= end or phase is self._schedule_phases[-1]:
                break
            start = end
        part = (step - start) / (end - start)
        anneal = _cosine if self._anneal_func_type == "cos" else _line
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(anneal(group[phase["start_lr"]], group[phase["end_lr"]], part))
            if self.cycle_momentum:
                _put_momentum(
                    group,
                    anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], part),
                )
        return rates
