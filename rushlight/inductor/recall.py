"""Programs found again: what a graph was lowered to is kept in the artifact cache as plain data,
beside the code that it calls, so that the next process need not lower the graph.

Takes a graph as it comes from capture and AOT autograd (nothing decomposed), and what lowers it;
gives a compiled graph, found or made. The key has all that lowering reads: operators, arguments,
layouts, names and origins of the graph, what becomes of its results, the package's files, the
compiler, the instruction set and the settings. What lowering asked of the machine besides is kept
with the program, and asked again: another answer is a miss.

The kernels of a GPU's graph are kept with its program, records and images; the driver loads them
where they first run.

Not kept: graphs with symbolic sizes or constants, or on two GPUs; those of which Triton refused a
kernel.
Nothing is looked for while somebody listens to `trace` or passes are changed: then every stage
runs, and shows what it does.
"""

from __future__ import annotations

import ctypes
import hashlib
import marshal
import os
import sys
import time
from collections.abc import Callable
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rushlight import config, dtypes, trace
from rushlight.errors import Unsupported
from rushlight.fx import passes
from rushlight.fx.graph import Graph, Var
from rushlight.ops.declare import Op
from rushlight.ops.values import TABLE
from rushlight.runtime import cache, native, toolchain
from rushlight.runtime.packing import Packed

from .groups import Group
from .memory_plan import fixed_places
from .scheduler import device_of
from .wrapper import Ends

if TYPE_CHECKING:
    from .pipeline import Compilation

FORMAT = 2  # goes up where kept programs change meaning
NO_SHARING = 2  # of marshal's formats, the last that writes equal values alike
LARGEST = 1 << 20  # bytes of a folded constant that is kept with its program
PLAIN = frozenset((int, float, bool, str, type(None)))
NONSENSE = (  # what reading a program of another meaning may raise
    AttributeError, AssertionError, EOFError, LookupError, OverflowError, TypeError, ValueError,
)  # fmt: skip
READ_BY_LOWERING = (  # and by what makes the graphs that are lowered (kept_forms.py)
    "ops", "loops", "fx", "aot_autograd", "decomposition", "inductor", "runtime", "eager", "nn",
    "amp", "lib",
)  # fmt: skip


class NotKept(Exception):
    """Something that a kept program cannot say."""


# ---- the key


def name_of(graph: Graph, ends: Ends | None, frozen: bool) -> str | None:
    """The name of the graph's program in the cache; None where it has none."""
    if watched():
        return None
    try:
        text = marshal.dumps((described(graph), plain(ends)), NO_SHARING)
        return hashed(frozen, device_of(graph), text)
    except (NotKept, Unsupported, ValueError):  # ValueError: marshal does not know a type
        return None


def watched() -> bool:
    """Whether somebody listens or passes are changed."""
    s = passes.settings
    changed = s.disabled or s.limit is not None or s.verify
    return bool(changed or s.instead is not None or s.also is not None or trace.start_outputs())


def hashed(kind: Any, device: str, text: bytes) -> str:
    """The name of what is kept for a text. Raises Unsupported where no compiler is found."""
    tools = toolchain.find(native.isa())
    known: tuple = (FORMAT, sys.version, machine(), tools.identity, tools.flags, native.isa())
    known += (kind, dtypes.DEFAULT)
    if device != "cpu":
        from rushlight.runtime import triton  # the CPU's path does not pay for these
        from rushlight.runtime.cuda import choices

        choices.learn(int(device.partition(":")[2] or 0))
        known += (native.capability(device), triton.version())
    facts = f"{known!r} {config.code_key()!r} {package()}\n".encode()
    return hashlib.sha256(facts + text).hexdigest()[:40]


def described(graph: Graph) -> tuple:
    """The graph in plain values that tell any two graphs apart."""
    if graph.env.hints or graph.constants or graph.numbers:
        raise NotKept
    device = device_of(graph)
    rows: list[tuple] = []
    for node in graph.nodes:
        made = []
        for v in node.outs:
            x = v.layout
            if x.device not in ("cpu", device) or not device.startswith(("cpu", "cuda")):
                raise NotKept
            made.append((v.name, x.shape, x.strides, x.dtype, x.offset, x.device))
        target = plain(node.target)
        origins = [(o.what, o.where) for o in node.origins]
        rows.append((node.kind, target, plain(node.arguments), made, origins))
    return (graph.name, device, rows)


def plain(v: Any) -> Any:
    """An argument as plain values. Variables and operators stand in tuples, of which arguments
    become lists."""
    kind = type(v)
    if kind in PLAIN:
        return v
    if kind is Var:
        return ("variable", v.name)
    if kind is Op:
        return ("operator", *declared(v))
    if isinstance(v, (tuple, list)):
        return [*map(plain, v)]
    raise NotKept


