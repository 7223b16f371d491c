"""Objects from one process to another. Memory of tensors and arrays travels as a file in memory
that has no name, passed along as a descriptor: the receiver maps it, nothing is pickled byte by
byte, and nothing can be left behind, whoever dies: the kernel frees it with its last user.

A message on a Channel is small and whole (one packet): the pickle itself, or the layout of the
file that comes with it. So sending never waits as long as few messages are under way.
"""

import copyreg
import io
import mmap
import os
import pickle
import socket
import struct
import weakref
from multiprocessing import reduction

from rushlight import eager
from rushlight.eager.storage import reduce_ex

INLINE = 2048  # bytes of pickle that travel in the packet itself
PACKET = 2 * INLINE
WINDOW = 32  # packets under way to one end that surely fit into a socket's memory
ALIGNMENT = 64
OPEN = weakref.WeakSet()  # this process's ends; a forked child closes them


class Packer(pickle.Pickler):
    """Protocol 5 with buffers aside, and with the reducers that multiprocessing knows."""

    def __init__(self, file, buffers):
        super().__init__(file, 5, buffer_callback=buffers.append)
        self.dispatch_table = {
            **copyreg.dispatch_table,
            **reduction.ForkingPickler._extra_reducers,  # type: ignore[attr-defined]
        }

    def reducer_override(self, x):
        if not isinstance(x, eager.Tensor):
            return NotImplemented
        if not x.is_leaf:
            raise RuntimeError(
                "[DataLoader] a tensor with a graph behind it cannot go to another process: "
                "detach() it first"
            )
        if type(x) is eager.Tensor and 2 * x.nbytes < x.untyped_storage_nbytes():
            # A row of a large table: the row travels, not the table.
            return reduce_ex(x.detach().clone().requires_grad_(x.requires_grad), 5)
        return NotImplemented


def pack(x):
    """(what to send, descriptor of the file in memory or None)."""
    file, buffers = io.BytesIO(), []
    Packer(file, buffers).dump(x)
    data = file.getbuffer()
    if not buffers and len(data) <= INLINE:
        return b"i" + data, None
    views = [b.raw() for b in buffers]
    at = 16 * len(views) + len(data)
    table = []
    for view in views:
        at = -(-at // ALIGNMENT) * ALIGNMENT
        table += [at, view.nbytes]
        at += view.nbytes
    handle = memory_file()
    try:
        os.ftruncate(handle, max(at, 1))
        head = struct.pack(f"<{len(table)}Q", *table)
        write_at(handle, head, 0)
        write_at(handle, data, len(head))
        for view, start in zip(views, table[::2]):
            write_at(handle, view, start)
    except BaseException:
        os.close(handle)
        raise
    return b"m" + struct.pack("<QQQ", max(at, 1), len(views), len(data)), handle


def write_at(handle, data, place):
    data = memoryview(data)
    while len(data):
        done = os.pwrite(handle, data, place)
        data, place = data[done:], place + done


def memory_file():
    """A descriptor of an empty file in memory without a name."""
    try:
        return os.memfd_create("rushlight", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def unpack(message, handle):
    """What was packed. Its tensors lie in the mapped file, which lives as long as they do."""
    if message[:1] == b"i":
        return pickle.loads(message[1:])
    total, count, length = struct.unpack("<QQQ", message[1:])
    try:
        content = memoryview(mmap.mmap(handle, total, mmap.MAP_SHARED | mmap.MAP_POPULATE))
    finally:
        os.close(handle)
    table = struct.unpack_from(f"<{2 * count}Q", content)
    buffers = [content[start : start + n] for start, n in zip(table[::2], table[1::2])]
    return pickle.loads(content[16 * count : 16 * count + length], buffers=buffers)


class Channel:
    """One end of a pair of sockets; `send` and `receive` objects. EOFError: the other end is
    gone.
    """

    def __init__(self, end):
        self.end = end

    @classmethod
    def pair(cls):
        """(ours, theirs)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        OPEN.add(ours)
        return cls(ours), theirs

    def fileno(self):
        return self.end.fileno()

    def send(self, x):
        self.send_packed(*pack(x))

    def send_packed(self, message, handle):
        try:
            handles = () if handle is None else (handle,)
            socket.send_fds(self.end, [message], handles)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EOFError from error
        finally:
            if handle is not None:
                os.close(handle)

    def receive(self):
        try:
            message, handles, _, _ = socket.recv_fds(self.end, PACKET, 1)
        except ConnectionResetError as error:
            raise EOFError from error
        if not message:
            raise EOFError
        return unpack(message, handles[0] if handles else None)

    def close(self):
        OPEN.discard(self.end)
        self.end.close()


def close_inherited():
    """In a forked child: the parent's ends, which would keep other workers waiting for ever."""
    for end in list(OPEN):
        end.close()
    OPEN.clear()


class Parcel:
    """An object on its way into processes that are started with it: packed once for all."""

    def __init__(self, x):
        self.packed = pack(x)

    def __reduce__(self):
        message, handle = self.packed
        return open_parcel, (message, None if handle is None else reduction.DupFd(handle))

    def close(self):
        if self.packed[1] is not None:
            os.close(self.packed[1])


def open_parcel(message, handle):
    return unpack(message, None if handle is None else handle.detach())
