"""Captured graphs print as Python that parses back to an equal graph and runs like it."""

import collections
import math
import operator

import pytest

import rushlight as rl
from rushlight import config, dynamo, nn
from rushlight.dynamo.backends import BACKENDS
from rushlight.dynamo.graph_module import GraphModule
from rushlight.errors import UserError
from rushlight.fx.captured import CallGraph, nodes_in
from rushlight.fx.captured_parsing import parse_calls
from rushlight.ops.layouts import Layout, dense
from rushlight.sym import ShapeEnv
from tests.dynamo import fuzz, models

MODELS = models.make()
Pair = collections.namedtuple("Pair", "left right")


def again(graph):
    """The graph of the graph's text, which must print alike too."""
    text, objects = graph.source()
    compile(text, "graph", "exec")
    read = parse_calls(text, objects, graph.constants)
    assert read.equals(graph) and graph.equals(read)
    assert read.print() == text
    return read


def captured(fn, *calls, **options):
    dynamo.reset()
    found = []

    def backend(module, examples):
        found.append(module.graph)
        return module.function

    compiled = rl.compile(fn, backend=backend, **options)
    for args in calls:
        compiled(*args)
    assert found
    return found


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_graphs_of_networks(name, training):
    model, args = MODELS[name]()
    model.train(training)
    (graph,) = captured(model, args)
    assert len(graph.calls) > 10
    read = again(graph)
    assert all(n.meta.get("where") for n in read.calls)


def test_graphs_with_sizes_that_vary_and_breaks():
    def fn(x):
        y = x.reshape(-1) * x.shape[0]
        print(end="")
        with rl.no_grad():
            x[0, 1:, None] += 1
        return {"a": y, "b": [x.t(), (y, 2.5, float("inf"))]}

    graphs = captured(fn, (rl.ones(4, 3),), (rl.ones(5, 3),), dynamic=True)
    assert len(graphs) >= 2
    assert any("# s" in g.print() for g in graphs)
    assert any(g.writes_inputs for g in graphs)
    [again(g) for g in graphs]


def hand_made():
    g = CallGraph("hand_made")
    x = g.placeholder("x")
    y = g.placeholder("class")  # no name that Python takes
    x.meta["layout"] = dense((2, 3), "float32")
    w = g.add("get_attr", "w")
    deep = g.add("get_attr", "layers.0.weight")
    deep.meta["where"] = "model.py:3 in forward"
    a = g.add("call_module", "layers.1", (x,), {"scale": -2, "def": 1, "größe": None})
    b = g.add("call_method", "reshape", (a, (3, -1)))
    b.meta["layout"] = Layout((3, 2), (1, 3), "float32")
    b.meta["where"] = "model.py:4 in forward"
    c = g.add("call_method", "is", (b, "it's", b"\0", ...))
    c.meta["where"] = "model.py:4 in forward"
    d = g.add("call_method", "bit_length", (5,))
    e = g.add("call_function", operator.getitem, (b, (slice(None, d, -1), None, ..., True)))
    f = g.add(
        "call_function",
        lambda *a, **k: (a, k),
        ([x, [e]], {"k": (w,), 2: {}, (1, None): []}, 1 + 2j, -0.0, 1e300),
        {"pair": Pair(deep, [1]), "far": -math.inf, "kind": rl.float32, "e": ()},
    )
    g.add("call_function", getattr, (x, "shape"), name="getattr")
    g.add("call_function", min, (y, f), name="self")
    g.constants = {"w": rl.ones(2), "layers.0.weight": rl.ones(3)}
    g.random = g.effects = True
    g.output((f, {"x": x, "pair": Pair(y, c)}, None))
    return g.verify()


def test_hand_made():
    g = hand_made()
    read = again(g)
    assert [n.op for n in read.nodes] == [n.op for n in g.nodes]
    assert [n.meta.get("where", "") for n in read.nodes] == [
        n.meta.get("where", "") for n in g.nodes
    ]
    assert read.nodes[-1].args[0][1]["pair"].left is read.placeholders[1]
    assert read.random and read.effects and not read.writes_inputs
    assert read.constants["w"] is g.constants["w"]


