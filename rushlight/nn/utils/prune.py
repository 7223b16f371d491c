"""Pruning: parameters as a tensor that is trained times a mask of zeros and ones.

A pruned parameter `weight` of a module becomes a parameter `weight_orig`, a buffer `weight_mask`
and an attribute `weight`, their product, made anew before each forward. `remove` makes the product
the parameter.
"""

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable

from rushlight import eager


class BasePruningMethod(ABC):
    """A way of choosing what is zeroed: `compute_mask(t, default_mask)` says what stays."""

    _tensor_name: str
    PRUNING_TYPE = "unstructured"

    def __call__(self, module, inputs):
        """The hook before forward: the product as the attribute."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """The mask, of t's shape, that is laid over default_mask."""

    def apply_mask(self, module):
        """The parameter times its mask."""
        if self._tensor_name is None:
            raise AssertionError(f"[prune] {module} is not pruned")
        mask = getattr(module, self._tensor_name + "_mask")
        orig = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=orig.dtype) * orig

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Prune module's parameter `name`; what is pruned already is pruned further."""
        old = next((m for m in hooks_of(module).values() if m._tensor_name == name), None)
        if old is not None:
            key = next(k for k, m in hooks_of(module).items() if m is old)
            del module._forward_pre_hooks[key]
        method = cls(*args, **kwargs)
        if old is not None:
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
        method._tensor_name = name
        orig = getattr(module, name)
        if importance_scores is not None:
            if importance_scores.shape != orig.shape:
                raise ValueError(
                    f"[prune] importance_scores have another shape than {name} of {module}"
                )
        else:
            importance_scores = orig
        first = old is None
        if first:
            module.register_parameter(name + "_orig", orig)
            del module._parameters[name]
            default = eager.ones_like(orig)
        else:
            default = getattr(module, name + "_mask").detach().clone()
        try:
            mask = method.compute_mask(importance_scores.detach(), default_mask=default)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:  # as it was
                parameter = module._parameters.pop(name + "_orig")
                module._buffers.pop(name + "_mask", None)
                module.__dict__.pop(name, None)
                module.register_parameter(name, parameter)
            raise
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """t with what this method chooses zeroed; the module is not asked."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise ValueError("[prune] importance_scores have another shape than the tensor")
        default = eager.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module):
        """The product becomes the parameter; parameter and mask of before go."""
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"[prune] {module} is not pruned: there is nothing to remove")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        orig = module._parameters.pop(name + "_orig")
        orig.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, orig)


class PruningContainer(BasePruningMethod):
    """Several methods for one parameter, the masks of all multiplied."""

    def __init__(self, *args):
        self._pruning_methods = ()
        first = args[0] if len(args) == 1 else None
        if isinstance(first, BasePruningMethod):
            self._tensor_name = first._tensor_name
            self.add_pruning_method(first)
        else:
            methods = first if isinstance(first, Iterable) else args
            self._tensor_name = next(iter(methods))._tensor_name
            for method in methods:
                self.add_pruning_method(method)

    def add_pruning_method(self, method):
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        name = getattr(method, "_tensor_name", self._tensor_name)
        if method is not None and self._tensor_name != name:
            raise ValueError(
                f"[prune] {self} prunes '{self._tensor_name}'; a method for '{name}' does not "
                "belong to it"
            )
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, index):
        return self._pruning_methods[index]

    def compute_mask(self, t, default_mask):
        """The newest method's choice among what the others left."""
        method = self._pruning_methods[-1]
        kept = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            places = kept == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.dim()
            others = tuple(d for d in range(t.dim()) if d != dim)
            alive = kept.sum(others) != 0 if others else kept != 0
            shape = [-1 if d == dim else 1 for d in range(t.dim())]
            places = alive.view(shape).expand(t.shape)
            rows = alive.nonzero().flatten()
            mask = kept.clone()
            part = method.compute_mask(t.index_select(dim, rows), kept.index_select(dim, rows))
            mask.index_copy_(dim, rows, part.to(mask.dtype))
            return mask
        elif method.PRUNING_TYPE == "global":
            places = eager.ones_like(t, dtype=eager.bool)  # type: ignore[attr-defined]
        else:
            raise ValueError(f"[prune] no PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = kept.clone()
        if method.PRUNING_TYPE == "global":
            return method.compute_mask(t, kept)
        mask[places] = method.compute_mask(t[places], kept[places]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Nothing is zeroed: parameter and mask are there."""

    def compute_mask(self, t, default_mask):
        return default_mask

    @classmethod
    def apply(cls, module, name):
        return super().apply(module, name)


def check_amount(amount):
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"[prune] amount is an int or a float, got {amount!r}")
    whole = isinstance(amount, numbers.Integral)
    if amount < 0 or not whole and amount > 1.0:
        raise ValueError(
            f"[prune] amount={amount} is neither a share in [0, 1] nor a number of elements"
        )


def count_of(amount, size):
    """How many of `size`: a number of them, or a share."""
    if isinstance(amount, numbers.Integral):
        if amount > size:
            raise ValueError(
                f"[prune] {amount} elements are to be pruned, there are {size}"
            )
        return int(amount)
    return round(amount * size)


class RandomUnstructured(BasePruningMethod):
    """`amount` (a number or a share) of the elements, by chance."""

    def __init__(self, amount):
        check_amount(amount)
        self.amount = amount

    def compute_mask(self, t, default_mask):
        n = count_of(self.amount, t.nelement())
        mask = default_mask.clone()
        if n:
            chosen = eager.rand_like(t).view(-1).topk(n).indices
            mask.view(-1)[chosen] = 0
        return mask

    @classmethod
    def apply(cls, module, name, amount):
        return super().apply(module, name, amount=amount)


class L1Unstructured(BasePruningMethod):
    """`amount` of the elements, the smallest by magnitude."""

    def __init__(self, amount):
        check_amount(amount)
        self.amount = amount

    def compute_mask(self, t, default_mask):
        n = count_of(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=eager.contiguous_format)  # type: ignore[attr-defined]
        if n:
            chosen = t.abs().reshape(-1).topk(n, largest=False).indices
            mask.view(-1)[chosen] = 0
        return mask

    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class Structured(BasePruningMethod):
    """Whole slices along `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim=-1):
        check_amount(amount)
        self.amount, self.dim = amount, dim

    def sizes(self, t):
        """A number a slice; the smallest go."""
        raise NotImplementedError

    def compute_mask(self, t, default_mask):
        if t.dim() <= 1:
            raise ValueError(
                "[prune] whole slices can be pruned of 2 dims and more, got shape "
                f"{tuple(t.shape)}, {t.dim()} dims"
            )
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"[prune] dim {self.dim} is out of range for shape {tuple(t.shape)}")
        dim, size = self.dim % t.dim(), t.shape[self.dim]
        n = count_of(self.amount, size)
        if not n:
            return default_mask
        mask = eager.zeros_like(t)
        kept = self.sizes(t).topk(size - n, largest=True).indices
        mask.index_fill_(dim, kept, 1)
        return mask * default_mask.to(mask.dtype)


class RandomStructured(Structured):
    """`amount` of the slices along `dim`, by chance."""

    def sizes(self, t):
        return eager.rand(t.shape[self.dim], device=t.device)

    @classmethod
    def apply(cls, module, name, amount, dim=-1):
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(Structured):
    """`amount` of the slices along `dim`, those of the smallest n-norm."""

    def __init__(self, amount, n, dim=-1):
        super().__init__(amount, dim)
        self.n = n

    def sizes(self, t):
        others = tuple(d for d in range(t.dim()) if d != self.dim % t.dim())
        return t.norm(p=self.n, dim=others)

    @classmethod
    def apply(cls, module, name, amount, n, dim, importance_scores=None):
        return super(Structured, cls).apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """What a given mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"[prune] the mask has shape {self.mask.shape}, the one before "
                f"{default_mask.shape}: they have to be equal"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module, name, mask):
        return super().apply(module, name, mask=mask)


def identity(module, name):
    """Parameter and mask of ones, nothing zeroed."""
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    """Zero `amount` elements (a number, or a share) by chance."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    """Zero the `amount` elements of the smallest magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    """Zero `amount` slices along `dim` by chance."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    """Zero the `amount` slices along `dim` of the smallest n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    """Zero what the mask says."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """One choice over the elements of several parameters [(module, name), ...]."""
    if not isinstance(parameters, Iterable):
        raise TypeError("[global_unstructured] parameters is not iterable")
    parameters = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("[global_unstructured] importance_scores is a dict")
    flat = lambda values: eager.cat([v.detach().reshape(-1) for v in values])
    all_scores = flat(scores.get((m, n), getattr(m, n)) for m, n in parameters)
    masks = flat(
        getattr(m, n + "_mask", eager.ones_like(getattr(m, n))) for m, n in parameters
    )
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"[global_unstructured] prunes single elements; {pruning_method} is of type "
            f"{method.PRUNING_TYPE}"
        )
    container = PruningContainer.__new__(PruningContainer)
    container._pruning_methods, container._tensor_name = (method,), "temp"
    mask = container.compute_mask(all_scores, masks)
    begin = 0
    for module, name in parameters:
        x = getattr(module, name)
        custom_from_mask(module, name, mask[begin : begin + x.numel()].view_as(x))
        begin += x.numel()


def hooks_of(module):
    return {
        k: m for k, m in module._forward_pre_hooks.items() if isinstance(m, BasePruningMethod)
    }


def remove(module, name):
    """The pruned values become the parameter for good."""
    for key, method in hooks_of(module).items():
        if method._tensor_name == name:
            method.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(
        f"[prune] '{name}' of {module} is not pruned: there is nothing to remove"
    )


def is_pruned(module):
    """Whether some parameter of it or of a module in it is pruned."""
    return any(hooks_of(m) for m in module.modules())
