"""Local rewrites as tables of (pattern, replacement, condition), and the two walks that every
graph needs.

    x, y = hole("x"), hole("y")
    RULES = (
        Rule("same_to", pattern("to", x, ANY), x, lambda f: f.out.dtype == f["x"].dtype),
        Rule("double_neg", pattern("neg", pattern("neg", x)), x),
    )

A pattern names an operator and its leading arguments: a hole binds (twice the same hole: the
same value), a constant must be equal, another pattern must be what made the argument, ANY is
anything. A replacement is a hole, or a pattern to call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rushlight import sym
from rushlight.ops.declare import MISSING, Arguments
from rushlight.ops.values import TABLE

from .graph import CALL, Graph, Node, Var, same_size
from .tracing import retrace, substitute


class hole(NamedTuple):
    name: str


class pattern:
    def __init__(self, op: str, *arguments: Any) -> None:
        self.op, self.arguments = op, arguments


ANY = hole("_")


@dataclass(frozen=True)
class Rule:
    name: str
    pattern: pattern
    replacement: Any
    condition: Callable[[Found], bool] = lambda found: True


class Found(dict):
    """What the holes stand for; `node` is what matched, `out` its result."""

    def __init__(self, node: Node, graph: Graph) -> None:
        super().__init__()
        self.node, self.graph, self.out = node, graph, node.outs[0]


def match(p: pattern, node: Node, found: Found) -> bool:
    """Arguments beyond the pattern's must be at their defaults."""
    if node.kind != CALL or node.op.name != p.op:
        return False
    for i, (parameter, value) in enumerate(zip(node.op.parameters, node.arguments)):
        if i >= len(p.arguments):
            if parameter.default is not MISSING and not equal(value, parameter.default):
                return False
        elif not match_argument(p.arguments[i], value, found):
            return False
    return True


def match_argument(p: Any, value: Any, found: Found) -> bool:
    if p is ANY or isinstance(p, hole) and p.name == "_":
        return True
    if isinstance(p, hole):
        return equal(found.setdefault(p.name, value), value)
    if isinstance(p, pattern):
        maker = found.graph.makers.get(value) if isinstance(value, Var) else None
        return maker is not None and match(p, maker, found)
    return equal(p, value)


def equal(a: Any, b: Any) -> bool:
    """Equal values of one type: 1, 1.0 and True differ."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, sym.Sym) or isinstance(b, sym.Sym):
        return isinstance(a, (int, sym.Sym)) and isinstance(b, (int, sym.Sym)) and same_size(a, b)
    return type(a) is type(b) and (a == b or a != a and b != b) and repr(a) == repr(b)


def apply_rules(graph: Graph, rules: Iterable[Rule]) -> Graph:
    """Every rule wherever it matches, from the inputs on, until none does. Rules must make
    graphs smaller or simpler."""
    by_op: dict[str, list[Rule]] = {}
    for rule in rules:
        by_op.setdefault(rule.pattern.op, []).append(rule)
    while True:
        table: dict[Var, Var] = {}
        made: dict[Var, tuple[pattern, Found]] = {}
        for node in graph.calls:
            for rule in by_op.get(node.op.name, ()):
                found = Found(node, graph)
                if match(rule.pattern, node, found) and rule.condition(found):
                    if isinstance(rule.replacement, hole):
                        table[node.outs[0]] = found[rule.replacement.name]
                    else:
                        made[node.outs[0]] = (rule.replacement, found)
                    break
        if not table and not made:
            return graph
        if made:
            graph = call_instead(graph, made)
        else:
            graph = substitute(graph, table)
        graph = remove_dead_code(graph)


def call_instead(graph: Graph, made: dict) -> Graph:
    values: dict[Var, Any] = {}

    def build(p: Any, found: Found) -> Any:
        if isinstance(p, pattern):
            return TABLE[p.op](*(build(a, found) for a in p.arguments))
        v = found[p.name] if isinstance(p, hole) else p
        return values[v] if isinstance(v, Var) else v

    def step(node: Node, arguments: tuple) -> Any:
        for v, value in zip(node.reads, flat_values(arguments)):
            values.setdefault(v, value)
        if node.outs[0] in made:
            out = build(*made[node.outs[0]])
        else:
            out = node.op(*arguments)
        values.update(zip(node.outs, out if isinstance(out, tuple) else (out,)))
        return out

    return retrace(graph, step=step)


def flat_values(arguments: Any) -> list:
    """The values among arguments, as `Node.reads` lists their variables: in order, once each."""
    found: dict[int, Any] = {}

    def visit(a: Any) -> None:
        if isinstance(a, (list, tuple)):
            for x in a:
                visit(x)
        elif hasattr(a, "layout"):
            found.setdefault(id(a), a)

    visit(arguments)
    return list(found.values())


def remove_dead_code(graph: Graph) -> Graph:
    """Without the calls that no output depends on."""
    needed, kept = set(graph.outputs), []
    for node in reversed(graph.calls):
        if any(o in needed for o in node.outs):
            kept.append(node)
            needed.update(node.reads)
    return graph if len(kept) == len(graph.calls) else graph.with_calls(reversed(kept))


def merge_equal_calls(graph: Graph) -> Graph:
    """One call for every set of equal ones (common subexpressions)."""
    table: dict[Var, Var] = {}
    seen: dict[Any, Node] = {}
    kept = []
    for node in graph.calls:
        arguments = tuple(key(a, table) for a in node.arguments)
        first = seen.setdefault((node.op.name, arguments), node)
        if first is node:
            kept.append(node)
        else:
            table.update(zip(node.outs, first.outs))
    return substitute(graph.with_calls(kept), table) if table else graph


def key(a: Any, table: dict) -> Any:
    if isinstance(a, (list, tuple)):
        return tuple(key(x, table) for x in a)
    return ("var", table.get(a, a).name) if isinstance(a, Var) else (type(a).__name__, repr(a))


def arguments_with(node: Node, **values: Any) -> tuple:
    """The node's arguments with some replaced by parameter name."""
    return tuple(values.get(p.name, v) for p, v in zip(node.op.parameters, node.arguments))


__all__ = [
    "ANY",
    "Arguments",
    "Found",
    "Rule",
    "apply_rules",
    "arguments_with",
    "hole",
    "match",
    "merge_equal_calls",
    "pattern",
    "remove_dead_code",
]
