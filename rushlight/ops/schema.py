"""ATen schemas: "gelu(Tensor self, *, str approximate='none') -> Tensor" -> a name and its parameters.

A parameter's type says what a call may vary without a new kernel: `Scalar`, `float` and `SymInt` are run-time values,
`int`, `bool`, `str` and lists of ints are structural.
"""
import ast
import inspect
import re
from dataclasses import dataclass
from functools import cached_property

MISSING = inspect.Parameter.empty
RUN_TIME = ("Scalar", "float", "SymInt")
KINDS = {                           # schema type -> what the native binder calls it (docs/native.md)
    "Tensor": "tensor", "Tensor?": "tensor?", "Tensor[]": "tensors", "Scalar": "number", "float": "float",
    "SymInt": "symint", "SymInt?": "symint?", "SymInt[]": "symints", "SymInt[]?": "symints?", "int": "int", "int?": "int?",
    "int[]": "ints", "int[]?": "ints?", "bool": "bool", "bool?": "bool?", "str": "str", "str?": "str?",
    "ScalarType": "dtype", "ScalarType?": "dtype?", "MemoryFormat?": "str?", "Device?": "device?", "Any": "any", "Op": "any",
    "float?": "float?", "Scalar?": "number?",
}


@dataclass(frozen=True)
class Parameter:
    type: str                       # without alias marks and list lengths: "Tensor", "int[]?"
    name: str
    default: object = MISSING
    keyword_only: bool = False
    alias: str = ""                 # "a" aliases, "a!" mutates

    @cached_property
    def is_tensor(self):
        return self.type.startswith("Tensor")

    @cached_property
    def is_run_time(self):
        return self.type.rstrip("?") in RUN_TIME

    @cached_property
    def kind(self):
        return KINDS[self.type]


@dataclass(frozen=True)
class Schema:
    text: str
    name: str                       # "sum.dim_IntList"
    parameters: tuple
    returns: tuple                  # types

    @cached_property
    def base(self):
        return self.name.split(".")[0]


WORDS = {"True": True, "False": False, "None": None, "contiguous_format": "contiguous", "inf": float("inf")}


def literal(text):
    if text in WORDS:
        return WORDS[text]
    if text.isdigit():                                  # most of them, and compiling one costs 20 times as much
        return int(text)
    if re.match(r"['\"\d.\[-]", text):
        value = ast.literal_eval(text)
        return tuple(value) if isinstance(value, list) else value
    return text


def parse(text):
    """Raises ValueError that quotes the piece that is not understood."""
    found = re.fullmatch(r"\s*([\w.]+)\((.*)\)\s*->\s*(.*?)\s*", text, re.S)
    if not found:
        raise ValueError(f"[schema] expected 'name(parameters) -> returns', got {text!r}")
    name, inside, returns = found.groups()
    parameters, keyword_only = [], False
    for piece in filter(None, (p.strip() for p in re.split(r",\s*(?![^(\[]*[)\]])", inside))):
        if piece == "*":
            keyword_only = True
            continue
        match = re.fullmatch(r"(\w+)(\([a-z]!?\))?(\[\d*\])?(\?)?\s+(\w+)(?:=(.+))?", piece)
        if not match:
            raise ValueError(f"[schema] cannot read parameter {piece!r} of {text!r}")
        base, alias, array, optional, label, default = match.groups()
        kind = base + ("[]" if array else "") + (optional or "")
        if kind not in KINDS:
            raise ValueError(f"[schema] unknown type {kind!r} of parameter {label!r} in {text!r}")
        parameters.append(Parameter(kind, label, MISSING if default is None else literal(default), keyword_only,
                                    (alias or "").strip("()")))
    return Schema(text, name, tuple(parameters), tuple(r for r in re.split(r"[(),\s]+", returns) if r.startswith("Tensor")))
