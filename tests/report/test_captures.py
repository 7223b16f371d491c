"""A compiled program's records -> captures, graphs, steps, and the path of torch.compile."""

import json
import time

import pytest

import rushlight as rl
from rushlight import reasons
from rushlight.report import path, terminal
from rushlight.report.captures import distinct_breaks
from rushlight.report.costs import costs, costs_of_tables
from rushlight.report.origins import variables
from rushlight.report.records import read_calls
from rushlight.report.table import KernelRow
from rushlight.report.words import ns


class Model(rl.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = rl.nn.Linear(8, 16)
        self.norm = rl.nn.LayerNorm(16)

    def forward(self, x):
        h = self.first(x)
        h = rl.nn.functional.gelu(h) * 2 + 1
        return self.norm(h).softmax(-1)


LINE = Model.forward.__code__.co_firstlineno


@pytest.fixture(scope="module")
def seen():
    model = Model()
    compiled = rl.compile(model)

    def broken(x):
        y = rl.relu(x) * 2
        print(end="")
        return (y + 1).sum()

    def program():
        for rows in (4, 4, 6):
            compiled(rl.randn(rows, 8)).sum().backward()
        return rl.compile(broken)(rl.randn(3, 4))

    rl.reset() if hasattr(rl, "reset") else None
    return rl.explain(program)().observed


def capture_of(seen, name):
    return [c for c in seen.captures if c.function.endswith(name)]


def test_the_path_of_a_compiled_run_has_its_stages_and_steps(seen):
    assert seen.mode == "compile" and seen.status == path.load().status("compile", "cpu")
    on_path = [s for s in seen.stages if s.on_path]
    assert [s.id for s in on_path] == [s.id for s in path.load().select("compile", "cpu")[0]]
    assert all(s.taken for s in on_path) and len(on_path) == 8
    assert sum(s.taken for s in seen.steps if s.on_path) == 8
    for s in seen.stages:
        assert s.taken or s.reason in reasons.IDS


def test_the_run_is_split_into_parts_that_add_up(seen):
    """Backward graphs are inside compiled graphs; what neither a graph nor a compiler nor an
    operator took is Python's."""
    python = next(s for s in seen.stages if s.id == "cpython")
    graphs = [g for c in seen.captures for g in c.graphs]
    assert any(g.calls for g in graphs if g.name.endswith("_backward"))
    inside = sum(g.ns for g in graphs)
    assert f"{ns(inside)} inside {sum(g.calls for g in graphs)} calls" in python.sentence
    built = sum(c.capture_ms + sum(c.stage_ms.values()) for c in seen.captures) * 1e6
    alone = seen.operator_ns
    assert abs(seen.wall_ns - inside - built - alone - python.ns) < 1e4
    assert "in capturing and compiling" in python.sentence


def test_the_other_selections_say_what_ran_there(seen):
    by = {(s.mode, s.device): s for s in seen.selections}
    assert len(by) == 4 and by["eager", "cpu"].taken and not by["compile", "gpu"].taken
    aten = next(s for s in by["eager", "cpu"].stages if s.id == "aten")
    assert aten.taken and aten.count >= 4  # randn and the sum's gradient, outside all graphs


def test_each_graph_has_its_steps_with_lines_calls_and_times(seen):
    first, again = capture_of(seen, "Model.forward")
    forward = next(g for g in first.graphs if g.name.endswith("_forward"))
    assert forward.calls == 2 and forward.ns >= forward.inside_ns > 0
    assert all(step.calls == 2 and step.ns > 0 for step in forward.steps)
    (fused,) = [s for s in forward.steps if s.generated]
    assert fused.operators[:2] == ["gelu", "mul"]
    assert {f"test_captures.py:{LINE + n}" for n in (2, 3)} <= set(fused.lines)
    assert fused.name in forward.symbols
    assert any(g.name.endswith("_backward") and g.calls == 2 for g in first.graphs)
    stages = {a.stage for a in (*first.artifacts, *forward.artifacts)}
    assert {"dynamo", "fx_graph", "guards", "aot_autograd", "decomposition", "loop_ir",
            "cpp_openmp", "wrapper", "memory_plan"} <= stages  # fmt: skip
    (changed,) = again.recompiles
    assert changed.id == "capture.guard_failed" and changed.why == "x.shape[0] was 4, now 6"


def test_every_node_reaches_a_step_and_every_step_a_line(seen):
    for capture in seen.captures:
        for graph in capture.graphs:
            made = {name for step in graph.steps for name in step.makes}
            last = [a for a in graph.artifacts if a.stage == "decomposition"][-1]
            views = ("transpose", "view", "expand", "unsqueeze", "permute")
            for names in last.makes.values():
                assert set(names) & made or names[0].startswith(views), (graph.label, names)
            assert all(step.lines for step in graph.steps), graph.label


def test_breaks_tell_what_why_and_where(seen):
    (told,) = [b for c in capture_of(seen, "broken") for b in c.breaks]
    assert "print" in told.what and told.hint and "test_captures.py" in told.where


def test_functions_count_calls_and_misses(seen):
    row = next(r for r in seen.functions if r.function == "Model.forward")
    assert (row.calls, row.misses) == (3, 2) and row.hit_ns > row.hit_graph_ns > 0


def test_terminal_and_json_hold_it(seen):
    text = terminal.to_text(lambda: terminal.report(seen))
    for words in ("Compiled functions", "Graph breaks", "Recompiles", "generated", "8 stages, 8"):
        assert words in text
    data = json.loads(json.dumps(seen.to_json()))
    assert data["captures"][0]["graphs"][0]["steps"][0]["lines"]


def test_each_kernel_and_routine_has_one_row_and_all_of_them_add_up(seen):
    """Calls that made their plan are apart; both sums are what the stages of both modes say."""
    generated = [row for row in seen.costs if row.how == "generated"]
    rest = [row for row in seen.costs if row.how != "generated"]
    assert generated and len({row.name for row in rest}) == len(rest)
    eager = [*seen.kernels, *seen.libraries]
    spent = sum(row.ns + row.first_ns for row in seen.costs)
    modes = {s.mode: {x.id: x for x in s.stages} for s in seen.selections if s.device == "cpu"}
    assert spent == modes["eager"]["cpu"].ns + modes["compile"]["cpu"].ns
    assert sum(r.calls + r.first_calls for r in seen.costs) == (
        sum(row.calls for row in eager) + modes["compile"]["cpu"].count
    )
    randn = next(row for row in seen.costs if row.name.startswith("normal."))
    (mine,) = [row for row in eager if row.key == randn.name]
    assert (randn.calls, randn.ns) == (mine.warm_calls, mine.warm_ns)
    assert randn.first_calls == mine.calls - mine.warm_calls > 0
    assert all(part.lines and part.steps for row in generated for part in row.parts)
    order = [(row.ns, row.first_ns) for row in seen.costs]
    assert order == sorted(order, reverse=True)


def test_steps_that_share_a_kernel_have_their_own_calls():
    def layers(x, a, b):
        for w in (a, b):
            x = rl.tanh(x @ w) * 2
        return x

    square = rl.randn(8, 8)
    seen = rl.explain(rl.compile(layers))(square, rl.randn(8, 8), rl.randn(8, 8)).observed
    steps = [s for c in seen.captures for g in c.graphs for s in g.steps if s.generated]
    assert len(steps) == 2 and [s.calls for s in steps] == [1, 1]
    (row,) = [r for r in seen.costs if r.how == "generated"]
    assert row.calls == 2 and row.parts[0].steps == [1, 3]


def test_pieces_places_and_reads_are_named_as_the_user_wrote_them():
    def inner(h):
        print(end="")
        return h * 2

    def program(x):
        h = inner(x + 1)
        if h.sum() > 0:
            h = h - 1
        return h

    compiled = rl.compile(program)
    rl.dynamo.reset()

    def calls():
        for rows in (3, 3, 4):
            compiled(rl.ones(rows))

    seen = rl.explain(calls)().observed
    first = program.__code__.co_firstlineno
    name = program.__qualname__
    condition, inside = f"test_captures.py:{first + 2}", f"test_captures.py:{first - 3}"
    names = {row.function for row in seen.functions}
    assert {name, f"{name}, after the break at line {first + 2}"} <= names
    told = next(s for s in seen.stages if s.id == "dynamo").sentence
    assert "the graph broke at 2 places" in told
    places = {b.where for c in seen.captures for b in c.breaks}
    assert {p.partition(" ")[0].rpartition("/")[2] for p in places} >= {condition, inside}
    (read,) = seen.facts["reads"]
    assert (read["what"], read["count"]) == ("bool(tensor)", 3)
    assert read["line"].endswith(condition) or condition in read["line"]


def test_an_exception_is_told_once_flags_by_their_values_and_views_of_results_are_not_eager():
    class Net(rl.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.other = rl.nn.Linear(4, 6), rl.nn.Linear(5, 1)

        def forward(self, x, late):
            h = rl.relu(self.first(x))
            if late:
                h = self.other(h)
            return h.unsqueeze(0)

    plain = Net()
    net = rl.compile(plain)
    rl.dynamo.reset()
    first = Net.forward.__code__.co_firstlineno

    def lines(seen):
        return {row.where.partition(" ")[0].rpartition(":")[2] for row in seen.lines}

    def both():  # the view is called by the user, too
        return net(rl.ones(2, 4), False), plain(rl.ones(2, 4), False)

    assert str(first + 4) in lines(rl.explain(both)().observed)
    rl.dynamo.reset()

    def calls():
        print(f"{net(rl.ones(2, 4), False).sum():.2f}")
        with pytest.raises(RuntimeError):
            net(rl.ones(2, 4), True)

    seen = rl.explain(calls)().observed
    (capture,) = [c for c in seen.captures if c.recompiles]
    assert capture.recompiled == "late was False, now True"
    (told, _), *others = distinct_breaks(seen.captures)
    assert f"test_captures.py:{first + 3} " in told.where and not others
    assert "disable" not in told.hint
    (read,) = seen.facts["reads"]
    assert read["what"] == "f-string or format(tensor)"
    x = rl.ones(3)
    masked = rl.explain(lambda: x[x > 0])().observed.facts["reads"]
    assert [row["what"] for row in masked] == ["tensor[mask]"]
    eager = lines(seen)
    assert str(first + 4) not in eager and str(calls.__code__.co_firstlineno + 1) in eager


def test_what_the_compiler_calls_while_it_compiles_is_no_call_of_the_users():
    def heads(x, w):
        q, k = (x @ w).chunk(2, -1)
        q, k = (t.view(4, 6, 2, 4).transpose(1, 2) for t in (q, k))
        return rl.nn.functional.scaled_dot_product_attention(q, k, k).transpose(1, 2).reshape(24, 8)

    rl.dynamo.reset()
    x, w = rl.randn(4, 6, 8), rl.randn(8, 16).requires_grad_()
    compiled = rl.compile(heads)
    seen = rl.explain(lambda: compiled(x, w).sum())().observed
    first = heads.__code__.co_firstlineno
    inside = {f"test_captures.py:{first + n}" for n in range(1, 4)}
    assert any(inside & set(s.lines) for c in seen.captures for g in c.graphs for s in g.steps)
    called = {row.where.partition(" in ")[0].rpartition("/")[2]: row for row in seen.lines}
    assert not inside & called.keys()
    assert called[f"test_captures.py:{first + 8}"].operators == ["sum"]


def test_lines_of_inlined_functions_and_those_that_ran_a_backward_graph_are_told():
    def split(t):
        rows, _ = t.shape
        if rows < 0:
            t = t + 1
        return t.view(rows, 2, -1)

    def outer(x):
        return split(x).sum()

    rl.dynamo.reset()
    x = rl.ones(3, 4).requires_grad_()
    compiled = rl.compile(outer)

    def program():
        y = compiled(x)
        y.backward()

    (capture,) = rl.explain(program)().observed.captures
    first = split.__code__.co_firstlineno
    lines = {int(line.removeprefix("test_captures.py:")) - first for line in capture.inlined}
    assert lines == {1, 2, 4}
    ran = {g.name.rpartition("_")[2]: g.called_at for g in capture.graphs}
    (line,) = ran["backward"]
    assert f"test_captures.py:{program.__code__.co_firstlineno + 2} " in line
    assert ran["forward"] == []


def test_an_exception_in_a_compiled_module_of_ours_is_told_once():
    net = rl.compile(rl.nn.Sequential(rl.nn.Linear(4, 6), rl.nn.ReLU()))
    rl.dynamo.reset()

    def calls():
        with pytest.raises(RuntimeError):
            net(rl.ones(2, 5))

    seen = rl.explain(calls)().observed
    assert sum(len(c.breaks) for c in seen.captures) > 1
    ((told, _),) = distinct_breaks(seen.captures)
    assert "containers.py" in told.where and "cannot be multiplied" in told.why


def test_variables_of_a_long_head_are_none_and_take_no_time():
    head = (
        "def f(\n    " + ", ".join([f"a_long_name_of_an_input_{i}" for i in range(12)]) + "\n):\n"
    )
    begun = time.perf_counter()
    text = head + "    x, y: f32[2] = ops.f(a)\n    return x\n"
    assert variables("python", text) == {4: ["x", "y"]}
    assert time.perf_counter() - begun < 1


def test_a_routine_without_a_known_line_has_none():
    row = KernelRow("k", 2, 9, 0, 2, 9, 0, 0, ["add"], {})
    (cost,) = costs_of_tables((), [row], {"k": ["a.py:3", ""]})
    assert cost.lines == ["a.py:3"] and not cost.host


def test_what_the_fastest_call_of_the_same_layouts_took_is_kept():
    """Calls that waited for a processor do not tell what a kernel can do."""
    small, large = ("float32[4]",), ("float32[400]",)
    took = [(small, 10), (small, 90), (large, 500), (large, 700), (small, 20)]
    rows = [
        (i, None, 0, "add", "scalar", i > 0, 1000 * i, 1000 * i + ns, x, x, "add.float32.TT", "")
        for i, (x, ns) in enumerate([(small, 7), *took])
    ]  # the first one made a plan
    (cost,) = costs(read_calls(rows), ())
    assert (cost.calls, cost.ns, cost.first_calls) == (5, 1320, 1)
    assert cost.fastest_ns == cost.parts[0].fastest_ns == 3 * 10 + 2 * 500
