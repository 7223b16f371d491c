"""Canonical forms: what computes nothing, or nothing new, goes away. Every rule keeps the
result's bits and layout."""

from __future__ import annotations

from rushlight.fx.graph import same_layout
from rushlight.fx.rewrite import ANY, Found, Rule, hole, pattern

x = hole("x")


def same(found: Found) -> bool:
    """The result looks exactly like the value that would stand for it."""
    return same_layout(found.out.layout, found["x"].layout)


def inside(found: Found) -> bool:
    """The same, and the result is not handed out: an output that is a copy must not become its
    original."""
    return same(found) and found.out not in found.graph.output_set


# Graphs are functional: no one writes to a copy inside them, so a copy is its original.
COPIES = (
    Rule("clone", pattern("clone", x, ANY), x, inside),
    Rule("alias", pattern("alias", x), x, inside),
    Rule("copy", pattern("copy", ANY, x, ANY), x, inside),
    Rule("to_same", pattern("to", x, ANY), x, inside),
)
UNITS = (
    Rule("mul_one", pattern("mul", x, 1), x, inside),
    Rule("one_mul", pattern("mul", 1, x), x, inside),
    Rule("div_one", pattern("div", x, 1), x, inside),
    Rule("neg_neg", pattern("neg", pattern("neg", x)), x, inside),
)
VIEWS = (
    Rule("expand_same", pattern("expand", x, ANY), x, inside),
    Rule("view_same", pattern("view", x, ANY), x, inside),
    Rule("permute_same", pattern("permute", x, ANY), x, inside),
    Rule("slice_all", pattern("slice", x, ANY, ANY, ANY, 1), x, inside),
    Rule(
        "view_view",
        pattern("view", pattern("view", x, ANY), hole("size")),
        pattern("view", x, hole("size")),
        lambda found: found["x"].layout.view(found.out.shape) is not None,
    ),
)
CANONICAL = COPIES + UNITS + VIEWS
