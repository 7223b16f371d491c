"""Steps -> one native program: instructions on registers that call fused kernels, operators and
views in order.

Views appear here only where a call needs one as an operand: each is a native call that moves no
data. Symbolic sizes become registers filled from the inputs' shapes.
"""

from __future__ import annotations

import operator
from typing import Any

from rushlight import sym
from rushlight.errors import CompilerBug, Unsupported
from rushlight.fx.graph import ATTRIBUTE, Node, Var, variables
from rushlight.ops.values import TABLE
from rushlight.runtime import native

from .lowering import Lowered, shape_for_call
from .scheduler import Group, Schedule


class Wrapper:
    """The program of one graph, being written. `lines` is the same as Python text."""

    def __init__(self, plan: Schedule) -> None:
        self.plan, self.graph = plan, plan.graph
        self.instructions: list[tuple] = []
        self.lines: list[str] = []
        self.known: dict[Any, native.Entry] = {}  # variables, and texts of sizes
        self.count = len(self.graph.inputs)
        self.names: dict[int, str] = {}
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
        if op.native is None:
            raise CompilerBug("wrapper", f"{op.name} has no native operator", str(self.graph))
        entries = [self.argument(v, p.kind) for v, p in zip(node.arguments, op.parameters)]
        self.known.update(
            zip(
                node.outs,
                self.emit(op.native, entries, [identifier(o) for o in node.outs], op.name),
            )
        )

    def call_kernel(self, group: Group, lowered: Lowered, kernel: Any) -> None:
        entries = []
        for i, (x, _, _) in enumerate(lowered.reads):
            entry, shape = self.value(x), shape_for_call(group, lowered.reads, i)
            if shape is not None:
                expand = TABLE["expand"].native
                (entry,) = self.emit(
                    expand,
                    [entry, self.argument(shape, "symints")],
                    [f"{identifier(x)}_full"],
                    "expand",
                )
            entries.append(entry)
        entries += [self.size(n) for n in lowered.sizes]
        outs = self.emit(
            kernel, entries, [identifier(o) for o in lowered.results], lowered.kernel.name
        )
        self.known.update(zip(lowered.results, outs))

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

    def finish(self) -> Any:
        outputs = self.result(self.graph.result)
        single = isinstance(outputs, tuple) and outputs and isinstance(outputs[0], str)
        self.lines.append(f"return {self.show(outputs) if single else self.show(('l', outputs))}")
        return native.program(len(self.graph.inputs), self.instructions, outputs)

    def text(self) -> str:
        head = f"def {self.graph.name}({', '.join(v.name for v in self.graph.inputs)}):"
        return "\n".join([head, *("    " + row for row in self.lines)]) + "\n"


def identifier(x: Var) -> str:
    return x.name.replace("[", "_").replace("]", "")


def write(plan: Schedule, kernels: dict[int, tuple[Lowered, Any]]) -> tuple[Any, str]:
    """(native program, its text). `kernels`: for the index of each group that became one, what
    to call."""
    w = Wrapper(plan)
    for step in plan.steps:
        if step.index in kernels and isinstance(step, Group):
            w.call_kernel(step, *kernels[step.index])
        else:
            for node in step.nodes:
                w.call_operator(node)
    return w.finish(), w.text()
