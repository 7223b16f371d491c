"""A finding -> one Python file that shows it: the graph as code, inputs of the recorded shapes,
dtypes and strides, the switch, and what is expected beside what comes out.

Inputs of few numbers stand in the file. Others are random numbers of the recorded range where these
show the difference too, and else lie beside the file as `NAME.values`.
"""

from __future__ import annotations

import builtins
import math
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import rushlight as rl
from rushlight.fx.graph import Graph
from rushlight.inductor.pipeline import SWITCHES

from .stages import Finding, build, result_of
from .values import SMALL, Interpreted, differences, extent, is_tensor, seeded

HEAD = '''"""{title}: a wrong answer, found by `rushlight bisect {script}`.

{what}
Seen in call {call} of {function}. {first}
Run this file: it prints both answers and where they differ, and ends with 1 while they do.
"""

import sys

{imports}

{graph}
# What the step was given: shapes, dtypes and strides are those of the run.
INPUTS = [
{inputs}
]

{body}

print("expected:", *want.results, want.error or "", sep="\\n")
print("got:", *got.results, got.error or "", sep="\\n")
print(differences(got, want) or "they agree")
sys.exit(differences(got, want) is not None)
'''

OF_GRAPH = """\
graph = fx.parse(GRAPH)


def expected(*inputs):
    return fx.run(graph, *inputs)  # one operator after another


want = result_of(lambda: expected, INPUTS)
right = result_of(lambda: build(graph, None, False, {before!r}), INPUTS)  # without the step
got = result_of(lambda: build(graph, None, False, {step!r}), INPUTS)
print("without {name}:", differences(right, want) or "as expected")"""

OF_PASS = """\
graph = fx.parse(GRAPH)


def decomposed(*inputs):
    return fx.run(decompose(graph), *inputs)


want = outcome(lambda *inputs: fx.run(graph, *inputs), INPUTS, (0, 0))
with passes.changed(limit={limit}):  # the passes before {name}
    right = outcome(decomposed, INPUTS, (0, 0))
with passes.changed(limit={limit} + 1):
    got = outcome(decomposed, INPUTS, (0, 0))
print("without {name}:", differences(right, want) or "as expected")"""

OF_DERIVATIVES = """\
graph = fx.parse(GRAPH)
want = outcome(lambda *inputs: fx.run(graph, *inputs), INPUTS, (0, 0))  # by the eager tape
got = outcome(Derived(graph), INPUTS, (0, 0))  # by forward and backward graphs, interpreted"""

OF_CAPTURED = """\
want = outcome({name}, INPUTS, (0, 0))
{switch}got = outcome(Compiled({name}, INPUTS), INPUTS, (0, 0))"""

OF_SCRIPT = '''"""{title}: a wrong answer, found by `rushlight bisect {script}`.

{what}
Seen in call {call} of {function}. The script stands below as it was: what it imports beside
Rushlight must be there. Run this file: it runs the script in eager mode and with `{backend}`, and
ends with 1 while the results of its compiled calls differ.
"""

import sys

from rushlight.bisection.script import compare_text

SCRIPT = """\\
{text}"""

sys.exit(compare_text(SCRIPT, {args!r}, {kind!r}, {mode!r}))
'''


def write(found: Finding, file: str, script: str, args: Sequence[str], mode: str) -> list[str]:
    """The files that were written, the reproduction first."""
    try:
        text, beside = of_graph(found, script, file)
    except Unspelled:
        text, beside = of_script(found, script, args, mode), None
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
    if beside is None:
        return [file]
    rl.save(beside, values_file(file))
    return [file, values_file(file)]


def values_file(file: str) -> str:
    return os.path.splitext(file)[0] + ".values"


class Unspelled(Exception):
    """The graph names an object that a file cannot name."""


IMPORTS = {
    "rushlight": ("fx",),
    "rushlight.bisection": ("differences", "interpreted", "outcome", "seeded", "strided"),
    "rushlight.bisection.stages": ("Derived", "build", "result_of"),
    "rushlight.compiled": ("Compiled",),
    "rushlight.decomposition": ("decompose",),
    "rushlight.fx": ("passes",),
}


def of_graph(found: Finding, script: str, file: str) -> tuple[str, list | None]:
    if found.stage in ("capture", "guards") or found.graph is None:
        raise Unspelled
    names = ""
    if found.stage in ("functionalise", "call"):
        graph, names = captured(found.graph)
        switch = ""
        if found.stage == "functionalise":
            switch = "with passes.changed(limit=0, instead=interpreted):  # AOT, and no more\n    "
        body = OF_CAPTURED.format(name=found.graph.graph.name, switch=switch)
    else:
        graph = printed(found.graph)
        order = ("decomposition", "write_wrapper", *SWITCHES)
        if found.stage == "derivatives":
            body = OF_DERIVATIVES
        elif found.stage == "decomposition":
            body = OF_PASS.format(limit=found.limit, name=found.step)
        else:
            before = order[order.index(found.step) - 1]
            body = OF_GRAPH.format(before=before, step=found.step, name=found.step)
    lines, beside = inputs(found)
    if beside:
        name = os.path.basename(values_file(file))
        lines = [f"    *rl.load(os.path.join(os.path.dirname(__file__), {name!r})),"]
    used = "\n".join([graph, names, body, *lines, "differences("])
    imports = ["import rushlight as rl"] + [
        f"from {module} import {', '.join(found_)}"
        for module, known in IMPORTS.items()
        if (found_ := [n for n in known if re.search(rf"\b{n}\b", used)])
    ]
    if beside:
        imports = ["import os", "", *imports]
    text = HEAD.format(
        title=found.title, script=script, what=found.what, call=found.call,
        function=found.function or "the program",
        first=f"The first operator that is wrong: {found.node}." if found.node else "",
        imports="\n".join(imports) + names, graph=graph, inputs="\n".join(lines), body=body,
    )  # fmt: skip
    return text, list(found.values) if beside else None


