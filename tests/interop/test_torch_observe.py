"""`rushlight explain --torch`: what is found of a PyTorch program, and with which line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from rushlight import report, scripts, trace  # noqa: E402
from rushlight.interop import torch_trace, torch_watch  # noqa: E402
from rushlight.observation import TorchExplanation  # noqa: E402
from rushlight.report.captures import Capture, GraphRun, Ran  # noqa: E402
from rushlight.report.costs import costs_of_tables  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of its own doings


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def observed(tmp_path):
    """Runs a text as a script, observed; gives (observed, exit code, explanation). `LINE(word)` of
    the result is the number of the line that ends in `# word`."""

    def run(text, mode=""):
        file = tmp_path / "program.py"
        file.write_text(text)
        recording, code = scripts.run_torch_script(str(file), [], mode)
        explanation = TorchExplanation(recording)
        return explanation.observed, code, explanation

    return run


def line_of(text, word):
    return next(n for n, row in enumerate(text.splitlines(), 1) if row.endswith(f"# {word}"))


def places(refused):
    return {int(r.where.partition(" in ")[0].rpartition(":")[2]) for r in refused}


def follows_the_schema(explanation):
    data = json.loads(json.dumps(explanation.to_json(), default=str))
    assert data["vendor"] == "PyTorch"
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    schema = json.loads((Path(report.__file__).parent / "schema.json").read_text())
    assert [e.message[:200] for e in validator(schema).iter_errors(data)] == []


COMPILED = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        h = self.first(x).relu()  # read
        torch._dynamo.graph_break()  # break
        return self.last(h)

net = Net()
model = torch.compile(net, backend="aot_eager")
for rows in (3, 3, 5):
    loss = model(torch.randn(rows, 4)).sum()
    loss.backward()
    if loss > 1e6:  # condition
        break
    numbers = loss.detach().numpy()  # array
"""


def test_a_break_a_recompile_and_a_hidden_read_have_the_users_line(observed):
    seen, code, explanation = observed(COMPILED)
    assert code == 0 and seen.vendor == "PyTorch" and seen.mode == "compile"
    breaks = [b for c in seen.captures for b in c.breaks]
    assert places(breaks) == {line_of(COMPILED, "break")}
    assert breaks[0].what.startswith("Call to `torch._dynamo.graph_break()`") and breaks[0].hint
    again = [r for c in seen.captures for r in c.recompiles]
    assert any(".shape[0] was 3, now 5" in r.why for r in again)
    assert all(r.where.partition(":")[0].endswith("program.py") for r in again)
    assert any(".shape[0] was 3, now 5" in c.recompiled for c in seen.captures)
    waits = {int(re.search(r":(\d+)", w["line"])[1]): w for w in seen.facts["reads"]}
    assert set(waits) == {line_of(COMPILED, "condition"), line_of(COMPILED, "array")}
    assert waits[line_of(COMPILED, "condition")]["what"] == "the truth of loss > 1e6"
    assert [w["count"] for w in waits.values()] == [3, 3]
    assert "waits" not in seen.facts  # there is no GPU to wait for
    text = str(explanation)
    assert "PyTorch's path" in text and "Where Python read numbers of tensors" in text


def test_graphs_have_their_lines_and_calls(observed):
    seen, _, explanation = observed(COMPILED)
    first = seen.captures[0]
    assert first.function == "Net.forward" and first.unit == "Net.forward [0/0]" and first.nodes
    assert first.nodes == 2  # linear and relu, not the inputs that get shorter names
    assert "with 0 calls captured" not in str(explanation)
    (name,) = first.files
    read = f"{name}:{line_of(COMPILED, 'read')}"
    captured = next(a for a in first.artifacts if a.stage == "fx_graph")
    rows = captured.text.splitlines()
    linked = [rows[n - 1] for n, chain in captured.origins.items() if chain[0] == read]
    assert any("linear" in row for row in linked) and any("relu" in row for row in linked)
    assert any(trace.short_place(at) == read for _, at in first.guards)
    labels = {g.label: g for c in seen.captures for g in c.graphs}
    assert {"forward 0/0", "backward 0/0", "forward 1/0", "backward 1/0"} <= set(labels)
    assert labels["forward 0/0"].calls == 2 and labels["backward 0/0"].calls == 2
    step = next(s for s in labels["forward 0/0"].steps if s.name == "aten::addmm")
    assert step.calls == 2 and step.ns > 0 and step.lines == [read]
    assert all(s.vendor == "PyTorch" for s in seen.stages)
    inductor = next(s for s in seen.stages if s.id == "inductor")
    assert not inductor.taken and "aot_eager" in inductor.sentence
    follows_the_schema(explanation)
    page = explanation.page()
    assert "program.py" in page and "PyTorch" in page


