"""Every operator's samples, compiled: generated kernels give eager's bits and strides."""

import pytest

import rushlight as rl
from rushlight.decomposition import decompose
from rushlight.inductor.pipeline import compile_graph

from ..graphs import OPERATORS, expected, name, same, samples, traced


@pytest.mark.parametrize("op", OPERATORS, ids=name)
def test_compiled_equals_eager(op):
    if any(rl.is_tensor(x) and x.dtype.is_complex for x in samples(op).inputs):
        pytest.skip("no code is generated for complex numbers")
    compiled = compile_graph(decompose(traced(op)), single_kernels=True)
    same(compiled(*samples(op).inputs), expected(op))
