"""The kernel library: every declaration's precompiled kernels as C++ files. Run at build time, without the native core.

    python -m rushlight.loops.library --out DIR [--parts N]

writes kernels_<i>.cpp (each a translation unit with its share of the functions), kernels_rows.cpp (what long rows are shared
out by) and kernels_table.cpp, which holds `rushlight_kernels[]` for csrc/rt/kernels.cpp. Nothing is written where nothing
changed, so that builds stay short.
"""
import argparse
import sys
import zlib
from pathlib import Path

from rushlight import dtypes
from rushlight.ops import TABLE
from rushlight.ops.declare import MISSING, RUN, derived

from . import cpp
from .lower import Operand, Run, device_outer, generic
from .words import PRELUDE_FILES

ELEMENT = 1 << 30                   # in KernelEntry.serial: the kernel uses the element counter


def kernels(device="cpu"):
    """(operator, kernel) for every declared domain, pattern and variant; derived derivatives included. GPU kernels have more
    outer axes."""
    for op in list(TABLE.values()):
        if op.kind in ("scalar", "rows") and op.rule is derived and op.domain and not op.source:
            op.backward  # noqa: B018  the derived derivative declares itself
    for op in list(TABLE.values()):
        check(op)
        if op.kind not in ("scalar", "rows"):
            continue
        for best in op.domain:
            for pattern in op.patterns:
                for variant in op.variants:
                    yield op, kernel_of(op, best, pattern, variant, device)


def check(op):
    """What a declaration must say, told to its author at build time."""
    if op.rule is None and any(dtypes.is_floating(d) for d in op.domain):
        raise ValueError(f"[{op.name}] says nothing of its derivative: give derivative=derived, derivative=none or a rule "
                         f"({op.where})")
    for sample in op.samples:
        op.bind(sample.args, sample.kwargs)             # TypeError names the operator and the argument


def kernel_of(op, best, pattern, variant, device="cpu"):
    wide = dtypes.opmath(best)
    letters = dict(zip(op.tensor_slots, pattern))
    values = []
    for i, p in enumerate(op.parameters):
        kind = "f" if dtypes.is_floating(best) else "i"
        if p.is_tensor:
            other = {"opmath": wide}.get(op.others.get(p.name), op.others.get(p.name))
            values.append({"T": Operand(other or best), "N": Run(kind), "0": None}[letters[i]])
        elif p.name in variant:
            values.append(Run(kind) if variant[p.name] is RUN else variant[p.name])
        elif p.is_run_time and p.default is MISSING:
            values.append(Run({"float": "f", "SymInt": "i"}.get(p.type.rstrip("?"), kind)))
        elif p.default is not MISSING:
            values.append(p.default)
        else:
            values.append({"int": 0, "bool": False, "str": "", "dtype": best}.get(p.kind, (0,)))
    results = results_of(op, best, values)
    return generic(op, best, values, results, None if device == "cpu" else device_outer(op))


def results_of(op, best, values):
    """Output dtypes: the promotion's fixed result or the storage dtype; statistics in opmath."""
    promote = op.promote
    result = getattr(promote, "result", None) or best
    by = getattr(promote, "by", None)
    if type(promote).__name__ == "Converting" and by in op.position:
        result = values[op.position[by]] or result
    if op.source:
        return [result] * op.outputs
    return [result] + [dtypes.opmath(best)] * (op.outputs - 1)


def entry(op, kernel, symbol):
    serial = 1 if op.layout.rule == "into_table" else 0
    if cpp.uses_element(kernel):
        serial |= ELEMENT
    inputs = sum(not b.written for b in kernel.buffers)
    name, origin = cpp_text(kernel.name), cpp_text(op.where)
    return (f"    {{{name}, {symbol}, {len(kernel.outer)}, {len(kernel.inner)}, {inputs}, {len(kernel.buffers) - inputs}, "
            f"{len(kernel.numbers)}, {serial}, {op.cost}, {origin}}},")


