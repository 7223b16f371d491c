"""What profiles and `explain` see of a device: times between events, launches in order, waits."""

import json
import re

import stand_in

import rushlight as rl
from rushlight.profiler import profile

stand_in.install()


def check_a_profile_has_the_device_s_times():
    x = rl.ones(100, device="cuda")
    with profile() as prof:
        y = x * 2
        (y + 1).sum()
    times = {e.name: e.device_time_total for e in prof.events() if e.category == "op"}
    assert set(times) == {"mul", "add", "sum"} and all(times.values())
    averages = {e.key: e for e in prof.key_averages()}
    assert averages["mul"].device_time_total == times["mul"]
    assert "Self CUDA" in prof.key_averages().table(sort_by="cuda_time_total")
    with profile() as prof:
        rl.ones(3) * 2
    assert "CUDA" not in prof.key_averages().table()


def check_explain_has_launches_and_waits_with_their_lines():
    def program():
        x = rl.ones(100, device="cuda")
        y = (x * 2 + 1).sum()
        return y.item()

    explained = rl.explain(program)()
    assert explained.result == 300
    line = program.__code__.co_firstlineno
    facts = explained.observed.facts
    assert "reads" not in facts  # those that waited are told as waits
    assert any(f"check_observation.py:{line + 3}" in wait["line"] for wait in facts["waits"])
    found = re.search(r'id="data">(.*?)</script>', explained.page(), re.S)
    events = json.loads(found[1])["device_events"]
    kinds = [e["kind"] for e in events]
    assert kinds[-1] == "reads" and kinds.count("launches") >= 3
    assert f"check_observation.py:{line + 2}" in events[-2]["where"]
    assert [e["at"] for e in events] == sorted(e["at"] for e in events)


def check_what_ran_on_the_cpu_beside_stands_behind_and_is_no_launch():
    def program():
        x = rl.full((200, 200), 0.5)
        x = (x.exp() + 1).to("cuda")
        return (x + 1).sum().item()

    explained = rl.explain(program)()
    costs = explained.observed.costs
    on_host = [c.name for c in costs if c.host]
    assert "exp.float32.T" in on_host and not costs[0].host
    assert {c.name for c in costs if not c.host} == {"add.float32.TN", "sum.float32.T"}
    assert [c.host for c in costs] == sorted(c.host for c in costs)
    data = json.loads(re.search(r'id="data">(.*?)</script>', explained.page(), re.S)[1])
    assert not any("exp" in e["name"] for e in data["device_events"])
    kernels = next(s for s in explained.observed.stages if s.id == "aten_cpu")
    assert not kernels.taken and "stand behind the GPU's" in kernels.sentence


stand_in.main(globals())
