"""`rushlight bisect SCRIPT`: the script's runs are compared, and what that says is said."""

import os
import subprocess
import sys

import pytest

import rushlight as rl
from rushlight.bisection import script
from rushlight.bisection.script import Ran, first_difference

PROGRAM = """
import rushlight as rl
{plant}
@rl.compile
def inner(x):
    return rl.sin(x) * 2

@rl.compile
def f(x):
    y = inner(x)
    if x.sum() > 0:
        y = y + 1
    return {{"y": y, "n": x.shape[0]}}

for rows in (3, 3, 4):
    f(rl.rand(rows, 2))
print("done")
"""

CAPTURE = """
from rushlight.dynamo.graph_module import GraphModule
plain = GraphModule.__init__
def wrong(self, graph):
    plain(self, graph)
    run = self.function
    self.function = lambda *given: tuple(x * 3 for x in run(*given))
GraphModule.__init__ = wrong
"""

CRASH = """
import os, signal
from rushlight.inductor import pipeline
plain = pipeline.lower_group
def wrong(plan, group, on_gpu):
    if len(group.nodes) > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return plain(plan, group, on_gpu)
pipeline.lower_group = wrong
"""


@pytest.fixture
def bisect(tmp_path, monkeypatch):
    monkeypatch.setenv("RUSHLIGHT_CACHE_DIR", str(tmp_path / "cache"))

    def run(plant):
        file = tmp_path / "program.py"
        file.write_text(PROGRAM.format(plant=plant))
        return script.bisect_script(str(file), [], file=str(tmp_path / "again.py"))

    return run


def test_a_script_with_nothing_wrong(bisect, capfd):
    verdict = bisect("")
    assert verdict.code == 0 and "nothing is wrong: 3 compiled calls" in verdict.lines[0]
    assert capfd.readouterr().out == "done\n"


@pytest.mark.slow
def test_a_wrong_capture_is_named_and_the_script_shows_it_again(bisect, tmp_path):
    verdict = bisect(CAPTURE)
    assert (verdict.code, verdict.stage) == (1, "capture")
    assert "in call 1 of f" in "\n".join(verdict.lines)
    done = subprocess.run([sys.executable, *verdict.files], capture_output=True, text=True)
    assert done.returncode == 1 and "call 1 of f: tensor 0" in done.stdout


@pytest.mark.slow
def test_a_crash_is_named_by_its_stage(bisect):
    verdict = bisect(CRASH)
    assert (verdict.code, verdict.stage) == (1, "fusion")
    assert "SIGSEGV" in verdict.lines[1] and os.path.exists(verdict.files[0])


def call(*values, function="f", error="", plain=()):
    tensors = [rl.tensor(v) for v in values]
    return {"function": function, "error": error, "kept": True, "values": tensors,
            "plain": list(plain), "chosen": False}  # fmt: skip


def test_calls_are_compared_in_order():
    good = [call([1.0, 2.0]), call([3.0])]
    assert first_difference(good, good) is None
    assert first_difference(good, [call([1.0, 2.0]), call([3.5])])[:2] == (2, "f")
    assert "called instead" in first_difference(good, [call([1.0, 2.0], function="g")])[2]
    assert "raises ValueError: no" in first_difference(good, [call(error="ValueError: no")])[2]
    assert "1 compiled calls are made" in first_difference(good, good[:1])[2]
    assert "gives [4]" in first_difference([call(plain=[3])], [call(plain=[4])])[2]
    near = [call([1.0, 2.01]), call([3.0])]
    assert first_difference(good, near) and first_difference(good, near, 0.02) is None


