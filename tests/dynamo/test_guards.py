"""What is guarded, what recompiles, what becomes symbolic; breaks and how they are told."""

import gc
import threading
import types
import warnings
import weakref

import pytest

import rushlight as rl
from rushlight import config, dynamo, nn, trace
from rushlight.dynamo import GraphBreakError, convert
from rushlight.dynamo.calls import CALL_OF_MODULES
from rushlight.dynamo.capture import Capture
from rushlight.nn import functional as F

from .both import check, graphs


def x(*shape):
    return rl.randn(shape or (3,))


def captures(compiled):
    return len(compiled.entries)


def compiled(fn, **options):
    dynamo.reset()
    return rl.compile(fn, backend="eager", **options)


def test_a_size_becomes_symbolic_on_second_sight():
    def fn(a):
        return a.sum() * a.shape[0], a.reshape(-1, 1).shape[0]

    f = compiled(fn)
    for n in (3, 4, 5, 6, 9):
        assert f(rl.ones(n))[0].item() == n * n
        assert f(rl.ones(n))[1] == n
    assert captures(f) == 2


def test_dynamic_true_at_once_and_false_never():
    fn = lambda a: a * 2
    f, g = compiled(fn, dynamic=True), rl.compile(fn, backend="eager", dynamic=False)
    for n in (2, 3, 4):
        f(rl.ones(n, 3))
        g(rl.ones(n, 3))
    assert captures(f) == 1 and captures(g) == 3


def test_mark_dynamic():
    f = compiled(lambda a: a + 1)
    a = rl.ones(4, 3)
    dynamo.mark_dynamic(a, 0)
    f(a)
    f(rl.ones(9, 3))
    assert captures(f) == 1
    with pytest.raises(IndexError, match="out of range"):
        dynamo.mark_dynamic(a, 5)


def test_ints_and_floats_become_symbolic():
    def fn(a, k, s):
        return a * s + k, k + 1, s * 2

    f = compiled(fn)
    for k, s in ((3, 1.5), (4, 2.5), (7, 0.25), (9, -1.0)):
        r, k1, s2 = f(rl.ones(2), k, s)
        assert r.tolist() == [s + k] * 2 and k1 == k + 1 and s2 == s * 2
        assert type(k1) is int and type(s2) is float
    assert captures(f) <= 3


@pytest.mark.parametrize("sizes", [(2, 3, 1, 0, 5, 1), (0, 1, 2, 3), (1, 4, 8)])
def test_zero_and_one_are_special(sizes):
    def fn(a):
        return a.sum() + (1 if a.shape[0] > 2 else 2), a.shape[0] // 2, a.shape[0] % 2

    check(fn, *((rl.ones(n),) for n in sizes))


def test_relations_of_sizes_are_guarded():
    def fn(a, b):
        return a.sum() + b.sum() if a.shape[0] == b.shape[0] else a.sum() - b.sum()

    check(fn, *((rl.ones(m), rl.ones(n)) for m, n in ((2, 2), (3, 3), (3, 4), (5, 5), (5, 6))))


def test_fullgraph_raises_what_breaks():
    def inner(a):
        return a.sum().item()

    def fn(a):
        return inner(a)

    with pytest.raises(
        GraphBreakError, match=r"(?s)Tensor.item\(\).*capture.data_dependent.*hint.*inner"
    ):
        compiled(fn, fullgraph=True)(x())


def test_break_is_told_once_with_a_count():
    def fn(a):
        return a.sum().item()

    f = compiled(fn)
    with trace.collect("graph_break") as records:
        f(x())
        f(rl.ones(4, 4))
    assert len(convert.BREAKS) == 1
    ((count, reason),) = convert.BREAKS.values()
    assert count == 2 and "test_guards.py" in reason.stack[-1]
    assert len(records) == 2


def test_recompiles_say_what_changed_and_who_read_it():
    def fn(a, flag):
        return a + 1 if flag == "plus" else a - 1

    f = compiled(fn)
    f(x(), "plus")
    with trace.collect("recompile") as records:
        f(x(), "minus")
    (record,) = records
    assert "flag was 'plus', now 'minus'" in record.text
    assert "test_guards.py" in record.text
    given = rl.ones(2, 3)
    f(given, "plus")
    for other, told in (
        (rl.ones(2, 4), "a.shape[1] was 3, now 4"),
        (rl.ones(2, 3, dtype=rl.float64), "a.dtype was float32, now float64"),
        (rl.ones(3), "a.dim() was 2, now 1"),
        (rl.ones(3, 2).t(), "a.stride() was (3, 1), now (1, 2)"),
    ):
        f = compiled(fn)
        f(given, "plus")
        with trace.collect("recompile") as records:
            f(other, "plus")
        assert told in records[0].text


