"""Steps -> one native program: instructions on registers that call fused kernels, operators and
views in order.

Views appear here only where a call needs one as an operand: each is a native call that moves no
data. Symbolic sizes become registers filled from the inputs' shapes.
"""

from __future__ import annotations

import operator
import textwrap
from typing import Any, NamedTuple

from rushlight import sym
from rushlight.errors import CompilerBug, Unsupported
from rushlight.fx.graph import ATTRIBUTE, PLACEHOLDER, Node, Var, variables
from rushlight.ops.values import TABLE
from rushlight.runtime import native
from rushlight.runtime.packing import Packed

from .groups import Group
from .lowering import Lowered, shape_for_call
from .memory_plan import MemoryPlan, workspace
from .parts import whole_of
from .placement import SCATTERS
from .scheduler import Schedule


class Wrapper:
    """The program of one graph, being written. `lines` is the same as Python text."""

    def __init__(self, plan: Schedule, targets: dict[Var, Var]) -> None:
        self.plan, self.graph, self.targets = plan, plan.graph, targets
        self.instructions: list[tuple] = []
        self.outputs: Any = ()
        self.lines: list[str] = []
        self.known: dict[Any, native.Entry] = {}  # variables, and texts of sizes
        self.count = len(self.graph.inputs) + len(self.graph.numbers)
        self.names: dict[int, str] = {}
        self.slots: dict[Var, native.Entry] = {}  # where values lie in the call's workspace
        for i, name in enumerate(self.graph.numbers, len(self.graph.inputs)):
            self.known[name] = ("r", i)
            self.names[i] = name
        for i, v in enumerate(self.graph.inputs):
            self.known[v] = ("r", i)
            self.names[i] = v.name
        for node in self.graph.nodes:
            if node.kind == ATTRIBUTE:
                self.known[node.outs[0]] = ("c", self.graph.constants[node.target])

    # ---- instructions

    def emit(self, callee: Any, entries: list, outs: list[str], text: str) -> list[native.Entry]:
        registers = tuple(range(self.count, self.count + len(outs)))
        self.count += len(outs)
        self.names.update(zip(registers, outs))
        self.instructions.append((callee, tuple(entries), registers))
        if "." not in text:  # an operator: its name alone may be a variable's here
            text = f"ops.{text}"
        self.lines.append(f"{', '.join(outs)} = {text}({', '.join(map(self.show, entries))})")
        return [("r", r) for r in registers]

    def show(self, entry: native.Entry) -> str:
        if entry[0] == "r":
            return self.names[entry[1]]
        if entry[0] == "l":
            return f"[{', '.join(map(self.show, entry[1]))}]"
        return "constant" if hasattr(entry[1], "data_ptr") else repr(entry[1])

    def call_operator(self, node: Node) -> None:
        op = node.op
        if node.outs[0] in self.known:  # pieces of it were written already
            self.complete(node)
            return
        if op.native is None:
            raise CompilerBug("wrapper", f"{op.name} has no native operator", str(self.graph))
        entries = [self.argument(v, p.kind) for v, p in zip(node.arguments, op.parameters)]
        callee, name = op.native, op.name
        if node.outs[0] in self.targets and op.name in SCATTERS:
            self.known[node.outs[0]] = self.scatter(node, entries)
            return
        if node.outs[0] in self.targets:
            callee, name = op.native.inplace, op.name + "_"
        elif node.outs[0] in self.slots:
            entries.append(self.slots[node.outs[0]])
        elif self.plan.device != "cpu" and not node.call.tensors:
            named = [p.name for p in op.parameters if p.keyword_only]
            callee = native.MadeOn(self.plan.device, op.native, named)
        elif op.name in ("pack_weight", "pack_convolution"):  # kept while the weight is the same
            callee = Packed(callee, at_once=op.name == "pack_convolution")
        outs = self.emit(callee, entries, [identifier(o) for o in node.outs], name)
        self.known.update(zip(node.outs, outs))

    def scatter(self, node: Node, entries: list) -> native.Entry:
        """slice_scatter and its like where the old value is read no more: written in place."""
        part = self.plan.parts.get(node.arguments[1])
        if part is not None and part.whole == node.arguments[0]:  # it was made there
            return entries[0]
        view, copy = TABLE[SCATTERS[node.op.name]], TABLE["copy"].native.inplace
        out = identifier(node.outs[0])
        (place,) = self.emit(view.native, [entries[0], *entries[2:]], [f"{out}_place"], view.name)
        self.emit(copy, [place, entries[1], ("c", False)], [f"{out}_written"], "copy_")
        return entries[0]

    def call_kernel(self, group: Group, lowered: Lowered, kernel: Any) -> None:
        entries = []
        for i, read in enumerate(lowered.reads):
            x = read.var
            entry, shape = self.value(x), shape_for_call(group, lowered.reads, i)
            if read.strides is not None:
                look = [entry, *(self.argument(v, "symints") for v in read[2:])]
                name = f"{identifier(x)}_{'over' if read.per_row else 'at'}"
                (entry,) = self.emit(TABLE["as_strided"].native, look, [name], "as_strided")
            elif shape is not None:
                expand = TABLE["expand"].native
                (entry,) = self.emit(
                    expand,
                    [entry, self.argument(shape, "symints")],
                    [f"{identifier(x)}_full"],
                    "expand",
                )
            entries.append(entry)
        entries += [self.size(n) for n in lowered.sizes]
        into = [self.place_of(o) for o in lowered.results]
        if any(entry is not None for entry in into):
            entries += [("c", None) if entry is None else entry for entry in into]
        outs = self.emit(
            kernel, entries, [identifier(o) for o in lowered.results], f"kernels.{group.name}"
        )
        self.known.update(zip(lowered.results, outs))

    # ---- memory that is there already

    def place_of(self, out: Var) -> native.Entry | None:
        """What a kernel's result is written to; None: memory of its own."""
        if out in self.targets:
            return self.value(self.targets[out])
        part = self.plan.parts.get(out)
        if part is None:
            return self.slots.get(out)
        if part.whole not in self.known and whole_of(self.graph.makers[part.whole]) is not None:
            self.known[part.whole] = self.allocate(part.whole)
        self.value(part.whole)
        return self.looked(self.known[part.whole], part.views, f"{identifier(out)}_place")

    def place(self, node: Node) -> None:
        """An operator's results that are pieces of a whole, copied to their places: a kernel would
        have written them there."""
        for out in node.outs:
            if out in self.plan.parts and out in self.known:
                place = self.place_of(out)
                copy = TABLE["copy"].native.inplace
                name = f"{identifier(out)}_placed"
                self.emit(copy, [place, self.known[out], ("c", False)], [name], "copy_")

    def carve(self, memory: MemoryPlan) -> None:
        """The one allocation of a call, and the places in it."""
        if len(memory.places) < 2:
            return
        values = [p.value for p in memory.places]
        sizes = [n for v in values for n in v.shape if isinstance(n, sym.Sym)]
        names = sorted({name for n in sizes for term in n.terms for name in term})
        entries = [self.size(sym.Sym(self.graph.env, {(n,): 1})) for n in names]
        outs = [f"{identifier(v)}_slot" for v in values]
        made = self.emit(workspace(memory, names), entries, outs, "memory.workspace")
        self.slots.update(zip(values, made))

    def allocate(self, x: Var) -> native.Entry:
        whole = whole_of(self.graph.makers[x])
        assert whole is not None
        size, name = self.argument(x.shape, "symints"), identifier(x)
        if x in self.slots:
            if whole.number is not None:
                fill, number = TABLE["fill"].native.inplace, self.argument(whole.number, "")
                self.emit(fill, [self.slots[x], number], [name], "fill_")
            return self.slots[x]
        if whole.number is None:
            return self.emit(native.empty, [size, ("c", native.dtype(x.dtype))], [name], "empty")[0]
        number = self.argument(whole.number, "")
        dtype = ("c", native.dtype(x.dtype))
        return self.emit(TABLE["full"].native, [size, number, dtype], [name], "full")[0]

    def looked(self, entry: native.Entry, views: tuple, name: str) -> native.Entry:
        for op, rest in views:
            arguments = [entry, *(self.argument(v, "") for v in rest)]
            (entry,) = self.emit(TABLE[op].native, arguments, [name], op)
        return entry

    def complete(self, node: Node) -> None:
        """The pieces that were made elsewhere, copied."""
        (out,), whole = node.outs, whole_of(node)
        assert whole is not None
        for i, (x, views) in enumerate(whole.pieces):
            part = self.plan.parts.get(x)
            if part is not None and part.whole == out:
                continue
            name = f"{identifier(out)}_{i}"
            place = self.looked(self.known[out], views, f"{name}_place")
            copy = TABLE["copy"].native.inplace
            self.emit(copy, [place, self.value(x), ("c", False)], [f"{name}_written"], "copy_")

    # ---- operands

    def value(self, x: Var) -> native.Entry:
        """The register of a variable; views are made when somebody asks for them."""
        if x not in self.known:
            self.call_operator(self.graph.makers[x])
        return self.known[x]

    def argument(self, v: Any, kind: str) -> native.Entry:
        if isinstance(v, Var):
            return self.value(v)
        if isinstance(v, sym.Sym):
            return self.size(v)
        if isinstance(v, (tuple, list)):
            if any(isinstance(x, sym.Sym) for x in v) or any(True for _ in variables(v)):
                return ("l", tuple(self.argument(x, "") for x in v))
            return ("c", tuple(v))
        return native.constant(v) if kind.startswith("dtype") else ("c", v)

    def size(self, n: Any) -> native.Entry:
        """The register of a symbolic size: a polynomial in the inputs' sizes."""
        if not isinstance(n, sym.Sym):
            return ("c", n)
        text = str(n)
        if text not in self.known and isinstance(n, sym.Float) and n.function is not None:
            given, name = [self.size(v) for v in n.arguments], n.function.__name__
            (self.known[text],) = self.emit(n.function, given, [f"n{self.count}"], name)
        if text not in self.known:
            self.known[text] = self.symbol(text) if n.terms == {(text,): 1} else self.polynomial(n)
        return self.known[text]

    def symbol(self, name: str) -> native.Entry:
        for v in self.graph.inputs:
            for d, n in enumerate(v.shape):
                if isinstance(n, sym.Sym) and n.terms == {(name,): 1}:
                    return self.emit(native.size, [self.known[v], ("c", d)], [name], "size")[0]
        quotients = getattr(self.graph.env, "quotients", {})
        if name in quotients:
            top, bottom = quotients[name]
            return self.emit(
                operator.floordiv,
                [self.size(top), self.size(bottom)],
                [f"n{self.count}"],
                "floordiv",
            )[0]
        raise Unsupported(
            "compile", f"the size {name} is no size of an input", "Give a dim its own symbol."
        )

    def polynomial(self, n: sym.Sym) -> native.Entry:
        total: native.Entry | None = None
        for names, factor in n.terms.items():
            term: native.Entry = ("c", factor)
            for name in names:
                one = self.size(sym.Sym(n.env, {(name,): 1}))
                term = (
                    one
                    if term == ("c", 1)
                    else self.emit(operator.mul, [term, one], [f"n{self.count}"], "mul")[0]
                )
            total = (
                term
                if total is None
                else self.emit(operator.add, [total, term], [f"n{self.count}"], "add")[0]
            )
        assert total is not None
        return total

    # ---- the whole

    def result(self, r: Any) -> Any:
        """What the program returns: one entry, or a tuple of them."""
        if isinstance(r, (tuple, list)):
            return tuple(self.inside(x) for x in r)
        return self.inside(r)

    def inside(self, r: Any) -> native.Entry:
        if isinstance(r, (tuple, list)):
            return ("l", tuple(map(self.inside, r)))
        return self.value(r) if isinstance(r, Var) else ("c", r)

    def owned(self, results: tuple, ends: Ends) -> tuple:
        """The graph's results. The own ones have memory of their own each: a pass may have made two
        of them one value, or one a view of an input. What is kept of an input that is written
        must not change with it."""
        inputs = self.graph.inputs
        taken: set[Var] = {
            n.outs[0] for n in self.graph.nodes if n.kind in (PLACEHOLDER, ATTRIBUTE)
        }
        written, entries = {inputs[i] for i in ends.written}, []
        for k, x in enumerate(results):
            entry, base = self.value(x), self.plan.base(x)
            new = ends.own <= k < ends.own + len(ends.written)
            if base in (taken if k < ends.own else set() if new else written):
                clone, name = TABLE["clone"].native, f"{identifier(x)}_own_{k}"
                (entry,) = self.emit(clone, [entry], [name], "clone")
            if k < ends.own:
                taken.add(base)
            entries.append(entry)
        return tuple(entries)

    def finish(self, ends: Ends | None) -> Any:
        if ends is None:
            outputs = self.result(self.graph.result)
        else:
            outputs = self.owned(self.graph.result, ends)
            if ends.outputs is not None:
                outputs = self.write_and_view(outputs, ends)
        self.outputs = outputs
        single = isinstance(outputs, tuple) and outputs and isinstance(outputs[0], str)
        self.lines.append(f"return {self.show(outputs) if single else self.show(('l', outputs))}")
        return native.program(
            len(self.graph.inputs) + len(self.graph.numbers), self.instructions, outputs
        )

    def write_and_view(self, results: tuple, ends: Ends) -> Any:
        """New values go to the inputs' memory, then the results are looked at through views."""
        for k, (i, value) in enumerate(zip(ends.written, results[ends.own :]), ends.own):
            if self.stands_in(self.graph.outputs[k]) == self.graph.inputs[i]:
                continue  # it was made there
            self.emit(native.copy_into, [("r", i), value], [f"written_{i}"], "copy_")
        if ends.outputs[0] == "tuple":
            return tuple(self.placed(o, results) for o in ends.outputs[1])
        return self.placed(ends.outputs, results)

    def stands_in(self, v: Var) -> Var:
        while v in self.targets:
            v = self.targets[v]
        return v

    def placed(self, o: Any, results: tuple) -> Any:
        match o:
            case ("own", k):
                return results[k]
            case ("given", i):
                return ("r", i)
            case ("view", base, views):
                entry = self.placed(base, results)
                for op, rest in views:
                    given = [self.argument(v, p.kind) for v, p in zip(rest, op.parameters[1:])]
                    (entry,) = self.emit(
                        op.native, [entry, *given], [f"{op.name}_{self.count}"], op.name
                    )
                return entry
            case ("tuple", items):
                return ("l", tuple(self.placed(x, results) for x in items))
            case ("value", v):
                return self.size(v)
        raise CompilerBug("wrapper", f"no output is {o!r}", "")

    def text(self) -> str:
        names = [*(v.name for v in self.graph.inputs), *self.graph.numbers]
        head = f"def {self.graph.name}({', '.join(names)}):"
        if len(head) > LINE:
            inside = textwrap.wrap(", ".join(names), LINE, break_long_words=False)
            head = "\n".join([f"def {self.graph.name}(", *(f"    {row}" for row in inside), "):"])
        return "\n".join([head, *("    " + row for row in self.lines)]) + "\n"


