"""Instructions as dynamo reads them, beside `dis`."""

import argparse
import asyncio.base_events
import dataclasses
import dis
import enum
import types
import typing

import pytest

pytest.importorskip("rushlight._core", exc_type=ImportError)
from rushlight.dynamo import bytecode  # noqa: E402


def codes_of(code):
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from codes_of(c)


def long(count):
    """A function whose arguments and jumps need extensions, in a try-block."""
    lines = [f"        v{i} = x.a{i} if x else {i + 0.5}" for i in range(count)]
    text = "\n".join(
        ["def f(x):", "    try:", *lines, "    except E as e:", "        return f'{x!r:>3}', e"]
    )
    return compile(text, "<long>", "exec")


def by_dis(code):
    everything = list(dis.get_instructions(code))
    shown = [i for i in everything if i.opname not in ("CACHE", "EXTENDED_ARG")]
    position = {i.offset: n for n, i in enumerate(shown)}
    for i in reversed([i for i in everything if i.opname == "EXTENDED_ARG"]):
        position[i.offset] = position[i.offset + 2]
    line, found = code.co_firstlineno, []
    for i in shown:
        if i.positions is not None and i.positions.lineno is not None:
            line = i.positions.lineno
        value, target = i.argval, None
        if i.opcode in dis.hasjrel:
            target = position[i.argval]
        elif i.opname == "KW_NAMES":
            value = code.co_consts[i.arg]
        elif i.opname == "COMPARE_OP":  # newer versions say `bool(<)` of one that is a jump's
            value = dis.cmp_op[i.arg >> bytecode.COMPARE_SHIFT]
        found.append((i.opname, i.arg, value, target, line))
    return found


@pytest.mark.parametrize("module", [argparse, asyncio.base_events, dataclasses, enum, typing, None])
def test_instructions_are_those_of_dis(module):
    if module is None:
        whole = long(300)
    else:
        with open(module.__file__, encoding="utf-8") as file:
            whole = compile(file.read(), module.__file__, "exec")
    for code in codes_of(whole):
        told = [(i.name, i.arg, i.value, i.target, i.line) for i in bytecode.instructions(code)]
        assert repr(told) == repr(by_dis(code)), code