def test_symbols_come_back():
    env = ShapeEnv()
    n = env.size("s0", 7)
    g = CallGraph()
    x = g.placeholder("x")
    x.meta["layout"] = dense((n, 2 * n + 1), "float64")
    g.output(x)
    read = again(g)
    assert "# s0 = 7" in g.print()
    assert [int(v) for v in read.placeholders[0].meta["layout"].shape] == [7, 15]


def changes():
    """What makes two graphs differ, one thing at a time."""

    def argument(g):
        g.nodes[9].args = (*g.nodes[9].args[:-1], 0.0)

    def zero(g):
        g.nodes[9].args = (*g.nodes[9].args[:3], 0.0, *g.nodes[9].args[4:])

    def target(g):
        g.nodes[-2].target = max

    def layout(g):
        g.nodes[5].meta["layout"] = dense((3, 2), "float32")

    def where(g):
        g.nodes[5].meta["where"] = "model.py:5 in forward"

    def constant(g):
        g.constants["w"] = rl.ones(2)

    def flag(g):
        g.random = False

    def shorter(g):
        del g.nodes[-2]

    def pair(g):
        g.nodes[9].kwargs["pair"] = tuple(g.nodes[9].kwargs["pair"])

    return [argument, zero, target, layout, where, constant, flag, shorter, pair]


@pytest.mark.parametrize("change", changes(), ids=lambda c: c.__name__)
def test_equality_sees(change):
    g = hand_made()
    text, objects = g.source()
    read = parse_calls(text, objects, g.constants)
    assert read.equals(g)
    change(read)
    assert not read.equals(g) and not g.equals(read)


def test_read_graphs_run():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 2)])
            self.scale = rl.full((2,), 3.0)

        def forward(self, x):
            return self.layers[1](self.layers[0](x).relu()) * self.scale

    net, x = Net(), rl.randn(5, 3)
    g = CallGraph()
    given = g.placeholder("x")
    first = g.add("call_method", "relu", (g.add("call_module", "layers.0", (given,)),))
    second = g.add("call_module", "layers.1", (first,))
    scale = g.add("get_attr", "scale")
    g.output(g.add("call_function", operator.mul, (second, scale)))
    assert again(g).compile()(net, x).tolist() == net(x).tolist()


def test_constants_of_a_graph_module():
    g = CallGraph()
    x = g.placeholder("x")
    g.constants["w"] = rl.full((2,), 2.0)
    g.output(g.add("call_function", operator.mul, (x, g.add("get_attr", "w"))))
    assert GraphModule(g)(rl.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "text, why",
    [
        ("def f(x):\n    y = x + 1\n    return y\n", "expected a call"),
        ("def f(x):\n    y = _unknown(x)\n    return y\n", "there is no object"),
        ("def f(x):\n    return z\n", "there is no object"),
        ("def f(x):\n    x.y = x.z(1)\n    return x\n", "expected `name"),
        ("def f(x):\n    y = x.z(x | 1)\n    return x\n", "not an argument"),
        ('def f(x: "q7[2]"):\n    return x\n', "not the text"),
        ("def f(x:\n", "not the text"),
        ("", "not the text"),
    ],
)
def test_what_is_no_graph(text, why):
    with pytest.raises(UserError, match=why) as error:
        parse_calls(text, {})
    assert isinstance(error.value, ValueError)


def test_nodes_inside_containers():
    g = CallGraph()
    x, y = g.placeholder("x"), g.placeholder("y")
    assert list(nodes_in(({"k": [x]}, Pair(y, slice(x, None)), 3))) == [x, y, x]


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_graphs_of_random_programs(first, monkeypatch):
    """The graphs that were read back run in the captured ones' place."""
    read = []

    def backend(module, examples):
        read.append(again(module.graph))
        return read[-1].compile(bound=False)

    monkeypatch.setitem(BACKENDS, "eager", backend)
    with config.changed(strict=True):
        for seed in range(first, first + 6):
            assert fuzz.run(seed) is None
    assert len(read) >= 6