def test_integers_bools_and_texts_are_the_same_or_differ():
    def differ(a, b, *more):
        return first_difference([a], [b], 0.02, *more)

    assert "gives [4]" in differ(call(plain=[3]), call(plain=[4]))[2]
    assert differ(call(plain=[True]), call(plain=[False]))
    assert differ(call(plain=["a"]), call(plain=["b"])) and differ(call(plain=[1]), call(plain=[]))
    assert differ(call(plain=[1.0]), call(plain=[1.01])) is None
    assert differ(call(plain=[1.0]), call(plain=[1.1])) and differ(
        call(plain=[1]), call(plain=[1.0])
    )
    assert differ(call([3, 4]), call([3, 5])) and differ(call([True]), call([False]))
    # after floats that are a little apart, or once graphs compare floats, they are not judged
    unjudged = []
    assert differ(call([1.0], [3]), call([1.01], [4]), None, unjudged) is None
    assert differ(call([3]), call([4]), [call() | {"chosen": True}], unjudged) is None
    assert len(unjudged) == 2
    assert differ(call([1.0], [3]), call([1.0], [4]), [call() | {"chosen": False}], unjudged)
    assert differ(call([1.0], [3]), call([1.01], [3, 4]), None, unjudged)
    assert len(unjudged) == 2


def test_graphs_that_compare_floats_are_known():
    def chooses(f, x):
        seen = []
        rl.compile(f, backend=lambda gm, examples: seen.append(script.chooses(gm)) or gm)(x)
        return seen

    assert chooses(lambda x: x.argmax(), rl.ones(3)) == [True]
    assert chooses(lambda x: x.max(0)[1], rl.ones(3)) == [True]
    assert chooses(lambda x: (x > 1) * 2, rl.ones(3)) == [True]
    assert chooses(lambda x: x.sin() + 1, rl.ones(3)) == [False]
    assert chooses(lambda x: x.argmax() + x.shape[0], rl.arange(3)) == [False]
    assert chooses(lambda x: rl.arange(x.shape[0]) + 1, rl.ones(3)) == [False]


class Fake(script.Runs):
    """Runs whose results are given: by kind, one after another."""

    def __init__(self, folder, **runs):
        super().__init__(str(folder / "p.py"), [], "", 3, str(folder / "again.py"))
        (folder / "p.py").write_text("print(1)\n")
        self.runs = {kind: list(made) for kind, made in runs.items()}

    def run(self, kind, careful=False, show=False):
        return self.runs[kind].pop(0)


@pytest.fixture
def verdict(tmp_path, monkeypatch):
    def made(**runs):
        fake = Fake(tmp_path, **runs)
        monkeypatch.setattr(script, "Runs", lambda *given: fake)
        return script.bisect_script(fake.script, [])

    return made


def test_what_runs_that_differ_say(verdict):
    good, bad = Ran(0, calls=[call([1.0])]), Ran(0, calls=[call([2.0])])
    found = verdict(eager=[good, good], staged=[good], whole=[bad])
    assert (found.code, found.stage) == (1, "guards")
    with open(found.files[0]) as file:
        assert 'backend="inductor"' in file.read()
    unsure = verdict(eager=[good, bad], staged=[bad])
    assert unsure.code == 2 and "two runs in eager mode differ" in unsure.lines[0]
    none = verdict(eager=[Ran(0)])
    assert none.code == 2 and "--mode compile" in none.lines[0]
    assert verdict(eager=[Ran(-11, killed=11)]).code == 2
    one = [Ran(0, calls=[call([n])]) for n in (1, 2)]
    assert verdict(eager=[one[0], one[0]], staged=[one[0]], whole=[one[1]]).stage == "guards"
    chosen = Ran(0, calls=[call([1]) | {"chosen": True}])
    unsure = verdict(eager=[one[0]], staged=[chosen], whole=[one[1]])
    assert unsure.code == 0 and "Not judged: 1 tensors" in unsure.lines[-1]
    noted = Ran(0, calls=good.calls, notes={"graph": "complex"})
    fine = verdict(eager=[good], staged=[good], whole=[noted])
    assert fine.code == 0 and fine.lines[-1] == "graph ran in eager mode: complex"
