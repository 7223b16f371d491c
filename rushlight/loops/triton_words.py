"""Scalar words, constants and casts in Triton's language. Takes texts of operands; gives the text of the result.

`rl` is `triton_math`, `libdevice` the vendor's mathematics; both are imported by every generated source.
"""
from rushlight import dtypes

from .words import DIVISIONS, INFIX, PRELUDE, SHORT

POINTER = {"bool": "*u8", "uint8": "*u8", "int8": "*i8", "int16": "*i16", "int32": "*i32", "int64": "*i64",
           "float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64"}
TYPE = {d: f"tl.{d}" for d in POINTER} | {"bool": "tl.int1"}
OURS = ("exp", "exp2", "expm1", "log", "log1p", "tanh", "sigmoid", "erf")          # float32 as on the CPU, bit for bit
BUILT_IN = ("exp", "exp2", "log", "log2", "sin", "cos", "erf")                     # of the language, for either width
LARGEST, LEAST = 3.4028234663852886e38, 1.1754943508222875e-38                     # of float32, normal


def literal(value, dtype):
    if dtype == "float32":
        value = float(value)
        if value != value or value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        if value == 0 or LEAST <= abs(value) <= LARGEST:
            return repr(value) if value >= 0 else f"({value!r})"
    if dtypes.is_floating(dtype):
        value = float(value)
        text = repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'
        return f"tl.full([], {text}, {TYPE[dtype]})"
    if dtype == "bool":
        return f"tl.full([], {bool(value)}, tl.int1)"
    value = int(value) & 255 if dtype == "uint8" else int(value)
    return f"tl.full([], {value}, {TYPE[dtype]})"


def cast(value, source, target):
    """A conversion between storage types; half types go through float32, small integers through int32, as on the CPU."""
    if source == target:
        return value
    if target == "bool":
        return f"({value} != 0)"
    if target in dtypes.HALVES and source != "float32":
        return f"{value}.to(tl.float32).to({TYPE[target]})"
    if dtypes.is_floating(source) and target in ("int8", "int16", "uint8"):
        return f"{value}.to({'tl.int64' if source == 'float64' else 'tl.int32'}).to({TYPE[target]})"
    return f"{value}.to({TYPE[target]})"


def identity(combine, dtype):
    """What a fold starts from, as a Python expression."""
    if combine == "add":
        return "0"
    if combine == "mul":
        return "1"
    if dtype == "bool":
        return "False" if combine == "max" else "True"
    if dtypes.is_floating(dtype):
        return f'float("{"-inf" if combine == "max" else "inf"}")'
    bits = 8 * dtypes.TABLE[dtype].itemsize
    low, high = (0, 255) if dtype == "uint8" else (-2 ** (bits - 1), 2 ** (bits - 1) - 1)
    return str(low if combine == "max" else high)


def combined(combine, a, b, dtype):
    """Two blocks of one fold, element by element."""
    if dtype == "bool":
        return f"{a} {'|' if combine == 'max' else '&'} {b}"
    if combine in ("add", "mul"):
        return f"{a} {INFIX[combine]} {b}"
    if dtypes.is_floating(dtype):
        return f"rl.{'larger' if combine == 'max' else 'smaller'}({a}, {b})"
    return f"tl.{combine}imum({a}, {b})"


def reduced(combine, value, axis, keep, dtype):
    """A block folded along one of its dims."""
    end = ", keep_dims=True)" if keep else ")"
    if dtype == "bool":
        return f"(tl.{combine}({value}.to(tl.int32), {axis}{end} != 0)"
    if combine == "add":
        text = f"tl.sum({value}, {axis}{end}"
        return f"{text}.to({TYPE[dtype]})" if dtype in ("int8", "int16", "uint8") else text
    if combine == "mul":
        return f"tl.reduce({value}, {axis}, rl.product{end}"
    if dtypes.is_floating(dtype):
        return f"tl.reduce({value}, {axis}, rl.{'larger' if combine == 'max' else 'smaller'}{end}"
    text = f"tl.{combine}({value}, {axis}{end}"
    return f"{text}.to({TYPE[dtype]})" if dtype in ("int8", "int16", "uint8") else text