def printed(graph: Graph) -> str:
    """The graph's text, which must be read back as the same graph."""
    from rushlight.fx.parsing import parse

    text = graph.print()
    try:
        same = parse(text).print() == text
    except Exception:
        same = False
    if not same or graph.constants or any(v.layout.device != "cpu" for v in graph.inputs):
        raise Unspelled
    return f'GRAPH = """\\\n{text}"""\n'


def captured(gm: Any) -> tuple[str, str]:
    """(the function as code, imports and names of what it calls) of a captured graph."""
    graph = getattr(gm, "graph", None)
    if graph is None:
        raise Unspelled
    text, objects = graph.source(annotate=True, bound=False)
    names = "".join(f"\n{name} = {spelled(value)}" for name, value in objects.items())
    if "math." in names or "operator." in names:
        names = "\nimport math\nimport operator\n" + names
    return text + "\n", names


def spelled(value: Any) -> str:
    """An expression that gives the object. Unspelled where none is known."""
    name = getattr(value, "__name__", None) or getattr(value, "name", None)
    if isinstance(value, (int, float, complex, str, bool, type(None))):
        return f"float({str(value)!r})" if isinstance(value, float) else repr(value)
    if isinstance(name, str):
        for place, holder in places():
            if getattr(holder, name, None) is value:
                return name if place == "" else f"{place}.{name}"
        from rushlight.ops.values import TABLE

        if name in TABLE and TABLE[name].native is value:
            return f"fx.tracing.TABLE[{name!r}].native"
        module = getattr(value, "__module__", "") or ""
        if module.startswith("rushlight") and getattr(sys.modules[module], name, None) is value:
            return f'__import__("{module}", fromlist=["_"]).{name}'
    if is_tensor(value) and value.numel() <= SMALL:
        return literal(value)
    raise Unspelled


def places() -> list[tuple[str, Any]]:
    import operator

    named = {"rl": rl, "rl.nn.functional": rl.nn.functional, "rl.Tensor": rl.Tensor}
    named |= {"rl._core": rl._core, "math": math, "operator": operator, "": builtins}
    return list(named.items())


# ---- inputs


def inputs(found: Finding) -> tuple[list[str], bool]:
    """A line for each input, and whether they must lie beside the file instead."""
    lines, seeds = [], []
    for i, x in enumerate(found.values):
        if not is_tensor(x):
            lines.append(f"    {x!r},")
            seeds.append(x)
        elif x.numel() <= SMALL and not x.is_cuda:
            lines.append(f"    {literal(x)},")
            seeds.append(x)
        else:
            line, made = random(x, i)
            lines.append(f"    {line},")
            seeds.append(made)
    if all(a is b for a, b in zip(seeds, found.values)) or shows(found, tuple(seeds)):
        return lines, False
    return [], True


def shows(found: Finding, values: tuple) -> bool:
    if not isinstance(found.graph, Graph) or found.stage == "derivatives":
        return False
    want = result_of(lambda: Interpreted(found.graph, None, False).program, values)
    step = found.step if found.stage != "decomposition" else found.stage
    got = result_of(lambda: build(found.graph, None, False, step), values)
    return differences(got, want) is not None


def literal(x: Any) -> str:
    plain = x.detach()
    shape, strides = tuple(x.shape), tuple(x.stride())
    name = x.dtype.name
    count = extent(shape, strides)
    if count > 4 * SMALL:
        plain = plain.contiguous()
        strides, count = tuple(plain.stride()), extent(shape, plain.stride())
    memory = plain.as_strided((count,), (1,), plain.storage_offset()).tolist()
    values = ", ".join(map(number, memory))
    text = f"strided([{values}], {name!r}, {shape}, {strides})"
    return text + (".requires_grad_()" if x.requires_grad else "")


def number(v: Any) -> str:
    return f'float("{v}")' if isinstance(v, float) and not math.isfinite(v) else repr(v)


def random(x: Any, seed: int) -> tuple[str, Any]:
    """(the call, its value): random numbers in the range of x."""
    shape, strides, name = tuple(x.shape), tuple(x.stride()), x.dtype.name
    seen = [v for v in x.detach().reshape((-1,)).tolist() if math.isfinite(v)]
    low, high = (min(seen), max(seen)) if seen else (0, 1)
    given = (seed, name, shape, strides, float(f"{low:.4g}"), float(f"{high:.4g}"))
    if not x.dtype.is_floating_point:
        given = (seed, name, shape, strides, int(low), int(high))
    text = f"seeded({', '.join(map(repr, given))})"
    if x.requires_grad:
        return text + ".requires_grad_()", seeded(*given).requires_grad_()
    return text, seeded(*given)


def of_script(found: Finding, script: str, args: Sequence[str], mode: str) -> str:
    with open(script, encoding="utf-8") as source:
        text = source.read().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    kind = "staged" if found.stage == "capture" else "whole"
    backend = "eager" if kind == "staged" else "inductor"
    return OF_SCRIPT.format(
        title=found.title, script=script, what=found.what, call=found.call,
        function=found.function or "the program", backend=f'backend="{backend}"',
        text=text if text.endswith("\n") else text + "\n", args=list(args), kind=kind, mode=mode,
    )  # fmt: skip
