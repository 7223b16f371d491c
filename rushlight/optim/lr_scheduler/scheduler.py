"""Schedules of the learning rate: each sets ``lr`` in the optimizer's groups, once when it is
made and once a ``step()``.

Takes an Optimizer; call ``step()`` after the optimizer's. Invariant: ``last_epoch`` counts the
steps; ``initial_lr`` of a group is what a schedule starts from. Schedules written as a change of
the current rate can be chained: their factors multiply.
"""

import warnings

from rushlight.optim.optimizer import Optimizer, Tensor


class LRScheduler:
    """Base. A subclass gives ``get_lr()``: the rates of all groups at ``last_epoch``, from those
    before (``group['lr']``).

    last_epoch: -1 to start anew, else the step to go on from (groups then need 'initial_lr':
    KeyError).
    """

    def __init__(self, optimizer, last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                rate = group["lr"]
                group.setdefault("initial_lr", rate.clone() if isinstance(rate, Tensor) else rate)
            elif "initial_lr" not in group:
                raise KeyError(
                    f"[lr_scheduler] with last_epoch set, a group has an 'initial_lr'; number {i} "
                    "has none"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._advance(self.last_epoch + 1)

    def get_lr(self):
        raise NotImplementedError

    def get_last_lr(self):
        """The rates that the last step set, one a group."""
        return self._last_lr

    def step(self, epoch=None):
        """The next rates; epoch: the rates at that step (deprecated in PyTorch, kept for code
        that has it).
        """
        self._warn_of_order()
        if epoch is None:
            self._advance(self.last_epoch + 1)
        else:
            self._advance(epoch, jump=True)

    def _warn_of_order(self):
        if self._step_count == 1 and self.optimizer._steps_taken == 0:
            warnings.warn(
                "[lr_scheduler] step() came before `optimizer.step()`, so the first rate is "
                "never used",
                stacklevel=3,
            )

    def _advance(self, epoch, jump=False):
        self._step_count += 1
        self.last_epoch = epoch
        closed = getattr(self, "_closed_form_lr", None)
        self._set(closed() if jump and closed else self.get_lr())

    def _set(self, rates):
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            self._put(group, rate)
        self._last_lr = self._rates()

    @staticmethod
    def _put(group, rate):
        """A rate that is a tensor stays one: its value changes."""
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(float(rate))
        else:
            group["lr"] = rate

    def _rates(self):
        return [
            group["lr"].item() if isinstance(group["lr"], Tensor) else group["lr"]
            for group in self.optimizer.param_groups
        ]

    def state_dict(self):
        """All fields but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict):
        self.__dict__.update(state_dict)
