"""Optimizer: parameters in groups, their state, and how both are saved.

Takes tensors that require a gradient; ``step()`` of a subclass changes them in place. Invariants:
a parameter stands in one group only; ``state_dict`` has PyTorch's layout (parameters numbered in
group order), so checkpoints go both ways.
"""

import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from functools import wraps
from itertools import chain, count

from rushlight import eager

Tensor = eager.Tensor
_ids = count()


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()


class HookHandle:
    """Removes one hook. It may be removed twice."""

    def __init__(self, table, hook):
        self.id = next(_ids)
        self._table = table
        table[self.id] = hook

    def remove(self):
        self._table.pop(self.id, None)


def _with_hooks(step):
    """``step`` between the optimizer's pre and post hooks; counted, so that schedulers see the
    order of calls.
    """

    @wraps(step)
    def call(self, *args, **kwargs):
        for hook in list(self._step_pre_hooks.values()):
            answer = hook(self, args, kwargs)
            if answer is not None:
                if not (isinstance(answer, tuple) and len(answer) == 2):
                    raise RuntimeError(
                        f"[Optimizer] {step} must return None or a tuple (args, kwargs), got "
                        f"{answer}"
                    )
                args, kwargs = answer
        result = step(self, *args, **kwargs)
        self._steps_taken += 1
        for hook in list(self._step_post_hooks.values()):
            hook(self, args, kwargs)
        return result

    return call


