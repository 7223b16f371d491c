"""Element types by name: the one table that Python rooms share with csrc/rt/dtype.h (same ids, same
sizes).

A dtype is its name here ("float32"); `rushlight.float32` is the native object of the same id.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    name: str
    id: int
    itemsize: int
    category: int  # 0 bool, 1 integer, 2 floating, 3 complex
    short: str  # in printed graphs: f32[2, 3]
    c: str  # the C type a kernel stores; none for complex: kernels compute on the parts


TABLE = {
    d.name: d
    for d in (
        DType("bool", 0, 1, 0, "b8", "unsigned char"),
        DType("uint8", 1, 1, 1, "u8", "unsigned char"),
        DType("int8", 2, 1, 1, "i8", "signed char"),
        DType("int16", 3, 2, 1, "i16", "short"),
        DType("int32", 4, 4, 1, "i32", "int"),
        DType("int64", 5, 8, 1, "i64", "long"),
        DType("float16", 6, 2, 2, "f16", "unsigned short"),
        DType("bfloat16", 7, 2, 2, "bf16", "unsigned short"),
        DType("float32", 8, 4, 2, "f32", "float"),
        DType("float64", 9, 8, 2, "f64", "double"),
        DType("complex64", 10, 8, 3, "c64", ""),
        DType("complex128", 11, 16, 3, "c128", ""),
    )
}
NAMES = tuple(TABLE)
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
HALVES = ("float16", "bfloat16")
FLOATS = ("float16", "bfloat16", "float32", "float64")
# From 1 to the next number.
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
DEFAULT = "float32"  # what a Python float means


def category(name):
    return TABLE[name].category


def is_floating(name):
    return TABLE[name].category == 2


def is_complex(name):
    return TABLE[name].category == 3


def is_differentiable(name):
    """Whether tensors of this dtype can require gradients: floating and complex ones."""
    return TABLE[name].category >= 2


def real_of(name):
    """The dtype of the parts of a complex number; real dtypes are their own."""
    return {"complex64": "float32", "complex128": "float64"}.get(name, name)


def complex_of(name):
    """The complex dtype of the same precision (half precision has none: complex64)."""
    return "complex128" if name in ("float64", "complex128") else "complex64"


def short(name):
    return TABLE[name].short


def opmath(name):
    """The dtype in which values of this dtype are computed: half types compute in float32."""
    return "float32" if name in HALVES else name


def promote(a, b):
    """The smallest dtype that holds both, as `torch.promote_types`."""
    if a == b:
        return a
    if {TABLE[a].category, TABLE[b].category} == {2, 3}:
        return "complex128" if {a, b} & {"float64", "complex128"} else "complex64"
    if TABLE[a].category != TABLE[b].category:
        return max(a, b, key=lambda d: TABLE[d].category)
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    if {a, b} == set(HALVES):
        return "float32"
    return max(a, b, key=lambda d: TABLE[d].id)


def can_cast(source, target):
    """Whether a result of dtype `source` may be written to `target`, as `torch.can_cast`."""
    return TABLE[source].category <= TABLE[target].category
