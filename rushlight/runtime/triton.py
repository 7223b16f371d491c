"""Triton as a compiler and nothing else: generated sources -> images for a GPU, each stage on the
way kept.

A source is `loops.triton.Source`. No GPU, no driver and no torch are needed. Triton's own cache and
its key (0.3 s a process) are left out: an image is found in the artifact cache by its source, its
parameters, its target and Triton's version. One file holds the image and, deflated, what the stages
made of it, so that a warm process can still show them.

    file = image | stages, deflated JSON | facts as JSON | lengths of the two, 8 bytes each |
    SHA-256 of all that
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import linecache
import os
import re
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from functools import cache as remembered
from typing import Any, NamedTuple

from rushlight import trace
from rushlight.errors import CompilerBug, Unsupported
from rushlight.reasons import refuse

from . import cache

FORMAT = "2"
HINT = "pip install 'triton>=3.6,<3.10' (needed to compile for a GPU, not to run what is compiled)."
STAGES = {"ttir": "ttir", "ttgir": "ttgir", "llir": "llvm_ir", "ptx": "ptx"}  # Triton's name: ours


class NoTriton(Unsupported):
    """Triton is not installed, so nothing can be compiled for a GPU.

    Fails:  rushlight.compile(model)(x.cuda()) without the package triton
    Mend:   pip install 'triton>=3.6,<3.10'.
    """


class Image(NamedTuple):
    """Machine code of one launch. `stages`: the text of each stage by Triton's name for it."""

    entry: str
    cubin: bytes
    shared: int  # bytes, dynamic
    warps: int
    stages: dict[str, str]
    milliseconds: dict[str, float]  # of each stage; empty where it was found


@remembered
def version() -> str | None:
    """Triton's version, or None where it is not installed. Does not import it, nor
    `importlib.metadata`, which would be most of the time of a warm start."""
    found = importlib.util.find_spec("triton")
    if found is None or not found.origin:
        return None
    with open(found.origin, encoding="utf-8") as file:
        told = re.search(r"""^__version__ = ['"]([^'"]+)""", file.read(), re.M)
    return told[1] if told else found.origin


def require() -> str:
    """Triton's version. Raises NoTriton."""
    told = version()
    if told is None:
        refuse("toolchain.missing", "Triton", "the package triton is not installed", HINT)
        raise NoTriton("compile", "the package triton is not installed", HINT)
    return told


def build(
    record: dict, sources: list[Any], capability: int, stages: bool = True
) -> tuple[dict, list[bytes]]:
    """(kernel record of docs/gpu.md, its images) of what `loops.triton_forms.record` gives.

    `capability`: 80 or 90; `stages`: whether the cache keeps what the stages made. Raises NoTriton,
    and CompilerBug where Triton refuses what was generated."""
    return build_all([(record, sources)], capability, stages)[0]


def build_all(
    made: list[tuple[dict, list]], capability: int, stages: bool = True
) -> list[tuple[dict, list[bytes]]]:
    """`build` for many kernels; the assembler runs beside the compiler."""
    wanted = [s for _, sources in made for s in sources]
    images = iter(compile_all(wanted, capability, stages=stages))
    return [finished(record, [next(images) for _ in sources]) for record, sources in made]


def finished(record: dict, images: list[Image]) -> tuple[dict, list[bytes]]:
    for variant in record["variants"]:
        for launch in variant["launches"]:
            launch["shared"] = images[launch["cubin"]].shared
    return record, [image.cubin for image in images]


# ---- one source -> one image


def compile_all(
    sources: Iterable[Any], capability: int, debug: bool = False, stages: bool = True
) -> list[Image]:
    """The image of each source. `debug`: with line numbers, so that profilers show generated
    lines; `stages`: whether the cache keeps what the stages made."""
    sources = list(sources)
    names = [digest(source, capability, debug) for source in sources]
    images: dict[str, Image] = {}
    fresh: dict[str, Any] = {}
    for name, source in zip(names, sources):
        if name in images or name in fresh:
            continue
        found = find(name)
        if found is None:
            refuse("cache.miss", name, f"no image of {source.name} for sm_{capability}")
            fresh[name] = source
        else:
            images[name] = found
            tell(source, found, capability, found_in_cache=True)
    if fresh:
        for (name, source), image in zip(
            fresh.items(), compile_fresh(list(fresh.values()), capability, debug)
        ):
            images[name] = image
            keep(name, image if stages else image._replace(stages={}))
            tell(source, image, capability, found_in_cache=False)
    return [images[name] for name in names]


