"""What a value, a word of the scalar table and a fold's step are in C++.

Takes dtypes, words and the C++ of their arguments; returns the C++ of the result. The functions are those of prelude*.h.
"""
from rushlight import dtypes

from .expr import IDENTITY, Apply

PRELUDE_FILES = ("prelude.h", "prelude_casts.h", "prelude_remainders.h", "prelude_f32.h", "prelude_f64.h", "prelude_random.h")
C = {"bool": "bool", "uint8": "rl_u8", "int8": "rl_i8", "int16": "rl_i16", "int32": "rl_i32", "int64": "rl_i64",
     "float16": "rl_u16", "bfloat16": "rl_u16", "float32": "float", "float64": "double"}
SHORT = {"float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
         "float16": "f16", "bfloat16": "bf16", "bool": "bool"}
BITS = {"float32": "rl_i32", "float64": "rl_i64"}
PRELUDE = {"power": "pow", "integer_power": "ipow", "rint": "round", "floor_divide": "floor_div", "trunc_divide": "trunc_div",
           "bitwise_left_shift": "shl", "bitwise_right_shift": "shr", "next_float": "nextafter"}         # words that prelude.h knows by another name
DIVISIONS = ("floor_divide", "trunc_divide", "fmod", "remainder")           # of integers: a divisor of 0 is told of
INFIX = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
         "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}


def literal(value, dtype):
    if dtype in ("float32", "float64"):
        f, value = "f" if dtype == "float32" else "", float(value)
        if value != value:
            return f'__builtin_nan{f}("")'
        if value in (float("inf"), float("-inf")):
            return f"{'-' if value < 0 else ''}__builtin_inf{f}()"
        return f"({C[dtype]}){value!r}" if dtype == "float32" else repr(value)
    if dtype == "bool":
        return "true" if value else "false"
    if int(value) == -2 ** 63:
        return "(-9223372036854775807ll - 1)"
    return f"({C[dtype]}){int(value)}ll"


def identity(combine, dtype):
    if combine in ("add", "mul"):
        return literal(IDENTITY[combine], dtype)
    if dtype in dtypes.INTEGERS:
        bits = 8 * dtypes.TABLE[dtype].itemsize
        low, high = (0, 2 ** bits - 1) if dtype == "uint8" else (-2 ** (bits - 1), 2 ** (bits - 1) - 1)
        return literal(low if combine == "max" else high, dtype)
    if dtype == "bool":
        return "false" if combine == "max" else "true"
    return literal(IDENTITY[combine], dtype)


def cast(value, source, target):
    """C for a conversion between storage types; half types go through float32."""
    if source == target:
        return value
    if source in dtypes.HALVES:
        wide = f"rl_{SHORT[source]}_to_f32({value})"
        return cast(wide, "float32", target)
    if target in dtypes.HALVES:
        return f"rl_f32_to_{SHORT[target]}({cast(value, source, 'float32')})"
    if target == "bool":
        return f"({value} != 0)"
    if dtypes.is_floating(source) and target in dtypes.INTEGERS:
        return f"rl_{SHORT[source]}_to_{SHORT[target]}({value})"
    return f"({C[target]})({value})"


def combined(combine, a, b, dtype):
    if combine in ("add", "mul"):
        return f"({a} {INFIX[combine]} {b})"
    less = "<" if combine == "min" else ">"
    if dtypes.is_floating(dtype):
        return f"({b} != {b} || {b} {less} {a} ? {b} : {a})"
    return f"({b} {less} {a} ? {b} : {a})"


def watched(name, combine):
    """Whether NaN is kept beside the lanes, by the largest magnitude that came by, and put back into them after a block:
    two independent steps an element, where a maximum that keeps NaN is a chain of three (amax of 1M: 240 us, then 60)."""
    return combine in ("max", "min") and dtypes.is_floating(name.dtype)


def nan_back(name):
    t, c = SHORT[name.dtype], BITS[name.dtype]
    lane, top = f"{name.text}_lane[l]", f"{name.text}_top[l]"
    return f"{lane} = {top} > ({c})rl_bits_{t}(RL_INF_{t.upper()}) ? RL_NAN_{t.upper()} : {lane};"


def divides(v):
    return v.word in DIVISIONS and not dtypes.is_floating(v.args[-1].dtype)


def cuts_quotients(v):
    """Whether a value comes from a quotient of floats cut to an integer: the prelude has two ways, see prelude_remainders.h."""
    return isinstance(v, Apply) and v.word in ("fmod", "remainder", "floor_divide") and dtypes.is_floating(v.args[-1].dtype)


def apply(word, args, dtype, source, near=False):
    """C for one word of the scalar table. `source` is the dtype of its last argument (a comparison's result is bool);
    `near`: no quotient is far."""
    if word == "where":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if word == "neg":
        return f"(-{args[0]})"
    if word == "checked":
        return f"rl_checked({args[0]}, {args[1]}, &error)"
    if word in ("uniform", "normal"):
        return f"rl_{word}_{SHORT[dtype]}({args[0]}, {args[1]})"
    if word == "bitwise_not":
        return f"({C[dtype]})(~{args[0]})"
    if word == "logical_not":
        return f"(!{args[0]})"
    if word in INFIX:
        return f"({args[0]} {INFIX[word]} {args[1]})"
    if word in DIVISIONS and not dtypes.is_floating(source):
        args = [args[0], f"rl_divisor({args[1]}, &error)"]
    if word == "div" and dtypes.is_floating(source):
        return f"({args[0]} / {args[1]})"
    if word in ("maximum", "minimum"):
        return maximum(word, args, source)
    way = "_near" if near and word in DIVISIONS else ""
    return f"rl_{PRELUDE.get(word, word)}{way}_{SHORT[source]}({', '.join(args)})"


def maximum(word, args, dtype):
    a, b = args
    if dtypes.is_floating(dtype):                       # NaN wins, from either side
        return f"rl_{word}_{SHORT[dtype]}({a}, {b})"
    return f"({a} {'>' if word == 'maximum' else '<'} {b} ? {a} : {b})"
