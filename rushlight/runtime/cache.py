"""The artifact cache: what decides a graph's code -> a loaded shared object; built at most once on
this machine.

An artifact's name is the hash of its key's parts: format, compiler, flags, instruction set,
settings, and what the caller says (kernels, math, emitter). Source is generated on a miss only. The
folder is ours (0700), files in it are regular and ours, not writable by others, and end with
the key's parts and a digest of everything before; what fails a check is refused with a reason and
built anew. The file is checked on the descriptor that is then loaded, so that nobody can change it
in between.

    file = shared object | parts as JSON | its length, 8 bytes | SHA-256 of all that, 32 bytes

Programs that call such objects are kept beside them in the same form (`keep`, `kept`).
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import re
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rushlight import config, trace
from rushlight.reasons import refuse

from . import toolchain
from .toolchain import Toolchain

FORMAT = "2"  # of the cache: goes up where its files change meaning
COMPARED = 200  # entries that a miss is compared with, at most
ENDINGS = (".so", ".cubin", ".program")  # of artifacts


class Entry(NamedTuple):
    path: str
    bytes: int
    used: float  # seconds since the epoch
    parts: dict[str, str]


class Library(ctypes.CDLL):
    """A loaded shared object, and the name of its artifact ("": one that is not in the folder)."""

    artifact = ""


def load(source: str | Callable[[], str], isa: str, **parts: str) -> Library:
    """The shared object of a source, from the folder or newly built. `parts` decide the source
    where it is a function; a text decides itself."""
    tools = toolchain.find(isa)
    if isinstance(source, str):
        parts["source"] = digest(source)
    key = {
        "format": FORMAT,
        "compiler": tools.identity,
        "flags": " ".join(tools.flags),
        "settings": str(config.code_key()),
        **parts,
    }
    name = name_for(key)
    make = (lambda: source) if isinstance(source, str) else source
    folder = trusted_folder()
    if folder is not None:
        found = loaded(folder, name)
        path = os.path.join(folder, name + ".so")
        if found is not None:
            trace.emit("artifact_cache", name, found=True, path=path)
            return found
        refuse("cache.miss", name, miss(folder, key) if trace.listeners else f"{path} is not there")
        text = make()
        try:
            found = build_into(folder, name, text, tools, key)
            found.artifact = name
            return found
        except OSError as error:
            warn(
                "cache.unwritable",
                folder,
                error.strerror or str(error),
                "The code is built in a temporary folder. Free some space, or set "
                "RUSHLIGHT_CACHE_DIR.",
            )
    with tempfile.TemporaryDirectory(prefix="rushlight-") as place:
        return build_into(place, name, make(), tools, key)


def loaded(folder: str, name: str) -> Library | None:
    """The artifact of that name, or None where it is missing or refused."""
    found = open_checked(os.path.join(folder, name + ".so"), name)
    if found is not None:
        found.artifact = name
    return found


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def name_for(key: dict[str, str]) -> str:
    """The name of an artifact. Equal code of graphs of two names is one."""
    decisive = {p: v for p, v in key.items() if p != "graph"}
    return digest(json.dumps(decisive, sort_keys=True))[:40]


def warn(reason: str, what: str, why: str, hint: str = "") -> None:
    """A refusal by its reason, and once a process a warning: what is built anew in every process
    is slow, and nobody would know why."""
    refuse(reason, what, why, hint)
    text = f"[cache] {what}: {why}. {hint}".rstrip()
    if text not in WARNED:
        WARNED.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


WARNED: set[str] = set()


def build_into(
    folder: str, name: str, source: str, tools: Toolchain, key: dict[str, str]
) -> Library:
    """Builds under a name of its own and renames, so that others see all of the file or nothing.
    Raises OSError where the folder takes no file."""
    path = os.path.join(folder, name + ".so")
    start = time.perf_counter()
    handle, fresh = tempfile.mkstemp(suffix=".part", dir=folder)
    os.close(handle)
    try:
        # The compiler writes elsewhere: a full folder is not its failure.
        with tempfile.TemporaryDirectory(prefix="rushlight-") as elsewhere:
            built = os.path.join(elsewhere, "built.so")
            toolchain.build(tools, source, built)
            with open(built, "rb") as file:
                content = file.read()
        with open(fresh, "wb") as file:
            file.write(content + end_of(content, key))
        os.chmod(fresh, 0o600)
        os.replace(fresh, path)
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)
    trace.emit(
        "cpp_openmp",
        name,
        source,
        kind="cpp",
        ms=round(1e3 * (time.perf_counter() - start), 1),
        path=path,
        compiler=tools.version if trace.listeners else "",
    )
    found = open_checked(path, name)
    if found is None:
        raise OSError(f"[cache] {path} was changed right after it was built")
    return found


def end_of(content: bytes, key: dict[str, str]) -> bytes:
    """What an artifact's file ends with."""
    told = json.dumps(key, sort_keys=True).encode()
    end = told + len(told).to_bytes(8, "little")
    return end + hashlib.sha256(content + end).digest()


