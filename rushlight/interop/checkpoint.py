"""`rushlight.save` and `rushlight.load`: PyTorch's checkpoints, as torch.save and torch.load write
and read them (the zip format, since PyTorch 1.6).

A checkpoint is a pickle (`data.pkl`) in which each storage is a reference to a record of raw bytes
(`data/N`). `load` reads the pickle with a machine that runs nothing (unpickler.py) and checks
every tensor against its storage. `save` writes the names that PyTorch knows, so that
`torch.load(..., weights_only=True)` takes the file. A file appears under its name only when all of
it is on the disk; what cannot be loaded whole is not loaded at all.
"""

import io
import mmap as mapping
import os
import pickle
import secrets
import stat
import sys
from collections import OrderedDict

from rushlight import _core, eager, nn
from rushlight.eager.storage import UntypedStorage, storage_of

from .archive import Archive, CheckpointError, preamble, write
from .safe_globals import known_global, may_build
from .torch_names import NAMES, STORAGES, StorageType, build_numpy
from .torch_version import TorchVersion
from .unpickler import Unpickler

DEFAULT_PROTOCOL = 2

# ---- writing


class Name:
    """A global to be written by its name, whether such a module exists here or not."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self, *args):  # pickle wants what it writes as a function to be callable
        raise NotImplementedError(f"{self.module}.{self.name} is written, not called")


NAMED = {
    name: Name(module, name)
    for module, name in NAMES
    if module.startswith("torch") and not (module == "torch.storage")
}
TENSOR_V2, PARAMETER = NAMED["_rebuild_tensor_v2"], NAMED["_rebuild_parameter"]
PARAMETER_WITH_STATE = NAMED["_rebuild_parameter_with_state"]


class Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes tensors under PyTorch's names, and puts the storages that it meets aside."""

    def __init__(self, file, protocol):
        super().__init__(file, protocol)
        self.storages = OrderedDict()  # (address, bytes) -> (key, UntypedStorage)

    def persistent_id(self, x):
        if type(x) is not UntypedStorage:
            return None
        place = (x.flat._address(), x.nbytes()) if x.nbytes() else len(self.storages)
        key, first = self.storages.setdefault(place, (str(len(self.storages)), x))
        if first.dtype is not x.dtype:
            raise RuntimeError(
                f"[save] one memory would be saved as {first.dtype!r} and as {x.dtype!r} (tensors "
                "that view the same data as different types): clone one of them"
            )
        return "storage", NAMED[STORAGES[x.dtype.name]], key, str(x.device), x.flat.numel()

    def reducer_override(self, x):
        if isinstance(x, Name) or type(x) is _core.dtype:
            return "named"  # save_global, below
        if isinstance(x, eager.Tensor):
            return self.reduce_tensor(x)
        if type(x) is eager.Size:
            return NAMED["Size"], (tuple(x),)
        if type(x) is TorchVersion:
            return NAMED["TorchVersion"], (str(x),)
        if type(x) is eager.device:
            return NAMED["device"], (x.type,) if x.index is None else (x.type, x.index)
        return NotImplemented

    def reduce_tensor(self, x):
        cls, state = type(x), dict(getattr(x, "__dict__", ()))
        if cls is nn.Parameter:
            args = (x.data, x.requires_grad, OrderedDict())
            return (PARAMETER_WITH_STATE, (*args, state)) if state else (PARAMETER, args)
        if x.is_meta and cls is eager.Tensor:
            described = (x.dtype, tuple(x.shape), tuple(x.stride()), x.requires_grad)
            return NAMED["_rebuild_meta_tensor_no_storage"], described
        place = (x.storage_offset(), tuple(x.shape), tuple(x.stride()))
        args = (self.storage(x), *place, x.requires_grad, OrderedDict())
        if cls is eager.Tensor:
            return TENSOR_V2, args
        if cls is nn.Buffer:
            cls, state = NAMED["Tensor"], {"persistent": x.persistent, "_is_buffer": True}
        return NAMED["_rebuild_from_type_v2"], (TENSOR_V2, cls, args, state)

    def storage(self, x):
        """The storage of x, in x's own dtype."""
        found = storage_of(x)
        if found.dtype is x.dtype:
            return found
        return UntypedStorage(found.tensor(x.dtype, 0, (found.nbytes() // x.element_size(),), (1,)))

    def save_global(self, x, name=None):
        if isinstance(x, Name):
            module, name = x.module, x.name
        elif type(x) is _core.dtype:
            module, name = "torch", x.name
        else:
            return super().save_global(x, name)
        self.write(b"c" + f"{module}\n{name}\n".encode())
        self.memoize(x)


def save(
    obj,
    f,
    pickle_module=None,
    pickle_protocol=DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization=True,
):
    """Writes obj to f: a path, or a file object with `write`.

    obj: tensors, parameters, state_dicts and whatever can be pickled around them. Memory that
    tensors share is written once, whole. A path is written beside itself and renamed when all of
    it is on the disk, so an interrupted save leaves the old file. torch.load reads the file with
    weights_only=True as long as obj consists of tensors and plain data.

    TypeError, AttributeError or pickle.PicklingError for what cannot be pickled (the file is then
    as before); OSError from the disk.
    """
    if pickle_module not in (None, pickle) or not _use_new_zipfile_serialization:
        raise ValueError("[save] only Python's own pickle, in the zip format, is written")
    data = io.BytesIO()
    pickler = Pickler(data, pickle_protocol)
    pickler.dump(obj)

    def records():
        yield from preamble(data.getbuffer())
        for key, storage in pickler.storages.values():
            yield f"data/{key}", storage.cpu().memory()

    if isinstance(f, (str, os.PathLike)):
        path = os.path.realpath(os.fspath(f))
        folder = os.path.splitext(os.path.basename(path))[0] or "archive"
        write_whole(path, lambda file: write(file, folder, records()))
    elif hasattr(f, "write"):
        write(f, "archive", records())
    else:
        raise AttributeError(
            f"[save] f is a path or a file with a 'write' method, got {type(f).__name__}"
        )


def write_whole(path, fill):
    """fill(file) into a file beside `path`, which then takes its place."""
    try:
        before = os.stat(path)
    except FileNotFoundError:
        before = None
    if before and not stat.S_ISREG(before.st_mode):  # a pipe, /dev/null: nothing to replace
        with open(path, "wb") as file:
            fill(file)
        return
    partial = f"{path}.{secrets.token_hex(4)}.partial"
    try:
        with open(partial, "xb") as file:
            fill(file)
            file.flush()
            if before:
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# ---- reading


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **options):
    """What torch.save or rushlight.save wrote to f: a path, or a file object with read, seek, tell.

    map_location: where storages go that were saved elsewhere: a device, its name, a dict of names,
    or f(storage, location) -> storage or None. weights_only (default True): nothing of the file is
    run; names beyond tensors, state_dicts and plain data raise pickle.UnpicklingError, except for
    those in `rushlight.serialization.add_safe_globals`. False: plain pickle, which runs whatever
    the file says, for files that you made yourself. mmap: storages lie in a private mapping of the
    file (a path), read when touched. encoding (option): of strings pickled by Python 2.

    CheckpointError (a RuntimeError) for a file that is no checkpoint, or a damaged one.
    """
    encoding = options.pop("encoding", "utf-8")
    if options:
        raise TypeError(f"[load] unexpected arguments: {', '.join(options)}")
    if pickle_module not in (None, pickle):
        raise ValueError("[load] only Python's own pickle is read")
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("[load] mmap=True needs f to be a path")
    restricted = weights_only is not False
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return Reader(file, os.fspath(f), map_location, mmap).load(restricted, encoding)
    if not all(hasattr(f, name) for name in ("read", "seek", "tell")):
        raise AttributeError(
            "[load] expected 'f' to be a path or a file-like object with read, seek and tell, got "
            f"{type(f).__name__}"
        )
    name = str(getattr(f, "name", "file object"))
    return Reader(f, name, map_location, False).load(restricted, encoding)


class Reader:
    def __init__(self, file, name, map_location, mmap):
        self.name, self.map_location = name, map_location
        refuse_others(file, name)
        self.archive = Archive(file, name)
        self.content = None
        if mmap:
            self.content = mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_COPY)
        self.storages = {}

    def fail(self, what):
        raise CheckpointError(f"[load] {self.name}: {what}")

    def load(self, restricted, encoding):
        records = self.archive.records
        if "constants.pkl" in records:
            self.fail("this is a TorchScript archive; save the module's state_dict() instead")
        data = self.archive.read("data.pkl")
        order = self.archive.read("byteorder") if "byteorder" in records else b"little"
        if order not in (b"little", b"big"):
            self.fail(f"corrupt: byte order {bytes(order[:20])!r}")
        self.swapped = order.decode() != sys.byteorder
        if self.swapped and self.content is not None:
            self.fail(f"mmap=True cannot read {order.decode()}-endian storages")
        try:
            if restricted:
                machine = Unpickler(data, find, self.persistent, build, encoding)
            else:
                machine = PlainUnpickler(data, self.persistent, encoding)
            return machine.load()
        except pickle.UnpicklingError as error:
            error.add_note(f"loading {self.name}")
            raise

    def persistent(self, pid):
        """A storage, from ('storage', type, key, location, number of elements)."""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            self.fail(f"corrupt: an unknown persistent id {str(pid)[:80]}")
        _, kind, key, location, count = pid
        if not isinstance(kind, StorageType) or type(count) is not int:
            self.fail(f"corrupt: a storage of {type(kind).__name__}")
        key, location = str(key), str(location)
        found = self.storages.get(key)
        if found is None:
            found = self.storages[key] = self.placed(self.storage(kind, key, count), location)
        if found.nbytes() != count * kind.dtype.itemsize:
            self.fail(f"corrupt: two sizes for storage {key!r}")
        if found.dtype is not kind.dtype:
            return UntypedStorage(found.tensor(kind.dtype, 0, (count,), (1,)))
        return found

    def storage(self, kind, key, count):
        record = self.archive.record(f"data/{key}")
        dtype = kind.dtype
        if record.size != count * dtype.itemsize:
            self.fail(
                f"corrupt: storage {key!r} has {count} elements of {dtype.name}, its record "
                f"{record.size} bytes"
            )
        if self.content is not None and count and not record.begin % dtype.itemsize:
            return UntypedStorage(_core.from_buffer(self.content, dtype, (count,), record.begin))
        out = UntypedStorage(_core.empty((count,), dtype, "cpu"))
        self.archive.read_into(f"data/{key}", out.memory())
        if self.swapped:
            swap(out.memory(), dtype.to_real().itemsize)
        return out

    def placed(self, storage, location):
        """The storage where map_location wants it."""
        to = self.map_location
        if isinstance(to, dict):
            to = to.get(location, location)
        elif callable(to) and not isinstance(to, eager.device):
            moved = to(storage, location)
            if moved is not None and not isinstance(moved, UntypedStorage):
                raise TypeError(
                    "[load] map_location should return a storage or None, got "
                    f"{type(moved).__name__}"
                )
            if moved is not None:
                return moved
            to = None
        place = str(location if to is None else to)
        if place == "cpu":
            return storage
        try:
            return UntypedStorage(storage.flat.to(place))
        except RuntimeError as error:
            what = "map_location is" if to is not None else "the checkpoint's storages are on"
            raise RuntimeError(
                f"[load] {what} {place!r}, which is not here ({error}); use map_location='cpu'"
            ) from None


def refuse_others(file, name):
    """The formats before the zip, told by their first bytes."""
    begin = file.tell()
    head = file.read(16)
    file.seek(begin)
    if b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" in head or head[:2] == b"\x80\x02":
        raise CheckpointError(
            f"[load] {name}: this is a checkpoint in the format before PyTorch 1.6, or a bare "
            "pickle; load it with PyTorch and save it again"
        )


def find(module, name):
    """The Global of a name that checkpoints may hold, or an error that says what to do."""
    known = NAMES.get((module, name)) or known_global(module, name)
    if known is None:
        torch_like = module == "torch" or module.startswith("torch.")
        advice = (
            "Rushlight has no such thing; save tensors, state_dicts and plain data instead"
            if torch_like
            else "If you trust it, allow it: rushlight.serialization.add_safe_globals([...]) or "
            "`with safe_globals([...])`; or load(..., weights_only=False), which runs whatever "
            "the file says"
        )
        raise pickle.UnpicklingError(
            f"[load] the checkpoint names {module}.{name}, which is not part of tensors, "
            f"state_dicts and plain data. {advice}"
        )
    return known


def build(target, state):
    """Whether `target` may take this state; it has then."""
    if isinstance(target, OrderedDict) and type(target) is OrderedDict and isinstance(state, dict):
        if all(isinstance(key, str) for key in state):  # such as the _metadata of a state_dict
            target.__dict__.update(state)
            return True
        return False
    return may_build(target, state) or build_numpy(target, state)


class PlainUnpickler(pickle.Unpickler):
    """weights_only=False: Python's own machine; PyTorch's names still stand for Rushlight's."""

    def __init__(self, data, persistent, encoding):
        super().__init__(io.BytesIO(data), encoding=encoding)
        self.persistent_load = persistent

    def find_class(self, module, name):
        if module == "torch" or module.startswith("torch."):
            known = find(module, name)
            return known.value if known.new else known.make or known.value  # new: of a type
        return super().find_class(module, name)


def swap(memory, size):
    """The bytes of each element in reverse, in place."""
    import array

    if size > 1 and len(memory):
        swapped = array.array({2: "H", 4: "I", 8: "Q"}[size], bytes(memory))
        swapped.byteswap()
        memory[:] = swapped.tobytes()