def apply(word, args, dtype, source):
    """The text of one word of the scalar table. `source`: the dtype of its last argument."""
    floating, short = dtypes.is_floating(source), SHORT[source]
    if word == "where":
        return f"tl.where({', '.join(args)})"
    if word in ("uniform", "normal"):
        return f"rl.{word}_{SHORT[dtype]}({', '.join(args)})"
    if word == "logical_not":
        return f"({args[0]} == 0)"
    if word == "bitwise_not":
        return f"({args[0]} == 0)" if source == "bool" else f"(~{args[0]})"
    if source == "bool" and word in ("add", "mul"):
        return f"({args[0]} {'|' if word == 'add' else '&'} {args[1]})"
    if word in INFIX:
        return f"({args[0]} {INFIX[word]} {args[1]})"
    if word == "neg":
        return f"(-{args[0]})"
    if word in ("maximum", "minimum"):
        a, b = args
        larger = f"{a} {'>' if word == 'maximum' else '<'} {b}"
        return f"tl.where(({a} != {a}) | ({larger}), {a}, {b})" if floating else f"tl.where({larger}, {a}, {b})"
    if word == "abs":
        return args[0] if source == "uint8" else f"tl.abs({args[0]})"
    if not floating:
        return integers(PRELUDE.get(word, word), args, source)
    return floats(PRELUDE.get(word, word), args, source, short)


def integers(word, args, source):
    bits, kind = 8 * dtypes.TABLE[source].itemsize, "unsigned" if source == "uint8" else "int"
    if kind == "unsigned":
        word = {"floor_div": "trunc_div", "remainder": "fmod"}.get(word, word)
    if word in ("trunc_div", "fmod", "floor_div", "remainder"):
        return f"rl.{word}_{kind}({', '.join(args)})"
    if word == "ipow":
        return f"rl.ipow_{kind}({', '.join(args)}, {bits})"
    if word in ("shl", "shr"):
        return f"rl.{word}_int({', '.join(args)}, {bits})"
    if word == "sign":
        return f"(({args[0]} > 0).to({TYPE[source]}) - ({args[0]} < 0).to({TYPE[source]}))"
    if word in ("floor", "ceil", "trunc", "round"):
        return args[0]
    raise NotImplementedError(f"no Triton for {word} of {source}")


def floats(word, args, source, short):
    single, x = source == "float32", args[0]
    divided = lambda a, b: f"tl.div_rn({a}, {b})" if single else f"({a} / {b})"
    root = f"tl.sqrt_rn({x})" if single else f"tl.sqrt({x})"
    one = literal(1, source)
    match word:
        case "div":
            return divided(*args)
        case "sqrt":
            return root
        case "rsqrt":
            return divided(one, root)
        case "reciprocal":
            return divided(one, x)
        case "floor" | "ceil":
            return f"tl.{word}({x})"
        case "trunc":
            return f"rl.truncated({x})"
        case "sign":
            return f"rl.sign_float({x})"
        case "isnan":
            return f"({x} != {x})"
        case "isinf":
            return f"(tl.abs({x}) == float(\"inf\"))"
        case "isfinite":
            return f"(tl.abs({x}) < float(\"inf\"))"
        case "fmod" | "remainder" | "floor_div":
            return f"rl.{word}_float({', '.join(args)})"
        case "round" | "copysign" | "signbit" | "nextafter":
            return f"rl.{word}_{short}({', '.join(args)})"
        case "fmax" | "fmin":
            a, b = args
            return f"tl.where({b} != {b}, {a}, tl.where({a} {'>' if word == 'fmax' else '<'} {b}, {a}, {b}))"
        case "sigmoid" if not single:
            return f"({one} / ({one} + tl.exp(-{x})))"
    if single and word in OURS:
        return f"rl.{word}_f32({x})"
    if word in BUILT_IN:
        return f"tl.{word}({x})"
    return f"libdevice.{word}({', '.join(args)})"


__all__ = ["DIVISIONS", "POINTER", "TYPE", "apply", "cast", "combined", "identity", "literal", "reduced"]
