"""The whole lowering, from top to bottom: a graph of operators -> one native call.

    take_along         library calls and the pointwise operators that they apply     graph
    move_views         views and concatenations out of the way of fusion            graph
    schedule_nodes     which nodes become one kernel, and why others do not          fusion
    lower_groups       definitions called with loop values                           loop IR
    build_device_code  groups on a GPU: Triton, or the artifact cache                GPU images
    place_results      which results are written into memory that is there           memory plan
    plan_memory        where each value lies in the call's one block of memory
    name_kernels       equal kernels share one function of the graph's C++ file      C++
    build_code         compiler, or the artifact cache                               shared object
    write_wrapper      kernels, library calls and views in order                     native program

Takes a graph whose compositions are expanded (those that are not run as eager operators). Every
step hands its artifact to `trace`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from rushlight import sym, trace
from rushlight.errors import CompilerBug, Unsupported, UserError
from rushlight.fx import passes
from rushlight.fx.graph import Graph, Var
from rushlight.fx.passes import left_out, run_passes
from rushlight.loops import phases
from rushlight.loops.expr import show
from rushlight.reasons import Reason, refuse
from rushlight.runtime import cache, native

from . import (
    codegen,
    convolutions,
    epilogues,
    memory_plan,
    moving,
    parts,
    placement,
    recall,
    scheduler,
    wrapper,
)
from .groups import CallStep, Group
from .lowering import Lowered, hoist_indices, known_form, lower_group, renamed, signature


class Compilation:
    """What the passes hand on. Each fills in what it makes and reads what stands above it."""

    def __init__(
        self, graph: Graph, single_kernels: bool, ends: wrapper.Ends | None, frozen: bool
    ) -> None:
        self.graph, self.single_kernels, self.ends = graph, single_kernels, ends
        self.frozen = frozen
        self.refused: list[Reason] = []  # before there is a schedule
        # what records call it: `unit/graph`, and once it is compiled its calls too
        self.label = f"{trace.current_unit()}/{trace.numbered(graph.name)}".lstrip("/")
        self.plan: scheduler.Schedule
        self.lowered: dict[int, Lowered] = {}  # by index of the group
        self.targets: dict[Var, Var] = {}
        self.memory: memory_plan.MemoryPlan
        self.written: list[tuple] = []  # (symbol, kernel, known strides) of each function
        self.long: set[int] = set()  # groups that are one long row
        self.symbols: dict[int, str] = {}  # the exported function of each
        self.codes: list[Any] = []  # `device_code.DeviceCode` of groups on a GPU
        self.kernels: dict[int, tuple[Lowered, Any]] = {}
        self.library: Any = None  # the loaded artifact
        # of each kernel: symbol (a GPU's: its record and images), facts, phases (recall.py)
        self.described: dict[int, tuple] = {}
        self.program: Any = None
        self.instructions: list[tuple] = []
        self.outputs: Any = ()
        self.text = ""
        self.milliseconds: dict[str, float] = {}


# Steps that `passes.changed(disabled=...)` may leave out, beside the passes of move_views; each is
# right without those that stand after it.
SWITCHES = (
    "code_generation",
    "fusion",
    *(one.__name__ for one in moving.PASSES),
    "find_parts",
    "place_results",
    "plan_memory",
    "take_along",
)


def take_along(c: Compilation) -> None:
    c.graph, c.refused = epilogues.take_along(c.graph, c.frozen)
    if c.frozen:
        c.graph, more = convolutions.take_along(c.graph)
        c.refused += more


def move_views(c: Compilation) -> None:
    if not c.single_kernels:
        c.graph = run_passes(c.graph, moving.PASSES, "inductor")


def schedule_nodes(c: Compilation) -> None:
    c.plan = scheduler.schedule(c.graph)
    if not left_out("find_parts"):
        c.plan.parts = parts.find_parts(c.plan)
    c.plan.reasons += c.refused
    for step in c.plan.steps:
        if isinstance(step, CallStep):
            c.plan.reasons.append(fallback(step))
    if trace.listeners:
        trace.emit(
            "fusion", c.graph.name, "\n".join(shown(c, step) for step in c.plan.steps),
            graph=c.label,
            steps=[describe_step(c, step) for step in c.plan.steps], absorbed=describe_absorbed(c),
        )  # fmt: skip


def shown(c: Compilation, step: Group | CallStep) -> str:
    alone = isinstance(step, Group) and not is_generated(c, step)
    return f"{step}; one operator, called as it is" if alone else str(step)


def describe_absorbed(c: Compilation) -> list[dict[str, Any]]:
    """For records: the nodes that no step runs, with the chain of origins of each, and why."""
    inside = {id(n) for step in c.plan.steps for n in step.nodes}
    return [
        {
            "makes": [o.name for o in n.outs],
            "origins": " > ".join([*map(str, n.origins), f"{n.op.name} {n.op.where}"]),
            "why": "a number that stands in the code of what reads it"
            if n.op.name == "full"
            else "a view: whoever reads it reads the same memory by other strides",
        }
        for n in c.graph.calls
        if id(n) not in inside
    ]


def describe_step(c: Compilation, step: Group | CallStep) -> dict[str, Any]:
    """For records: what it is called in records of calls, its operators, the variables that it
    makes, and the chain of origins of each node."""
    generated = is_generated(c, step)
    ran = step.name if isinstance(step, Group) and generated else step.nodes[0].op.name
    return {
        "text": str(step),
        "ran": ran,
        "generated": generated,
        "operators": [n.op.name for n in step.nodes],
        "makes": [o.name for n in step.nodes for o in n.outs],
        "origins": [
            " > ".join([*map(str, n.origins), f"{n.op.name} {n.op.where}"]) for n in step.nodes
        ],
    }


def is_generated(c: Compilation, step: Group | CallStep) -> bool:
    if not isinstance(step, Group) or left_out("code_generation"):
        return False
    return len(step.nodes) > 1 or c.single_kernels or step.on_gpu or bool(step.placed)


def fallback(step: CallStep) -> Reason:
    op = step.node.op
    if op.kind == "library":
        return refuse(
            "fallback.library",
            op.name,
            "a library multiplies matrices better than generated loops"
            if op.routine is None
            else f"the routine {op.routine} runs it: it does not go element by element",
            where=step.node.where or None,
        )
    return refuse(
        "fallback.no_definition",
        op.name,
        f"it is not defined as one loop over its operands' elements ({op.kind})",
        where=step.node.where or None,
    )


def lower_groups(c: Compilation) -> None:
    """A group of one node keeps its precompiled kernel, unless its result lies in a whole, or
    `single_kernels` asks for all; or on a GPU, where one made for its sizes reads memory once and
    in whole vectors."""
    seen: dict[tuple, tuple[Lowered, list[Var]]] = {}
    for step in c.plan.steps:
        if isinstance(step, Group) and is_generated(c, step):
            hoist_indices(c.plan, step)
            key, variables = signature(c.plan, step)
            if key in seen:
                low = renamed(*seen[key], variables, step)
            else:
                low = lower_group(c.plan, step, step.on_gpu)
                seen[key] = (low, variables)
            c.lowered[step.index] = low
    if trace.listeners:
        for lowered, _ in seen.values():
            trace.emit(
                "loop_ir", lowered.kernel.name, partial(show, lowered.kernel, True), graph=c.label,
                origin=lowered.origin,
            )  # fmt: skip


def build_device_code(c: Compilation) -> None:
    """A group whose kernel cannot be built runs as its operators, with the reason."""
    groups = [(s, c.lowered[s.index]) for s in c.plan.steps if isinstance(s, Group) and s.on_gpu]
    if not groups:
        return
    from . import device_code  # only here: the CPU's path does not pay for its import

    try:
        with trace.about(graph=c.label):
            made = device_code.build_groups(groups, native.capability(groups[0][0].device))
    except Unsupported:  # no Triton: recorded where it was found out
        made = device_code.Built([], {})
    c.codes = made.codes
    ready: dict[int, Any] = {}  # equal groups share one: its images are loaded once
    for group, low in groups:
        if group.index not in made.kernels:
            del c.lowered[group.index]
            continue
        code = made.kernels[group.index]
        c.described[group.index] = (code, tuple(facts_of(low)), None)
        if id(code) not in ready:
            ready[id(code)] = native.device_kernel(*code)
        c.kernels[group.index] = (low, callable_kernel(low, ready[id(code)], None))


def place_results(c: Compilation) -> None:
    ends = c.ends or wrapper.Ends(len(c.graph.outputs))
    written = ends.written if ends.outputs is not None else ()
    c.targets = placement.place_results(c.plan, c.lowered, ends.own, written)


def plan_memory(c: Compilation) -> None:
    steps = []
    for step in c.plan.steps:
        low = c.lowered.get(step.index)
        made = list(low.results) if low else [o for n in step.nodes for o in n.outs]
        steps.append(([c.plan.base(v) for n in step.nodes for v in n.reads], made))
    within = {v: c.plan.base(x) for v, x in c.targets.items()}
    within |= {v: c.plan.base(p.whole) for v, p in c.plan.parts.items()}
    lives = memory_plan.Lives(steps, within, set(map(c.plan.base, c.graph.outputs)))
    carved = {x for x in lives.members if x in c.plan.made and takes_memory(c, x)}
    if left_out("plan_memory"):
        carved = set()
    c.memory = memory_plan.plan_memory(lives, carved, len(steps))
    trace.emit(
        "memory_plan",
        c.graph.name,
        lambda: str(c.memory),
        graph=c.label,
        total=c.memory.total,
        peak=c.memory.peak,
        workspace=c.memory.workspace,
    )


def takes_memory(c: Compilation, x: Var) -> bool:
    """Whether what makes x can be told where to."""
    step = c.plan.steps[c.plan.made[x]]
    if c.plan.device != "cpu":
        return False
    if step.index in c.lowered or parts.whole_of(c.graph.makers[x]) is not None:
        return step.index in c.lowered or any(p.whole == x for p in c.plan.parts.values())
    node = step.nodes[0]
    return len(node.outs) == 1 and (node.op.name in PRODUCTS or isinstance(step, Group))


PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


def name_kernels(c: Compilation) -> None:
    """Kernels that differ in nothing but their names share their code."""
    written: dict[tuple, tuple] = {}
    texts: dict[tuple, tuple] = {}
    for step in c.plan.steps:
        low = c.lowered.get(step.index)
        if low is not None and isinstance(step, Group) and not step.on_gpu:
            known = known_form(step, low)
            same = (id(low.kernel), known)
            if same not in texts:
                loops = show(low.kernel).partition("(")[2]
                symbol = f"kernel_{len(written)}"
                texts[same] = written.setdefault((loops, known), (symbol, low.kernel, known))
            c.symbols[step.index] = texts[same][0]
            if codegen.is_long(known):
                c.long.add(step.index)
    c.written = list(written.values())


def build_code(c: Compilation) -> None:
    """Source is written where no artifact has the kernels' loops, the emitter and the math."""
    if not c.written:
        return
    library = c.library = cache.load(
        lambda: codegen.generate(c.written),
        native.isa(),
        graph=c.graph.name,
        kernels=cache.digest("\n".join(map(codegen.described, c.written))),
        emitter=codegen.emitter(),
    )
    if trace.listeners:
        trace.emit(
            "cpp_openmp", c.graph.name, lambda: codegen.generate(c.written), graph=c.label,
            symbols={c.lowered[i].kernel.name: c.symbols[i] for i in c.lowered},
            ran={i: c.lowered[i].kernel.name for i in c.lowered},
        )  # fmt: skip
    for i, symbol in c.symbols.items():
        low = c.lowered[i]
        phased = phased_part(c, i) if i in c.long else None
        c.described[i] = (symbol, tuple(facts_of(low)), phased)
        if phased is not None:
            phased = (cache.pointer(library, phased[0]), *phased[1:])
        code = cache.pointer(library, symbol)
        c.kernels[i] = (low, callable_kernel(low, code, library, phased))