def cpp_text(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def prelude():
    here = Path(__file__).parent
    return "\n".join(f'#include "{here / name}"' for name in PRELUDE_FILES)


STRUCT = """typedef rl_i64 (*rl_kernel)(void* const* p, const rl_i64* n, const rl_number* s);
struct rl_entry { const char* key; rl_kernel fn; int outer, inner, inputs, outputs, numbers, serial, cost; const char* origin; };
"""


def write(folder: Path, parts):
    folder.mkdir(parents=True, exist_ok=True)
    found = list(kernels())
    units = [[] for _ in range(parts)]
    tables = [[] for _ in range(parts)]
    count = {}
    for op, kernel in found:                            # an operator's kernels stay in one file, whatever comes before it
        part = zlib.crc32(op.name.encode()) % parts
        count[op.name] = count.get(op.name, 0) + 1
        symbol = f"k_{op.name}_{count[op.name]}"
        units[part].append(cpp.function(kernel.verify(), symbol))
        tables[part].append(entry(op, kernel, symbol))
    for part in range(parts):
        put(folder / f"kernels_{part}.cpp", "\n".join(
            [prelude(), cpp.HELPERS, *units[part], STRUCT, f'extern "C" const rl_entry rushlight_part_{part}[] = {{',
             *tables[part], "};", f'extern "C" const rl_i64 rushlight_part_{part}_count = {len(tables[part])};', ""]))
    put(folder / "kernels_table.cpp", table(parts, [len(t) for t in tables]))
    put(folder / "kernels_rows.cpp", long_rows([kernel for _, kernel in found if cpp.has_long_row(kernel)]))
    put(folder / "manifest.txt", "".join(f"kernels_{i}.cpp\n" for i in range(parts)) + "kernels_rows.cpp\nkernels_table.cpp\n")
    return len(found)


def table(parts, counts):
    """One array for all parts, filled when the library is loaded."""
    total = sum(counts)
    lines = ["typedef long long rl_i64;", "union rl_number { double f; rl_i64 i; };", STRUCT]
    lines += [f'extern "C" const rl_entry rushlight_part_{i}[];' for i in range(parts)]
    lines += ['#define RL_EXPORT extern "C" __attribute__((visibility("default")))',
              f"RL_EXPORT rl_entry rushlight_kernels[{total}];", f"rl_entry rushlight_kernels[{total}];",
              "RL_EXPORT const rl_i64 rushlight_kernel_count;", f"const rl_i64 rushlight_kernel_count = {total};",
              "__attribute__((constructor)) static void fill() {", "    rl_i64 n = 0;"]
    lines += [f"    for (rl_i64 i = 0; i < {c}; ++i) rushlight_kernels[n++] = rushlight_part_{p}[i];" for p, c in enumerate(counts)]
    return "\n".join([*lines, "}", ""])


LONG_ROW = """typedef void (*rl_part)(void* const* p, const rl_i64* n, const rl_number* s, char* kept, rl_i64 begin, rl_i64 end);
struct rl_long_row { const char* key; rl_part blocks, join; rl_i64 size; };
extern "C" __attribute__((visibility("default"))) const rl_long_row rushlight_long_rows[] = {"""


def long_rows(found):
    lines, entries = [], []
    for i, kernel in enumerate(found):
        text, size = cpp.long_row(kernel, f"r{i}")
        lines.append(text)
        entries.append(f"    {{{cpp_text(kernel.name)}, r{i}_blocks, r{i}_join, {size}}},")
    return "\n".join([prelude(), cpp.HELPERS, *lines, LONG_ROW, *entries, '    {"", nullptr, nullptr, 0}};', ""])


def put(path: Path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--parts", type=int, default=24)
    parser.add_argument("--show", help="print one kernel's C++ instead of writing all")
    given = parser.parse_args(argv)
    if given.show:
        print(source(given.show))
        return
    count = write(given.out, given.parts)
    print(f"{count} kernels in {given.parts} files under {given.out}", file=sys.stderr)


def find(key):
    """The loop IR of the kernel under `key`; KeyError names what is near."""
    name, best, *_ = key.split(".")
    for op, kernel in kernels():
        if kernel.name == key:
            return op, kernel
    near = [k.name for op, k in kernels() if op.name == name]
    raise KeyError(f"no kernel {key!r}; of this operator there are: {', '.join(near) or 'none'}")


def source(key):
    """The C++ of one precompiled kernel, as the build writes it."""
    op, kernel = find(key)
    return f"// {op.schema.text}\n// {op.where}\n" + cpp.function(kernel, "kernel")


if __name__ == "__main__":
    main()
