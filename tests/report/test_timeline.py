"""The timeline: nothing of the run is left out, and short calls stand together."""

from rushlight import trace
from rushlight.report import timeline
from rushlight.report.records import Call, Calls


def call(id, start, end, parent=None, operator="add", kind="scalar", hit=True):
    ran = "" if kind in ("compiled", "graph") else "add.float32.TT"
    return Call(id, parent, 0, operator, kind, hit, start, end, (), (), ran, "m.py:3",
                route="kernel" if ran else "none")  # fmt: skip


def record(time_ns, stage, name, **facts):
    return trace.Record(0, time_ns, 0, stage, name, "text", "", None, facts)


def test_compiling_is_on_the_axis_of_the_calls_backward_too():
    told = timeline.compilations([
        record(5_000_000, "dynamo", "f captured", unit="f#1", milliseconds=2.0),
        record(9_000_000, "inductor", "f", unit="f#1", stages={"a": 1.0, "all": 3.0}),
        record(20_000_000, "inductor", "f backward", unit="f#1", stages={"a": 1.0, "b": 3.0}),
        record(19_000_000, "cpp_openmp", "x", unit="f#1", compiler="g++ 12", ms=1.0),
        record(1, "fx_graph", "f"),
    ])  # fmt: skip
    assert [(e.kind, e.name, e.end - e.start) for e in told] == [
        ("capture", "f#1", 2_000_000), ("compile", "f#1", 3_000_000),
        ("compile", "f#1 backward", 4_000_000), ("build", "g++", 1_000_000)]  # fmt: skip
    calls = Calls([call(0, 2_500_000, 10_000_000, operator="f", kind="compiled", hit=False)])
    made = timeline.timeline(calls, told, 1_000_000, 30_000_000, "m.py")
    rows = [(made["names"][e[4]], e[2], e[0], e[1]) for e in made["events"]]
    assert rows == [
        ("m.py", 0, 0, 30_000_000), ("f", 1, 1_500_000, 9_000_000),
        ("f#1", 2, 2_000_000, 4_000_000),
        ("f#1", 2, 5_000_000, 8_000_000), ("f#1 backward", 1, 15_000_000, 19_000_000),
        ("g++", 2, 17_000_000, 18_000_000)]  # fmt: skip
    assert made["wall"] == 30_000_000


def test_short_calls_stand_together_with_their_number(monkeypatch):
    monkeypatch.setattr(timeline, "EVENTS", 20)
    calls, id = [], 0
    for step in range(4):
        begun = 1_000_000 * step
        calls.append(call(id, begun, begun + 500_000, operator="long"))
        for n in range(50):
            start = begun + 500_000 + 1000 * n
            calls.append(call(id + 1 + 2 * n, start, start + 900, operator="short"))
            calls.append(call(id + 2 + 2 * n, start + 10, start + 20, id + 1 + 2 * n))
        id += 200
    made = timeline.timeline(Calls(calls), wall=5_000_000)
    assert len(made["events"]) <= 20
    counts = {}
    for e in made["events"]:
        name = made["names"][e[4]]
        counts[name] = counts.get(name, 0) + e[7]
    assert counts == {"": 1, "long": 4, "short": 200}
    assert max(e[1] for e in made["events"]) == 5_000_000
