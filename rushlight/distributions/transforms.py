"""Transforms: invertible functions with the logarithm of the absolute value of their Jacobian.

`t(x)` transforms, `t.inv(y)` goes back, `log_abs_det_jacobian(x, y)` is summed over the dims of one
event of the transform's domain.
"""

import math

from rushlight import eager
from rushlight.distributions import constraints
from rushlight.distributions.discrete import softplus
from rushlight.distributions.distribution import broadcast_all
from rushlight.eager.inquiry import finfo


class Transform:
    """Base: a subclass gives `domain`, `codomain`, `sign` where it is monotonic, `_call`,
    `_inverse` and `log_abs_det_jacobian`. cache_size=1 keeps the last pair, so that going back is
    exact.
    """

    bijective = False

    def __init__(self, cache_size=0):
        if cache_size not in (0, 1):
            raise ValueError(f"[transforms] cache_size must be 0 or 1, got {cache_size}")
        self._cache_size = cache_size
        self._cached = None, None

    @property
    def sign(self):
        raise NotImplementedError(f"[{type(self).__name__}] sign")

    @property
    def event_dim(self):
        return max(self.domain.event_dim, self.codomain.event_dim)

    @property
    def inv(self):
        return _Inverse(self)

    def with_cache(self, cache_size=1):
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"[{type(self).__name__}] with_cache")

    def __call__(self, x):
        if self._cache_size == 0:
            return self._call(x)
        known, y = self._cached
        if x is known:
            return y
        y = self._call(x)
        self._cached = x, y
        return y

    def _inv_call(self, y):
        if self._cache_size == 0:
            return self._inverse(y)
        x, known = self._cached
        if y is known:
            return x
        x = self._inverse(y)
        self._cached = x, y
        return x

    def _call(self, x):
        raise NotImplementedError(f"[{type(self).__name__}] _call")

    def _inverse(self, y):
        raise NotImplementedError(f"[{type(self).__name__}] _inverse")

    def log_abs_det_jacobian(self, x, y):
        raise NotImplementedError(f"[{type(self).__name__}] log_abs_det_jacobian")

    def forward_shape(self, shape):
        """The shape that a tensor of this shape becomes."""
        return shape

    def inverse_shape(self, shape):
        return shape

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def __repr__(self):
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    def __init__(self, transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    domain = property(lambda self: self._inv.codomain)
    codomain = property(lambda self: self._inv.domain)
    bijective = property(lambda self: self._inv.bijective)
    sign = property(lambda self: self._inv.sign)
    inv = property(lambda self: self._inv)

    def with_cache(self, cache_size=1):
        return self._inv.with_cache(cache_size).inv

    def __call__(self, x):
        return self._inv._inv_call(x)

    def _inv_call(self, y):
        return self._inv(y)

    def log_abs_det_jacobian(self, x, y):
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape):
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._inv.forward_shape(shape)

    def __eq__(self, other):
        return isinstance(other, _Inverse) and self._inv == other._inv

    __hash__ = object.__hash__

    def __repr__(self):
        return f"{type(self).__name__}({self._inv!r})"


class _Pointwise(Transform):
    """Strictly increasing and element by element; equal to any other of its class."""

    bijective = True
    sign = +1
    domain = constraints.real
    codomain = constraints.real

    def __eq__(self, other):
        return type(self) is type(other)

    __hash__ = object.__hash__


class ExpTransform(_Pointwise):
    """y = exp(x)."""

    codomain = constraints.positive

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class SigmoidTransform(_Pointwise):
    """y = 1 / (1 + exp(-x)); kept a little away from 0 and 1."""

    codomain = constraints.unit_interval

    def _call(self, x):
        of = finfo(x.dtype)
        return x.sigmoid().clamp(min=of.tiny, max=1 - of.eps)

    def _inverse(self, y):
        of = finfo(y.dtype)
        y = y.clamp(min=of.tiny, max=1 - of.eps)
        return y.log() - eager.log1p(-y)

    def log_abs_det_jacobian(self, x, y):
        return -softplus(-x) - softplus(x)


class TanhTransform(_Pointwise):
    """y = tanh(x); going back loses what tanh rounds to 1, unless a cache keeps it."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return eager.atanh(y)

    def log_abs_det_jacobian(self, x, y):
        return 2 * (math.log(2) - x - softplus(-2 * x))


class SoftplusTransform(_Pointwise):
    """y = log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x):
        return softplus(x)

    def _inverse(self, y):
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x, y):
        return -softplus(-x)


class PowerTransform(_Pointwise):
    """y = x ** exponent, over the positive numbers."""

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self):
        return self.exponent.sign()

    def with_cache(self, cache_size=1):
        return PowerTransform(self.exponent, cache_size)

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()


class AffineTransform(Transform):
    """y = loc + scale * x; the last event_dim dims are one event."""

    bijective = True

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        space = constraints.independent(constraints.real, event_dim)
        self.domain = self.codomain = space if event_dim else constraints.real

    @property
    def event_dim(self):
        return self._event_dim

    @property
    def sign(self):
        if isinstance(self.scale, eager.Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def with_cache(self, cache_size=1):
        return AffineTransform(self.loc, self.scale, self._event_dim, cache_size)

    def __eq__(self, other):
        return isinstance(other, AffineTransform) and all(
            bool((eager.as_tensor(a) == eager.as_tensor(b)).all())
            for a, b in ((self.loc, other.loc), (self.scale, other.scale))
        )

    __hash__ = object.__hash__

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        scale = eager.as_tensor(self.scale, dtype=x.dtype, device=x.device)
        return sum_rightmost(scale.abs().log().expand(x.shape), self._event_dim)

    def forward_shape(self, shape):
        more = (getattr(v, "shape", ()) for v in (self.loc, self.scale))
        return eager.broadcast_shapes(shape, *more)

    inverse_shape = forward_shape


class ComposeTransform(Transform):
    """Transforms one after another."""

    def __init__(self, parts, cache_size=0):
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    @property
    def bijective(self):
        return all(part.bijective for part in self.parts)

    @property
    def sign(self):
        made = 1
        for part in self.parts:
            made = made * part.sign
        return made

    @property
    def domain(self):
        return self._space(self.parts[0].domain) if self.parts else constraints.real

    @property
    def codomain(self):
        return self._space(self.parts[-1].codomain) if self.parts else constraints.real

    def _space(self, space):
        more = max(part.event_dim for part in self.parts) - space.event_dim
        return constraints.independent(space, more) if more > 0 else space

    @property
    def inv(self):
        return ComposeTransform([part.inv for part in reversed(self.parts)], self._cache_size)

    def with_cache(self, cache_size=1):
        return ComposeTransform(self.parts, cache_size)

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y):
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x, y):
        made, event = 0, self.event_dim
        for i, part in enumerate(self.parts):
            after = y if i == len(self.parts) - 1 else part(x)
            made = made + sum_rightmost(part.log_abs_det_jacobian(x, after), event - part.event_dim)
            x = after
        return made if self.parts else eager.zeros_like(x)

    def forward_shape(self, shape):
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self):
        return f"ComposeTransform({self.parts!r})"


def sum_rightmost(value, dims):
    """Sums over the last `dims` dims of a tensor."""
    if dims == 0:
        return value
    return value.reshape(*value.shape[: value.dim() - dims], -1).sum(-1)


identity_transform = ComposeTransform([])
