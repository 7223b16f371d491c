"""Every operator's samples on the stand-in: the same numbers, strides and gradients as on the CPU,
bit by bit, since the same kernels run.
"""

# settings: RUSHLIGHT_CUBLASLT=/nowhere RUSHLIGHT_CUDNN=/nowhere

import sys
from pathlib import Path

import numpy as np
import stand_in

import rushlight as rl
from rushlight import _core, cuda, trace
from rushlight.eager.composed import FORMS

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.ops import materialize as m  # noqa: E402

stand_in.install()
UNDEFINED = ("empty", "empty_like", "new_empty")


def put(v):
    """On the GPU, lying as it does on the CPU."""
    if isinstance(v, rl.Tensor):
        return rl.empty_strided(tuple(v.shape), v.stride(), dtype=v.dtype, device="cuda").copy_(v)
    return type(v)(map(put, v)) if isinstance(v, (list, tuple)) else v


def tensors(values):
    nested = (v if isinstance(v, (list, tuple)) else (v,) for v in values)
    return [x for v in nested for x in v if isinstance(x, rl.Tensor)]


def called(op, values):
    rl.manual_seed(1)
    return m.many(m.call(op, values))


def strides(x):
    return [s for s, n in zip(x.stride(), x.shape) if n != 1] if x.numel() else []


def same(got, want, moved, loose=False):
    if not isinstance(want, rl.Tensor):
        assert got == want
        return
    assert got.is_cuda or not moved
    assert got.dtype is want.dtype and got.shape == want.shape and strides(got) == strides(want)
    a, b = m.numpy(got.detach().cpu()), m.numpy(want.detach())
    if loose and want.dtype.is_floating_point:  # added up in another order
        bound = m.TOLERANCE[want.dtype.name]
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound)
    else:
        np.testing.assert_array_equal(a, b)


def gradients(op, values):
    """The operands' gradients, or None where the CPU has none."""
    fresh = lambda v: v.detach().clone().requires_grad_()
    own = [
        fresh(v) if isinstance(v, rl.Tensor) and v.dtype.is_floating_point else v for v in values
    ]
    outs = [o for o in tensors(called(op, own)) if o.requires_grad]
    if not outs:
        return None
    sum(o.float().sum() * (i + 1) for i, o in enumerate(outs)).backward()
    return [v.grad for v in own if isinstance(v, rl.Tensor)]


def compare(op, sample):
    values = m.arguments(op, sample, m.ours)
    try:
        want = called(op, values)
    except NotImplementedError:
        return
    there = [put(v) for v in values]
    for a, b in zip(called(op, there), want):
        if op.name not in UNDEFINED:
            same(a, b, bool(tensors(values)), op.name in FORMS or "pool" in op.name)
    if op.rule is None:
        return
    try:
        want = gradients(op, values)
    except (RuntimeError, NotImplementedError):
        return
    for a, b in zip(gradients(op, there) or (), want or ()):
        assert (a is None) == (b is None)
        if b is not None:
            same(a, b, True, True)


def check_every_operator():
    failed = {}
    for op, sample in m.CASES:
        try:
            compare(op, sample)
        except Exception as error:
            failed[m.name((op, sample))] = f"{type(error).__name__}: {str(error)[:200]}"
    assert not failed, "\n".join(f"{k}: {v}" for k, v in failed.items())
    counts = cuda.counts()
    assert counts["generated"] > 10 * counts["fallback"]


def check_what_runs_on_the_host_is_recorded():
    _core.plan_clear()  # reasons are recorded where plans are made
    with trace.collect() as seen:
        x = rl.randn(3, 4, device="cuda")
        x.sort(dim=0)
        x @ x.t()
    told = [str(record) for record in seen if "eager.host_fallback" in str(record)]
    assert any("sort" in t for t in told) and any("cuBLASLt" in t for t in told), told


stand_in.main(globals())
