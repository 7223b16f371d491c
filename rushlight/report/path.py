"""The documented paths: what the public sources say happens, before anything is observed.

Takes `path.json` (beside this file); gives `Path`: stages, steps and sources, and `select(mode,
device)`, the part that one combination takes. Invariant: `problems()` is empty: no dangling id, no
step or stage without a source, every stage of a selection reached from the first one.

The file's schema, version 1:

    schema              this schema's version;  version  the content's
    about scope not_shown                       sentences for the page
    verified_on verified_against                when, and against what, the content was checked
    dimensions          [{id, legend, default, options: [{value, label, phrase}]}]: the selectors,
    mode and device status_template     with {mode} {device} {n} {m}
    python_ends         ids of the last stages in which Python code is executed
    layers stage_kinds step_kinds               names of what stages and steps refer to
    sources             id -> {title, url, checked}
    stages              [{id, name, kind, layer, position, summary, explanation, evidence,
    rushlight, sources}]
                        `position`: column and row in the diagram; `evidence`: what an observed run
                        shows for it; `rushlight`: what does this stage's work here
    steps               [{id, from, to, kind, label, when, summary, sources}]
                        `when`: dimension -> values for which the step is taken; absent: all of them

A stage belongs to a selection if it is the first one or a step of the selection enters it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Stage:
    id: str
    name: str
    kind: str
    layer: str
    position: tuple[float, float]
    summary: str
    explanation: str
    evidence: str
    rushlight: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    id: str
    source: str
    target: str
    kind: str
    label: str
    when: Mapping[str, tuple[str, ...]]
    summary: str
    sources: tuple[str, ...]

    def taken(self, choice: Mapping[str, str]) -> bool:
        return all(choice[dimension] in values for dimension, values in self.when.items())


@dataclass(frozen=True, slots=True)
class Path:
    facts: Mapping[str, Any]  # the whole file, for what is only printed
    stages: Mapping[str, Stage]
    steps: tuple[Step, ...]

    def select(self, mode: str, device: str) -> tuple[list[Stage], list[Step]]:
        """The stages and steps of one path, each stage after those that lead to it; otherwise in
        the order of the file. ValueError for an unknown mode or device."""
        choice = {"mode": mode, "device": device}
        for dimension, value in choice.items():
            self.phrase(dimension, value)
        steps = [step for step in self.steps if step.taken(choice)]
        first = next(iter(self.stages))
        reached = {first}
        while new := {s.target for s in steps if s.source in reached} - reached:
            reached |= new
        steps = [step for step in steps if step.source in reached]
        before = {id: {s.source for s in steps if s.target == id} for id in reached}
        ordered: dict[str, Stage] = {}
        while len(ordered) < len(reached):
            rest = [i for i in self.stages if i in before]
            id = next((i for i in rest if before[i] <= ordered.keys()), rest[0] if rest else "")
            if not id:  # a step enters an unknown stage
                break
            ordered[id] = self.stages[id]
            del before[id]
        return list(ordered.values()), steps

    def phrase(self, dimension: str, value: str) -> str:
        options = next(d["options"] for d in self.facts["dimensions"] if d["id"] == dimension)
        for option in options:
            if option["value"] == value:
                return str(option["phrase"])
        known = ", ".join(option["value"] for option in options)
        raise ValueError(f"[explain] unknown {dimension} {value!r}; known are {known}")

    def status(self, mode: str, device: str) -> str:
        """'Showing eager mode on a CPU: 5 stages, 4 steps'"""
        stages, steps = self.select(mode, device)
        return str(self.facts["status_template"]).format(
            mode=self.phrase("mode", mode),
            device=self.phrase("device", device),
            n=len(stages),
            m=len(steps),
        )

    def selections(self) -> list[tuple[str, str]]:
        """Every (mode, device)."""
        values = [[o["value"] for o in d["options"]] for d in self.facts["dimensions"]]
        return [(mode, device) for mode in values[0] for device in values[1]]


@cache
def load() -> Path:
    with open(os.path.join(os.path.dirname(__file__), "path.json"), encoding="utf-8") as file:
        return parse(json.load(file))


def parse(facts: Mapping[str, Any]) -> Path:
    """The file's content as a Path. ValueError where its schema is another."""
    if facts.get("schema") != SCHEMA:
        found = facts.get("schema")
        raise ValueError(f"[explain] path.json has schema {found!r}, expected {SCHEMA}")
    stages = {}
    for s in facts["stages"]:
        x, y = s["position"]
        rest = (s["summary"], s["explanation"], s["evidence"], s["rushlight"], tuple(s["sources"]))
        stages[s["id"]] = Stage(s["id"], s["name"], s["kind"], s["layer"], (x, y), *rest)
    steps = tuple(
        Step(
            s["id"],
            s["from"],
            s["to"],
            s["kind"],
            s["label"],
            {k: tuple(v) for k, v in s["when"].items()},
            s["summary"],
            tuple(s["sources"]),
        )  # fmt: skip
        for s in facts["steps"]
    )
    return Path(facts, stages, steps)