def compile_fresh(sources: list[Any], capability: int, debug: bool) -> list[Image]:
    """Here, or in a process of its own where this one uses a GPU (see triton_worker)."""
    from .cuda import opening

    if not opening.opened:
        return compile_here(sources, capability, debug)
    from .triton_worker import worker

    try:
        return worker.compile(sources, capability, debug)
    except CompilerBug as error:
        refuse("toolchain.failed", ", ".join(s.name for s in sources), str(error).splitlines()[0])
        raise


def compile_here(sources: list[Any], capability: int, debug: bool) -> list[Image]:
    from concurrent.futures import ThreadPoolExecutor

    prepared(capability, 4)  # imports Triton, or says that it is missing
    with line_numbers(debug), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda s: compiled(s, capability), sources))


def digest(source: Any, capability: int, debug: bool) -> str:
    """The name of a source's image: of what decides it."""
    told = require()
    facts = (source.mathematics, source.code, source.params, source.warps)
    facts += (source.stages, source.contracts)
    parts = (FORMAT, told, capability, debug, *facts)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


def compiled(source: Any, capability: int) -> Image:
    """Raises CompilerBug. May run in several threads at once: the compiler leaves Python's lock,
    and the assembler is a process of its own."""
    stages, times, facts, assemble = to_ptx(source, capability)
    if facts.get("global_scratch_size"):  # launches pass none (docs/gpu.md)
        raise CompilerBug("triton", f"{source.name} asks for global scratch memory", source.text)
    began = time.perf_counter()
    cubin = assemble()
    times["cubin"] = round(1e3 * (time.perf_counter() - began), 1)
    return Image(facts["name"], cubin, facts["shared"], facts["num_warps"], stages, times)


def to_ptx(source: Any, capability: int) -> tuple:
    """(text of each stage, milliseconds of each, Triton's metadata, what makes the image)."""
    backend, options, ir, ast_source, target = prepared(
        capability, source.warps, source.stages, source.contracts
    )
    stages: dict[str, str] = {}
    times: dict[str, float] = {}
    began = time.perf_counter()

    def lap(stage: str) -> None:
        nonlocal began
        now = time.perf_counter()
        times[stage] = round(1e3 * (now - began), 1)
        began = now

    function = loaded(source)
    signature = {name: kind for name, kind, _, _ in source.params}
    aligned = {
        (i,): [["tt.divisibility", 16]] for i, (*_, even) in enumerate(source.params) if even
    }
    asked = ast_source(function, signature, None, aligned)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        module = asked.make_ir(
            target,
            options,
            backend.get_codegen_implementation(options),
            backend.get_module_map(),
            context,
        )
        lap("source")
        passes: dict[str, Any] = {}
        backend.add_stages(passes, options, asked.language)
        metadata: dict[str, Any] = {"target": target, **options.__dict__}
        for stage in STAGES:
            module = passes[stage](module, metadata)
            stages[stage] = str(module)
            lap(stage)
    except Exception as error:  # Triton's own kinds: each is a fault of what was generated
        refuse("toolchain.failed", source.name, str(error))
        text = f"Triton refused generated code: {str(error).strip()[:400]}"
        raise CompilerBug("triton", text, source.text) from error

    def assemble() -> bytes:
        try:
            return passes["cubin"](module, metadata)
        except Exception as error:
            refuse("toolchain.failed", source.name, str(error))
            text = f"the assembler refused generated PTX: {str(error).strip()[:400]}"
            raise CompilerBug("triton", text, source.text) from error

    return stages, times, metadata, assemble


@remembered
def prepared(capability: int, warps: int, stages: int = 1, contracts: bool = False) -> tuple:
    """Triton's parts for one target, imported at first use."""
    try:
        from triton._C.libtriton import ir
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from triton.compiler.compiler import make_backend
    except ImportError as error:
        refuse("toolchain.missing", "Triton", str(error), HINT)
        raise NoTriton("compile", f"triton does not import: {error}", HINT) from None
    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    options = backend.parse_options(
        {
            "num_warps": warps,
            "num_stages": stages,
            "enable_fp_fusion": contracts,  # mostly not, as -ffp-contract=off
            "enable_reflect_ftz": False,  # denormals stay
        }
    )
    return backend, options, ir, ASTSource, target


@contextlib.contextmanager
def line_numbers(on: bool) -> Iterator[None]:
    from triton import knobs

    before = knobs.compilation.disable_line_info
    knobs.compilation.disable_line_info = not on
    try:
        yield
    finally:
        knobs.compilation.disable_line_info = before


def loaded(source: Any) -> Any:
    """The Triton function of a source. Its text is known to `inspect`, which Triton asks for it."""
    name = f"<{source.name}>"
    linecache.cache[name] = (len(source.text), None, source.text.splitlines(True), name)
    space: dict[str, Any] = {"__name__": source.name}
    exec(compile(source.text, name, "exec"), space)
    return space[source.name]


# ---- what came of it


