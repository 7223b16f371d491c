"""Matrix products by the stand-in of cuBLASLt and convolutions by that of cuDNN: every way that
operands lie, biases, TF32, and what the libraries do not take.
"""

import ctypes
import os

import stand_in

import rushlight as rl
from rushlight import _core as core
from rushlight import cuda
from rushlight.nn import functional as F
from rushlight.runtime.cuda import libraries

stand_in.install()
blas = ctypes.CDLL(os.environ["RUSHLIGHT_CUBLASLT"])
dnn = ctypes.CDLL(os.environ["RUSHLIGHT_CUDNN"])


class Seen:
    """A variable of a stand-in; what the launch thread has still in hand is made first."""

    def __init__(self, library, kind, name):
        self.place = kind.in_dll(library, name)

    @property
    def value(self):
        core.cuda_launch_thread()
        return self.place.value


products = Seen(blas, ctypes.c_long, "fake_products")
convolutions = Seen(dnn, ctypes.c_long, "fake_convolutions")
compute = Seen(blas, ctypes.c_int, "fake_last_compute")
epilogue = Seen(blas, ctypes.c_int, "fake_last_epilogue")
math = Seen(dnn, ctypes.c_int, "fake_last_math")


def close(a, b, tolerance=1e-5):
    a, b = a.detach().cpu().double(), b.detach().double()
    assert a.shape == b.shape
    worst = (a - b).abs().max().item() if a.numel() else 0.0
    assert worst <= tolerance * (1 + b.abs().max().item() if b.numel() else 1), worst


def check_products_of_every_layout():
    rl.manual_seed(0)
    for dtype, tolerance in (
        (rl.float32, 1e-5),
        (rl.float64, 1e-12),
        (rl.bfloat16, 2e-2),
        (rl.float16, 2e-3),
    ):
        x, y = rl.randn(5, 7).to(dtype), rl.randn(7, 4).to(dtype)
        ways = [
            (x, y), (x.t().contiguous().t(), y), (x, y.t().contiguous().t()),
            (x.t().contiguous().t(), y.t().contiguous().t()), (x[:, ::2], y[::2]), (x[:1], y),
            (x, y[:, :1]),
            (x[1:, 2:6], y[2:6, 1:]), (rl.randn(5, 14).to(dtype)[:, ::2], y),
        ]  # fmt: skip
        for a, b in ways:
            before = products.value
            place = lambda v: rl.empty_strided(
                v.shape, v.stride(), dtype=dtype, device="cuda"
            ).copy_(v)
            out = place(a) @ place(b)
            assert products.value == before + 1 and out.dtype is dtype and out.is_contiguous()
            close(out, a.double() @ b.double(), tolerance)


def check_products_of_odd_sizes():
    """Half types: through copies with room behind their dims, operands, bias and result."""
    rl.manual_seed(0)
    core.cuda_pad_products(1)
    for dtype, tolerance in ((rl.bfloat16, 2e-2), (rl.float16, 2e-3)):
        x, w, bias = (rl.randn(*n).to(dtype) for n in ((21, 13), (19, 13), (19,)))
        wide, batch = rl.randn(21, 19).to(dtype), rl.randn(3, 5, 7).to(dtype)
        nan = rl.full((40, 40), float("nan"), dtype=dtype)
        for call in (
            lambda x, w, b, e, v: x @ w.t(), lambda x, w, b, e, v: F.linear(x, w, b),
            lambda x, w, b, e, v: (x @ w.t()) @ w, lambda x, w, b, e, v: (x @ w.t()).t() @ x,
            lambda x, w, b, e, v: rl.addmm(b, x, w.t(), beta=0.5),
            lambda x, w, b, e, v: rl.addmm(e, x, w.t(), beta=0.5, alpha=2.0),
            lambda x, w, b, e, v: v @ v.mT, lambda x, w, b, e, v: x[:16, :8] @ w.t()[:8],
        ):  # fmt: skip
            for _ in range(4):  # freed memory is taken again: what lies behind the dims is anything
                nan.cuda()
            out = call(*(v.cuda() for v in (x, w, bias, wide, batch)))
            assert out.is_contiguous()
            close(out, call(*(v.double() for v in (x, w, bias, wide, batch))), tolerance)
    core.cuda_pad_products(0)


def check_batches():
    x, y = rl.randn(3, 5, 7), rl.randn(3, 7, 4)
    for a, b in (
        (x, y),
        (x.transpose(1, 2).contiguous().transpose(1, 2), y),
        (x[:1].expand(3, 5, 7), y),
        (x, y[0]),
    ):
        before = products.value
        close(a.cuda() @ b.cuda(), a @ b)
        assert products.value == before + 1
    close(rl.bmm(x.cuda(), y.cuda()), rl.bmm(x, y))
    close(x.cuda() @ rl.ones(7, device="cuda"), x @ rl.ones(7))
    close(rl.zeros(0, 7, device="cuda") @ y[0].cuda(), rl.zeros(0, 4))
    close(rl.zeros(5, 0, device="cuda") @ rl.zeros(0, 4, device="cuda"), rl.zeros(5, 4))
    stand_in.raises(RuntimeError, "mat", lambda: x.cuda() @ x.cuda())