def identifier(x: Var) -> str:
    return x.name.replace("[", "_").replace("]", "")


LINE = 96  # characters of a function's head, then it is broken


class Ends(NamedTuple):
    """What a program does with the graph's results (*own, *written, *kept): those from `own` on are
    copied into the inputs `written`, and `outputs` is returned: ("own", k), ("given", i), ("view",
    base, ((op, arguments), ...)), ("tuple", items) or ("value", v). With outputs None the results
    themselves are returned, and somebody else writes."""

    own: int = 0
    written: tuple[int, ...] = ()
    outputs: Any = None


def write(
    plan: Schedule,
    kernels: dict[int, tuple[Lowered, Any]],
    targets: dict[Var, Var],
    memory: MemoryPlan,
    ends: Ends | None = None,
) -> tuple[Any, str, list[tuple], Any]:
    """(native program, its text, its instructions, its outputs). `kernels`: for the index of each
    group that became one, what to call; `targets`: results that are written into another
    variable's memory."""
    w = Wrapper(plan, targets)
    w.carve(memory)
    for step in plan.steps:
        if step.index in kernels and isinstance(step, Group):
            w.call_kernel(step, *kernels[step.index])
        else:
            before = len(w.lines)
            for node in step.nodes:
                w.call_operator(node)
                w.place(node)
            if isinstance(step, Group) and len(w.lines) > before:
                w.lines[-1] += f"  # {step.name}: one operator, called as it is"
    return w.finish(ends), w.text(), w.instructions, w.outputs
