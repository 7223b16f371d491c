"""`import torch` that means Rushlight, for a whole program: each in a process of its own."""

import json
import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import torch, torch.nn as nn, torch.nn.functional as F
    import torch.backends.cudnn as cudnn
    import torch.distributed as dist
    from torch import Tensor, optim
    from torch.nn.modules.module import Module
    from torch.nn.utils import clip_grad_norm_
    from torch.optim.lr_scheduler import StepLR
    from torch.utils.data import DataLoader, TensorDataset

    cudnn.benchmark = True
    assert not dist.is_available() and torch.version.hip is None
    assert torch.__version__.startswith("2.")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.fc(x))

    torch.manual_seed(0)
    net = Net()
    optimizer = optim.Adam(net.parameters())
    scheduler = StepLR(optimizer, 1)
    compiled = torch.compile(net)
    data = TensorDataset(torch.randn(8, 3), torch.randn(8, 2))
    for x, y in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        loss = F.mse_loss(compiled(x), y)
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    scheduler.step()
    assert isinstance(net, Module)
    import rushlight
    assert torch is rushlight and nn is rushlight.nn
    torch.save(net.state_dict(), "net.pt")
    net.load_state_dict(torch.load("net.pt", weights_only=True))
    print("trained", sorted(net.state_dict()))
"""


def run(tmp_path, text, *words):
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, "-m", "rushlight", "run", *words, str(file)],
        capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300,
    )  # fmt: skip


def alone(file):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, str(file)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_a_program_for_torch_runs(tmp_path):
    done = run(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained ['fc.bias', 'fc.weight']\n" and done.stderr == ""


def test_a_missing_name_says_what_is_near_and_is_reported(tmp_path):
    text = """
        import torch
        assert not hasattr(torch, "reluu")
        torch.softmaxx
    """
    report = tmp_path / "missing.json"
    done = run(tmp_path, text, "--report", str(report))
    assert done.returncode == 1
    said = "AttributeError: torch.softmaxx is not in Rushlight; near it: torch.softmax"
    assert said in done.stderr
    assert "2 names are not in Rushlight" in done.stderr
    data = json.loads(report.read_text())
    assert data["exit"] == 1 and [m["name"] for m in data["missing"]] == [
        "torch.reluu", "torch.softmaxx"]  # fmt: skip
    assert "torch.relu" in data["missing"][0]["near"]
    assert data["missing"][1]["where"].endswith("program.py:4 in <module>")


def test_a_missing_module_is_no_module_of_that_name(tmp_path):
    text = """
        try:
            import torch.utils.bottleneck
        except ModuleNotFoundError as error:
            print(error.name, "|", error)
        from torch import nothing_of_the_kind
    """
    done = run(tmp_path, text)
    assert done.returncode == 1
    assert done.stdout.startswith("torch.utils.bottleneck | torch.utils.bottleneck is not in")
    assert "ImportError" in done.stderr and "nothing_of_the_kind" in done.stderr


def test_it_leaves_no_trace(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "import rushlight, rushlight.nn, sys, types\n"
        "from rushlight.interop import shim\n"
        "before = {k: v for k, v in vars(rushlight).items()}\n"
        "spec, version = rushlight.nn.__spec__, rushlight.__version__\n"
        "shim.install()\n"
        "import torch.nn.functional, torch.distributed, torch.backends.cuda\n"
        "shim.uninstall()\n"
        "assert not [n for n in sys.modules if n.split('.')[0] == 'torch']\n"
        "assert type(rushlight) is types.ModuleType and rushlight.__version__ == version\n"
        "assert rushlight.nn.__spec__ is spec and 'distributed' not in vars(rushlight)\n"
        "try:\n    import torch\n    assert torch is not rushlight\n"
        "except ModuleNotFoundError:\n    pass\n"
    )
    done = alone(file)
    assert done.returncode == 0, done.stderr


def test_torch_that_is_loaded_stays(tmp_path):
    text = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
    text += "from rushlight.interop import shim; shim.install()\n"
    file = tmp_path / "program.py"
    file.write_text(text)
    done = alone(file)
    assert "RuntimeError: [run] torch is loaded already" in done.stderr


MODULES = """
    import torch, torch.nn as nn
    import torch._dynamo, torch._dynamo.config
    import torch.cpu, torch.jit, torch.mps, torch.types, torch.xpu
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributions.categorical import Categorical
    from torch.distributions.kl import kl_divergence
    from torch.distributions.utils import broadcast_all
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.nn.parallel.data_parallel import DataParallel
    from torch.utils._pytree import tree_map
    from torch.utils.tensorboard import SummaryWriter

    assert DataParallel is nn.DataParallel and torch.jit.script(tree_map) is tree_map
    assert not torch.xpu.is_available() and torch.cpu.is_available() and mp.cpu_count() > 0
    assert not hasattr(torch.cpu, "manual_seed") and not hasattr(torch.mps, "manual_seed_all")
    import rushlight
    flags, config = rushlight.config.flags, torch._dynamo.config
    with rushlight.trace.collect() as records:
        config.suppress_errors = True
        config.verbose = False
        with config.patch(cache_size_limit=3, optimize_ddp=False):
            assert config.cache_size_limit == flags.recompile_limit == 3
        assert config.cache_size_limit == config.recompile_limit == 8 and config.optimize_ddp
    why = [r.facts["reason"] for r in records]
    assert {r.id for r in why} == {"interop.setting"} and len(why) == 2, why
    flags.recompile_limit = 5
    assert config.recompile_limit == 5
    assert (torch.version.cuda is not None) == torch.cuda.is_available()
    for wrong, kind in (
        (lambda: setattr(torch._dynamo.config, "supress_errors", True), AttributeError),
        (lambda: init_process_group("gloo"), RuntimeError),
        (lambda: dist.get_rank(), ValueError),
        (lambda: DDP(nn.Linear(1, 1)), ValueError),
    ):
        try:
            wrong()
        except kind:
            continue
        raise SystemExit(f"no {kind}")
    print("all there")