def tell(source: Any, image: Image, capability: int, *, found_in_cache: bool) -> None:
    """Every stage as a record, for logs, debug folders and `explain`."""
    if not trace.listeners:
        return
    name, target = source.name, f"sm_{capability}"
    trace.emit("triton_kernels", name, source.text, source.lines, target=target, warps=image.warps)
    for stage, documented in STAGES.items():
        if stage in image.stages:
            spent = image.milliseconds.get(stage)
            trace.emit(documented, name, image.stages[stage], target=target, ms=spent)
    used: dict[str, Any] = dict(resources(image.cubin))
    trace.emit(
        "gpu_machine_code",
        name,
        lambda: disassembled(image.cubin),
        target=target,
        bytes=len(image.cubin),
        shared=image.shared,
        ms=image.milliseconds.get("cubin"),
        found=found_in_cache,
        **used,
    )


def tool(name: str) -> str | None:
    """One of NVIDIA's binary tools that Triton carries."""
    try:
        from triton import knobs

        return getattr(knobs.nvidia, name).path
    except Exception:  # Triton's own error kinds where the tool is missing
        return None


def resources(cubin: bytes) -> dict[str, int]:
    """Registers a thread, bytes of stack (spills lie there) and of static shared memory; {}
    without the tool."""
    path = tool("cuobjdump")
    if path is None:
        return {}
    text = inspected([path, "--dump-resource-usage"], cubin)
    pairs = (w.partition(":") for w in text.split() if ":" in w)
    names = {"REG": "registers", "STACK": "stack", "SHARED": "static_shared", "LOCAL": "local"}
    return {names[k]: int(v) for k, _, v in pairs if k in names and v.isdigit()}


def disassembled(cubin: bytes) -> str:
    """SASS, or a sentence where the disassembler is missing."""
    path = tool("nvdisasm")
    if path is None:
        return "(nvdisasm is not installed)"
    return inspected([path, "-c"], cubin)


def inspected(command: list[str], cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([*command, file.name], capture_output=True, text=True, check=False)
    return done.stdout or done.stderr


def after_each_pass(source: Any, capability: int) -> str:
    """The IR after every MLIR pass, as MLIR prints it. Compiles anew."""
    handle, path = tempfile.mkstemp(suffix=".mlir")
    os.close(handle)
    before = {k: os.environ.get(k) for k in ("MLIR_ENABLE_DUMP", "MLIR_DUMP_PATH")}
    os.environ |= {"MLIR_ENABLE_DUMP": "1", "MLIR_DUMP_PATH": path}
    try:
        with line_numbers(False):
            to_ptx(source, capability)
        with open(path, encoding="utf-8") as file:
            return file.read()
    finally:
        for k, v in before.items():
            os.environ.pop(k, None) if v is None else os.environ.update({k: v})
        os.unlink(path)


# ---- the images' files


def find(name: str) -> Image | None:
    """An image of the artifact cache; None, with a reason, where it is missing or refused."""
    folder = cache.trusted_folder()
    if folder is None:
        return None
    path = os.path.join(folder, name + ".cubin")
    if (handle := cache.opened(path)) is None:
        return None
    try:
        content = cache.contents(handle)
        why = cache.distrust(os.fstat(handle)) or cache.corrupt(content)
    finally:
        os.close(handle)
    if why:
        refuse("cache.refused", path, why, "It is built anew.")
        return None
    lengths = content[-48:-32]
    stages, facts = int.from_bytes(lengths[:8], "little"), int.from_bytes(lengths[8:], "little")
    end = len(content) - 48
    told = json.loads(content[end - facts : end])
    packed = content[end - facts - stages : end - facts]
    kept = json.loads(zlib.decompress(packed)) if trace.listeners else {}
    cubin = content[: end - facts - stages]
    return Image(told["entry"], cubin, told["shared"], told["warps"], kept, {})


def keep(name: str, image: Image) -> None:
    """Written under a name of its own and renamed, so that others see all of the file or
    nothing."""
    folder = cache.trusted_folder()
    if folder is None:
        return
    stages = zlib.compress(json.dumps(image.stages).encode(), 1)
    facts = json.dumps(
        {"entry": image.entry, "shared": image.shared, "warps": image.warps}
    ).encode()
    content = image.cubin + stages + facts
    content += len(stages).to_bytes(8, "little") + len(facts).to_bytes(8, "little")
    try:
        handle, fresh = tempfile.mkstemp(suffix=".part", dir=folder)
        with open(handle, "wb") as file:
            file.write(content + hashlib.sha256(content).digest())
        os.chmod(fresh, 0o600)
        os.replace(fresh, os.path.join(folder, name + ".cubin"))
    except OSError as error:
        refuse("cache.unwritable", folder, str(error), "The image is used from memory.")