def test_a_reason_says_what_tensors_are_and_not_their_numbers():
    f = rl.compile(lambda x, state=None: x if state is None else x + state[0], backend="eager")
    f(rl.ones(3))
    with trace.collect("recompile") as records:
        f(rl.ones(3), (rl.randn(3), rl.ones(2, 3, dtype=rl.float64)))
        f(rl.ones(3), [1] * 20)
        f(rl.ones(3), round_about := [2.0] + [1] * 7)
        round_about[1] = round_about
        with pytest.raises(TypeError):
            f(rl.ones(3), round_about[1:])
    told = [r.facts["reason"].why for r in records]
    assert told[0] == "state was None, now (Tensor float32[3], Tensor float64[2, 3])"
    assert "state was None, now [1, 1, 1, 1, 1, 1, ...]" in told


def test_a_mode_that_changed_is_told_at_the_call_and_a_models_inputs_by_their_names():
    class Doubled(nn.Module):
        def forward(self, points, *, scale=None):
            return points * 2

    own = types.FunctionType(CALL_OF_MODULES.__code__, CALL_OF_MODULES.__globals__)
    f, model = compiled(own), Doubled()

    def call(*args, **kwargs):
        return f(model, *args, **kwargs)

    with trace.collect("recompile") as records:
        call(rl.ones(2))
        call(rl.ones(3))
        with rl.no_grad():
            call(rl.ones(3))
        with rl.autocast("cpu", dtype=rl.bfloat16):
            call(rl.ones(3), scale=1)
            call(rl.ones(3), scale=2)
    told = [r.facts["reason"] for r in records]
    whys = [reason.why for reason in told]
    assert whys[0] == "points.shape[0] was 2, now 3"
    modes = [reason for reason in told if "mode" in reason.why]
    assert modes[0].why == "grad mode was on, now off"
    here = call.__code__.co_firstlineno + 1
    assert str(modes[0].where).startswith(f"{__file__}:{here} ")
    assert "autocast was off, now to bfloat16" in whys


def test_what_a_piece_took_over_stands_in_one_bracket():
    assert convert.readable("type(.stack0) is float", 8) == "type(what line 8 computed) is float"
    assert convert.readable(".stack1.shape[0]", 8) == "(what line 8 computed).shape[0]"


def test_recompile_limit():
    def fn(a, text):
        return a, len(text)

    f = compiled(fn)
    with config.changed(recompile_limit=3), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(8):
            assert f(x(), "s" * i)[1] == i
    assert captures(f) == 3
    assert len(told) == 1 and "text" in str(told[0].message)


def test_grad_mode_is_guarded():
    def fn(a):
        return (a * 2).requires_grad

    f = compiled(fn)
    a = x().requires_grad_()
    assert f(a) is True
    with rl.no_grad():
        assert f(a) is False
    assert f(a) is True
    assert captures(f) == 2


def test_autocast_around_is_guarded():
    def fn(a):
        with rl.autocast("cpu", enabled=False):
            inner = a @ a
        return a @ a, inner, (a @ a).dtype is rl.float32

    f = compiled(fn, fullgraph=True)
    a = x(3, 3)

    def dtypes(g):
        return [v if isinstance(v, bool) else v.dtype for v in g(a)]

    for _ in range(2):
        assert dtypes(f) == dtypes(fn)
        for dtype in (rl.bfloat16, rl.float16):
            with rl.autocast("cpu", dtype=dtype):
                assert dtypes(f) == dtypes(fn)
                with rl.autocast("cpu", enabled=False):
                    assert dtypes(f) == dtypes(fn)
    assert captures(f) == 4  # none, each dtype, and none within one of them


def test_autocast_can_be_asked_and_an_inner_region_inherits_the_dtype():
    def asked():
        on = rl.is_autocast_enabled(), rl.is_autocast_enabled("cpu")
        return [*on, rl.get_autocast_dtype("cpu")]

    def fn(a):
        told = [asked()]
        with rl.autocast("cpu", dtype=rl.float16):
            told.append(asked())
            with rl.autocast("cpu", enabled=False):
                told.append(asked())
            with rl.autocast("cpu"):
                told += [asked(), (a @ a).dtype]
        return [*told, asked(), (a @ a).dtype]

    f, a = compiled(fn, fullgraph=True), x(3, 3)
    for _ in range(2):
        assert f(a) == fn(a)
        with rl.autocast("cpu"):
            assert f(a) == fn(a)
        rl.set_autocast_dtype("cpu", rl.float16)
        try:
            assert f(a) == fn(a)
        finally:
            rl.set_autocast_dtype("cpu", rl.bfloat16)
    assert captures(f) == 3


