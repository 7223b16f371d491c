"""Random uses of Python's richer forms, as templates of a few lines.

    $t $i $c      a tensor, int or condition, made anew at each place
    $T $L $D      a name of a tensor, list or dict
    $A $B $C      names of this use
    $BREAK        a statement that breaks the graph, or nothing
    $BLOCK        some statements; $LOOP the same inside a loop of the template
"""

from __future__ import annotations

import re

from .fuzz_statements import Statements
from .fuzz_templates import FLOW
from .fuzz_templates_more import MORE
from .fuzz_templates_objects import OBJECTS

FORMS = [t.strip("\n").split("\n") for t in f"{FLOW}----\n{OBJECTS}----\n{MORE}".split("----\n")]
PART = re.compile(r"\$(LOOPLESS|BREAK|BLOCK|LOOP|[ABCticTLD]\b)")


class Forms(Statements):
    """Of `Program`."""

    def form(self, depth, scope, leave=False):
        """One template; it leaves no names behind."""
        names = {k: self.fresh("z") for k in "ABC"}
        tensors = {k: self.pick(*scope[n]) for k, n in (("T", "t"), ("L", "l"), ("D", "d"))}
        inner = self.branch(scope)
        inner["i"] = [i for i in inner["i"] if not i.startswith("w")] or ["2"]

        def part(match):
            kind = match[1]
            if kind in names:
                return names[kind]
            if kind in tensors:
                return tensors[kind]
            if kind == "t":
                return self.tensor(inner, 2)
            return self.integer(inner, 2) if kind == "i" else self.test(inner)

        for line in self.pick(*FORMS):
            indent = (len(line) - len(line.lstrip())) // 4
            word = line.strip()
            if word in ("$BLOCK", "$LOOP", "$LOOPLESS"):
                if depth + indent > 4:  # CPython nests twenty blocks at most
                    self.assign(depth + indent, self.branch(inner))
                    continue
                self.loops += word == "$LOOP"
                self.block(depth + indent, self.branch(inner), False)
                self.loops -= word == "$LOOP"
            elif word == "$BREAK":
                self.emit(depth + indent, self.breaking())
            else:
                self.emit(depth + indent, PART.sub(part, word))

    def breaking(self):
        if self.r.random() < 0.5:
            return "pass"
        return self.pick(
            "dynamo_break()", "print('b', len(log))", "log.append(x.sum().item())", "noisy(x, 1)"
        )
