"""docs/operators.md: a row for every declaration, made from the declaration.

    python -c "from rushlight.ops.documentation import page; print(page(), end='')" > docs/operators.md
"""
from rushlight import dtypes

from .declare import derived, none
from .values import TABLE

WHAT = {"scalar": "one element from one element of each operand", "rows": "a whole row at once",
        "view": "a layout; no data moves", "assemble": "ordered writes through views of the output",
        "composition": "calls of other operators", "library": "a library call"}
HEAD = """# Operators

Generated from the declarations in `rushlight/ops/`; a test checks that it is current. **Kind** is the kind of definition,
**kernels** the dtypes of the precompiled kernels (other dtypes run as the body's own calls, or are refused where there is
none), **derivative** where the gradient comes from.

"""


def kernels(op):
    if op.kind not in ("scalar", "rows"):
        return ""
    found = [d for d in dtypes.NAMES if d in op.domain]
    if found == list(dtypes.NAMES):
        return "all"
    if found == list(dtypes.FLOATS):
        return "floating"
    if found == list(dtypes.INTEGERS + dtypes.FLOATS):
        return "all but bool"
    return ", ".join(dtypes.short(d) for d in found)


def derivative(op):
    if op.rule is None or op.rule == none:
        return "none"
    if op.rule == derived:
        return "derived from its parts" if op.kind == "composition" else "derived from the body"
    return "a rule"


def row(op):
    schema = op.schema.text.replace("|", "\\|")
    file = op.where.split(":")[0]
    return f"| `{op.name}` | `{schema}` | {op.kind} | {kernels(op)} | {derivative(op)} | {len(op.samples)} | `{file}` |"


def page():
    """The whole page: public operators, then those that only other operators call."""
    ops = [o for o in TABLE.values() if not o.source]
    public = sorted((o for o in ops if o.function or o.method), key=lambda o: o.name)
    inner = sorted((o for o in ops if not (o.function or o.method)), key=lambda o: o.name)
    lines = [HEAD, "| kind | the definition is |\n| --- | --- |\n"]
    lines += [f"| {kind} | {what} |\n" for kind, what in WHAT.items()]
    for title, group in ((f"## {len(public)} public operators", public), (f"## {len(inner)} that other operators call", inner)):
        lines += [f"\n{title}\n\n", "| name | schema | kind | kernels | derivative | samples | declared |\n",
                  "| --- | --- | --- | --- | --- | --- | --- |\n"]
        lines += [row(o) + "\n" for o in group]
    return "".join(lines)
