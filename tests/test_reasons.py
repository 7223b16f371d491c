"""reasons: the registry, recording, and that the sources use it as they should."""

import ast
from pathlib import Path

import pytest

import rushlight
from rushlight import config, reasons, trace
from rushlight.errors import Where

PACKAGE = Path(rushlight.__path__[0])
DOCS = Path(__file__).resolve().parents[1] / "docs" / "reasons.md"


def test_every_id_has_a_stage_and_a_sentence():
    for key, entry in reasons.IDS.items():
        assert key == entry.id and "." in key
        assert entry.stage in trace.STAGES
        assert entry.what.endswith(".") and len(entry.what) > 20


def test_refuse_records_a_value():
    with trace.collect() as records:
        line = test_refuse_records_a_value.__code__.co_firstlineno + 3
        reason = reasons.refuse(
            "fusion.space", "mul with sum", "loops [4] and [5] differ", hint="none"
        )
    (record,) = records
    assert record.kind == "reason" and record.stage == "fusion" and record.facts["reason"] is reason
    assert (reason.where.file, reason.where.line) == (__file__, line)
    assert record.text.splitlines()[0] == "mul with sum: loops [4] and [5] differ [fusion.space]"
    given = reasons.refuse("cache.miss", "graph 3", "new", where=Where("model.py", 3, "f"))
    assert str(given).endswith("at model.py:3 in f")


def test_unknown_id_raises_when_strict():
    with config.changed(strict=True), pytest.raises(KeyError, match="no.such"):
        reasons.refuse("no.such", "x", "y")
    with config.changed(strict=False):
        assert reasons.refuse("no.such", "x", "y").id == "no.such"


def _calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            yield name, node


def test_sources_use_known_ids_and_always_record():
    for path in PACKAGE.rglob("*.py"):
        if path.name == "reasons.py":
            continue
        text = path.read_text()
        if "refuse" not in text and "Reason" not in text:
            continue
        for name, node in _calls(ast.parse(text)):
            assert name != "Reason", (
                f"{path}:{node.lineno}: make it with reasons.refuse, which records it"
            )
            if name == "refuse" and node.args and isinstance(node.args[0], ast.Constant):
                assert node.args[0].value in reasons.IDS, (
                    f"{path}:{node.lineno}: {node.args[0].value!r}"
                )


def test_docs_are_current():
    assert DOCS.read_text() == reasons.markdown(), "python -m rushlight.reasons > docs/reasons.md"
