"""Build the prelude's functions as array loops, one library for each instruction set.

Used by test_prelude.py and by benchmarks/math_table.py.
"""

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from rushlight.loops.words import PRELUDE_FILES

HERE = Path(__file__).resolve().parent
LOOPS = HERE.parents[1] / "rushlight" / "loops"
SETS = {
    "v2": ["sse4_2", "popcnt"],
    "v3": ["avx2", "bmi2", "fma"],
    "v4": ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"],
}
FLAGS = "-O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -mprefer-vector-width=512".split()
# So that a loop which only copies does not become a call of memcpy.
FLAGS.append("-fno-tree-loop-distribute-patterns")

UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh erf erfc lgamma sigmoid sqrt rsqrt reciprocal floor ceil trunc round abs sign"
).split()
BINARY = ("pow atan2 fmod remainder floor_div copysign nextafter fmin fmax minimum maximum").split()
REMAINDERS = "fmod remainder floor_div".split()
TESTS = "isnan isinf isfinite signbit".split()
INTEGERS = {f"{k}{w}": f"rl_{k}{w}" for k in "iu" for w in (8, 16, 32, 64)}
INTEGER_UNARY = "neg abs sign".split()
INTEGER_BINARY = (
    "add sub mul minimum maximum shl shr ipow trunc_div fmod floor_div remainder"
).split()
FLOATS = {"f32": "float", "f64": "double"}
DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "bool": np.bool_,
    **{c: np.dtype(s[0] + str(int(s[1:]) // 8)).type for s, c in INTEGERS.items()},
}


def table():
    """name -> (result type, argument types), in C's names."""
    out = {}
    for s, t in FLOATS.items():
        out |= {f"{f}_{s}": (t, (t,)) for f in UNARY}
        out |= {f"{f}_{s}": (t, (t, t)) for f in BINARY}
        out |= {f"{f}_near_{s}": (t, (t, t)) for f in REMAINDERS}
        out[f"far_{s}"] = ("bool", (t, t))
        out |= {f"{f}_{s}": ("bool", (t,)) for f in TESTS}
        out |= {f"{s}_to_{i}": (c, (t,)) for i, c in INTEGERS.items()}
        out[f"{s}_to_bool"] = ("bool", (t,))
        out[f"uniform_{s}"] = out[f"normal_{s}"] = (t, ("rl_u64", "rl_u64"))
    for s, t in INTEGERS.items():
        out |= {f"{f}_{s}": (t, (t,)) for f in INTEGER_UNARY}
        out |= {f"{f}_{s}": (t, (t, t)) for f in INTEGER_BINARY}
    for h in ("f16", "bf16"):
        out[f"{h}_to_f32"] = ("float", ("rl_u16",))
        out[f"f32_to_{h}"] = ("rl_u16", ("float",))
    return out


TABLE = table()


def source(names):
    lines = [f'#include "{LOOPS / h}"' for h in PRELUDE_FILES]
    for name in names:
        result, args = TABLE[name]
        given = ", ".join(f"const {t} *__restrict__ a{k}" for k, t in enumerate(args))
        call = ", ".join(f"a{k}[i]" for k in range(len(args)))
        lines.append(
            f'extern "C" void k_{name}({given}, {result} *__restrict__ out, long n) {{\n'
            f"    for (long i = 0; i < n; i++) out[i] = rl_{name}({call});\n}}"
        )
    lines.append(
        'extern "C" void k_philox(rl_u64 seed, rl_u64 counter, rl_u32 lane, rl_u32 *out) {\n'
        "    rl_block w = rl_philox(seed, counter, lane);\n"
        "    out[0] = w.a, out[1] = w.b, out[2] = w.c, out[3] = w.d;\n}"
    )
    return "\n".join(lines) + "\n"


def runs(level):
    """Whether this processor has the instruction set."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return level == "v2"
    return all(f in flags for k, need in SETS.items() if k <= level for f in need)


class Library:
    def __init__(self, folder, level, names=TABLE, extra=(), compiler="g++"):
        self.path = Path(folder) / f"prelude_{level}.so"
        text = Path(folder) / "prelude.cpp"
        text.write_text(source(names))
        # No library at all: what the loops would still call stays undefined, and the tests look.
        command = [compiler, *FLAGS, f"-march=x86-64-{level}", "-fPIC", "-shared", "-nostdlib"]
        done = subprocess.run(
            [*command, *extra, str(text), "-o", str(self.path)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        self.messages = done.stderr
        self.level = level

    def load(self):
        self.library = ctypes.CDLL(str(self.path))
        return self

    def __call__(self, name, *arrays, out=None):
        result, args = TABLE[name]
        arrays = [np.ascontiguousarray(a, DTYPES[t]) for a, t in zip(arrays, args, strict=True)]
        if out is None:
            out = np.empty(arrays[0].shape, DTYPES[result])
        self.bound(name, *arrays, out=out)()
        return out

    def bound(self, name, *arrays, out):
        """The call with its arguments converted, for timing; the arrays must be of the types."""
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
        function, size = self.library[f"k_{name}"], ctypes.c_long(out.size)
        return lambda _keep=(arrays, out): function(*pointers, size)

    def philox(self, seed, counter, lane):
        out = np.empty(4, np.uint32)
        self.library.k_philox(
            ctypes.c_uint64(seed),
            ctypes.c_uint64(counter),
            ctypes.c_uint32(lane),
            ctypes.c_void_p(out.ctypes.data),
        )
        return out


class Reference:
    """libm in long double; worst(name, arguments, got) is (largest distance in ulp, where)."""

    def __init__(self, folder):
        path = Path(folder) / "reference.so"
        command = ["g++", "-O1", "-fPIC", "-shared", str(HERE / "math_reference.cpp")]
        subprocess.run([*command, "-o", str(path)], check=True)
        self.library = ctypes.CDLL(str(path))

    def worst(self, name, arguments, got):
        dtype = DTYPES[TABLE[name][0]]
        arrays = [np.ascontiguousarray(a, dtype) for a in (*arguments, got)]
        function = self.library[f"worst_{name}"]
        function.restype = ctypes.c_double
        at = ctypes.c_long(0)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        ulp = function(*pointers, ctypes.c_long(got.size), ctypes.byref(at))
        return ulp, tuple(float(a.flat[at.value]) for a in arrays)


SPECIAL = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.5, 8.5, 1e5, 16777215.0, 9007199254740991.0]
SPECIAL += [2.0**k for k in (-1074, -1060, -1022, -149, -140, -126, -60, -25, 24, 31, 53, 63, 127)]
SPECIAL += [2.0**1023, 1.7e308, 3.4e38, 2.3e-308, 1.2e-38, np.inf]


def special(dtype):
    with np.errstate(over="ignore"):
        x = np.array(SPECIAL, np.float64).astype(dtype)
    return np.concatenate([x, -x, np.array([np.nan], dtype)])


# Where each function bends, its ends and its roots: sampled densely besides the whole range.
RANGES = {
    "exp": (-110, 90), "exp2": (-155, 130), "expm1": (-20, 90), "log": (0, 3), "log2": (0, 3),
    "log10": (0, 3), "log1p": (-1, 3), "sin": (-100, 100), "cos": (-100, 100),
    "tan": (-100, 100), "asin": (-1, 1), "acos": (-1, 1), "atan": (-5, 5), "sinh": (-5, 5),
    "cosh": (-5, 5), "tanh": (-3, 3), "asinh": (-5, 5), "acosh": (1, 5), "atanh": (-1, 1),
    "erf": (-4, 4), "erfc": (-4, 11), "lgamma": (0, 12), "sigmoid": (-20, 20), "rsqrt": (0, 4),
}  # fmt: skip
WIDE = {"exp": (-746, 710), "exp2": (-1076, 1025), "expm1": (-40, 710), "erfc": (-6, 27.5)}


def samples(name, count, seed=0):
    """Arguments of a float function: random bit patterns, random magnitudes, its own range."""
    function, kind = name.rsplit("_", 1)
    dtype, bits = (np.float32, np.uint32) if kind == "f32" else (np.float64, np.uint64)
    random = np.random.default_rng(seed)

    def patterns(n):
        return random.integers(0, np.iinfo(bits).max, n, bits, endpoint=True).view(dtype)

    def magnitudes(n):
        return (random.uniform(-1, 1, n) * 2.0 ** random.uniform(-40, 20, n)).astype(dtype)

    def within(lo, hi, n):
        return random.uniform(lo, hi, n).astype(dtype)

    third = count // 3
    s = special(dtype)
    if function in BINARY:
        x = [patterns(third), magnitudes(third), np.exp(within(-20, 20, third)).astype(dtype)]
        y = [patterns(third), magnitudes(third), within(-100, 100, third)]
        # pow near 1 with large exponents, and integers of both signs
        x.append((1 + magnitudes(third) / dtype(1e6)).astype(dtype))
        y.append((magnitudes(third) * dtype(1e3)).astype(dtype))
        x.append(-np.rint(within(0, 20, third)))
        y.append(np.rint(within(-40, 40, third)))
        a, b = np.meshgrid(s, s)
        return np.concatenate([*x, a.ravel()]), np.concatenate([*y, b.ravel()])
    lo, hi = RANGES.get(function, (-100, 100))
    if kind == "f64":
        lo, hi = WIDE.get(function, (lo, hi))
    return (np.concatenate([patterns(third), magnitudes(third), within(lo, hi, third), s]),)
