"""From a constraint to a transform that makes unconstrained numbers fit it: `biject_to` gives one
to one, `transform_to` any; `register` adds constraints of a program's own. NotImplementedError for
one without a transform.
"""

from rushlight.distributions import constraints
from rushlight.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    identity_transform,
)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """A table of functions from a constraint to its transform, by the constraint's class."""

    def __init__(self):
        self._registry = {}

    def register(self, constraint, factory=None):
        """Sets `factory(constraint)` for a class of constraints, or for the class of one; usable
        as a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(f"[constraint_registry] expected a constraint, got {constraint!r}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint):
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(
                f"[constraint_registry] {type(constraint).__name__} has no transform"
            )
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _both(*examples):
    def add(factory):
        for example in examples:
            biject_to.register(example, factory)
            transform_to.register(example, factory)
        return factory

    return add


@_both(constraints.real)
def _real(constraint):
    return identity_transform


@_both(constraints.positive, constraints.nonnegative)
def _above(constraint):
    bound = constraint.lower_bound
    if isinstance(bound, (int, float)) and bound == 0:
        return ExpTransform()
    return ComposeTransform([ExpTransform(), AffineTransform(bound, 1)])


@_both(constraints.less_than(0.0))
def _below(constraint):
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


@_both(constraints.unit_interval, constraints.half_open_interval(0.0, 1.0))
def _between(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if all(isinstance(x, (int, float)) for x in (low, high)) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])