"""


def test_modules_without_a_room_answer_for_one_process(tmp_path):
    done = run(tmp_path, MODULES)
    assert (done.returncode, done.stdout, done.stderr) == (0, "all there\n", "")


def test_words_after_the_script_are_the_scripts(tmp_path):
    text = "import sys; print(sys.argv[1:])"
    file = tmp_path / "program.py"
    file.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    given = ["--device", "cpu", "--all", "-o", "x", "-h", "--rows", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", "run", str(file), *given],
        capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip
    assert done.stdout == f"{given}\n", done.stderr


CHILDREN = """
    import multiprocessing, sys

    import torch

    def there(n):
        import torch
        return torch.__version__, float(torch.ones(n).sum())

    if __name__ == "__main__":
        for how in ("spawn", "forkserver"):
            with multiprocessing.get_context(how).Pool(1) as pool:
                assert pool.map(there, [3]) == [(torch.__version__, 3.0)], how
        print("same in children")
"""


def test_processes_that_are_spawned_import_the_same(tmp_path):
    done = run(tmp_path, CHILDREN)
    assert done.stdout == "same in children\n", done.stderr


def test_a_report_is_there_however_the_program_ends(tmp_path):
    text = """
        import importlib.util, os, torch
        assert importlib.util.find_spec("torch.nothing_here") is None
        assert importlib.util.find_spec("torch.nn") is not None
        os._exit(5)
    """
    report = tmp_path / "missing.json"
    assert run(tmp_path, text, "--report", str(report)).returncode == 5
    data = json.loads(report.read_text())
    assert data["exit"] is None and data["missing"][0]["name"] == "torch.nothing_here"
    done = run(tmp_path, text, "--report", str(tmp_path / "no" / "folder.json"))
    assert done.returncode == 2 and "report cannot be written" in done.stderr


def test_a_module_by_its_name(tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("import torch\nY = torch.ones(3).sum().item()\n")
    main = "import sys\nfrom .part import Y\nprint(Y, __name__, __package__, sys.argv[1:])\n"
    (package / "__main__.py").write_text(main)
    done = run(tmp_path, "", "-m", "pkg", "-x", "--report", "r.json")
    words = str(["-x", str(tmp_path / "program.py")])
    assert done.stdout == f"3.0 __main__ pkg {words}\n", done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["script"] == "pkg"
    done = run(tmp_path, "", "-m", "no_such_package")
    assert done.returncode == 1 and "no_such_package" in done.stderr
    assert "scripts.py" not in done.stderr and "runpy" not in done.stderr
