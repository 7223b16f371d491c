"""Attention of half types on a GPU: which calls are one kernel, what that is told of its operands,
forward and backward, eager and compiled. The kernel is a function of Python here, which no thread
may run while another one holds the interpreter and waits for it.
"""
# settings: RUSHLIGHT_CUDA_LAUNCH_THREAD=0

import ctypes

import numpy as np
import stand_in

import rushlight as rl
from rushlight.loops import triton_attention as attention
from rushlight.nn.functional import scaled_dot_product_attention
from rushlight.ops import TABLE, flash
from rushlight.runtime.cuda import kernels

asked, held = [], []
KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p
)


def kernel(key):
    """What a record of this key runs: the operator spelled out, on numpy's copies."""
    shape = attention.shape_of(key)
    inputs, outputs = attention.operands(shape)

    def run(p, n, s):
        arrays = []
        for b, (name, dims) in enumerate((*inputs, *outputs)):
            sizes, strides = list(n[8 * b : 8 * b + 4]), list(n[8 * b + 4 : 8 * b + 8])
            dtype = np.float32 if name == "lse" else np.float16
            size = np.dtype(dtype).itemsize
            count = 1 + sum((m - 1) * step for m, step in zip(sizes, strides))
            raw = (ctypes.c_char * (count * size)).from_address(p[b])
            flat = np.frombuffer(raw, dtype)
            whole = np.lib.stride_tricks.as_strided(flat, sizes, [step * size for step in strides])
            arrays.append(whole.reshape(sizes) if len(dims) == 4 else whole[0])
        scale = ctypes.cast(s, ctypes.POINTER(ctypes.c_float))[0]
        given = [rl.from_numpy(x.copy()) for x in arrays[: len(inputs)]]
        bias = [None] if shape.mode != "bias" else []
        at = 4 if shape.name == attention.BACKWARD else 3
        given = [*given[:at], *(bias or [given[at]]), *given[at + (not bias) :]]
        definition = flash.spelled if shape.name == attention.FORWARD else flash.spelled_backward
        native = TABLE[definition.__name__.replace("spelled", "flash_attention")].native
        for into, value in zip(
            arrays[len(inputs) :], native(*given, shape.mode == "causal", scale)
        ):
            into[...] = value.numpy()
        return 0

    held.append(KERNEL(run))
    return ctypes.cast(held[-1], ctypes.c_void_p).value, len(inputs), len(outputs)


def build(key, capability):
    if attention.shape_of(key) is None:
        return stand_in.record(key)
    asked.append(key)
    address, inputs, outputs = kernel(key)
    buffers = inputs + outputs
    params = (
        [f"p{b}" for b in range(buffers)] + [f"n{i}:i64" for i in range(8 * buffers)] + ["s0:f32"]
    )
    launch = {"cubin": 0, "entry": key, "warps": 4, "shared": 0, "params": params, "grid": ["1"]}
    record = {"key": key, "outer": 8, "inner": 0, "inputs": inputs, "outputs": outputs,
              "numbers": 1,
              "variants": [{"launches": [launch]}]}  # fmt: skip
    return record, [f"RLFAKE cpu {address} {buffers} {8 * buffers} 1 0".encode() + b"\0"]


stand_in.install()
kernels.set_builder(build)


def heads(*shape, gap=0):
    b, h, s, d = shape
    return rl.randn(b, s, h, d + gap).half()[..., :d].transpose(1, 2)


def compare(call, operands, bound=4e-3):
    """A call here and in float32 on the CPU, with gradients."""
    found = []
    for place in (lambda x: x.float(), lambda x: x.cuda()):
        own = [place(x).detach().requires_grad_() for x in operands]
        out = call(*own)
        weight = place(rl.arange(out.numel()).remainder(7).sub(3).half().view(out.shape))
        found.append((out, *rl.autograd.grad((out * weight).sum(), own)))
    for want, got in zip(*found):
        assert got.dtype is rl.float16 and got.shape == want.shape and got.is_cuda
        off = (got.detach().float().cpu() - want.detach()).abs().max().item()
        assert off <= bound * want.detach().abs().max().item(), off
    return found[1]