def check_biases():
    x, w, b = rl.randn(6, 8), rl.randn(5, 8), rl.randn(5)
    gpu = [v.cuda() for v in (x, w, b)]
    close(F.linear(*gpu), F.linear(x, w, b))
    assert epilogue.value == 4, "the bias is added by the product's epilogue"
    close(F.linear(gpu[0], gpu[1]), F.linear(x, w))
    assert epilogue.value == 1
    whole, column = rl.randn(6, 5), rl.randn(6, 1)
    for bias in (whole, column, b, rl.randn(5, 6).t(), rl.tensor(2.0)):
        for alpha, beta in ((1, 1), (0.5, 2), (2, 0)):
            out = rl.addmm(bias.cuda(), gpu[0], gpu[1].t(), alpha=alpha, beta=beta)
            close(out, rl.addmm(bias, x, w.t(), alpha=alpha, beta=beta))


def check_products_write_where_they_are_told():
    x, y = rl.randn(4, 6), rl.randn(6, 3)
    out = rl.zeros(4, 3, device="cuda")
    before = products.value
    rl.mm(x.cuda(), y.cuda(), out=out)
    assert products.value == before + 1
    close(out, x @ y)
    wide = rl.zeros(4, 8, device="cuda")
    rl.mm(x.cuda(), y.cuda(), out=wide[:, 2:5])
    close(wide[:, 2:5], x @ y)
    assert wide[:, 5:].abs().sum().item() == 0
    total = rl.ones(4, 3, device="cuda")
    total.addmm_(x.cuda(), y.cuda(), beta=2)
    close(total, 2 + x @ y)


def check_gradients_of_a_linear_layer():
    ours, theirs = rl.nn.Linear(8, 5), rl.nn.Linear(8, 5)
    theirs.load_state_dict(ours.state_dict())
    theirs.cuda()
    x = rl.randn(3, 8)
    ours(x).pow(2).sum().backward()
    theirs(x.cuda()).pow(2).sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert q.is_cuda and q.grad.is_cuda
        close(q.grad, p.grad)


def check_tf32_by_pytorch_s_switches():
    x = rl.randn(4, 4).cuda()
    x @ x
    assert compute.value == 68
    rl.backends.cuda.matmul.allow_tf32 = True
    x @ x
    assert compute.value == 77
    rl.backends.cuda.matmul.allow_tf32 = False
    x @ x
    assert compute.value == 68
    rl.set_float32_matmul_precision("high")
    x @ x
    assert compute.value == 77
    rl.set_float32_matmul_precision("highest")
    (x.double() @ x.double()).sum()
    assert compute.value == 70


def check_integers_are_multiplied_on_the_host():
    x = rl.arange(6).reshape(2, 3)
    before = cuda.counts()["fallback"]
    assert (x.cuda() @ x.t().cuda()).tolist() == (x @ x.t()).tolist()
    assert cuda.counts()["fallback"] == before + 1


def check_convolutions():
    rl.manual_seed(0)
    cases = [
        ((2, 3, 9, 8), (4, 3, 3, 3), dict(padding=1)),
        ((2, 4, 9, 8), (6, 2, 3, 2), dict(stride=2, padding=(1, 0), dilation=(1, 2), groups=2)),
        ((2, 4, 11), (6, 4, 3), dict(padding=1)),
        ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), dict(padding=(0, 1, 1))),
        ((2, 4, 6, 6), (4, 1, 3, 3), dict(groups=4)),
    ]
    for shape, kernel, options in cases:
        for inside in (False, True):
            x, w, b = rl.randn(*shape), rl.randn(*kernel), rl.randn(kernel[0])
            if inside and len(shape) != 4:
                continue
            if inside:
                x = x.to(memory_format=rl.channels_last)
            run = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(shape)]
            ours = [v.clone().requires_grad_() for v in (x, w, b)]
            theirs = [v.cuda().requires_grad_() for v in (x, w, b)]
            before = convolutions.value
            want, got = run(*ours, **options), run(*theirs, **options)
            assert convolutions.value == before + 1, (shape, options)
            close(got, want)
            assert got.stride() == want.stride()
            want.pow(2).sum().backward()
            got.pow(2).sum().backward()
            assert convolutions.value >= before + 2
            for p, q in zip(ours, theirs):
                close(q.grad, p.grad, 1e-4)


def check_transposed_convolutions():
    x, w, b = rl.randn(2, 3, 4, 5), rl.randn(3, 4, 3, 2), rl.randn(4)
    before = convolutions.value
    got = F.conv_transpose2d(x.cuda(), w.cuda(), b.cuda(), stride=(2, 1), padding=1)
    assert convolutions.value == before + 1
    close(got, F.conv_transpose2d(x, w, b, stride=(2, 1), padding=1))


def check_what_cudnn_does_not_take_runs_on_the_host():
    x, w = rl.randn(1, 2, 6, 6), rl.randn(3, 2, 2, 2)
    before, fallbacks = convolutions.value, cuda.counts()["fallback"]
    close(
        F.conv2d(x.cuda(), w.cuda(), padding="same"), F.conv2d(x, w, padding="same")
    )  # one more at the end
    half = F.conv2d(x.cuda().half(), w.cuda().half())  # the stand-in has float32 only
    close(half, F.conv2d(x, w), 1e-2)
    assert convolutions.value == before and cuda.counts()["fallback"] >= fallbacks + 1


def check_convolutions_by_tf32():
    x, w = rl.randn(1, 2, 6, 6).cuda(), rl.randn(3, 2, 2, 2).cuda()
    F.conv2d(x, w)
    assert math.value == 0
    rl.backends.cudnn.allow_tf32 = False
    F.conv2d(x, w)
    assert math.value == 3
    rl.backends.cudnn.allow_tf32 = True


def check_nothing_is_missing():
    assert libraries.missing("cublaslt") == libraries.missing("cudnn") == ""
    assert rl.backends.cudnn.is_available()


stand_in.main(globals())