def test_the_program_compiles_what_it_would_unobserved(observed, tmp_path):
    """Whatever watches is not seen by Dynamo: the graphs and breaks are the same, also in what
    torch left to eager mode and where a break's rest reads a value."""
    counters = torch._dynamo.utils.counters
    text = """
import torch
def inner(x):
    return x.cpu().tolist()
def f(x, n):
    y = x.sin() * n.cpu()
    z = y.numpy() + 1
    return torch.from_numpy(z).cos(), inner(y)
g = torch.compile(f, backend="aot_eager")
for k in (3, 4):
    g(torch.ones(k), torch.tensor(2))
torch._dynamo.reset()
g(torch.ones(2), torch.tensor(2))
@torch.compile(backend="aot_eager")
def skipped(x):
    for _ in range(2):
        with open(__file__):  # broken inside a block: the frame is left to eager mode
            torch._dynamo.graph_break()
            print(inner(x))
skipped(torch.ones(2))
"""
    file = tmp_path / "plain.py"
    file.write_text(text)
    told = []
    for run in (lambda: scripts.execute(str(file), []), lambda: observed(text)[1]):
        torch._dynamo.reset()
        counters.clear()
        assert run() == 0
        breaks = [n for name, n in sorted(counters["graph_break"].items())]
        told.append((dict(counters["stats"]), dict(counters["frames"]), breaks))
    assert told[0] == told[1]


EAGER = """
import torch
x = torch.randn(6, 4)
w = torch.randn(4, 3, requires_grad=True)
y = (x @ w).relu()  # product
kept = y[y > 0.5]  # mask
y.sum().backward()
print(y[0])  # print
optimizer = torch.optim.Adam([w])
optimizer.step()
torch.ones(3) @ torch.ones(4)  # wrong
"""


def test_an_eager_program_that_raises(observed, capsys):
    seen, code, explanation = observed(EAGER)
    follows_the_schema(explanation)
    assert code == 1 and seen.error.startswith("RuntimeError") and seen.mode == "eager"
    told = capsys.readouterr().err
    assert "program.py" in told and "torch_watch" not in told
    names = {row.operator for row in seen.operators}
    assert {"aten::matmul", "aten::mm", "aten::relu", "MmBackward0"} <= names and "" not in names
    assert not any("PythonDispatchMode" in name or "rushlight" in name for name in names)
    matmul = next(node for node in seen.tree if node.operator == "aten::matmul")
    assert "aten::mm" in {node.operator for node in matmul.children}
    lines = {int(re.search(r":(\d+)", row.where)[1]): row for row in seen.lines}
    assert "aten::relu" in lines[line_of(EAGER, "product")].operators
    reads = {int(re.search(r":(\d+)", w["line"])[1]) for w in seen.facts["reads"]}
    assert reads == {line_of(EAGER, "mask"), line_of(EAGER, "print")}  # not the step count of Adam
    assert seen.way_down is None and not seen.captures
    assert "aten::mm" in {row.key for row in seen.kernels}
    assert {s.id for s in seen.stages if s.taken} >= {"aten", "aten_cpu", "cpu"}


def test_everything_is_as_before_afterwards(observed):
    before = {name: getattr(torch.Tensor, name) for name in torch_watch.METHODS}
    compile = torch.compile
    observed("import torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n1 / 0")
    assert {name: getattr(torch.Tensor, name) for name in before} == before
    assert "numpy" not in torch.Tensor.__dict__ and torch.compile is compile
    assert torch._dynamo.reset.__module__ == "torch._dynamo"
    with torch.profiler.profile() as profiler:
        torch.ones(2) + 1
    assert any(e.name == "aten::add" for e in profiler.events())
    assert not any("Dispatch" in e.name for e in profiler.events())


def test_a_program_that_profiles_itself_gets_the_profiler(observed):
    seen, code, _ = observed("""
import torch
torch.ones(2) + 1
with torch.profiler.profile() as p:
    torch.ones(2) * 2
assert any(e.name == "aten::mul" for e in p.events())
""")
    assert code == 0
    assert {row.operator for row in seen.operators} >= {"aten::add"}
    assert any("profiler itself" in sentence for sentence in seen.facts["not_observed"])


def test_mode_eager_compiles_nothing(observed):
    seen, code, _ = observed(COMPILED, "eager")
    assert code == 0 and seen.mode == "eager" and not seen.captures


def test_reads_inside_a_graph(observed):
    text = """
import torch
torch._dynamo.config.capture_scalar_outputs = True
def f(x):
    return x + x.sum().item()  # inside
try:
    torch.compile(f, backend="aot_eager")(torch.ones(3))
finally:
    torch._dynamo.config.capture_scalar_outputs = False
"""
    seen, code, _ = observed(text)
    (wait,) = seen.facts["reads"]
    assert wait["line"].endswith(f":{line_of(text, 'inside')}") and "inside" in wait["what"]


