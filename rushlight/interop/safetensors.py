"""Safetensors files: read without a copy, written whole or not at all.

A file is 8 bytes (length n of the header, little endian), n bytes of JSON (name -> dtype, shape,
[begin, end) in what follows) and the tensors' bytes. ``load_file`` returns tensors that lie in a
private mapping of the file: pages are read when touched, writing to a tensor does not write to
the file. Invariant: everything in the header is checked before the first tensor is made; what is
wrong raises SafetensorsError naming the file and the key. The file must not be cut short while
tensors from it are alive.
"""

import json
import math
import mmap
import os
from itertools import pairwise

from rushlight import _core, eager

# name in the file -> (dtype's name, bytes an element)
DTYPES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
    "C64": ("complex64", 8),
}
_CODES = {name: code for code, (name, _) in DTYPES.items()}
_HEADER_LIMIT = 100_000_000  # as the format's own library


class SafetensorsError(RuntimeError):
    """A file that is cut short, corrupt, or holds what Rushlight has no dtype for. The message
    names the file and the key.
    """


def load_file(filename, device="cpu"):
    """name -> Tensor, in the file's order. filename: path of a .safetensors file. device: 'cpu'
    or where to copy the tensors.

    SafetensorsError as above; OSError (FileNotFoundError, ...) when the file cannot be opened.
    """
    path = os.fspath(filename)
    with open(path, "rb") as file:
        entries, start, _ = _read_header(path, file)
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if entries else b""
    tensors = {}
    for key, (code, shape, begin, end) in entries.items():
        name, size = DTYPES[code]
        if begin == end:
            tensor = eager.empty(shape, dtype=getattr(eager, name))
        elif (start + begin) % size:  # unaligned: only a copy can be a tensor
            tensor = _core.from_buffer(
                bytearray(content[start + begin : start + end]), getattr(eager, name), shape, 0
            )
        else:
            tensor = _core.from_buffer(content, getattr(eager, name), shape, start + begin)
        tensors[key] = tensor if str(device) == "cpu" else tensor.to(device)
    return tensors


def load_metadata(filename):
    """The free-form str -> str metadata of a file, {} if it has none."""
    path = os.fspath(filename)
    with open(path, "rb") as file:
        return _read_header(path, file)[2]


def _read_header(path, file):
    """({key: (dtype code, shape, begin, end)}, where the bytes begin, metadata), all of it
    checked.
    """
    total = os.fstat(file.fileno()).st_size
    if total < 8:
        raise SafetensorsError(
            f"[safetensors] {path}: truncated: {total} bytes, too few for a header"
        )
    length = int.from_bytes(file.read(8), "little")
    if length > _HEADER_LIMIT:
        raise SafetensorsError(f"[safetensors] {path}: corrupt: a header of {length} bytes")
    if 8 + length > total:
        raise SafetensorsError(
            f"[safetensors] {path}: truncated: the header says {length} bytes, the file has "
            f"{total - 8}"
        )
    try:
        header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_unique_keys)
    except ValueError as error:
        raise SafetensorsError(f"[safetensors] {path}: corrupt header: {error}") from error
    if not isinstance(header, dict):
        raise SafetensorsError(
            f"[safetensors] {path}: corrupt header: expected an object, got {type(header).__name__}"
        )
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise SafetensorsError(f"[safetensors] {path}: corrupt header: __metadata__: {metadata!r}")
    available = total - 8 - length
    entries = {key: _check_entry(path, key, entry, available) for key, entry in header.items()}
    _check_cover(path, entries, available)
    return entries, 8 + length, metadata


