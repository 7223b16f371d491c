"""Derivatives: against finite differences in float64 (first and second order), and against the
oracle.
"""

import numpy as np
import pytest

import rushlight as rl
from rushlight.ops.declare import none

from .materialize import (
    CASES,
    TOLERANCE,
    arguments,
    call,
    close,
    many,
    name,
    oracle_call,
    ours,
    theirs,
)

# Their statistics (mean, deviation, log-sum-exp) depend on the input; the rules know it, a free
# perturbation does not.
# The second-order test of the operators that they belong to covers them.
DEPENDENT = {
    "with_data",  # shows the numbers of another tensor than the one whose gradient it passes on
    "layer_norm_backward",
    "layer_norm_backward_weight",
    "cross_entropy_backward",
    "batch_norm_backward",
    "group_norm_backward",
    "group_norm_backward_weight",
    "flash_attention_backward",
}
STATISTICS = {
    "native_layer_norm",
    "cross_entropy_rows",
    "batch_norm_rows",
    "group_norm_rows",
    "native_group_norm",
    "flash_attention",
}
DIFFERENTIABLE = [
    c
    for c in CASES
    if c[0].name not in DEPENDENT
    and c[0].rule not in (None, none)
    and not c[0].schema.name.endswith("counter")
]


def leaves(values):
    flat = [x for v in values for x in (v if isinstance(v, list) else [v])]
    return [x for x in flat if isinstance(x, rl.Tensor) and x.dtype == rl.float64]


def weighted(op, values, seed=3):
    """A scalar: the outputs weighted with fixed random numbers, so that no gradient is hidden by
    symmetry.
    """
    outs = [o for o in many(call(op, values)) if o.dtype == rl.float64]
    if op.name in STATISTICS:
        outs = outs[:1]  # statistics carry no gradient
    total = None
    for i, o in enumerate(outs):
        w = rl.from_numpy(
            np.random.default_rng(seed + i).uniform(-1, 1, tuple(o.shape) or (1,))
        ).reshape(tuple(o.shape))
        term = (o * w).sum()
        total = term if total is None else total + term
    return total


def slopes(f, xs, direction):
    """The directional derivative of f at xs by central differences."""
    h = 1e-5
    moved = []
    for sign in (1, -1):
        for x, d in zip(xs, direction):
            x.add_(d * (sign * h))
        moved.append(f().item())
        for x, d in zip(xs, direction):
            x.sub_(d * (sign * h))
    return (moved[0] - moved[1]) / (2 * h)


def directions(xs, seed=5):
    return [
        rl.from_numpy(
            np.random.default_rng([seed, i]).uniform(-1, 1, tuple(x.shape) or (1,))
        ).reshape(tuple(x.shape))
        for i, x in enumerate(xs)
    ]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=name)
def test_first_order(case):
    op, sample = case
    values = arguments(op, sample, ours, widen=True)
    xs = leaves(values)
    if not xs or weighted(op, values) is None:
        pytest.skip("nothing floating to differentiate")
    ds = directions(xs)
    want = slopes(lambda: weighted(op, values), xs, ds)
    for x in xs:
        x.requires_grad_()
    total = weighted(op, values)
    grads = rl.autograd.grad(total, xs, allow_unused=True, retain_graph=True)
    got = sum((g * d).sum().item() for g, d in zip(grads, ds) if g is not None)
    for x, g in zip(xs, grads):
        assert g is None or (tuple(g.shape) == tuple(x.shape) and g.dtype == x.dtype)
        (alone,) = rl.autograd.grad(total, x, allow_unused=True, retain_graph=True)
        assert (alone is None) == (g is None)
        assert g is None or np.array_equal(alone.numpy(), g.numpy(), equal_nan=True)
    assert abs(got - want) < 1e-6 * max(1, abs(want)), (got, want)


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=name)
def test_second_order(case):
    op, sample = case
    if op.name in ("amax", "amin", "maximum", "minimum", "relu"):
        pytest.skip("piecewise linear")
    values = arguments(op, sample, ours, widen=True)
    xs = leaves(values)
    if not xs or weighted(op, values) is None:
        pytest.skip("nothing floating to differentiate")
    ds, es = directions(xs), directions(xs, 11)
    for x in xs:
        x.requires_grad_()

    def slope():
        grads = rl.autograd.grad(weighted(op, values), xs, create_graph=True, allow_unused=True)
        terms = [(g * d).sum() for g, d in zip(grads, ds) if g is not None]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    s = slope()
    if not s.requires_grad:
        grads = (None,)
        got = 0.0
    else:
        grads = rl.autograd.grad(s, xs, allow_unused=True)
        got = sum((g * e).sum().item() for g, e in zip(grads, es) if g is not None)
    h, moved = 1e-5, []
    for sign in (1, -1):
        with rl.no_grad():
            for x, e in zip(xs, es):
                x.add_(e * (sign * h))
        moved.append(slope().item())
        with rl.no_grad():
            for x, e in zip(xs, es):
                x.sub_(e * (sign * h))
    want = (moved[0] - moved[1]) / (2 * h)
    assert abs(got - want) < 1e-5 * max(1, abs(want)), (got, want)


@pytest.mark.oracle
@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=name)
def test_gradients_equal_the_oracle(case, oracle):
    op, sample = case
    mine, other = arguments(op, sample, ours), arguments(op, sample, theirs(oracle))
    flat = lambda values, kind: [
        x for v in values for x in (v if isinstance(v, list) else [v]) if isinstance(x, kind)
    ]
    xs = [x for x in flat(mine, rl.Tensor) if x.dtype.is_floating_point]
    ys = [y for y in flat(other, oracle.Tensor) if y.is_floating_point()]
    for x in xs + ys:
        x.requires_grad_()
    want = oracle_call(oracle, op, other)
    if op.name in ("copy", "ldexp") or want is None or not xs or not many(want)[0].requires_grad:
        pytest.skip("no differentiable ATen operator of this name")
    got, want = many(call(op, mine))[0], many(want)[0]
    g = np.random.default_rng(4).uniform(-1, 1, tuple(want.shape))
    seed = rl.from_numpy(g.reshape(g.shape or (1,))).reshape(tuple(got.shape)).to(got.dtype)
    grads = rl.autograd.grad(got, xs, seed, allow_unused=True)
    try:
        theirs_ = oracle.autograd.grad(
            want, ys, oracle.from_numpy(np.asarray(g)).to(want.dtype), allow_unused=True
        )
    except RuntimeError as error:
        if "is not implemented" not in str(error):
            raise
        pytest.skip("the oracle has no derivative")
    for x, a, b in zip(xs, grads, theirs_):
        if a is None or b is None:
            assert a is None and b is None or not np.any((b if a is None else a).detach().tolist())
            continue
        assert a.dtype.name == str(b.dtype).split(".")[1]
        coarsest = max((x.dtype.name, got.dtype.to_real().name), key=TOLERANCE.get)
        close(a.double().numpy(), b.double().numpy(), coarsest, name(case), factor=8)