def test_autocast_stays_through_a_break():
    def fn(a):
        with rl.autocast("cpu", dtype=rl.bfloat16):
            b = a @ a
            dynamo.graph_break()
            c = a @ a
            for _ in range(3):
                dynamo.graph_break()
                c = c @ a
        return b, c, a @ a

    check(fn, (x(3, 3),), (x(3, 3),), breaks=None)


def test_module_attributes_are_guarded():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.scale = 2

        def forward(self, a):
            return self.layer(a) * self.scale if self.training else a

    net = Net()
    dynamo.reset()
    f = rl.compile(net, backend="eager")
    a = x()
    assert f(a).tolist() == net(a).tolist()
    net.eval()
    assert f(a).tolist() == a.tolist()
    net.train()
    net.scale = 5
    assert f(a).tolist() == net(a).tolist()
    net.layer = nn.Linear(3, 3)
    assert f(a).tolist() == net(a).tolist()
    with rl.no_grad():
        net.layer.weight.fill_(1.0)
    assert f(a).tolist() == net(a).tolist()
    net.register_forward_hook(lambda m, i, o: o + 100)
    assert f(a).tolist() == net(a).tolist()


def test_a_guard_may_read_an_attribute_through_compiled_python():
    """A guard that asks `config.size` calls __getattribute__, whose own guards ask it again."""

    class Config:
        names = {"width": "size"}

        def __init__(self):
            self.size = 2

        def __getattribute__(self, name):
            if name != "names" and name in super().__getattribute__("names"):
                name = super().__getattribute__("names")[name]
            return super().__getattribute__(name)

    class Inner(rl.nn.Module):
        def __init__(self):
            super().__init__()
            self.config = Config()

        def forward(self, x):
            config = self.config
            print(end="")  # a break: what follows, and what is called, are frames of their own
            return x * config.width + config.size

    model = Inner()
    compiled = rl.compile(model)
    for _ in range(3):
        assert compiled(rl.ones(2)).tolist() == [4.0, 4.0]
    model.config.size = 3
    assert compiled(rl.ones(2)).tolist() == [6.0, 6.0]


def test_new_weights_of_the_same_kind_need_no_capture():
    net = nn.Linear(3, 2)
    dynamo.reset()
    f = rl.compile(net, backend="eager")
    f(x())
    net.weight = nn.Parameter(rl.ones(2, 3))
    assert f(rl.ones(3)).tolist() == net(rl.ones(3)).tolist()
    assert len(f.__dict__["_forward"].entries) == 1


def test_parameters_get_gradients():
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 1))
    dynamo.reset()
    a = x(5, 3)
    net(a).sum().backward()
    expected = [p.grad.tolist() for p in net.parameters()]
    net.zero_grad()
    rl.compile(net, backend="eager", fullgraph=True)(a).sum().backward()
    assert [p.grad.tolist() for p in net.parameters()] == expected


def test_backend_gets_module_and_examples():
    got = []

    def backend(module, examples):
        got.append((module, examples))
        return module.forward

    dynamo.reset()
    a, b = x(), x()
    assert rl.compile(lambda p, q: p + q, backend=backend)(a, b).tolist() == (a + b).tolist()
    ((module, examples),) = got
    assert examples[0] is a and examples[1] is b
    assert "add" in module.code
    with pytest.raises(ValueError, match="no backend 'none'"):
        rl.compile(lambda p: p, backend="none")


def test_disable_allow_in_graph_and_is_compiling():
    seen = []

    @dynamo.disable
    def plain(t):
        seen.append(type(t).__name__)
        return t + 1

    def helper(t):
        return t.relu() * 2

    dynamo.allow_in_graph(helper)

    def fn(a):
        return helper(plain(a)), dynamo.is_compiling()

    f = compiled(fn)
    a = x()
    assert f(a)[0].tolist() == fn(a)[0].tolist()
    assert f(a)[1] is True and fn(a)[1] is False
    assert seen and set(seen) == {"Tensor"}
    assert any("helper" in m.code for m in graphs())


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_a_whole_training_step(optimizer):
    def losses(transform):
        rl.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
        opt = getattr(rl.optim, optimizer)(net.parameters(), lr=0.1)

        def step(a, b):
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(a), b)
            loss.backward()
            opt.step()
            return loss.detach()

        run = transform(step)
        return [run(rl.randn(5, 4), rl.randn(5, 2)).item() for _ in range(5)]

    expected = losses(lambda f: f)
    with config.changed(strict=True):
        assert losses(compiled) == expected


