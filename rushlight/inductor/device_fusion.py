"""Where fusing would ask too much of a launch, or leave a GPU with too few programs.

A kernel folds a row in one program. Few long rows (a loss, the gradient of a bias) are cut into
pieces instead, folded side by side (loops/triton_forms.py, `split`), which works only for one fold
of which nothing else is made but numbers of the row. A node that would take that away stays out.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight import sym
from rushlight.fx.graph import Node, Var

FEW, LONG = 264, 16384  # rows of contiguous elements; elements of a row
FEW_ACROSS, LONG_ACROSS = 8448, 256  # rows that lie side by side in memory


def limits() -> tuple[int, int]:
    """The most operands and results of one launch."""
    from rushlight.loops import triton_forms  # only here: the CPU's path does not pay for it

    return triton_forms.OPERANDS, triton_forms.RESULTS


def starves(plan: Any, group: Any, node: Node, in_rows: bool, results: list[Var]) -> bool:
    """Whether the group's rows, few and long, could be cut into pieces no more when the node
    joins. `results`: the group's with the node."""
    folding = node.op.kind == "rows"
    rows = node.op.layout.rows(node.call) if folding else group.rows if group.has_rows else ()
    if not few_and_long(group.space, rows):
        return False
    alone = set(group.per_row)  # one number a row
    if in_rows:
        alone |= set(node.outs)
    elif folding:
        kinds = (node.op.layout.out_kind(node.call, i) for i in range(len(node.outs)))
        alone |= {out for out, kind in zip(node.outs, kinds) if kind in "KD"}
    if any(out not in alone for out in results):
        return True
    nodes = [*group.nodes, node]
    return any(
        again(plan, n, alone) for n in nodes if n.op.kind == "rows" or n.outs[0] not in alone
    )


def again(plan: Any, node: Node, alone: set[Var]) -> bool:
    """Whether a node over elements reads what an earlier pass over the row has made."""
    return any(plan.base(v) in alone for v in node.reads)


def few_and_long(space: tuple, rows: tuple[int, ...]) -> bool:
    sizes = [sym.hint(n) for n in space]
    wide = [d for d, n in enumerate(sizes) if n > 1]
    if not rows or not wide:
        return False
    count = math.prod(n for d, n in enumerate(sizes) if d not in rows)
    length = math.prod(sizes[d] for d in rows)
    if wide[-1] in rows:
        return count < FEW and length >= LONG
    return count < FEW_ACROSS and length >= LONG_ACROSS
