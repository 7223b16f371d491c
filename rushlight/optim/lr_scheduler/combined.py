"""Schedules made of others: one after the other, or all at once."""

from bisect import bisect_right

from rushlight.optim.lr_scheduler.plateau import ReduceLROnPlateau
from rushlight.optim.lr_scheduler.scheduler import LRScheduler


class SequentialLR(LRScheduler):
    """One schedule after the other: schedulers[i] rules until milestones[i] steps have passed."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if not schedulers:
            raise ValueError("[SequentialLR] takes at least one scheduler, got none")
        for i, scheduler in enumerate(schedulers):
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"[SequentialLR] {type(scheduler).__name__}, number {i}, is for another "
                    "optimizer"
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "[SequentialLR] the number of milestones is one below that of schedulers, got "
                f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self.optimizer = optimizer
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        for (
            group
        ) in optimizer.param_groups:  # the schedules have each set their first rate: start anew
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
            scheduler._step_count = 0
        self._schedulers[0]._advance(self._schedulers[0].last_epoch + 1)
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self):
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._set(scheduler.base_lrs)
            scheduler._advance(0, jump=True)
        else:
            scheduler._advance(scheduler.last_epoch + 1)
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self):
        """The fields but the optimizer; of each schedule its own."""
        state = LRScheduler.state_dict(self)
        return dict(state, _schedulers=[scheduler.state_dict() for scheduler in self._schedulers])

    def load_state_dict(self, state_dict):
        state = dict(state_dict)
        for scheduler, saved in zip(self._schedulers, state.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(saved)
        LRScheduler.load_state_dict(self, state)


class ChainedScheduler(LRScheduler):
    """All schedules at every step, in order: their changes multiply."""

    def __init__(self, schedulers, optimizer=None):
        if len(schedulers) < 1:
            raise ValueError("[ChainedScheduler] takes at least one scheduler, got none")
        optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"[ChainedScheduler] number {i} has no `optimizer`")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"[ChainedScheduler] number {i} is a ReduceLROnPlateau, whose step() asks for "
                    "metrics"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"[ChainedScheduler] {type(scheduler).__name__}, number {i}, is for another "
                    "optimizer"
                )
        self._schedulers, self.optimizer = list(schedulers), optimizer
        self._last_lr = self._rates()

    def step(self):
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()

    state_dict = SequentialLR.state_dict
    load_state_dict = SequentialLR.load_state_dict