def test_wrong_options_and_no_torch(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("import torch\n")
    start = [sys.executable, "-m", "rushlight", "explain", "--torch"]
    done = subprocess.run([*start, "--all", str(file)], capture_output=True, text=True)
    assert done.returncode == 2 and "--all" in done.stderr
    code = (
        "import importlib.util as u, sys; plain = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'torch' else plain(n, *a)\n"
        "from rushlight.cli import main\n"
        f"sys.exit(main(['explain', '--torch', {str(file)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "torch is not installed here" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "why, said, at",
    [
        ("tensor 'x' size mismatch at index 0. expected 3, actual 4",
         "tensor 'x' size mismatch at index 0. expected 3, actual 4", ""),
        ("k == 1     # y = x * k  # mp/te/p.py:3 in scale\nUser stack trace:\n  File ...",
         "k == 1 does not hold any more", "mp/te/p.py:3"),
        ("___check_type_id(k, 1), type=<class 'int'>  # y = k  # p.py:3 in f (HINT: type int)",
         "___check_type_id(k, 1), type=<class 'int'> does not hold any more (type int)", "p.py:3"),
    ],
)  # fmt: skip
def test_messages_of_failed_guards(why, said, at):
    assert torch_trace.guard_failure(why) == (said, at)


@pytest.mark.parametrize(
    "why, said",
    [
        ("tensor 'x' size mismatch at index 1. expected 3, actual 4", "x.shape[1] was 3, now 4"),
        ("tensor 'a.b' rank mismatch. expected 2, actual 3", "a.b.dim() was 2, now 3"),
        ("tensor 'x' dtype mismatch. expected Float, actual Double",
         "x.dtype was Float, now Double"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=1 (read at m.py:3)",
         "tensor 'x' requires_grad mismatch. expected requires_grad=1 (read at m.py:3)"),
        ("tensor 'x' stride mismatch at index 0. expected 8, actual 1 (read at m.py:3)",
         "x.stride()[0] was 8, now 1 (read at m.py:3)"),
        ("k == 1 does not hold any more", "k == 1 does not hold any more"),
    ],
)  # fmt: skip
def test_what_differs_of_a_tensor_is_said_as_of_ours(why, said):
    assert torch_trace.changed(why) == said


def test_a_routine_of_two_graphs_is_one_row():
    def graph(label):
        steps = [Ran("aten::mm", False, [], [], [], [f"m.py:{len(label)}"], calls=2, ns=5),
                 Ran("cpp_fused_add_0", True, [], [], [], ["m.py:9"], calls=1, ns=3)]  # fmt: skip
        return GraphRun(label, label, steps=steps)

    capture = Capture("f [0/0]", "f", [], graphs=[graph("a"), graph("bb")])
    rows = costs_of_tables([capture], [], {})
    assert [(r.name, r.calls, r.ns, len(r.parts)) for r in rows] == [
        ("aten::mm", 4, 10, 2), ("cpp_fused_add_0", 1, 3, 1), ("cpp_fused_add_0", 1, 3, 1)
    ]  # fmt: skip
    assert rows[0].lines == ["m.py:1", "m.py:2"]


@pytest.mark.slow
def test_inductor_shows_its_code(observed):
    text = """
import torch
def f(x):
    y = torch.sin(x) * 2  # loops
    return (y @ y.T).relu()
g = torch.compile(f)
for _ in range(2):
    g(torch.randn(8, 8))
"""
    # A graph that torch's cache holds has the lines of the file that it was first compiled from.
    with torch._inductor.config.patch(force_disable_caches=True):
        seen, code, _ = observed(text)
    assert code == 0
    (graph,) = [g for c in seen.captures for g in c.graphs]
    languages = {(a.stage, a.language) for a in graph.artifacts}
    assert {("cpp_openmp", "cpp"), ("wrapper", "python"), ("pass", "graph")} <= languages
    assert graph.calls == 2
    made = [s for s in graph.steps if s.generated]
    line = f"{next(iter(seen.captures[0].files))}:{line_of(text, 'loops')}"
    assert any(line in s.lines and "aten::sin" in s.operators for s in made)
    mm = next(s for s in graph.steps if not s.generated)
    assert mm.calls == 2 and mm.ns > 0
    stages = {s.id: s for s in seen.stages}
    assert stages["inductor"].taken and stages["cpp_openmp"].taken


@pytest.mark.slow
def test_a_stage_that_rushlight_did_is_rushlights(observed):
    seen, code, _ = observed("""
import torch
from rushlight.interop.torch_backend import rushlight
f = torch.compile(lambda x: x.sin() * 2 + 1, backend=rushlight)
f(torch.ones(8))
""")
    assert code == 0 and seen.vendor == "PyTorch"
    vendors = {s.id: s.vendor for s in seen.stages}
    assert vendors["inductor"] == vendors["cpp_openmp"] == "Rushlight"
    assert {vendors[id] for id in ("python_code", "dynamo", "fx_graph", "cpu")} == {"PyTorch"}
    inductor = next(s for s in seen.stages if s.id == "inductor")
    assert inductor.taken and "3 nodes became its operators" in inductor.sentence
