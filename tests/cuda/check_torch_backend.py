"""torch.compile(model, backend="rushlight") on a GPU, without one: torch computes on the CPU, and
what is compiled runs in the stand-in driver, on a stream that is no default one, over the very
memory of torch's tensors (the stand-in's device memory is the host's).
"""

import ctypes
import importlib.util

import stand_in

if importlib.util.find_spec("torch") is None:
    print("no torch: 0 checks passed")
    raise SystemExit

import torch
from torch_block import Block

from rushlight import _core, cuda
from rushlight.interop import torch_backend, torch_places

nn, F = torch.nn, torch.nn.functional
stand_in.install()
stand_in.install_compiler()
ctypes.c_int.in_dll(stand_in.driver, "fake_others").value = 1
STREAM = cuda.Stream()
CPU, CUDA = 1, 2  # kinds of device, in DLPack
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def on(kind, capsule):
    """The capsule, its memory said to be on another kind of device. The pointer to the memory
    stands before that."""
    at = pointer_of(capsule, b"dltensor")
    ctypes.c_int32.from_address(at + 8).value = kind
    return capsule


class Place(torch_places.Cuda):
    """The stand-in's device, whose tensors torch takes for the CPU's."""

    def __init__(self):
        self.torch, self.device = torch, torch.device("cpu")
        self.index, self.name = 0, "cuda:0"
        self.stream_of = lambda index: STREAM.cuda_stream
        self.to_dlpack = lambda x: on(CUDA, torch._C._to_dlpack(x))
        self.from_dlpack = lambda capsule: torch._C._from_dlpack(on(CPU, capsule))
        self.seen, self.held, self.waiting = [], [], []

    def memory(self, *asked):
        """Torch's memory here is malloc's, which knows no streams: held until the work is done."""
        address, owner = super().memory(*asked)
        self.held.append(owner)
        return address, owner

    def queued(self, part, given, expected, loans):
        assert all(x.device.type == "cuda" for x in given)
        try:
            results = super().queued(part, given, expected, loans)
            self.waiting.append(not STREAM.query())  # nobody has waited for what is queued there
        finally:
            STREAM.synchronize()
            self.held.clear()
        self.seen.append(loans)
        return results


PLACE = Place()
torch_backend.place_of = lambda torch, gm: PLACE


def compiled(f, **options):
    torch._dynamo.reset()
    torch_backend.REPORTS.clear()
    PLACE.seen.clear()
    PLACE.waiting.clear()
    return torch.compile(f, backend=torch_backend.rushlight, **options)


def step(model, f, *inputs):
    model.zero_grad()
    torch.manual_seed(3)
    out = f(*inputs)
    out.float().pow(2).mean().backward()
    return [out.detach(), *(p.grad.clone() for p in model.parameters())]


def agree(model, *inputs, bound=1e-5, steps=3):
    """Values, gradients and strides of a few training steps and of inference, beside eager
    mode's."""
    f = compiled(model)
    for _ in range(steps):
        for got, want in zip(step(model, f, *inputs), step(model, model, *inputs), strict=True):
            assert got.stride() == want.stride() and got.dtype == want.dtype
            assert (got - want).abs().max() <= bound * want.abs().max().clamp(min=1e-6)
    with torch.no_grad():
        torch.manual_seed(3)
        got = f(*inputs)
        torch.manual_seed(3)
        assert (got - model(*inputs)).abs().max() <= bound
    return torch_backend.REPORTS


def check_a_block_trains():
    torch.manual_seed(0)
    reports = agree(nn.Sequential(nn.Embedding(20, 16), Block()), torch.randint(0, 20, (2, 9)))
    assert {r.kind for r in reports} == {"forward", "backward", "inference"}
    assert all(r.parts == 1 and not r.left for r in reports), reports
    assert len(PLACE.waiting) == 7 and all(PLACE.waiting)


def check_results_lie_in_torchs_memory():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    f, x = compiled(model), torch.randn(16, 8)
    before = cuda.memory_allocated()
    kept = []
    for _ in range(4):
        out = f(x)
        out.sum().backward()
        kept.append(out)
    made = PLACE.seen[-1]
    assert made.places and made.learned == 1, made.__dict__
    assert all(n >= 0 for n in made.numbers)
    assert cuda.memory_allocated() == before  # not one block of ours is held by them
    assert len({k.data_ptr() for k in kept}) == len(kept)
    assert all(k.untyped_storage().resizable() for k in kept)  # torch's own, not lent by DLPack


def check_images():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)  # a bias would have no slope
    layers = conv, nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    reports = agree(model, torch.randn(4, 3, 8, 8), bound=1e-4, steps=1)
    assert sum(r.ours for r in reports) > 20, reports


def check_dropout_draws_torchs_numbers():
    torch.manual_seed(0)
    reports = agree(Block(dropout=0.3), torch.randn(2, 5, 16))
    assert all(r.parts == 1 for r in reports), reports


def check_what_is_torchs_runs_between():
    def f(x):
        return torch.special.bessel_j0(x.relu() * 2).exp().sin() + x.cumsum(0).sort(0).values

    x = torch.rand(7, 5)
    with torch.no_grad():
        g = compiled(f)
        for _ in range(3):
            assert torch.allclose(g(x), f(x), atol=1e-6)
    (report,) = torch_backend.REPORTS
    assert report.ours >= 3, report
    # What ours would only do on the host is torch's too.
    assert {"cumsum", "sort", "special_bessel_j0"} <= report.left.keys(), report
    before = _core.cuda_counts()
    with torch.no_grad():
        g(x)
    after = _core.cuda_counts()
    assert after["fallback"] == before["fallback"], (before, after)
    assert after["generated"] > before["generated"], (before, after)