def _unique_keys(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(
            f"key {next(key for key in keys if keys.count(key) > 1)!r} stands there twice"
        )
    return found


def _check_entry(path, key, entry, available):
    where = f"[safetensors] {path}: tensor {key!r}"
    try:
        code, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise SafetensorsError(f"{where}: corrupt entry: {entry!r}") from error
    if not isinstance(shape, list) or not all(
        type(n) is int and n >= 0 for n in (*shape, begin, end)
    ):
        raise SafetensorsError(f"{where}: corrupt entry: {entry!r}")
    if code not in DTYPES:
        raise SafetensorsError(
            f"{where}: dtype {code} is not supported (supported: {', '.join(DTYPES)})"
        )
    if end > available:
        raise SafetensorsError(
            f"{where}: truncated: its bytes end at {end}, the file has {available}"
        )
    expected = math.prod(shape) * DTYPES[code][1]
    if end - begin != expected:
        raise SafetensorsError(
            f"{where}: corrupt: {code} of shape {shape} takes {expected} bytes, the header gives "
            f"{end - begin}"
        )
    return code, tuple(shape), begin, end


def _check_cover(path, entries, available):
    """The tensors' bytes follow one another without gap or overlap, to the end of the file."""
    spans = sorted((begin, end, key) for key, (_, _, begin, end) in entries.items())
    for (_, before, first), (begin, _, key) in pairwise([(0, 0, None), *spans]):
        if begin != before:
            what = "overlaps" if begin < before else "leaves a gap after"
            raise SafetensorsError(
                f"[safetensors] {path}: tensor {key!r}: corrupt: {what} "
                f"{'the header' if first is None else repr(first)}"
            )
    end = spans[-1][1] if spans else 0
    if end != available:
        raise SafetensorsError(
            f"[safetensors] {path}: corrupt: {available - end} bytes that belong to no tensor"
        )


def save_file(tensors, filename, metadata=None):
    """Writes name -> Tensor. metadata: str -> str.

    The file appears under its name only when it is complete. TypeError for what is no tensor,
    ValueError for two names of one memory (which a reader could not give back) or a dtype that
    the format lacks.
    """
    path = os.fspath(filename)
    owners, kept = {}, {}
    for key, tensor in tensors.items():
        if not isinstance(key, str) or not isinstance(tensor, eager.Tensor):
            raise TypeError(
                f"[safetensors] {path}: expected str -> Tensor, got {key!r}: "
                f"{type(tensor).__name__}"
            )
        if _dtype_name(tensor) not in _CODES:
            raise ValueError(
                f"[safetensors] {path}: tensor {key!r}: dtype {_dtype_name(tensor)} has no name "
                "in the format"
            )
        first = (
            owners.setdefault((tensor._address(), tuple(tensor.shape)), key)
            if tensor.numel()
            else key
        )
        if first != key:
            raise ValueError(
                f"[safetensors] {path}: tensors {first!r} and {key!r} share memory; clone one or "
                "leave it out"
            )
        kept[key] = tensor.detach().to("cpu").contiguous()
    kept = dict(
        sorted(kept.items(), key=lambda item: -item[1].element_size())
    )  # so that all are aligned
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(_header(kept, metadata))
            for tensor in kept.values():
                file.write(_bytes(tensor))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def _header(tensors, metadata):
    """The 8 bytes of length and the JSON, filled with blanks so that the tensors begin at a
    multiple of 8.
    """
    header = {} if metadata is None else {"__metadata__": dict(metadata)}
    begin = 0
    for key, tensor in tensors.items():
        end = begin + tensor.numel() * tensor.element_size()
        header[key] = {
            "dtype": _CODES[_dtype_name(tensor)],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _dtype_name(tensor):
    return str(tensor.dtype).rpartition(".")[2]


def _bytes(tensor):
    """The memory of a contiguous CPU tensor; bfloat16 included, which numpy has no type for."""
    import ctypes

    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())) if size else b""


def load_state_dict_file(module, filename, strict=True, assign=False):
    """Loads a file into a module. assign: the module's parameters are the mapped tensors
    themselves, nothing is copied.

    Returns the missing and unexpected keys. SafetensorsError for a bad file, RuntimeError
    (PyTorch's text, with a note that names the file) for keys or shapes that do not fit; in both
    cases the module is as before.
    """
    tensors = load_file(filename)
    try:
        return module.load_state_dict(tensors, strict=strict, assign=assign)
    except RuntimeError as error:
        error.add_note(f"loading {os.fspath(filename)}")
        raise


def save_state_dict_file(module, filename, metadata=None):
    """Writes the state of a module. Parameters that share memory (tied weights) are written once,
    under their first name.
    """
    state, seen = {}, set()
    for key, tensor in module.state_dict().items():
        if isinstance(tensor, eager.Tensor):
            memory = (tensor._address(), tuple(tensor.shape)) if tensor.numel() else key
            if memory not in seen:
                seen.add(memory)
                state[key] = tensor
    save_file(state, filename, metadata)
