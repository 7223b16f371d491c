"""Distribution, the base: shapes, validation, and what follows from a few methods.

`batch_shape` are independent distributions side by side, `event_shape` is one draw of one of them:
a sample has the shape `sample_shape + batch_shape + event_shape`, `log_prob` drops the event.
"""

import warnings

from rushlight import eager
from rushlight.distributions import constraints


def broadcast_all(*values):
    """Parameters, numbers or tensors, as tensors of one shape. Numbers take the dtype of the first
    tensor; without one, the default dtype. ValueError for anything else."""
    for value in values:
        if not isinstance(value, (eager.Tensor, int, float)):
            raise ValueError(
                f"[distributions] parameters must be numbers or tensors, got {type(value).__name__}"
            )
    first = next((v for v in values if isinstance(v, eager.Tensor)), None)
    if first is None:
        made = [eager.tensor(float(v)) for v in values]
    else:
        options = {"dtype": first.dtype, "device": first.device}
        made = [v if isinstance(v, eager.Tensor) else eager.tensor(v, **options) for v in values]
    return eager.broadcast_tensors(*made)


class lazy_property:
    """Computed when it is first asked for, with gradients, then kept on the object."""

    def __init__(self, wrapped):
        self.wrapped, self.__doc__ = wrapped, wrapped.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with eager.enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.wrapped.__name__] = value
        return value


class Distribution:
    """The base class. A distribution gives `arg_constraints`, `support`, and some of `sample` or
    `rsample`, `log_prob`, `mean`, `variance`, `entropy`, `cdf`, `icdf`; whatever it does not have
    raises NotImplementedError.

    validate_args: whether parameters and arguments of log_prob are checked (ValueError); the
    class's default is that of `__debug__`.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value):
        if value not in (True, False):
            raise ValueError(f"[distributions] validate_args must be a bool, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = eager.Size(batch_shape), eager.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    def _validate_parameters(self):
        for name, constraint in getattr(self, "arg_constraints", {}).items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(
                getattr(type(self), name, None), lazy_property
            ):
                continue  # what it is computed from was given, and is checked
            value = getattr(self, name)
            if not constraints.all_of(constraint.check(value)):
                raise ValueError(
                    f"[{type(self).__name__}] expected parameter {name} (shape "
                    f"{tuple(value.shape)}) to satisfy {constraint!r}, but found\n{value}"
                )

    def expand(self, batch_shape, _instance=None):
        """The distribution with its batch expanded to batch_shape; memory is shared."""
        raise NotImplementedError(f"[{type(self).__name__}] expand")

    @property
    def batch_shape(self):
        return self._batch_shape

    @property
    def event_shape(self):
        return self._event_shape

    @property
    def arg_constraints(self):
        raise NotImplementedError(f"[{type(self).__name__}] arg_constraints")

    @property
    def support(self):
        raise NotImplementedError(f"[{type(self).__name__}] support")

    @property
    def mean(self):
        raise NotImplementedError(f"[{type(self).__name__}] mean")

    @property
    def mode(self):
        raise NotImplementedError(f"[{type(self).__name__}] mode")

    @property
    def variance(self):
        raise NotImplementedError(f"[{type(self).__name__}] variance")

    @property
    def stddev(self):
        return self.variance.sqrt()

    def sample(self, sample_shape=()):
        """Draws without a gradient."""
        with eager.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """Draws through which gradients flow to the parameters."""
        raise NotImplementedError(f"[{type(self).__name__}] rsample")

    def sample_n(self, n):
        warnings.warn("sample_n(n) is deprecated; use sample((n,))", UserWarning, stacklevel=2)
        return self.sample((n,))

    def log_prob(self, value):
        """The logarithm of the density, or of the probability mass, at value."""
        raise NotImplementedError(f"[{type(self).__name__}] log_prob")

    def cdf(self, value):
        raise NotImplementedError(f"[{type(self).__name__}] cdf")

    def icdf(self, value):
        raise NotImplementedError(f"[{type(self).__name__}] icdf")

    def enumerate_support(self, expand=True):
        """Every value of a discrete distribution, along a new first dim."""
        raise NotImplementedError(f"[{type(self).__name__}] enumerate_support")

    def entropy(self):
        raise NotImplementedError(f"[{type(self).__name__}] entropy")

    def perplexity(self):
        return self.entropy().exp()

    def _extended_shape(self, sample_shape=()):
        return eager.Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value):
        """ValueError for a value that log_prob, cdf or icdf cannot take."""
        kind = f"[{type(self).__name__}] value"
        if not isinstance(value, eager.Tensor):
            raise ValueError(f"{kind} must be a Tensor, got {type(value).__name__}")
        event = len(self._event_shape)
        if tuple(value.shape[value.dim() - event :]) != tuple(self._event_shape):
            raise ValueError(
                f"{kind} of shape {tuple(value.shape)} does not end in the event shape "
                f"{tuple(self._event_shape)}"
            )
        wanted = (*self._batch_shape, *self._event_shape)
        for a, b in zip(reversed(value.shape), reversed(wanted), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"{kind} of shape {tuple(value.shape)} does not broadcast with batch and "
                    f"event {wanted}"
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(f"{type(self)} does not define support", UserWarning, stacklevel=2)
            return
        if not constraints.all_of(support.check(value)):
            raise ValueError(
                f"{kind} (shape {tuple(value.shape)}) must be within the support {support!r} of "
                f"{self!r}, but found\n{value}"
            )

    def _get_checked_instance(self, cls, _instance=None):
        """A new object without parameters, for expand; a subclass with an __init__ of its own must
        define expand."""
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"[{type(self).__name__}] a subclass with its own __init__ must define expand"
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def _expanded(self, cls, names, batch_shape, _instance=None, event=0):
        """What expand does where all it takes is to expand parameters: their last `event` dims
        stay."""
        new = self._get_checked_instance(cls, _instance)
        batch_shape = eager.Size(batch_shape)
        for name in names:
            if name in self.__dict__:
                value = self.__dict__[name]
                tail = value.shape[value.dim() - event :]
                new.__dict__[name] = value.expand((*batch_shape, *tail))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __repr__(self):
        kept = [n for n in getattr(self, "arg_constraints", {}) if n in self.__dict__]
        told = ", ".join(
            f"{n}: {v if v.numel() == 1 else v.size()}"
            for n, v in ((n, self.__dict__[n]) for n in kept)
        )
        return f"{type(self).__name__}({told})"