class Optimizer:
    """Base of all optimizers.

    params: an iterable of tensors, of (name, tensor) pairs, or of dicts with 'params' and options
    of their own. defaults: the options of a group that does not give them. ValueError for an
    empty list or a tensor that is no leaf, TypeError for another type.
    """

    def __init__(self, params, defaults):
        if isinstance(params, Tensor):
            raise TypeError(
                "[Optimizer] params should be an iterable of Tensors or dicts, got "
                f"{type(params).__module__}.{type(params).__name__}"
            )
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._new_hook_tables()
        groups = list(params)
        if not groups:
            raise ValueError("[Optimizer] there are no parameters")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _new_hook_tables(self):
        self._steps_taken = 0
        self._step_pre_hooks = OrderedDict()
        self._step_post_hooks = OrderedDict()
        self._state_dict_pre_hooks = OrderedDict()
        self._state_dict_post_hooks = OrderedDict()
        self._load_state_dict_pre_hooks = OrderedDict()
        self._load_state_dict_post_hooks = OrderedDict()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.step)

    # ---- stepping

    def step(self, closure=None):
        """One update. closure: computes the loss and its gradients anew; called with gradients
        on, its value is returned.
        """
        raise NotImplementedError

    @staticmethod
    def _loss(closure):
        if closure is None:
            return None
        with eager.enable_grad():
            return closure()

    def zero_grad(self, set_to_none=True):
        """Drops all gradients or, set_to_none False, fills them with zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                if set_to_none:
                    parameter.grad = None
                else:
                    grad.detach_() if grad.grad_fn is not None else grad.requires_grad_(False)
                    grad.zero_()

    # ---- groups

    def add_param_group(self, param_group):
        """Adds a dict with 'params' (one tensor or an iterable) and options. The caller's dict is
        not changed.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"[Optimizer] a parameter group is a dict, got {type(param_group)}")
        group = dict(param_group)
        given = group["params"]
        if isinstance(given, set):
            raise TypeError(
                "[Optimizer] a set has no order that another run would keep: give the parameters "
                "in a list"
            )
        given = [given] if isinstance(given, Tensor) else list(given)
        named = [entry for entry in given if isinstance(entry, tuple)]
        if named and len(named) != len(given):
            raise ValueError("[Optimizer] either all parameters have names or none")
        if named:
            group["param_names"] = [name for name, _ in given]
            given = [parameter for _, parameter in given]
        group["params"] = given
        for parameter in given:
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    "[Optimizer] what is optimized is a Tensor, got " + type(parameter).__name__
                )
            if not (self.defaults.get("differentiable") or parameter.is_leaf):
                raise ValueError(
                    "[Optimizer] a non-leaf Tensor cannot be optimized: the step would not reach "
                    "what made it"
                )
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(
                    f"[Optimizer] the parameter group does not set {name}, which has no default"
                )
            group.setdefault(name, default)
        ids = {id(parameter) for parameter in given}
        if len(ids) != len(given):
            warnings.warn(
                "[Optimizer] a parameter stands twice in a group, which PyTorch will refuse",
                stacklevel=3,
            )
        if not ids.isdisjoint(id(p) for other in self.param_groups for p in other["params"]):
            raise ValueError("[Optimizer] a parameter stands in two groups")
        self.param_groups.append(group)

    # ---- state

    def state_dict(self):
        """{'state': {number: {...}}, 'param_groups': [{..., 'params': [number, ...]}]}; tensors
        are shared, not copied.
        """
        for hook in self._state_dict_pre_hooks.values():
            hook(self)
        numbers = {}
        for parameter in chain.from_iterable(group["params"] for group in self.param_groups):
            numbers.setdefault(id(parameter), len(numbers))
        groups = [
            dict(
                {k: v for k, v in group.items() if k != "params"},
                params=[numbers[id(p)] for p in group["params"]],
            )
            for group in self.param_groups
        ]
        state = {
            numbers[id(key)] if isinstance(key, Tensor) else key: value
            for key, value in self.state.items()
        }
        result = {"state": state, "param_groups": groups}
        for hook in self._state_dict_post_hooks.values():
            answer = hook(self, result)
            result = result if answer is None else answer
        return result

    def load_state_dict(self, state_dict):
        """Takes over groups and state; floating state takes the dtype and device of its
        parameter.

        ValueError when the number of groups or of parameters in a group differs; then nothing has
        changed.
        """
        state_dict = dict(state_dict)
        for hook in self._load_state_dict_pre_hooks.values():
            answer = hook(self, state_dict)
            state_dict = state_dict if answer is None else answer
        saved = deepcopy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError(
                "[Optimizer.load_state_dict] the state has another number of parameter groups"
            )
        if any(
            len(old["params"]) != len(new["params"])
            for old, new in zip(saved, self.param_groups, strict=True)
        ):
            raise ValueError(
                "[Optimizer.load_state_dict] a group of the state has another number of "
                "parameters (the group's size differs)"
            )
        parameters = dict(
            zip(
                chain.from_iterable(group["params"] for group in saved),
                chain.from_iterable(group["params"] for group in self.param_groups),
                strict=True,
            )
        )
        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in parameters:
                state[parameters[key]] = _cast(parameters[key], value)
            else:
                state[key] = value
        for old, new in zip(saved, self.param_groups, strict=True):
            names = {"param_names": new["param_names"]} if "param_names" in new else {}
            old.update(names, params=new["params"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if "_step_pre_hooks" not in self.__dict__:
            self._new_hook_tables()
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)

    # ---- hooks

    def register_step_pre_hook(self, hook):
        """``hook(optimizer, args, kwargs)`` before each step; may return new (args, kwargs)."""
        return HookHandle(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """``hook(optimizer, args, kwargs)`` after each step."""
        return HookHandle(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook):
        """``hook(optimizer)`` before the state is collected."""
        return HookHandle(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook):
        """``hook(optimizer, state_dict)``; may return another one."""
        return HookHandle(self._state_dict_post_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook):
        """``hook(optimizer, state_dict)`` before loading; may return another one."""
        return HookHandle(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook):
        """``hook(optimizer)`` after loading."""
        return HookHandle(self._load_state_dict_post_hooks, hook)

    def __repr__(self):
        lines = []
        for i, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {i}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return f"{type(self).__name__} (" + "\n".join(lines) + "\n)"


def _cast(parameter, value, key=None):
    """A saved value as ``parameter`` needs it: floating tensors in its dtype and device, except
    step counts.
    """
    if isinstance(value, Tensor):
        if key == "step":
            return value.clone()
        dtype = parameter.dtype if parameter.is_floating_point() else value.dtype
        return value.to(dtype=dtype, device=parameter.device, copy=True)
    if isinstance(value, dict):
        return {k: _cast(parameter, v, k) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return type(value)(_cast(parameter, v) for v in value)
    return value


def check_options(options):
    """options: what the message calls it -> value. ValueError, PyTorch's text, for a negative
    one.
    """
    for name, value in options.items():
        if not value >= 0:
            raise ValueError(f"Invalid {name}: {value}")


def check_rate(lr):
    """ValueError for a negative learning rate, or one that is a tensor of several elements."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("[Optimizer] a tensor for lr has 1 element")
    check_options({"learning rate": lr})


def check_betas(betas):
    """ValueError unless each is at least 0 and less than 1."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def check_flags(foreach, fused, differentiable=False):
    """`foreach` and `fused` choose among PyTorch's implementations; here there is one, so they are
    kept for checkpoints only.
    """
    if fused and differentiable:
        raise RuntimeError("[Optimizer] fused=True and differentiable=True exclude each other")
    if foreach and fused:
        raise RuntimeError("[Optimizer] fused=True and foreach=True exclude each other")