def check_what_is_one_kernel():
    rl.manual_seed(0)
    q, k, v = heads(2, 4, 6, 8), heads(2, 2, 5, 8), heads(2, 2, 5, 8)
    for operands, options, mode in (
        ((q, heads(2, 4, 5, 8), heads(2, 4, 5, 8)), {}, ".16"),
        ((q, k, v), {"enable_gqa": True}, ".16"),
        ((q, k, v), {"enable_gqa": True, "is_causal": True, "scale": 0.7}, ".16.causal"),
        ((heads(2, 3, 4, 20, gap=4), heads(2, 3, 7, 20), heads(2, 3, 7, 40)), {}, ".32x64"),
        ((q[0], q[0], q[0]), {}, ".16"),
        ((q[0, 0], q[0, 0], q[0, 0]), {"is_causal": True}, ".16.causal"),
    ):
        asked.clear()
        kernels.forget()
        compare(lambda *x, o=options: scaled_dot_product_attention(*x, **o), operands)
        assert asked == [f"flash_attention{b}.float16{mode}" for b in ("", "_backward")], asked


def check_masks():
    q, k, v = heads(2, 3, 6, 8), heads(2, 3, 5, 8), heads(2, 3, 5, 8)
    for mask in (
        rl.randn(6, 5).half(), rl.randn(2, 1, 6, 5).half(), rl.randn(5).half(),
    ):  # fmt: skip
        compare(lambda *x: scaled_dot_product_attention(*x), (q, k, v, mask), 8e-3)
    mask = rl.rand(6, 5) > 0.4
    mask[2] = False  # sees nothing
    place = lambda x: mask.cuda() if x.is_cuda else mask
    out, *_ = compare(lambda *x: scaled_dot_product_attention(*x, place(x[0])), (q, k, v))
    assert not out[:, :, 2].any()


def check_the_output_lies_as_the_queries():
    q = heads(2, 3, 6, 8).cuda()
    out = scaled_dot_product_attention(q, q, q)
    assert out.transpose(1, 2).is_contiguous()
    q = q.contiguous()
    assert scaled_dot_product_attention(q, q, q).is_contiguous()


def check_what_stays_a_composition():
    asked.clear()
    kernels.forget()
    x = rl.randn(2, 3, 6, 8)
    for q, options in (
        (x, {}), (x.half(), {"scale": -1.0}), (x.half(), {"dropout_p": 0.5}),
        (rl.randn(1, 1, 2, 300).half(), {}), (rl.randn(1, 2, 3, 4, 8).half(), {}),
    ):  # fmt: skip
        q = q.cuda()
        assert scaled_dot_product_attention(q, q, q, **options).shape == q.shape
    assert not asked
    q = x.half().cuda()
    stand_in.raises(RuntimeError, "should not be set", lambda: scaled_dot_product_attention(
        q, q, q, rl.ones(6, 6, dtype=rl.bool).cuda(), is_causal=True))  # fmt: skip
    stand_in.raises(RuntimeError, "", lambda: scaled_dot_product_attention(q, q, q[..., :4, :]))


def check_second_derivatives():
    x = heads(1, 2, 4, 8)
    found = []
    for place in (lambda x: x.float(), lambda x: x.cuda()):
        q = place(x).detach().requires_grad_()
        out = scaled_dot_product_attention(q, q, q, is_causal=True)
        (first,) = rl.autograd.grad(out.float().square().sum(), q, create_graph=True)
        found.append(rl.autograd.grad(first.float().square().sum(), q)[0].float().cpu())
    off = (found[0] - found[1]).abs().max().item()
    assert off <= 2e-2 * found[0].abs().max().item(), off


def check_compiled():
    """The operator is kept whole, forward and backward."""
    asked.clear()
    kernels.forget()
    q = heads(2, 3, 6, 8)
    attend = lambda q, k, v: scaled_dot_product_attention(q * 2, k, v + 1, is_causal=True).sin()
    compare(rl.compile(attend), (q, q + 1, q - 1), 8e-3)
    assert len(asked) == 2, asked


if __name__ == "__main__":
    stand_in.main(globals())
