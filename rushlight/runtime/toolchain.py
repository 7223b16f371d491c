"""The C++ compiler: found once, asked for its version, called with flags that keep the numerics
a contract.

The flags are those of the precompiled kernels (cmake/kernels.cmake), so that fused and eager
code give the same bits. No OpenMP runtime and no standard library: rt splits loops over threads,
and generated code has no #include.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import NamedTuple

from rushlight.errors import CompilerBug, Unsupported
from rushlight.reasons import refuse

FLAGS = (
    "-O2",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fopenmp-simd",
    "-fPIC",
    "-fvisibility=hidden",
    "-w",
    "-shared",
    "-nostdlib",
    "-x",
    "c++",
)
FLAGS_OF_ISA = {
    "v2": ("-march=x86-64-v2",),
    "v3": ("-march=x86-64-v3",),
    "v4": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
}
COMPILERS = ("g++", "c++", "clang++")
HINT = "Install g++ or clang++, or set CXX; eager mode needs no compiler."


class Toolchain(NamedTuple):
    path: str
    version: str  # first line of --version
    flags: tuple[str, ...]

    @property
    def key(self) -> str:
        """What of the toolchain decides the code it makes."""
        return "\n".join([self.version, *self.flags])


@cache
def find(isa: str) -> Toolchain:
    """Raises Unsupported where no compiler is found."""
    names = (os.environ.get("CXX", ""), *COMPILERS)
    path = next((p for p in map(shutil.which, filter(None, names)) if p), None)
    if path is None:
        refuse(
            "toolchain.missing",
            "C++",
            f"none of {', '.join(filter(None, names))} is on the PATH",
            HINT,
        )
        raise Unsupported("compile", "no C++ compiler was found", HINT)
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return Toolchain(path, (told.stdout.splitlines() or [path])[0], (*FLAGS, *FLAGS_OF_ISA[isa]))


def build(tools: Toolchain, source: str, target: str) -> None:
    """Compiles the source to a shared object at `target`. Raises CompilerBug that quotes the
    compiler's first error."""
    command = [tools.path, *tools.flags, "-", "-o", target]
    done = subprocess.run(
        command, input=source, capture_output=True, text=True, check=False, close_fds=False
    )
    if done.returncode:
        first = next((row for row in done.stderr.splitlines() if "error" in row), done.stderr[:200])
        refuse("toolchain.failed", " ".join(command), first)
        raise CompilerBug(
            "codegen", f"the C++ compiler refused generated code: {first}", quoted(source, first)
        )


def quoted(source: str, error: str) -> str:
    """The lines of the source around the one that an error names."""
    parts = error.split(":")
    if len(parts) > 1 and parts[1].isdigit():
        rows, at = source.splitlines(), int(parts[1])
        return "\n".join(rows[max(0, at - 3) : at + 2])
    return ""
