"""docs/operators.md says what the declarations say, and what PyTorch has beside them."""

import os
from pathlib import Path

import pytest

import rushlight as rl
from rushlight.ops import TABLE
from rushlight.ops.documentation import BEGIN, missing, page, stored_names

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, NAMES = DOCS / "operators.md", DOCS / "pytorch-names.txt"
REFRESH = "run: REFRESH_GOLDEN=1 pytest tests/ops/test_documentation.py"


def present(name):
    """Whether PyTorch's name (`add`, `nn.functional.pad`) leads to something here."""
    module, _, last = name.rpartition(".")
    slots = ("__radd__", "__rsub__", "__rmul__", "__rdiv__", "__rpow__", "__getitem__")
    if last in slots or last.startswith("__r"):
        return hasattr(rl.Tensor, last.replace("rdiv", "rtruediv"))
    here = rl
    for part in filter(None, module.split(".")):
        here = getattr(here, part, None)
    if callable(getattr(here, last, None)):
        return True
    return not module and (hasattr(rl.Tensor, last) or hasattr(rl.Tensor, f"{last}_"))


def whole():
    return page() + missing(stored_names(NAMES.read_text()), present)


def test_the_page_is_current():
    if os.environ.get("REFRESH_GOLDEN"):
        PAGE.write_text(whole())
    assert PAGE.read_text().split(BEGIN)[0] == page(), REFRESH


@pytest.mark.slow  # the functional API grows without this page
def test_what_is_missing_is_current():
    assert PAGE.read_text() == whole(), REFRESH


def test_stored_names():
    names = stored_names(NAMES.read_text())
    assert len(names["core"]) == 164 and len(names["op_db"]) == 636
    assert present("add") and present("nn.functional.relu") and present("special.expit")
    assert not present("no_such_operator") and not present("special.no_such_function")


@pytest.mark.oracle
def test_stored_names_are_the_oracle_s(oracle):
    core = set()
    for name in oracle._C._dispatch_get_all_op_names():
        base, _, overload = name.removeprefix("aten::").partition(".")
        packet = getattr(oracle.ops.aten, base, None) if name.startswith("aten::") else None
        found = getattr(packet, overload or "default", None)
        if found is not None and oracle.Tag.core in found.tags:
            core.add(base)
    assert sorted(core) == stored_names(NAMES.read_text())["core"]


def test_every_public_operator_is_reached():
    lost = [op.name for op in TABLE.values() if op.function and not hasattr(rl, op.name)]
    lost += [op.name for op in TABLE.values() if op.method and not hasattr(rl.Tensor, op.name)]
    assert not lost
