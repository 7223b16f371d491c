"""The documented paths: counts, sources, no dangling id."""

import copy

import pytest

from rushlight import trace
from rushlight.report import path

COUNTS = {
    ("eager", "cpu"): (5, 4),
    ("eager", "gpu"): (5, 4),
    ("compile", "cpu"): (8, 8),
    ("compile", "gpu"): (12, 12),
}


@pytest.mark.parametrize("choice", COUNTS)
def test_counts(choice):
    stages, steps = path.load().select(*choice)
    assert (len(stages), len(steps)) == COUNTS[choice]
    ids = {stage.id for stage in stages}
    assert all(step.source in ids and step.target in ids for step in steps)


def test_every_choice_is_counted():
    assert set(path.load().selections()) == set(COUNTS)


def test_status_line():
    load = path.load()
    assert load.status("eager", "cpu") == "Showing eager mode on a CPU: 5 stages, 4 steps"
    assert (
        load.status("compile", "gpu")
        == "Showing torch.compile on an NVIDIA GPU: 12 stages, 12 steps"
    )
    with pytest.raises(ValueError, match="unknown device 'tpu'; known are cpu, gpu"):
        load.select("eager", "tpu")


def test_file_holds_together():
    assert path.problems(path.load()) == []


def test_documented_stages_are_the_outer_stages_of_trace():
    documented = set(path.load().stages)
    assert documented == {s.id for s in trace.STAGES.values() if s.parent is None}


def _broken(change):
    facts = copy.deepcopy(dict(path.load().facts))
    change(facts)
    return path.problems(path.parse(facts))


def test_problems_are_found():
    def step(facts):
        return facts["steps"][0]

    def stage(facts):
        return facts["stages"][0]

    assert _broken(lambda f: step(f).update(sources=[]))
    assert _broken(lambda f: stage(f).update(sources=[]))
    assert _broken(lambda f: step(f).update(sources=["nowhere"]))
    assert _broken(lambda f: step(f).update(to="nowhere"))
    assert _broken(lambda f: step(f).update(kind="teleports_to"))
    assert _broken(lambda f: step(f).update(when={"device": ["tpu"]}))
    assert _broken(lambda f: stage(f).update(kind="spirit"))
    assert _broken(lambda f: f["steps"].append(f["steps"][0]))
    assert _broken(lambda f: f["sources"].update(new=dict(f["sources"]["ptx"])))
    with pytest.raises(ValueError, match="schema 99, expected 1"):
        path.parse({"schema": 99})