def callable_kernel(low: Lowered, code: Any, owner: Any, phased: Any = None) -> Any:
    """A kernel's code (its address, or a GPU's kernel) as a callable on tensors."""
    return native.kernel(code, facts_of(low), owner, phased)


def facts_of(low: Lowered) -> native.KernelFacts:
    k = low.kernel
    return native.KernelFacts(
        k.name,
        low.rule,
        low.rows,
        low.in_kinds,
        low.out_kinds,
        tuple(o.dtype for o in low.results),
        low.number_kinds,
        len(k.outer),
        len(k.inner),
        low.serial,
        low.cost,
        low.origin,
    )


def phased_part(c: Compilation, i: int) -> tuple:
    symbol = codegen.part_symbol(c.symbols[i])
    _, *facts = phases.phased(c.lowered[i].kernel, symbol)
    return (symbol, *facts)


def write_wrapper(c: Compilation) -> None:
    c.program, c.text, c.instructions, c.outputs = wrapper.write(
        c.plan, c.kernels, c.targets, c.memory, c.ends
    )
    c.program.label = c.label
    trace.emit("wrapper", c.graph.name, c.text, graph=c.label, kernels=len(c.kernels))


PASSES = (
    take_along,
    move_views,
    schedule_nodes,
    lower_groups,
    build_device_code,
    place_results,
    plan_memory,
    name_kernels,
    build_code,
    write_wrapper,
)