def test_gradients_assigned_by_hand():
    def step(w, a):
        (w * a).sum().backward()
        with rl.no_grad():
            w -= 0.1 * w.grad
            kept = w.grad
            w.grad = None
            gone = w.grad
            w.grad = kept * 2
        return kept, gone, w.grad

    results = []
    for f in (step, compiled(step)):
        w = rl.arange(3).float().requires_grad_()
        kept, gone, last = [f(w, rl.ones(3)) for _ in range(3)][-1]
        results.append((w.tolist(), kept.tolist(), gone, last.tolist(), w.grad is last))
    assert results[0] == results[1]


def test_explain_shows_graphs_guards_breaks_and_bytecode():
    def fn(a):
        b = a * 2
        n = b.sum().item()
        return b + n

    told = dynamo.explain(fn)(rl.ones(3))
    assert told.result.tolist() == [8.0] * 3
    assert len(told.graphs) == 2 and len(told.breaks) == 1
    text = str(told)
    assert "2 graphs" in text and "Tensor.item()" in text and "a is Tensor float32[3]" in text
    rows = text.splitlines()
    assert any(" > " in r and "BINARY_OP" in r for r in rows)
    assert any(" * " in r and "CALL" in r for r in rows)


def test_records_reach_the_log():
    with trace.collect("dynamo", "fx_graph", "guards") as records:
        compiled(lambda a: a + 1)(x())
    kinds = {r.kind for r in records}
    assert {"bytecode", "graph", "guards"} <= kinds


def test_rounds_of_compile_and_reset_leak_nothing():
    def fn(a, k):
        print(end="")
        return [a * 2, k]

    def rounds(n):
        for i in range(n):
            dynamo.reset()
            rl.compile(fn, backend="eager")(a, i)
        dynamo.reset()
        gc.collect()
        return len(gc.get_objects())

    a = x()
    rounds(20)
    before = rounds(20)
    assert rounds(100) - before < 60


def test_fork():
    import os

    f = compiled(lambda a: a * 3)
    assert f(rl.ones(2)).tolist() == [3.0, 3.0]
    child = os.fork()
    if not child:
        ok = f(rl.ones(2)).tolist() == [3.0, 3.0] and f(rl.ones(5)).tolist() == [3.0] * 5
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_graph_break():
    def fn(a):
        a = a + 1
        dynamo.graph_break()
        return a * 2

    f = compiled(fn)
    assert f(rl.ones(2)).tolist() == [4.0, 4.0]
    assert len(graphs()) == 2


def test_methods_static_methods_and_decorators():
    class Box:
        def __init__(self, k):
            self.k = k

        @rl.compile(backend="eager")
        def method(self, a):
            return a * self.k

    dynamo.reset()
    assert Box(2).method(rl.ones(1)).tolist() == [2.0]
    assert Box(3).method(rl.ones(1)).tolist() == [3.0]
    bound = rl.compile(Box(4).method, backend="eager")
    assert bound(rl.ones(1)).tolist() == [4.0]


def test_an_error_of_the_graph_runs_the_function_again():
    log = []

    def fn(a, b):
        log.append("ran")
        c = a // b
        return c

    f = compiled(fn)
    ok = rl.tensor([4, 6])
    assert f(ok, rl.tensor([2, 3])).tolist() == [2, 2]
    log.clear()
    with pytest.raises(RuntimeError):
        f(ok, rl.tensor([2, 0]))
    assert log == ["ran"]


def test_the_traceback_of_an_error_names_the_line():
    def fn(a):
        b = a + 1
        return b @ rl.ones(7)

    f = compiled(fn)
    with pytest.raises(RuntimeError) as error:
        f(rl.ones(3, 3))
    lines = [e for e in error.traceback if e.path.name == "test_guards.py"]
    assert lines[-1].lineno == fn.__code__.co_firstlineno + 1
    assert not any("rushlight/dynamo" in str(e.path) for e in error.traceback)


