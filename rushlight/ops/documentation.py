"""docs/operators.md: a row for every declaration, made from the declaration; and what PyTorch has beside them.

    REFRESH_GOLDEN=1 python -m pytest tests/ops/test_documentation.py

`page` makes the tables; `missing` compares the stored names of docs/pytorch-names.txt with what `present(name)` finds.
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


# Operators of Core ATen that are no operators here: a tensor's sizes and values are asked for, not computed.
ELSEWHERE = {"_local_scalar_dense": "Tensor.item", "sym_size": "Tensor.size", "sym_numel": "Tensor.numel", "sym_stride": "Tensor.stride",
             "sym_storage_offset": "Tensor.storage_offset", "sym_is_contiguous": "Tensor.is_contiguous"}
BEGIN = "\n## What is missing of PyTorch\n"


def stored_names(text):
    """{section: [names]} of docs/pytorch-names.txt."""
    sections, names = {}, None
    for line in text.splitlines():
        if line.startswith("["):
            names = sections.setdefault(line.strip("[]"), [])
        elif names is not None and not line.startswith("#"):
            names += line.split()
    return sections


def missing(names, present):
    """The last sections of the page. `names`: of `stored_names`; `present(name)`: whether PyTorch's name leads to something."""
    bases = {op.schema.base for op in TABLE.values()} | set(TABLE)
    core = [n for n in names["core"] if n not in bases and n not in ELSEWHERE and not present(n)]
    known = [n for n in names["op_db"] if not present(n)]
    lines = [BEGIN, "\nThe names are facts of PyTorch 2.13.0, stored in `docs/pytorch-names.txt`. A name counts as there when it leads to "
             "a function or method; arguments that are not supported yet are told of by their own errors.\n"]
    for title, group in ((f"### Of Core ATen's {len(names['core'])} operators: {len(core)}", core),
                                (f"### Of the {len(names['op_db'])} names in PyTorch's operator database: {len(known)}", known)):
        lines += [f"\n{title}\n\n", ", ".join(f"`{n}`" for n in group), "\n"]
    return "".join(lines)