MAY_BE_LEFT_OUT = (take_along, place_results)  # of SWITCHES; the others are parts of a step


def compile_graph(
    graph: Graph,
    *,
    single_kernels: bool = False,
    ends: wrapper.Ends | None = None,
    frozen: bool = False,
    kept_as: str | None = None,
) -> CompiledGraph:
    """The graph as a callable on tensors of its inputs' layouts (any sizes where those are
    symbolic, within its guards).

    Its results are what running the graph gives: the same bits for float32, float64 and
    integers; half types are kept wider between fused operators. Nothing is recorded for
    autograd. `ends`: what the program does with the results; `kept_as`: the name under which the
    next process finds the program (recall.py). Raises UserError for other layouts than
    compiled for.
    """
    if passes.settings.instead is not None:
        return passes.settings.instead(graph, ends, frozen)
    c = Compilation(graph, single_kernels, ends, frozen)
    with native.questions() as asked:
        for one in PASSES:
            if one in MAY_BE_LEFT_OUT and left_out(one.__name__):
                continue
            trace.doing(one.__name__)
            start = time.perf_counter()
            one(c)
            c.milliseconds[one.__name__] = 1e3 * (time.perf_counter() - start)
    if kept_as is not None:
        recall.keep(kept_as, c, asked)
    if passes.settings.also is not None:
        passes.settings.also(graph, c.label)
    made = CompiledGraph(c)
    made.kept_as = kept_as
    return made