# ---- programs


def keep(folder: str, name: str, content: bytes, graph: str) -> None:
    """A program's description under its name; others see all of it or nothing. Where the folder
    takes no file there is none, with a reason."""
    fresh = ""
    try:
        handle, fresh = tempfile.mkstemp(suffix=".part", dir=folder)
        with open(handle, "wb") as file:
            file.write(content + end_of(content, {"graph": graph, "name": name}))
        os.chmod(fresh, 0o600)
        os.replace(fresh, os.path.join(folder, name + ".program"))
    except OSError as error:
        warn("cache.unwritable", folder, error.strerror or str(error), "Free some space.")
        if fresh and os.path.exists(fresh):
            os.unlink(fresh)


def kept(folder: str, name: str) -> bytes | None:
    """What was kept under a name, or None where it is missing or refused."""
    path = os.path.join(folder, name + ".program")
    if (handle := opened(path)) is None:
        return None
    try:
        why = distrust(os.fstat(handle))
        content = b"" if why else contents(handle)
    finally:
        os.close(handle)
    why = why or corrupt(content) or foreign(content, name, lambda parts: parts.get("name"))
    if why:
        warn("cache.refused", path, why, "It is made anew.")
        return None
    length = int.from_bytes(content[-40:-32], "little")
    return content[: -40 - length]


# ---- what is there, and what differs


def entries(folder: str | None = None, ending: str = ".so") -> Iterator[Entry]:
    """Every artifact of the folder whose end can be read, newest first. `ending`: ".so" for shared
    objects, ".program" for what calls them, ".cubin" for images of GPUs (runtime/triton.py)."""
    folder = folder or place()
    try:
        names = [n for n in os.listdir(folder) if n.endswith(ending)]
    except OSError:
        return
    paths = [os.path.join(folder, n) for n in names]
    for path in sorted(paths, key=modified, reverse=True):
        parts = image_parts(path) if ending == ".cubin" else parts_of(path)
        if parts is not None:
            yield Entry(path, os.path.getsize(path), modified(path), parts)


def image_parts(path: str) -> dict[str, str] | None:
    """What a GPU image says of itself: its entry, as the graph; None where it does not."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 40))
            length = int.from_bytes(file.read(8), "little")
            file.seek(max(0, size - 48 - length))
            return {"graph": json.loads(file.read(length))["entry"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def parts_of(path: str) -> dict[str, str] | None:
    """The key's parts as the file ends with them; None where it does not."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 40))
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length < min(size - 40, 1 << 20):
                return None
            file.seek(size - 40 - length)
            parts = json.loads(file.read(length))
    except (OSError, ValueError):
        return None
    return parts if isinstance(parts, dict) else None


def miss(folder: str, key: dict[str, str]) -> str:
    """Why nothing was found: which parts of the key the nearest entry has otherwise."""
    nearest: tuple[int, list[str], dict[str, Any]] | None = None
    for entry in itertools.islice(entries(folder), COMPARED):
        other = entry.parts
        names = [p for p in {**key, **other} if key.get(p) != other.get(p) and p != "graph"]
        if names and (nearest is None or len(names) < nearest[0]):
            nearest = (len(names), names, other)
    if nearest is None:
        return f"{folder} has no artifact to compare with"
    _, names, other = nearest
    told = "; ".join(
        f"{p} (this is other code)" if DIGEST.fullmatch(str(key.get(p)))
        else f"{p}: {short(key.get(p))} here, {short(other.get(p))} there"
        for p in names
    )  # fmt: skip
    return f"the most like it on disk ({other.get('graph', 'unnamed')}) differs in {told}"