def test_nothing_is_kept_alive():
    def round_trip():
        net = nn.Linear(4, 4)
        f = rl.compile(net, backend="eager")
        f(x(2, 4))
        return weakref.ref(net), weakref.ref(net.weight)

    dynamo.reset()
    refs = round_trip()
    dynamo.reset()
    gc.collect()
    assert [r() for r in refs] == [None, None]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_no_input_of_a_first_call_is_kept_alive(backend):
    dynamo.reset()
    f = rl.compile(lambda a: rl.sin(a) + 1, backend=backend)
    leaf = x(2, 4).requires_grad_()
    given = leaf * 2  # it holds what was saved for its own backward
    out, seen = f(given), weakref.ref(given)
    out.sum().backward()
    del given, out
    gc.collect()
    assert seen() is None


def test_a_break_keeps_nothing_of_its_capture():
    def fn(a):
        for _ in range(2):
            a = a * 2
            if a.sum().item() > 1e9:
                break
        return a

    f = compiled(fn)
    refs = []
    for n in (3, 4):
        given = x(n, 3) * 2
        refs.append(weakref.ref(given))
        f(given)
    del given
    gc.collect()
    assert [r() for r in refs] == [None, None]
    assert not any(type(o) is Capture for o in gc.get_objects())


def test_two_threads():
    def fn(a):
        b = a * 2
        print(end="")
        return b + a.shape[0]

    f = compiled(fn)
    wrong = []

    def run():
        for n in range(2, 12):
            a = rl.ones(n)
            if f(a).tolist() != [2.0 + n] * n:
                wrong.append(n)

    threads = [threading.Thread(target=run) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_recursion_to_the_usual_depth():
    def down(a, n):
        return a if n == 0 else down(a + 1, n - 1)

    f = compiled(down)
    assert f(rl.zeros(1), 5).item() == 5
    assert f(rl.zeros(1), 300).item() == 300


def test_sys_settrace_sees_nothing_odd():
    import sys

    def fn(a):
        b = a * 2
        print(end="")
        return b.sum().item()

    f = compiled(fn)
    old = sys.gettrace()
    events = []
    sys.settrace(lambda *e: events.append(e[1]))
    try:
        assert f(rl.ones(3)) == 6.0
        assert f(rl.ones(3)) == 6.0
    finally:
        sys.settrace(old)


def test_state_of_the_random_stream_follows_the_graph():
    def fn(x):
        y = F.dropout(x, 0.5)
        before = rl.get_rng_state()
        z = F.scaled_dot_product_attention(y, y, y, dropout_p=0.5)
        return F.dropout(z, 0.5), before, rl.get_rng_state()

    x = rl.randn(1, 2, 5, 8)
    compiled = rl.compile(fn, backend="eager")
    rl.manual_seed(3)
    expected = [[t.tolist() for t in fn(x)] for _ in range(3)]
    rl.manual_seed(3)
    assert [[t.tolist() for t in compiled(x)] for _ in range(3)] == expected


def test_bounds_of_a_marked_size():
    def fn(a):
        n = max(a.shape[0], 4)
        return a.sum() * n if n <= 64 else a.mean()

    c = compiled(fn)
    a = x(8, 3)
    dynamo.mark_dynamic(a, 0, min=4, max=64)
    for n in (8, 4, 64, 33):
        b = a if n == 8 else x(n, 3)
        assert c(b).tolist() == fn(b).tolist()
    assert captures(c) == 1
    record = next(r for r in convert.COMPILED.values() if r.function is fn)
    shapes = [g.text for g in record.entries[0].guards if g.kind == "shape"]
    assert len(shapes) == 2, shapes  # the bounds, and nothing else
    for n in (3, 65):
        assert c(x(n, 3)).shape == ()
    assert captures(c) > 1
    for bounds in ({"min": 9}, {"max": 7}, {"min": 20, "max": 10}):
        with pytest.raises(ValueError, match="mark_dynamic"):
            dynamo.mark_dynamic(a, 0, **bounds)


def test_a_maximum_does_not_specialise():
    def fn(a):
        return a * max(a.shape[0], 16)

    c = compiled(fn, dynamic=True)
    for n in (20, 16, 17, 90):
        b = x(n)
        assert c(b).tolist() == fn(b).tolist()
    assert captures(c) == 1
    for n in (3, 5, 15):
        b = x(n)
        assert c(b).tolist() == fn(b).tolist()
    assert captures(c) == 2
