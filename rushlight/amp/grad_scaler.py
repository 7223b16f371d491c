"""GradScaler: the loss times a scale, so that gradients in float16 do not become zero; the step
left out when some gradient is infinite or NaN, and the scale made smaller then.
"""

import math
import warnings
from collections import abc, defaultdict
from enum import Enum

from rushlight import eager
from rushlight.eager.casting import has_cuda
from rushlight.eager.modes import no_grad


class OptState(Enum):
    """Where one optimizer is in this iteration."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def new_state():
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses and unscales gradients:

        scaler.scale(loss).backward()
        scaler.step(optimizer)      # unscales; skipped when a gradient is not finite
        scaler.update()

    device: 'cpu', or 'cuda' (the default, as in PyTorch), which without a GPU disables it.
    init_scale: to begin with. growth_factor: of the scale, after growth_interval steps in a row
    without inf or NaN; backoff_factor: of the scale, after a step that was skipped. enabled=False:
    everything passes through.
    """

    def __init__(
        self,
        device="cuda",
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
    ):
        self._device, self._enabled = device, enabled
        if enabled and device == "cuda" and not has_cuda():
            warnings.warn(
                "[GradScaler] there is no CUDA here, so scaling for 'cuda' is off; "
                "GradScaler('cpu') works",
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("[GradScaler] the growth factor must be above 1")
            if backoff_factor >= 1.0:
                raise AssertionError("[GradScaler] the backoff factor must be below 1")
            self._init_scale, self._scale = init_scale, None
            self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
            self._growth_interval, self._growth_tracker = growth_interval, None
            self._init_growth_tracker = 0
            self._per_optimizer_states = defaultdict(new_state)

    # ---- scaling

    def _begin(self):
        """The tensors of the scale, made when they are first needed."""
        if self._scale is None:
            if self._growth_tracker is not None:
                raise AssertionError("[GradScaler] a growth tracker, and no scale yet")
            self._scale = eager.tensor(float(self._init_scale))
            self._growth_tracker = eager.tensor(self._init_growth_tracker, dtype=eager.int32)

    def scale(self, outputs):
        """outputs (a tensor, or nested lists and tuples of them) times the scale, on the tape."""
        if not self._enabled:
            return outputs
        self._begin()
        if isinstance(outputs, eager.Tensor):
            return outputs * self._scale
        if isinstance(outputs, abc.Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError("[GradScaler.scale] takes a tensor or an iterable of tensors")

    def _unscale_grads(self, optimizer, inverse, allow_half):
        """Every gradient times `inverse`, in place; returns {device: 1.0 where one is not
        finite}.
        """
        bad, marks = 0.0, {}  # marks: by device, 0 or NaN; the host waits once for each
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    g = p.grad
                    if g is None:
                        continue
                    if not allow_half and g.dtype is eager.float16:
                        raise ValueError(
                            "[GradScaler.unscale_] float16 gradients: to unscale FP16 loses what "
                            "the scale saved"
                        )
                    if g.is_cuda:
                        mark = (g.detach() * 0.0).sum(dtype=eager.float32)
                        marks[g.device] = marks[g.device] + mark if g.device in marks else mark
                    elif not bad and g.numel() and not math.isfinite(largest(g)):
                        bad = 1.0
                    if inverse != 1.0:
                        g.mul_(inverse)
            if not all(math.isfinite(mark.item()) for mark in marks.values()):
                bad = 1.0
        return {"cpu": eager.tensor(bad)}

    def unscale_(self, optimizer):
        """Divides the optimizer's gradients by the scale, in place, before the step: to clip them,
        say. RuntimeError when called twice in an iteration, or after step.
        """
        if not self._enabled:
            return
        state = self._state_of("unscale_", optimizer)
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "[GradScaler.unscale_] this optimizer's gradients have been unscaled since "
                "update() last ran"
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("[GradScaler.unscale_] comes before step(), not after step()")
        inverse = 1.0 / self._scale.item()
        state["found_inf_per_device"] = self._unscale_grads(optimizer, inverse, False)
        state["stage"] = OptState.UNSCALED

    def _state_of(self, name, optimizer):
        if self._scale is None:
            raise AssertionError(
                f"[GradScaler.{name}] there is no scale yet (_scale is None): scale(loss) comes "
                "first in a step"
            )
        return self._per_optimizer_states[id(optimizer)]

    def step(self, optimizer, *args, **kwargs):
        """optimizer.step(*args, **kwargs), unless a gradient is infinite or NaN. Unscales first if
        that was not done. Returns what the optimizer's step does, None where it was skipped.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("[GradScaler.step] an enabled scaler takes no closure")
        state = self._state_of("step", optimizer)
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError(
                "[GradScaler.step] called twice for one optimizer: update() has to run in between"
            )
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        state = self._per_optimizer_states[id(optimizer)]
        if not state["found_inf_per_device"]:
            raise AssertionError(
                "[GradScaler.step] none of this optimizer's parameters has a gradient to look for "
                "infinities in"
            )
        result = None
        if not sum(v.item() for v in state["found_inf_per_device"].values()):
            result = optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale=None):
        """The next iteration's scale: smaller after a step with an inf or NaN, larger after
        growth_interval good ones; or new_scale (a float, or a float32 tensor of one element).
        """
        if not self._enabled:
            return
        self._state_of("update", None)
        self._per_optimizer_states.pop(id(None), None)
        if new_scale is not None:
            if isinstance(new_scale, eager.Tensor):
                if new_scale.dtype is not eager.float32 or new_scale.numel() != 1:
                    raise AssertionError(
                        "[GradScaler.update] new_scale takes a float or a float32 tensor of one "
                        "element"
                    )
                new_scale = new_scale.item()
            self._scale.fill_(new_scale)
        else:
            found = [
                v.item()
                for state in self._per_optimizer_states.values()
                for v in state["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError(
                    "[GradScaler.update] no optimizer has been unscaled or stepped since the last "
                    "update()"
                )
            self._adapt(any(found))
        self._per_optimizer_states = defaultdict(new_state)

    def _adapt(self, bad):
        if bad:
            self._scale.mul_(self._backoff_factor)
            self._growth_tracker.fill_(0)
            return
        good = self._growth_tracker.item() + 1
        if good == self._growth_interval:
            grown = self._scale * self._growth_factor
            if math.isfinite(grown.item()):  # else it stays as it is
                self._scale.copy_(grown)
            good = 0
        self._growth_tracker.fill_(good)

    # ---- looking at it, and changing it

    def is_enabled(self):
        return self._enabled

    def get_scale(self):
        """The scale as a float; 1.0 where disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def _get_growth_tracker(self):
        if not self._enabled:
            return 0
        tracker = self._growth_tracker
        return self._init_growth_tracker if tracker is None else int(tracker.item())

    def get_growth_factor(self):
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        self._growth_interval = new_interval

    def state_dict(self):
        """Numbers by name, as PyTorch writes them; {} where disabled. Call it after update."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict):
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "[GradScaler.load_state_dict] the state is empty: was the scaler that saved it "
                "disabled?"
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self):
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "[GradScaler] cannot be pickled within a step: pickle it before scale() or "
                    "after update()"
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)

    def _check_inf_per_device(self, optimizer):
        """{device: 1.0 where a gradient is infinite or NaN}, nothing unscaled."""
        state = self._state_of("_check_inf_per_device", optimizer)
        state["found_inf_per_device"] = self._unscale_grads(optimizer, 1.0, True)
        return state["found_inf_per_device"]

    def _found_inf_per_device(self, optimizer):
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]


def largest(g):
    """The largest magnitude; NaN where there is one."""
    return g.detach().abs().amax().item()