def check_sizes_vary_in_one_graph():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 16), Block(), nn.Linear(16, 5))
    f = compiled(model, dynamic=True)
    for shape in ((2, 9), (3, 7), (4, 12), (2, 9)):
        ids = torch.randint(0, 20, shape)
        for got, want in zip(step(model, f, ids), step(model, model, ids), strict=True):
            assert got.stride() == want.stride() and torch.allclose(got, want, atol=1e-6)
    assert len(torch_backend.REPORTS) == 2
    assert all(loans.learned == 1 for loans in PLACE.seen)


def check_views_strides_and_empty_results():
    def f(x, y):
        z = x.t() + 1
        return z, x.view(-1), z[1:3], x.permute(1, 0).exp(), x[:0] * 2, (x * y).sum(), y.t()

    x, y = torch.randn(4, 6), torch.randn(4, 6)
    with torch.no_grad():
        g = compiled(f)
        for _ in range(3):
            for got, want in zip(g(x, y), f(x, y), strict=True):
                assert got.stride() == want.stride() and torch.allclose(got, want), (got, want)


def check_half_types():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Softmax(-1), nn.Linear(32, 4)).bfloat16()
    agree(model, torch.randn(16, 8).bfloat16(), bound=2e-2)


def traced(f, *shapes, dtype):
    """The graph of f on tensors of a GPU without data, compiled: what its report says, its code."""
    from torch._functorch.aot_autograd import aot_function
    from torch._subclasses.fake_tensor import FakeTensorMode

    found = []
    torch_backend.REPORTS.clear()
    PLACE.device = torch.device("cuda:0")

    def compiler(graph, inputs):
        torch_backend.compile_part(torch, graph, "inference")
        found.extend([*torch_backend.REPORTS, graph.code])
        raise LookupError("nothing can run it")

    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            inputs = [torch.empty(s, device="cuda:0", dtype=dtype) for s in shapes]
            aot_function(f, compiler, decompositions=torch_backend.decompositions())(*inputs)
    except LookupError:
        pass
    finally:
        PLACE.device = torch.device("cpu")
    return found


def check_dtypes_of_a_gpus_results():
    """torch keeps a norm's statistics in other dtypes there than on the CPU."""

    def norms(x, w, b):
        y = F.batch_norm(x, None, None, w, b, True)
        z = F.batch_norm(x, b, w, w, b, False)
        return F.group_norm(y, 2, w, b) * z

    for dtype in (torch.bfloat16, torch.float32):
        report, _ = traced(norms, (4, 6, 5, 5), (6,), (6,), dtype=dtype)
        assert report.parts == 1 and not report.left, (dtype, report)


def check_a_gpus_dropout_draws_by_torchs_own():
    def f(x, w):
        return F.dropout((x * 2).relu(), 0.4) * w + F.dropout(x.exp(), 0.2)

    report, code = traced(f, (4, 6), (6,), dtype=torch.bfloat16)
    assert report.parts == 1 and report.left == {"dropout_mask": 2}, report
    assert "bfloat16" in code and "device(type='cuda', index=0), 0.4)" in code, code


def check_an_index_out_of_range_is_told():
    f = compiled(lambda table, i: table[i].relu() + 1)
    table = torch.randn(3, 4)
    assert torch.equal(f(table, torch.tensor([2])), table[2:].relu() + 1)
    try:
        for _ in range(2):  # a kernel writes it down; the next call tells
            f(table, torch.tensor([7]))
    except IndexError as error:
        assert "7" in str(error), error
    else:
        raise AssertionError("no IndexError")
    assert torch.equal(f(table, torch.tensor([1])), table[1:2].relu() + 1)


def check_the_thread_is_left_as_it_was():
    f, x = compiled(lambda x: x.sin() * 2), torch.randn(5)
    f(x)
    assert cuda.current_stream() == cuda.default_stream()
    assert _core.creation_device().type == "cpu" and _core.is_grad_enabled()

    def refusing(*args, **named):
        raise RuntimeError("not today")

    kept, torch.empty_strided = torch.empty_strided, refusing  # as torch's "out of memory" would
    try:
        stand_in.raises(RuntimeError, "not today", lambda: f(x))
    finally:
        torch.empty_strided = kept
    assert cuda.current_stream() == cuda.default_stream()
    assert _core.creation_device().type == "cpu"
    assert torch.allclose(f(x), x.sin() * 2)
    stand_in.raises(RuntimeError, "without cuda_enter", lambda: _core.cuda_leave(()))


def check_torch_gives_memory_back_where_ours_runs_out():
    f, x = compiled(lambda x: (x @ x).relu() @ x), torch.randn(300, 300)
    want = f(x)
    cuda.empty_cache()
    given_back = []
    kept, torch.cuda.empty_cache = torch.cuda.empty_cache, lambda: free()

    def free():
        given_back.append(1)
        cuda.set_per_process_memory_fraction(1.0)

    try:
        cuda.set_per_process_memory_fraction(1e-9)
        assert torch.equal(f(x), want) and given_back == [1]
    finally:
        torch.cuda.empty_cache = kept
        cuda.set_per_process_memory_fraction(1.0)


def check_rounding_follows_torchs_switches():
    f, x = compiled(lambda x: x @ x), torch.randn(5, 5)
    f(x)
    seen = []
    kept, PLACE.rounding = PLACE.rounding, lambda *a: seen.append(a) or kept(*a)
    try:
        f(x)
        torch.backends.cuda.matmul.allow_tf32 = True
        f(x)
    finally:
        PLACE.rounding = kept
        torch.backends.cuda.matmul.allow_tf32 = False
    assert seen[0][0] is False and seen[-2][0] is True, seen
    assert not _core.cuda_tf32("matmul")


stand_in.main(globals())
