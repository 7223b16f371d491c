"""Names of torch's that stand elsewhere here, or only under `rushlight run`, as libraries use them:
one program, in a process of its own."""

import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import importlib.metadata, importlib.util
    import torch
    from torch import nn
    from torch._C import _disabled_torch_function_impl
    from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
    from torch.autograd.function import FunctionCtx, InplaceFunction, once_differentiable
    from torch.autograd.graph import save_on_cpu
    from torch.functional import einsum
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
    from torch.nn.modules.loss import _Loss, _WeightedLoss
    from torch.nn.modules.utils import _ntuple, _pair
    from torch.optim.optimizer import Optimizer, _use_grad_for_differentiable
    from torch.utils import _pytree
    from torch.utils.hooks import RemovableHandle
    import torch.distributed.nn, torch.utils.dlpack, torch.utils.model_zoo

    assert importlib.metadata.version("torch") == torch.__version__
    assert importlib.util.find_spec("torch") is not None

    # classes that programs test for
    assert isinstance(nn.BatchNorm2d(2), _BatchNorm)
    assert not isinstance(nn.GroupNorm(1, 2), _BatchNorm)
    assert isinstance(nn.Conv1d(1, 1, 1), torch.nn.modules.conv._ConvNd)
    assert isinstance(nn.ConvTranspose2d(1, 1, 1), _ConvTransposeNd)
    assert issubclass(nn.CrossEntropyLoss, _WeightedLoss) and issubclass(_WeightedLoss, _Loss)
    assert torch.nn.modules.container.Sequential is nn.Sequential
    assert _pair(3) == (3, 3) and _pair([1, 2]) == (1, 2) and _ntuple(4)(1) == (1,) * 4
    handle = nn.ReLU().register_forward_hook(print)
    assert isinstance(handle, RemovableHandle)

    # types that only torch has: limits and identity, and no tensors
    assert torch.finfo(torch.float8_e4m3fn).max == 448 and torch.iinfo(torch.uint16).max == 65535
    assert torch.float8_e5m2 is torch.float8_e5m2 and repr(torch.uint32) == "torch.uint32"
    try:
        torch.zeros(2, dtype=torch.float8_e5m2)
    except TypeError:
        print("refused")

    # operators by name
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.ops.aten.mul.Tensor(x, x).equal(x * x)
    assert torch.ops.aten.slice.Tensor(x, 1, 0, 2).equal(x[:, :2])
    assert torch.ops.aten._to_copy.default(x, dtype=torch.int64).dtype is torch.int64
    assert not hasattr(torch.ops.torchvision, "nms")

    # helpers
    parts = _unflatten_dense_tensors(_flatten_dense_tensors([x, x + 1]), [x, x])
    assert parts[1].equal(x + 1) and einsum("ij->i", x).equal(x.sum(1))
    assert torch._C._nn._parse_to("cpu", torch.float64)[:2] == (torch.device("cpu"), torch.float64)
    torch.onnx.register_custom_op_symbolic("a::b", None, 11)
    torch._inductor.config.triton.cudagraphs = True
    assert torch._inductor.config.triton.cudagraphs

    from torch._higher_order_ops.associative_scan import associative_scan
    assert associative_scan(torch.add, x, 1).equal(x.cumsum(1))
    assert associative_scan(torch.add, x, 0, reverse=True)[0].equal(x.sum(0))
    assert torch.cuda._initialized is torch.cuda.is_initialized()

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            assert isinstance(ctx, FunctionCtx)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            assert not torch.is_grad_enabled()
            return 2 * ctx.saved_tensors[0] * grad

    w = torch.ones(2, requires_grad=True)
    (g,) = torch.autograd.grad((Square.apply(w) ** 2).sum(), w, create_graph=True)
    assert g.tolist() == [4.0, 4.0] and g.requires_grad
    try:
        g.sum().backward()
    except RuntimeError as error:
        assert "once_differentiable" in str(error)
        print("once")

    with save_on_cpu():
        y = (w * w).sum()
    y.backward()
    assert w.grad.tolist() == [2.0, 2.0]
    from rushlight.interop import shim
    print(sorted(shim.missing))
"""


def test_names_that_libraries_ask_for(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(PROGRAM))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", "run", str(file)],
        capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused\nonce\n['torch.ops.torchvision.nms']\n"