def problems(path: Path) -> list[str]:
    """What is wrong with the file, a sentence each; empty when it holds together."""
    facts, found = path.facts, []
    sources, dimensions = facts["sources"], {d["id"]: d for d in facts["dimensions"]}
    backed: list[Stage | Step] = [*path.stages.values(), *path.steps]
    layers = {layer["id"] for layer in facts["layers"]}

    def check(holds: object, sentence: str) -> None:
        if not holds:
            found.append(sentence)

    for key, source in sources.items():
        check(source["url"].startswith("https://"), f"source {key} has no address")
        check(source["title"] and source["checked"], f"source {key} lacks its title or date")
        check(any(key in item.sources for item in backed), f"source {key} backs nothing")
    check(len(path.stages) == len(facts["stages"]), "two stages share an id")
    for stage in path.stages.values():
        check(stage.kind in facts["stage_kinds"], f"stage {stage.id} has unknown kind {stage.kind}")
        check(stage.layer in layers, f"stage {stage.id} has unknown layer {stage.layer}")
        check(stage.sources, f"stage {stage.id} has no source")
        check(set(stage.sources) <= set(sources), f"stage {stage.id} names an unknown source")
        for text in (stage.summary, stage.explanation, stage.evidence, stage.rushlight):
            check(text.endswith("."), f"stage {stage.id} has an unfinished text: {text!r}")
        on_a_step = any(stage.id in (s.source, s.target) for s in path.steps)
        check(on_a_step, f"stage {stage.id} is on no step")
    check(len({s.id for s in path.steps}) == len(path.steps), "two steps share an id")
    for step in path.steps:
        check(step.source in path.stages, f"step {step.id} leaves an unknown stage")
        check(step.target in path.stages, f"step {step.id} enters an unknown stage")
        check(step.kind in facts["step_kinds"], f"step {step.id} has unknown kind {step.kind}")
        check(step.sources, f"step {step.id} has no source")
        check(set(step.sources) <= set(sources), f"step {step.id} names an unknown source")
        check(step.summary.endswith("."), f"step {step.id} has an unfinished summary")
        for dimension, values in step.when.items():
            check(dimension in dimensions, f"step {step.id} depends on unknown {dimension}")
            known = {o["value"] for o in dimensions.get(dimension, {"options": []})["options"]}
            check(set(values) <= known, f"step {step.id} depends on an unknown {dimension}")
    for mode, device in path.selections():
        stages, steps = path.select(mode, device)
        last = [s for s in stages if not any(t.source == s.id for t in steps)]
        ends = len(last) == 1 and last[0].layer == "hardware"
        check(ends, f"{mode}, {device} ends not in one hardware stage")
    for stage_id in facts["python_ends"]:
        check(stage_id in path.stages, f"python_ends names unknown stage {stage_id}")
    return found