DIGEST = re.compile("[0-9a-f]{40,}")  # of a part that is too long to be read


def short(value: str | None) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:24] + "..." + text[-24:]


def clear() -> tuple[int, int]:
    """Removes every artifact, and what interrupted builds left. (files, bytes) removed."""
    folder, count, total = place(), 0, 0
    if trusted_folder() is None:
        return 0, 0
    for name in os.listdir(folder):
        if name.endswith((*ENDINGS, ".part")):
            path = os.path.join(folder, name)
            total += os.lstat(path).st_size
            os.unlink(path)
            count += 1
    return count, total


# ---- trust


def opened(path: str) -> int | None:
    """The descriptor of a file that is no link, or None where it is missing or refused."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        warn("cache.refused", path, error.strerror or str(error), "It is made anew.")
        return None


def open_checked(path: str, name: str) -> Library | None:
    """The loaded file, or None where it is missing, refused, or made under another name."""
    if (handle := opened(path)) is None:
        return None
    try:
        why = distrust(os.fstat(handle))
        content = b"" if why else contents(handle)
        why = why or corrupt(content) or foreign(content, name, name_for)
        if not why:
            try:
                return Library(spelled(handle))
            except OSError as error:  # made for another machine, or by another build of the linker
                why = f"it cannot be loaded: {error}"
        warn("cache.refused", path, why, "It is built anew.")
        return None
    finally:
        os.close(handle)


def spelled(handle: int) -> str:
    """The descriptor's path, spelled as never before: dlopen takes an equal name for the library
    it has already loaded, and descriptors are used again."""
    digits = f"{next(loads):b}".replace("0", "/").replace("1", "./")
    return f"/proc/self/fd/{digits}{handle}"


loads = itertools.count()


def distrust(about: os.stat_result) -> str:
    if not stat.S_ISREG(about.st_mode):
        return "it is not a regular file"
    if about.st_uid != os.getuid():
        return f"it belongs to user {about.st_uid}"
    return "others may write to it" if about.st_mode & 0o022 else ""


def contents(handle: int) -> bytes:
    with open(handle, "rb", closefd=False) as file:
        return file.read()


def corrupt(content: bytes) -> str:
    """The last 32 bytes are the digest of those before."""
    held = hashlib.sha256(content[:-32]).digest() == content[-32:]
    return "" if held else "its content does not match its digest"


def foreign(content: bytes, name: str, named: Callable[[dict[str, str]], str | None]) -> str:
    """Whether a file that is whole was made for something else, and given this name. `named` gives
    the name of what its parts tell of."""
    length = int.from_bytes(content[-40:-32], "little")
    try:
        parts = json.loads(content[-40 - length : -40])
        same = named(parts) == name
    except (ValueError, TypeError, AttributeError):
        same = False
    return "" if same else "it was made for something else"


def place() -> str:
    return config.flags.cache_dir or os.path.expanduser("~/.cache/rushlight")


def trusted_folder() -> str | None:
    """The cache's folder, made where it is missing; None, with a reason, where it cannot be
    trusted or written."""
    folder = place()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        about = os.lstat(folder)
    except OSError as error:
        warn(
            "cache.unwritable",
            folder,
            error.strerror or str(error),
            "Set RUSHLIGHT_CACHE_DIR to a folder of your own.",
        )
        return None
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        warn(
            "cache.refused",
            folder,
            "it is not a folder of yours that only you can write to",
            "Remove it, or set RUSHLIGHT_CACHE_DIR.",
        )
        return None
    return folder


def pointer(library: ctypes.CDLL, symbol: str) -> int:
    """The address of an exported function. AttributeError where there is none."""
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
