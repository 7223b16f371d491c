"""Every operator's samples in eager mode: against the oracle, against its own layout rule, in place
and with out=.
"""

import numpy as np
import pytest

import rushlight as rl
from rushlight.ops.values import Fake

from .materialize import (
    CASES,
    arguments,
    array,
    call,
    close,
    layout,
    many,
    name,
    numpy,
    oracle_call,
    ours,
    theirs,
)

NOT_THERE = {
    "cross_entropy_rows",
    "cross_entropy_backward",
    "pick",
}  # ours alone: checked through what is built of them


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=name)
def test_equals_the_oracle(case, oracle):
    op, sample = case
    want = oracle_call(oracle, op, arguments(op, sample, theirs(oracle)))
    if want is None:
        pytest.skip("no ATen operator of this name")
    got = call(op, arguments(op, sample, ours))
    if op.name == "native_layer_norm":
        got, want = got[:1], want[:1]  # statistics of half inputs stay in float32 here
    for x, y in zip(many(got), many(want)):
        assert x.dtype.name == str(y.dtype).split(".")[1]
        assert tuple(x.shape) == tuple(y.shape)
        if x.numel():
            mine = [s for s, n in zip(x.stride(), x.shape) if n != 1]
            assert mine == [s for s, n in zip(y.stride(), y.shape) if n != 1], "strides"
        close(
            numpy(x),
            y.double().numpy() if y.is_floating_point() else y.numpy(),
            x.dtype.name,
            name(case),
            factor=4,
        )


@pytest.mark.parametrize("case", CASES, ids=name)
def test_layout_rule_tells_what_eager_makes(case):
    op, sample = case
    got = many(call(op, arguments(op, sample, ours)))
    fakes = many(op(*arguments(op, sample, lambda x, seed: Fake(layout(ours(x, seed))))))
    for x, fake in zip(got, fakes):
        assert tuple(fake.shape) == tuple(x.shape) and fake.dtype == x.dtype.name
        if x.numel():
            mine = [s for s, n in zip(x.stride(), x.shape) if n != 1]
            assert mine == [s for s, n in zip(fake.layout.strides, fake.shape) if n != 1]


POINTWISE = [c for c in CASES if c[0].kind == "scalar" and c[0].tensor_slots]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_out_is_the_same_values_in_the_given_memory(case):
    op, sample = case
    if op.kind in ("view",) or op.view or op.name in ("t", "narrow", "flatten", "alias"):
        pytest.skip("a view takes no out=")
    expected = many(call(op, arguments(op, sample, ours)))
    given = tuple(rl.full(tuple(x.shape), 1, dtype=x.dtype) for x in expected)
    got = many(call(op, arguments(op, sample, ours), out=given if len(given) > 1 else given[0]))
    for x, y, z in zip(got, expected, given):
        assert x.data_ptr() == z.data_ptr()
        assert np.array_equal(numpy(z), numpy(y), equal_nan=True)


@pytest.mark.parametrize("case", POINTWISE, ids=name)
def test_in_place_is_the_same_values(case):
    op, sample = case
    values = arguments(op, sample, ours)
    if not isinstance(values[0], rl.Tensor):
        pytest.skip("the first operand is a number")
    if op.outputs > 1:
        pytest.skip("an operator of several outputs has no in-place twin")
    expected = call(op, values)
    inplace = op.native.make_inplace()
    args = [v for v, p in zip(values, op.parameters) if not p.keyword_only]
    kwargs = {
        p.name: getattr(rl, v) if isinstance(v, str) and p.kind.startswith("dtype") else v
        for v, p in zip(values, op.parameters)
        if p.keyword_only
    }
    fits = tuple(expected.shape) == tuple(values[0].shape)
    castable = {"bool": 0}.get(
        expected.dtype.name, 2 if expected.dtype.is_floating_point else 1
    ) <= {"bool": 0}.get(values[0].dtype.name, 2 if values[0].dtype.is_floating_point else 1)
    if not (fits and castable):
        with pytest.raises(RuntimeError):
            inplace(*args, **kwargs)
        return
    address, version = values[0].data_ptr(), values[0]._version
    got = inplace(*args, **kwargs)
    assert got is values[0] and got.data_ptr() == address and got._version == version + 1
    assert np.array_equal(numpy(got), numpy(expected.to(got.dtype)), equal_nan=True)


def test_every_operator_with_a_kernel_has_samples():
    from rushlight.ops import TABLE

    # Packed weights are bytes that only the library reads (tests/runtime/test_packing.py).
    without = ("element", "positions", "steps", "pack_weight", "pack_convolution")
    lacking = [
        o.name for o in TABLE.values() if not o.samples and not o.source and o.name not in without
    ]
    assert not lacking


def test_sample_arrays_are_what_they_say():
    from rushlight.ops.samples import t

    assert array(t(4, 3, order=(1, 0)), 0).strides == (4, 16)
    assert array(t(5, step=2), 0).strides == (8,)
