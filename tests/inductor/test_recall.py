"""Programs found again in the artifact cache: what a key tells apart, and that what was found
computes what was made."""

import gc
import marshal
from contextlib import nullcontext

import pytest

import rushlight as rl
from rushlight import config, fx
from rushlight.forms import lowered
from rushlight.fx import passes
from rushlight.inductor import recall
from rushlight.inductor.wrapper import Ends
from rushlight.pipeline import compile_fx
from rushlight.runtime import cache, native
from rushlight.trace import collect

from ..graphs import same


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.changed(cache_dir=str(tmp_path / "artifacts")):
        yield tmp_path / "artifacts"


def x(*shape):
    return rl.randn(*shape)


def traced(fn, *inputs):
    return fx.trace(fn, *inputs, name="f")


def name(fn, *inputs, ends=None, frozen=False):
    return recall.name_of(traced(fn, *inputs), ends, frozen)


# ---- found, and equal


def norm(a, w, b):
    return rl.softmax(rl.layer_norm(a, (64,), w, b) * 3.5, 1), (a @ a.T).relu()


def product(a, w, b):
    return rl.gelu(rl.linear(a, w, b), approximate="tanh")


def masked(a, w, b):
    mask = rl.arange(64) > rl.arange(64).view(64, 1)
    return rl.where(mask, a[:64] * w, b).sum(1), rl.cat((a, a * 2), 1)


