"""A fault is planted in each stage, and the stage is named; the smallest graph that shows it is
written as a program that shows it."""

import runpy
from dataclasses import replace

import pytest

import rushlight as rl
from rushlight import compiled, config, forms
from rushlight.aot_autograd import pipeline as aot
from rushlight.bisection import Interpreted, examine
from rushlight.bisection.reproduction import write
from rushlight.bisection.shrinking import shrink
from rushlight.decomposition import pipeline as decomposition
from rushlight.fx.graph import Node
from rushlight.inductor import codegen, memory_plan, moving, parts, pipeline, placement
from rushlight.nn import functional as F
from rushlight.ops.values import TABLE


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with config.changed(cache_dir=str(tmp_path / "cache")):
        yield


class Spy:
    """A backend that looks into its graph at each call."""

    trusted = True
    found: list = []

    def __init__(self, gm, examples):
        self.gm, self.examples = gm, examples

    def __call__(self, *inputs):
        for careful in (False, True):
            Spy.found.append(examine(self.gm, self.examples, inputs, careful=careful))
        return self.gm(*inputs)


def finding(f, *inputs):
    """What both orders of the stages find, which must be the same."""
    Spy.found = []
    rl.compile(f, backend=Spy)(*inputs)
    whole, careful = Spy.found
    if whole is None:
        assert careful is None
        return None
    assert (whole.stage, whole.step) == (careful.stage, careful.step)
    return whole


def swapped(graph, name, other):
    """The graph with another operator in place of one; itself where it has none."""
    if not any(n.op.name == name for n in graph.calls):
        return graph
    nodes = [
        replace(n, target=TABLE[other]) if n.kind == "call_function" and n.op.name == name else n
        for n in graph.nodes
    ]
    return graph.with_nodes(nodes)


def pointwise(x, y):
    return rl.cos(rl.sin(x) * y) + 1


def joined(x, y):
    return rl.cat([rl.sin(x) * 2, rl.cos(y) * 3], 1)


def products(x, w):
    return ((x @ w) @ (w @ x) / 400).tanh()


def test_nothing_is_found_where_nothing_is_wrong():
    def f(x, w):
        x.mul_(2)
        return F.dropout(rl.gelu(x @ w), 0.5), x.t(), (x > 0).sum(), w[1:, :2]

    w = rl.randn(6, 6)
    assert finding(f, rl.randn(6, 6), w) is None
    assert finding(f, w.t(), w.t()) is None  # they share memory: both would be written
    assert finding(f, rl.randn(6, 6), w.requires_grad_()) is None
    assert finding(pointwise, rl.randn(8, 6)[1:7], rl.randn(1, 6).expand(6, 6)) is None


def functionalise(patch):
    real = compiled.functionalise

    def wrong(gm, examples, **kwargs):
        return real(lambda *given: tuple(r + 1 for r in gm(*given)), examples, **kwargs)

    patch.setattr(compiled, "functionalise", wrong)


def derivatives(patch):
    real = aot.pull_back
    patch.setattr(aot, "pull_back", lambda *given: [g * 2 for g in real(*given)])


def rewrite_sines(graph):
    return swapped(graph, "sin", "sinh")


def decomposed(patch):
    passes = decomposition.PASSES["operator"]
    patch.setitem(decomposition.PASSES, "operator", (passes[0], rewrite_sines, *passes[1:]))


def code(patch):
    real = codegen.generate
    wrong = lambda kernels: real(kernels).replace("= rl_sin_f32(", "= 0.5f * rl_sin_f32(")
    patch.setattr(codegen, "generate", wrong)
    patch.setattr(codegen, "emitter", lambda: "one that is wrong")


def fused(patch):
    real = pipeline.lower_group

    def wrong(plan, group, on_gpu):
        if len(group.nodes) > 1:
            for i, n in enumerate(group.nodes):
                if n.op.name == "sin":
                    group.nodes[i] = Node(n.kind, TABLE["sinh"], n.arguments, n.outs, n.origins)
        return real(plan, group, on_gpu)

    patch.setattr(pipeline, "lower_group", wrong)


def moved(patch):
    def raise_views(graph):
        return swapped(graph, "sin", "sinh")

    patch.setattr(moving, "PASSES", (*moving.PASSES[:-1], raise_views))


def placed(patch):
    def wrong(plan, lowered, own, written):
        return {plan.graph.outputs[0]: plan.graph.inputs[0]}

    patch.setattr(placement, "place_results", wrong)


def planned(patch):
    real = memory_plan.plan_memory

    def wrong(*given):
        made = real(*given)
        return replace(made, places=tuple(replace(p, offset=0) for p in made.places))

    patch.setattr(memory_plan, "plan_memory", wrong)


def found_parts(patch):
    real = parts.find_parts

    def wrong(plan):
        made = real(plan)
        values = list(made)
        return dict(zip(values, [made[v] for v in reversed(values)]))

    patch.setattr(parts, "find_parts", wrong)


def taken_along(patch):
    real = pipeline.epilogues.take_along

    def wrong(graph, frozen):
        graph, reasons = real(graph, frozen)
        return swapped(graph, "tanh", "sin"), reasons

    patch.setattr(pipeline.epilogues, "take_along", wrong)


def call(patch):
    real = forms.Inference.__call__

    def wrong(self, *inputs):
        made = real(self, *inputs)
        return made if isinstance(self.compiled, Interpreted) else tuple(x + 1 for x in made)

    patch.setattr(forms.Inference, "__call__", wrong)


FAULTS = [
    (functionalise, pointwise, "functionalise", "functionalise"),
    (derivatives, pointwise, "derivatives", "differentiate"),
    (decomposed, pointwise, "decomposition", "rewrite_sines"),
    (code, pointwise, "code_generation", "code_generation"),
    (fused, pointwise, "fusion", "fusion"),
    (moved, pointwise, "pass", "raise_views"),
    (found_parts, joined, "find_parts", "find_parts"),
    (placed, pointwise, "place_results", "place_results"),
    (planned, products, "plan_memory", "plan_memory"),
    (taken_along, products, "take_along", "take_along"),
    (call, pointwise, "call", ""),
]


@pytest.mark.parametrize(
    "plant, program, stage, step", FAULTS, ids=lambda v: getattr(v, "__name__", v)
)
def test_the_stage_of_a_fault_is_named_and_shown_again(
    monkeypatch, tmp_path, capsys, plant, program, stage, step
):
    plant(monkeypatch)
    x, y = rl.rand(4, 4) + 1, rl.rand(4, 4) + 1
    if stage == "derivatives":
        x.requires_grad_()
    found = finding(program, x, y)
    assert found is not None and (found.stage, found.step) == (stage, step)
    found.function, found.call = "f", 1
    small = shrink(found)
    assert (small.stage, small.step) == (stage, step)
    if stage in ("code_generation", "decomposition"):
        assert [n.op.name for n in small.graph.calls] == ["sin"] and "sin(...)" in small.node
    file = tmp_path / "again.py"
    assert write(small, str(file), __file__, [], "") == [str(file)]
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file))
    said = capsys.readouterr().out
    assert ended.value.code == 1, said
    if "without" in said:
        assert f"without {step}: as expected" in said
    monkeypatch.undo()
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file))
    assert ended.value.code == 0, capsys.readouterr().out
