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
import tempfile
import threading
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
UNIT = "// ---- unit\n"  # before what may be compiled apart from the rest
WORTH_A_PROCESS = 30_000  # characters, which take g++ about 0.4 s: another run of it costs 0.1 s
# Registers are allocated over a whole function, not loop by loop: a quarter of g++'s time for long
# graphs, and none of their steady time (benchmarks/torch_models.py). clang lacks the option.
FLAGS_OF_GCC = ("-fira-region=one",)
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
    special = () if "clang" in os.path.basename(real) else FLAGS_OF_GCC
    return Toolchain(path, identity, (*FLAGS, *special, *FLAGS_OF_ISA[isa]))


def build(tools: Toolchain, source: str, target: str) -> None:
    """Compiles the source to a shared object at `target`, the pieces that `pieces` cuts it into at
    the same time. Raises CompilerBug that quotes the compiler's first error."""
    last, *others = pieces(source, processors())
    if not others:
        compile_one(tools, last, ("-", "-o", target))
        return
    with tempfile.TemporaryDirectory(prefix="rushlight-") as folder:
        objects = [os.path.join(folder, f"{i}.o") for i in range(len(others))]
        failed: list[BaseException] = []

        def compile_other(text: str, to: str) -> None:
            try:
                compile_one(tools, text, ("-", "-c", "-o", to))
            except BaseException as error:  # noqa: BLE001  (raised again below)
                failed.append(error)

        threads = [threading.Thread(target=compile_other, args=a) for a in zip(others, objects)]
        for thread in threads:
            thread.start()
        try:
            own = os.path.join(folder, "own.o")
            compile_one(tools, last, ("-", "-c", "-o", own))
        finally:
            for thread in threads:
                thread.join()
        if failed:
            raise failed[0]
        compile_one(tools, "", ("-x", "none", own, *objects, "-o", target))


def processors() -> int:
    """Those that this process may use."""
    there = getattr(os, "sched_getaffinity", None)
    return len(there(0)) if there else os.cpu_count() or 1


def pieces(source: str, most: int) -> list[str]:
    """A source as up to `most` that are compiled apart: what comes before the first `UNIT` goes
    into each, and the units are dealt out so that the texts come out about equally long."""
    head, *units = source.split(UNIT)
    count = min(most, len(units), sum(map(len, units)) // WORTH_A_PROCESS)
    if count < 2:
        return [source]
    dealt: list[list[str]] = [[] for _ in range(count)]
    for unit in sorted(units, key=len, reverse=True):
        min(dealt, key=lambda texts: sum(map(len, texts))).append(unit)
    return [UNIT.join([head, *texts]) for texts in dealt]


def compile_one(tools: Toolchain, source: str, arguments: tuple[str, ...]) -> None:
    """One run of the compiler, which reads the source where the arguments have "-"; the last of
    them is the file that it makes."""
    command = [tools.path, *tools.flags, *arguments]
    try:
        done = subprocess.run(
            command, input=source, capture_output=True, text=True, check=False, close_fds=False
        )
    except OSError as error:
        refuse("toolchain.failed", tools.path, str(error), HINT)
        raise NoCompiler("compile", f"{tools.path} does not run: {error}", HINT) from None
    if done.returncode or not (os.path.exists(arguments[-1]) and os.path.getsize(arguments[-1])):
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