CASES = {
    "rows": (norm, [(96, 64), (64,), (64,)]),
    "library": (product, [(96, 64), (128, 64), (128,)]),
    "constant": (masked, [(96, 64), (64,), (64,)]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("grad", [False, True])
def test_the_second_time_finds_the_program_and_gives_its_bits(case, grad):
    fn, shapes = CASES[case]
    inputs = [x(*s).requires_grad_(grad) for s in shapes]

    def run():
        compiled = compile_fx(fn, inputs)
        found = []
        for _ in range(3):  # weights are packed when they come again
            outs = compiled(*inputs)
            grads = rl.autograd.grad(sum(o.sum() for o in as_tuple(outs)), inputs) if grad else ()
            found += [*as_tuple(outs), *grads]
        (form,) = compiled.forms.values()
        return found, form

    made, first = run()
    again, second = run()
    same(again, made)
    if grad:
        kinds = [(type(f.forward), type(f.backward)) for f in (first, second)]
    else:
        kinds = [(type(f.compiled),) for f in (first, second)]
    assert recall.Recalled not in kinds[0] and set(kinds[1]) == {recall.Recalled}


def as_tuple(outs):
    return outs if isinstance(outs, tuple) else (outs,)


def test_what_a_found_graph_does_not_hold_is_made_when_it_is_asked_for():
    graph = traced(lambda a: (a * 2).exp() + 1, x(8, 8))
    made, found = lowered(graph), lowered(graph)
    assert type(found) is recall.Recalled
    assert found.text == made.text and found.source == made.source
    assert len(found.kernels) == 1 and not hasattr(found, "no_such_name")


def test_inputs_are_written_and_views_returned():
    def fn(a, b):
        a[1:].mul_(b)
        return a[0], a.T, a * 2

    def run():
        given, scale = rl.arange(12.0).view(4, 3), rl.full((3,), 2.0)
        compiled = compile_fx(fn, [given, scale])
        outs = compiled(given, scale)
        return [given, *outs], [o.data_ptr() - given.data_ptr() for o in outs[:2]], compiled

    (made, places, _), (again, others, compiled) = run(), run()
    same(again, made)
    assert places == others == [0, 0]
    assert type(compiled.forms[0].compiled) is recall.Recalled


# ---- what the key tells apart


def test_numbers_that_are_equal_but_not_the_same_have_different_names():
    a = x(8)
    names = [name(lambda a, v=v: a * v + 1, a) for v in (0.0, -0.0, 1, 1.0, True, 2, 1e-9)]
    assert None not in names and len(set(names)) == len(names)


def test_the_name_depends_on_layouts_ends_settings_and_the_package(monkeypatch):
    def f(a):
        return a * 2 + 1

    a = x(8, 8)
    outs = [Ends(1, (), ("own", 0)), Ends(1, (), ("tuple", (("own", 0),)))]
    names = [
        name(f, a),
        name(f, a.T),
        name(f, a.double()),
        name(f, x(8, 9)),
        name(lambda a: a * 2 + 1, a),  # another line
        name(f, a, frozen=True),
        *(name(f, a, ends=e) for e in outs),
    ]
    monkeypatch.setattr(native, "isa", lambda: "v2")
    names.append(name(f, a))
    monkeypatch.undo()
    monkeypatch.setattr(recall, "package", lambda: "another")
    names.append(name(f, a))
    assert None not in names and len(set(names)) == len(names)
    monkeypatch.undo()
    assert name(f, a) == names[0]


def test_a_changed_file_of_the_package_is_another_package(tmp_path, monkeypatch):
    place = tmp_path / "rushlight" / "inductor"
    place.mkdir(parents=True)
    file = place / "recall.py"
    file.write_text("1")
    monkeypatch.setattr(recall, "__file__", str(file))
    before = recall.package.__wrapped__()
    assert recall.package.__wrapped__() == before
    file.write_text("2")
    assert recall.package.__wrapped__() != before


def test_graphs_that_are_not_kept():
    constant = x(8)
    assert name(lambda a: a + constant, x(8)) is None  # its values may be folded
    compiled = compile_fx(lambda a: a * 2, [None])
    assert compiled is not None
    env_graph = traced(lambda a: a * 2, x(8))
    env_graph.env.hints["s0"] = 8
    assert recall.name_of(env_graph, None, False) is None


def test_nothing_is_looked_for_while_somebody_listens_or_passes_are_changed(folder):
    graph = traced(lambda a: (a * 2).exp() + 1, x(8, 8))
    lowered(graph)
    with collect() as records:
        assert type(lowered(graph)) is not recall.Recalled
    stages = {r.stage for r in records}
    assert {"decomposition", "fusion", "loop_ir", "memory_plan", "wrapper", "cpp_openmp"} <= stages
    with passes.changed(disabled=["fusion"], verify=False):
        assert type(lowered(graph)) is not recall.Recalled
    assert type(lowered(graph)) is recall.Recalled


# ---- files that do not serve


def damage(file):
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)


def truncate(file):
    file.write_bytes(file.read_bytes()[:50])


def open_to_all(file):
    file.chmod(0o666)


def nonsense(file):
    held = marshal.dumps((1, "another form"))
    file.write_bytes(held + cache.end_of(held, {"graph": "f", "name": file.stem}))


def of_another_graph(file):
    before = set(file.parent.glob("*.program"))
    lowered(traced(lambda a: (a * 2).exp() - 1, x(8, 8)))
    (other,) = set(file.parent.glob("*.program")) - before
    file.write_bytes(other.read_bytes())
    other.unlink()


@pytest.mark.parametrize("change", [damage, truncate, open_to_all, nonsense, of_another_graph])
def test_a_program_that_cannot_be_trusted_or_read_is_made_anew(folder, change):
    graph, given = traced(lambda a: (a * 2).exp() + 1, x(8, 8)), x(8, 8)
    want = lowered(graph).program(given)
    (file,) = folder.glob("*.program")
    change(file)
    with nullcontext() if change is nonsense else pytest.warns(RuntimeWarning, match="made anew"):
        made = lowered(graph)
    assert type(made) is not recall.Recalled
    same(made.program(given), want)
    assert type(lowered(graph)) is recall.Recalled


def test_a_program_whose_code_is_gone_is_made_anew(folder):
    graph, given = traced(lambda a: (a * 2).exp() + 1, x(8, 8)), x(8, 8)
    want = lowered(graph).program(given)
    for file in folder.glob("*.so"):
        file.unlink()
    made = lowered(graph)
    assert type(made) is not recall.Recalled
    same(made.program(given), want)


def test_a_machine_that_answers_otherwise_misses(monkeypatch):
    if native.packed_bytes("float32", 64, 128) <= 0:
        pytest.skip("no library packs this weight")
    graph = traced(product, x(96, 64), x(128, 64), x(128))
    lowered(graph, frozen=True)
    assert type(lowered(graph, frozen=True)) is recall.Recalled
    monkeypatch.setattr(native, "packed_bytes", lambda *_: -1)
    assert type(lowered(graph, frozen=True)) is not recall.Recalled


def test_a_graph_without_products_asks_the_matrix_library_nothing(monkeypatch):
    def asked(*_):
        raise AssertionError

    monkeypatch.setattr(native, "packed_bytes", asked)
    lowered(traced(lambda a: (a * 2).exp() + 1, x(8, 8)), frozen=True)


def test_the_folder_is_told_of_and_cleared(folder):
    lowered(traced(lambda a: (a * 2).exp() + 1, x(8, 8)))
    (entry,) = cache.entries(ending=".program")
    assert entry.parts == {"graph": "f", "name": entry.path[-48:-8]}
    assert cache.clear()[0] == 2 and not list(folder.iterdir())


def test_a_folder_that_takes_no_file_is_no_error(folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    graph = traced(lambda a: a + 1, x(8))
    with monkeypatch.context() as m:
        m.setattr(cache.tempfile, "mkstemp", full)
        with pytest.warns(RuntimeWarning, match="No space left"):
            assert lowered(graph).program(rl.zeros(8)).tolist() == [1.0] * 8
    gc.collect()
    assert not list(folder.glob("*.program"))