def declared(op: Op) -> tuple:
    """The names by which the package declares an operator."""
    if TABLE.get(op.name) is op and (op.body.__module__ or "").startswith("rushlight."):
        return (op.name,)
    if op.source is None:
        raise NotKept
    return (op.name, *declared(op.source))


@once
def package() -> str:
    """What tells the files that lowering depends on from those of another version: the size and
    times of each. A file that was written again has another time of change."""
    root = Path(__file__).parents[1]
    found: list[tuple] = []

    def look(folder: str, deep: bool) -> None:
        with os.scandir(folder) as entries:
            for e in entries:
                if e.name.endswith((".py", ".h", ".so")) or ".so." in e.name:
                    about = e.stat()
                    found.append((e.path, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
                elif deep and e.name != "__pycache__" and e.is_dir():
                    look(e.path, True)

    look(str(root), False)
    for room in READ_BY_LOWERING:
        if (root / room).is_dir():
            look(str(root / room), True)
    return cache.digest(repr(sorted(found)))


@once
def machine() -> str:
    """The processor, where the folder is one that several machines share."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    told = text.partition("\n\n")[0].splitlines()
    return "\n".join(row for row in told if row.startswith(("model name", "flags")))


# ---- a program as plain values


def keep(name: str, c: Compilation, asked: dict[tuple, int]) -> None:
    """Keeps what became of a graph under its name, where it can be said in plain values."""
    folder = cache.trusted_folder()
    if folder is None:
        return
    try:
        content = marshal.dumps(Writer(c).program(asked))
    except (NotKept, ValueError):  # ValueError: marshal does not know a type
        return
    cache.keep(folder, name, content, c.graph.name)


class Writer:
    """A finished compilation -> plain values, which `Reader` reads."""

    def __init__(self, c: Compilation) -> None:
        self.c = c
        self.kernels = {id(code): i for i, (_, code) in c.kernels.items()}
        self.artifact = c.library.artifact if c.library is not None else ""
        self.constants: list[tuple] = []
        self.codes: list[tuple] = []  # (record, images) of each of a GPU's kernels

    def program(self, asked: dict[tuple, int]) -> tuple:
        c = self.c
        if c.library is not None and not self.artifact:
            raise NotKept
        built = {id(made) for made, _, _ in c.described.values() if not isinstance(made, str)}
        if any(isinstance(s, Group) and s.on_gpu for s in c.plan.steps) and (
            not c.codes or len(built) < len(c.codes)
        ):
            raise NotKept  # Triton, or one of its tools, may be there the next time
        instructions = [
            (self.callee(callee), *self.entries(entries), registers)
            for callee, entries, registers in c.instructions
        ]
        outputs = self.output(c.outputs)
        inputs = len(c.graph.inputs)
        return (
            tuple(asked.items()), self.artifact, inputs, instructions, outputs, self.constants,
            self.codes,
        )  # fmt: skip

    def callee(self, f: Any) -> tuple:
        at = self.kernels.get(id(f))
        if at is not None:
            symbol, about, phased = self.c.described[at]
            if isinstance(symbol, str):
                return ("kernel", symbol, about, phased)
            return ("device kernel", self.code(symbol), about)
        if type(f) is native.MadeOn:
            return ("made on", f.device, self.operator(f.operator), f.named)
        if type(f) is Packed:
            return ("packed", self.operator(f.pack), f.at_once)
        if f is native.copy_into:
            return ("copy",)
        if f is native.empty:
            return ("empty",)
        if type(f) is native.Workspace:
            return ("workspace", self.c.memory.workspace, fixed_places(self.c.memory))
        return ("operator", self.operator(f))

    def operator(self, f: Any) -> tuple:
        op = TABLE.get(getattr(f, "name", ""))
        if op is not None and op.native is f:
            return (op.name, False)
        op = TABLE.get(getattr(f, "name", "").removesuffix("_"))
        if op is not None and op.native is not None and op.native.inplace is f:
            return (op.name, True)
        raise NotKept

    def code(self, made: tuple) -> int:
        """Groups may share one."""
        at = next((i for i, one in enumerate(self.codes) if one is made), len(self.codes))
        if at == len(self.codes):
            self.codes.append(made)
        return at

    def entries(self, entries: tuple) -> tuple[bool, tuple]:
        """(whether they are what the program takes, without anything to be read, the entries)."""
        made = tuple(map(self.entry, entries))
        return made == entries, made

    def entry(self, e: tuple) -> tuple:
        kind, value = e
        if kind == "r":
            return e
        if kind == "l":
            return ("l", tuple(map(self.entry, value)))
        if type(value) is native.DType:
            return ("dtype", value.name)
        if hasattr(value, "data_ptr"):
            return ("tensor", self.constant(value))
        return ("c", literal(value))

    def constant(self, x: Any) -> int:
        size = x.numel() * x.element_size()
        if not x.is_contiguous() or str(x.device) != "cpu" or x.requires_grad or size > LARGEST:
            raise NotKept
        held = ctypes.string_at(x.data_ptr(), size)
        self.constants.append((tuple(x.shape), x.dtype.name, held))
        return len(self.constants) - 1

    def output(self, o: Any) -> Any:
        """An entry, or a tuple of them."""
        if isinstance(o, tuple) and not (o and isinstance(o[0], str)):
            return tuple(map(self.output, o))
        return self.entry(o)


def literal(v: Any) -> Any:
    if type(v) in PLAIN or (type(v) in (tuple, list) and all(literal(x) is x for x in v)):
        return v
    raise NotKept


class Reader:
    """Plain values -> the native program. None from `program` where the machine answers otherwise,
    or the code is not there."""

    def __init__(self, folder: str, held: tuple) -> None:
        self.folder = folder
        self.asked, self.artifact, self.inputs, self.instructions, self.outputs, *kept = held
        constants, codes = kept
        self.constants = [constant(*one) for one in constants]
        self.codes = [native.device_kernel(*one) for one in codes]
        self.library: cache.Library | None = None

    def program(self) -> Any:
        if any(native.packed_bytes(*what) != answer for what, answer in self.asked):
            return None
        if self.artifact:
            self.library = cache.loaded(self.folder, self.artifact)
            if self.library is None:
                return None
        instructions = [
            (self.callee(*callee), entries if same else tuple(map(self.entry, entries)), registers)
            for callee, same, entries, registers in self.instructions
        ]
        return native.program(self.inputs, instructions, self.output(self.outputs))

    def callee(self, kind: str, *facts: Any) -> Any:
        match kind:
            case "operator":
                return operator(*facts[0])
            case "kernel":
                symbol, about, phased = facts
                library = self.library
                assert library is not None
                if phased is not None:
                    phased = (cache.pointer(library, phased[0]), *phased[1:])
                code = cache.pointer(library, symbol)
                return native.kernel(code, native.KernelFacts(*about), library, phased)
            case "device kernel":
                at, about = facts
                return native.kernel(self.codes[at], native.KernelFacts(*about), None)
            case "made on":
                device, made_by, named = facts
                return native.MadeOn(device, operator(*made_by), named)
            case "packed":
                return Packed(operator(*facts[0]), at_once=facts[1])
            case "workspace":
                return native.workspace(*facts)
        return {"copy": native.copy_into, "empty": native.empty}[kind]

    def entry(self, e: tuple) -> tuple:
        kind, value = e
        match kind:
            case "l":
                return ("l", tuple(map(self.entry, value)))
            case "dtype":
                return ("c", native.dtype(value))
            case "tensor":
                return ("c", self.constants[value])
        return e

    def output(self, o: Any) -> Any:
        if isinstance(o, tuple) and not (o and isinstance(o[0], str)):
            return tuple(map(self.output, o))
        return self.entry(o)


def operator(name: str, inplace: bool) -> Any:
    op = there(name).native
    return op.inplace if inplace else op


def there(name: str) -> Any:
    """The operator of that name; a derivative comes to be where it is first asked for."""
    found = TABLE.get(name)
    if found is None and name.endswith("_backward"):
        found = there(name.removesuffix("_backward")).backward
    return found or TABLE[name]


def constant(shape: tuple, dtype: str, held: bytes) -> Any:
    x = native.empty(shape, native.dtype(dtype))
    ctypes.memmove(x.data_ptr(), held, len(held))
    return x


# ---- found, or made


class Recalled:
    """A compiled graph whose program was found; what else a `CompiledGraph` knows (steps, memory,
    kernels, source) is made when somebody asks for it."""

    def __init__(self, program: Any, kept_as: str, make: Callable[[], Any]) -> None:
        self.program, self.kept_as, self.make = program, kept_as, make
        self.milliseconds: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = self.__dict__.get("whole")
        if whole is None:
            whole = self.__dict__["whole"] = self.make()
        return getattr(whole, name)


def find(name: str, graph: str, make: Callable[[], Any]) -> Recalled | None:
    """The program of that name, or None. `graph`: the name of its graph; `make` lowers it."""
    start = time.perf_counter()
    folder = cache.trusted_folder()
    content = cache.kept(folder, name) if folder is not None else None
    if folder is None or content is None:
        return None
    try:
        program = Reader(folder, marshal.loads(content)).program()
    except NONSENSE:
        return None  # nothing that this version understands: made anew
    if program is None:
        return None
    program.label = f"{trace.current_unit()}/{trace.numbered(graph)}".lstrip("/")
    found = Recalled(program, name, make)
    found.milliseconds["recall"] = 1e3 * (time.perf_counter() - start)
    return found
