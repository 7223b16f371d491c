"""The artifact cache: generated source and toolchain -> a loaded shared object; built at most
once on this machine.

An artifact's name is the hash of everything that decides its code. The folder is ours (0700),
files in it are regular and ours, not writable by others, and carry a digest of their content;
what fails a check is refused with a reason and built anew. The file is checked on the descriptor
that is then loaded, so that nobody can change it in between.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import stat
import tempfile
import time

from rushlight import config, trace
from rushlight.reasons import refuse

from . import toolchain
from .toolchain import Toolchain

FORMAT = "1"  # of the cache: goes up where its files change meaning


def load(source: str, isa: str) -> ctypes.CDLL:
    """The shared object of a source, from the folder or newly built."""
    tools = toolchain.find(isa)
    key = hashlib.sha256(
        "\0".join([FORMAT, tools.key, str(config.code_key()), source]).encode()
    ).hexdigest()[:40]
    folder = trusted_folder()
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="rushlight-") as place:
            return build_into(place, key, source, tools)
    path = os.path.join(folder, key + ".so")
    found = open_checked(path)
    if found is not None:
        trace.emit("artifact_cache", key, found=True, path=path)
        return found
    refuse("cache.miss", key, f"{path} is not there")
    return build_into(folder, key, source, tools)


def build_into(folder: str, key: str, source: str, tools: Toolchain) -> ctypes.CDLL:
    """Builds under a name of its own and renames, so that others see all of the file or nothing."""
    path = os.path.join(folder, key + ".so")
    start = time.perf_counter()
    handle, fresh = tempfile.mkstemp(suffix=".so", dir=folder)
    os.close(handle)
    try:
        toolchain.build(tools, source, fresh)
        with open(fresh, "rb") as file:
            content = file.read()
        with open(fresh, "ab") as file:
            file.write(hashlib.sha256(content).digest())
        os.chmod(fresh, 0o600)
        os.replace(fresh, path)
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)
    trace.emit(
        "cpp_openmp",
        key,
        source,
        kind="cpp",
        ms=round(1e3 * (time.perf_counter() - start), 1),
        path=path,
        compiler=tools.version,
    )
    found = open_checked(path)
    if found is None:
        raise OSError(f"[cache] {path} was changed right after it was built")
    return found


def open_checked(path: str) -> ctypes.CDLL | None:
    """The loaded file, or None where it is missing or refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse("cache.refused", path, str(error))
        return None
    try:
        about = os.fstat(handle)
        why = distrust(about) or corrupt(handle)
        if why:
            refuse("cache.refused", path, why, "It is built anew.")
            return None
        return ctypes.CDLL(spelled(handle))
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


def corrupt(handle: int) -> str:
    """The last 32 bytes are the digest of those before."""
    with open(handle, "rb", closefd=False) as file:
        content = file.read()
    held = hashlib.sha256(content[:-32]).digest() == content[-32:]
    return "" if held else "its content does not match its digest"


def trusted_folder() -> str | None:
    """The cache's folder, made where it is missing; None, with a reason, where it cannot be
    trusted or written."""
    folder = config.flags.cache_dir or os.path.expanduser("~/.cache/rushlight")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        about = os.lstat(folder)
    except OSError as error:
        refuse(
            "cache.unwritable",
            folder,
            str(error),
            "Set RUSHLIGHT_CACHE_DIR to a folder of your own.",
        )
        return None
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        refuse(
            "cache.refused",
            folder,
            "it is not a folder of yours that only you can write to",
            "Remove it, or set RUSHLIGHT_CACHE_DIR.",
        )
        return None
    if not os.access(folder, os.W_OK):
        refuse("cache.unwritable", folder, "it cannot be written to", "Set RUSHLIGHT_CACHE_DIR.")
        return None
    return folder


def pointer(library: ctypes.CDLL, symbol: str) -> int:
    """The address of an exported function. AttributeError where there is none."""
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
