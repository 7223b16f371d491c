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
    "-fpeel-loops",
    "--param=max-completely-peel-times=8",
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


class NoCompiler(Unsupported):
    """No C++ compiler works on this machine: nothing can be compiled.

    Fails:  CXX=/bin/false python model.py
    Mend:   install g++ or clang++, or set CXX. Eager mode needs no compiler.
    """


class Toolchain(NamedTuple):
    path: str
    identity: str  # of the compiler's file: path, size and time, which cost no process to ask
    flags: tuple[str, ...]

    @property
    def version(self) -> str:
        """The first line of --version."""
        return version(self.path)


@cache
def version(path: str) -> str:
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return (told.stdout.splitlines() or [path])[0]


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
        raise NoCompiler("compile", "no C++ compiler was found", HINT)
    real = os.path.realpath(path)
    about = os.stat(real)
    identity = f"{real} {about.st_size} {about.st_mtime_ns}"
    return Toolchain(path, identity, (*FLAGS, *FLAGS_OF_ISA[isa]))


def build(tools: Toolchain, source: str, target: str) -> None:
    """Compiles the source to a shared object at `target`. Raises CompilerBug that quotes the
    compiler's first error."""
    command = [tools.path, *tools.flags, "-", "-o", target]
    try:
        done = subprocess.run(
            command, input=source, capture_output=True, text=True, check=False, close_fds=False
        )
    except OSError as error:
        refuse("toolchain.failed", tools.path, str(error), HINT)
        raise NoCompiler("compile", f"{tools.path} does not run: {error}", HINT) from None
    if done.returncode or not os.path.getsize(target):
        errors = done.stderr.splitlines()
        first = next((row for row in errors if "error" in row), done.stderr[:200].strip())
        refuse("toolchain.failed", " ".join(command), first or f"exit code {done.returncode}")
        if not first.startswith("<stdin>"):  # not about the source: no space, no linker, killed
            what = first or f"it made nothing and left {done.returncode}"
            raise NoCompiler("compile", f"{tools.path} failed: {what}", HINT)
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
