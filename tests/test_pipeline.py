"""The pipeline as one function: compiled results and gradients are eager's."""

import numpy as np

import rushlight as rl
from rushlight.nn import functional as F
from rushlight.pipeline import compile_function, compile_training


def block(x, bias, weight, shift):
    return rl.gelu(F.layer_norm(x + bias, (24,), weight, shift))


def examples():
    rl.manual_seed(0)
    return rl.randn(6, 24), rl.randn(24), rl.randn(24), rl.randn(24)


def test_a_function_becomes_one_kernel_with_eager_results():
    inputs = examples()
    compiled = compile_function(block, *inputs)
    assert len(compiled.kernels) == 1
    assert np.array_equal(compiled(*inputs).numpy(), block(*inputs).numpy())


def test_training_gives_eager_gradients():
    inputs = examples()
    forward, backward = compile_training(block, *inputs)
    out, *saved = forward(*inputs)
    grads = backward(*saved, rl.ones_like(out))
    leaves = [x.clone().requires_grad_() for x in inputs]
    block(*leaves).sum().backward()
    for got, leaf in zip(grads, leaves):
        assert np.allclose(got.numpy(), leaf.grad.numpy(), rtol=1e-6, atol=1e-6)