class CompiledGraph:
    """A compiled graph: call it. `kernels` are its generated kernels, `text` what one call does,
    `source` the C++."""

    def __init__(self, c: Compilation) -> None:
        self.graph, self.program, self.text = c.graph, c.program, c.text
        self.written, self.codes = c.written, c.codes
        self.kernels = tuple(low.kernel for low, _ in c.kernels.values())
        self.steps, self.reasons, self.memory = c.plan.steps, tuple(c.plan.reasons), c.memory
        self.milliseconds = c.milliseconds
        self.kept_as: str | None = None
        self.expected = [(v.name, v.layout) for v in c.graph.inputs]
        self.guards = [
            (text, compile(text, "<guard>", "eval"), answer) for text, answer in c.graph.env.guards
        ]

    @property
    def source(self) -> str:
        """The C++ and Triton of all kernels, as the compilers get it on a cache miss."""
        text = codegen.generate(self.written) if self.written else ""
        return text + "\n\n".join(s.text for code in self.codes for s in code.sources)

    def __call__(self, *tensors: Any) -> Any:
        self.check(tensors)
        try:
            return native.without_grad(self.program, tensors)
        except IndexError as error:
            if native.is_other_strides(error):
                text = "a kernel was called with other strides than it was compiled for"
                raise CompilerBug("inductor", text, self.text) from None
            raise

    def check(self, tensors: tuple) -> None:
        """Stands in for compiled guards, which check this natively."""
        expected = len(self.expected) + len(self.graph.numbers)
        if len(tensors) != expected:
            raise UserError(
                self.graph.name, f"takes {expected} inputs, got {len(tensors)}", kind=TypeError
            )
        sizes: dict[str, int] = {}
        for (name, layout), x in zip(self.expected, tensors):
            shape, strides = tuple(x.shape), tuple(x.stride())
            if shape == layout.shape and strides == layout.strides and x.dtype.name == layout.dtype:
                continue
            if (
                x.dtype.name != layout.dtype
                or len(shape) != layout.rank
                or not bound(layout, shape, strides, sizes)
            ):
                raise UserError(
                    self.graph.name,
                    f"was compiled for {name}: {layout} with strides {list(layout.strides)}, "
                    f"got {x.dtype.name}{list(shape)} with strides {list(strides)}",
                )
        for text, code, answer in self.guards if sizes else ():
            if bool(eval(code, {"__builtins__": {}}, sizes)) != answer:
                raise UserError(
                    self.graph.name, f"was compiled where ({text}) is {answer}; sizes are {sizes}"
                )


def bound(layout: Any, shape: tuple, strides: tuple, sizes: dict[str, int]) -> bool:
    """Whether sizes and strides fit the layout's, once symbols stand for what they meet first."""
    for n, m in zip(layout.shape, shape):
        if isinstance(n, sym.Sym):
            name = str(n)
            if n.terms == {(name,): 1}:
                if sizes.setdefault(name, m) != m:
                    return False
            elif n.evaluate(sizes) != m:
                return False
        elif n != m:
            return False
    for n, s, t in zip(shape, layout.strides, strides):
        if n > 1 and (s.evaluate(sizes) if isinstance(s, sym.Sym) else s) != t:
            return False
    return True
