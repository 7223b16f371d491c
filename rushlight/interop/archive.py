"""The container of PyTorch's checkpoints: a zip file of stored (never compressed) records, each at
a multiple of 64 bytes, all in one folder.

`Archive(file, name)` reads one, after checking everything that it says of itself: sizes, places,
overlaps, names. `write(file, folder, records)` writes one. Nothing is ever unpacked to disk.
CheckpointError names the file and what is wrong with it.
"""

import os
import struct
import sys
import zlib
from itertools import pairwise

ALIGNMENT = 64
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_UTF8, _ENCRYPTED = 0x0800, 0x0001
_MOST = 0xFFFFFFFF  # of 32 bits: then the number stands in the 64-bit fields
_CHUNK = 1 << 24


class CheckpointError(RuntimeError):
    """A file that is no checkpoint, or one that is cut short, corrupt or out of its bounds."""


class Record:
    """name inside the folder, where its bytes begin, how many, and their CRC-32."""

    __slots__ = ("begin", "crc", "head", "name", "size")

    def __init__(self, name, head, begin, size, crc):
        self.name, self.head, self.begin, self.size, self.crc = name, head, begin, size, crc


class Archive:
    """An open checkpoint: `records` by name; `read` and `read_into` check their CRC-32."""

    def __init__(self, file, name):
        self.file, self.path = file, name
        self.start = file.tell()
        self.length = file.seek(0, os.SEEK_END) - self.start
        self.records = {}
        self.directory()
        self.locate()
        # A writer may leave checksums out: then all are 0.
        self.checked = any(r.crc for r in self.records.values())

    def fail(self, what):
        raise CheckpointError(f"[load] {self.path}: {what}")

    def at(self, place, count):
        if place < 0 or count < 0 or place + count > self.length:
            self.fail(f"truncated: {count} bytes at {place}, the file has {self.length}")
        self.file.seek(self.start + place)
        data = self.file.read(count)
        if len(data) != count:
            self.fail(f"truncated: {len(data)} of {count} bytes at {place}")
        return data

    def directory(self):
        """The central directory at the end: a Record a file, nothing but checked numbers."""
        tail = self.at(max(self.length - 65557, 0), min(self.length, 65557))
        found = tail.rfind(b"PK\x05\x06")
        if found < 0 or found + _END.size > len(tail):
            self.fail(
                "corrupt or truncated: no zip directory at its end"
                if self.length and self.at(0, min(4, self.length))[:2] == b"PK"
                else "this is no checkpoint that torch.save or rushlight.save writes (not a zip)"
            )
        end = self.length - len(tail) + found
        _, disk, _, here, count, size, place, _ = _END.unpack_from(tail, found)
        if found >= _LOCATOR.size and tail[found - _LOCATOR.size :][:4] == b"PK\x06\x07":
            _, _, end64, _ = _LOCATOR.unpack_from(tail, found - _LOCATOR.size)
            fields = _END64.unpack(self.at(end64, _END64.size))
            if fields[0] != b"PK\x06\x06":
                self.fail("corrupt: its 64-bit directory is not where it says")
            disk, _, here, count, size, place = fields[4:]
            end = end64
        if disk or here != count or place + size > end or count * _CENTRAL.size > size:
            self.fail(f"corrupt: a directory of {count} records, {size} bytes at {place}")
        self.end = place
        data, at = self.at(place, size), 0
        for _ in range(count):
            at = self.entry(data, at)

    def entry(self, data, at):
        if at + _CENTRAL.size > len(data):
            self.fail("corrupt: its directory is cut short")
        magic, _, _, flags, method, _, _, crc, packed, size, n, extra, comment, _, _, _, head = (
            _CENTRAL.unpack_from(data, at)
        )
        at += _CENTRAL.size
        name, more = data[at : at + n], data[at + n : at + n + extra]
        at += n + extra + comment
        if magic != b"PK\x01\x02" or at > len(data):
            self.fail("corrupt: its directory is cut short")
        try:
            name = name.decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"corrupt: a record named {name!r}")
        size, packed, head = self.wide(name, more, size, packed, head)
        parts = name.split("/")
        if name.startswith("/") or "\\" in name or "\0" in name or ".." in parts:
            self.fail(f"malicious: a record named {name!r}")
        if flags & _ENCRYPTED:
            self.fail(f"record {name!r} is encrypted")
        if method or packed != size:
            self.fail(
                f"record {name!r} is compressed ({packed} bytes for {size}), as in TorchScript "
                "archives; torch.save never does that, and it is not read"
            )
        if name in self.records:
            self.fail(f"corrupt: record {name!r} stands there twice")
        self.records[name] = Record(name, head, None, size, crc)
        return at

    def wide(self, name, extra, *fields):
        """Numbers too large for 32 bits stand in an extra field, in this order."""
        fields = list(fields)
        while len(extra) >= 4:
            tag, n = struct.unpack_from("<HH", extra)
            body, extra = extra[4 : 4 + n], extra[4 + n :]
            if tag == 1:
                for i, value in enumerate(fields):
                    if value == _MOST:
                        if len(body) < 8:
                            self.fail(f"corrupt: record {name!r} has no 64-bit sizes")
                        fields[i], body = int.from_bytes(body[:8], "little"), body[8:]
        return fields

    def locate(self):
        """Where each record's bytes begin (its own header says), and that none overlaps another."""
        if not self.records:
            self.fail("corrupt: an empty zip")
        for r in self.records.values():
            if r.head + _LOCAL.size > self.end:
                self.fail(f"corrupt: record {r.name!r} begins at {r.head}, beyond the records")
            magic, _, _, method, _, _, _, _, _, n, extra = _LOCAL.unpack(
                self.at(r.head, _LOCAL.size)
            )
            r.begin = r.head + _LOCAL.size + n + extra
            if magic != b"PK\x03\x04" or method or r.begin + r.size > self.end:
                self.fail(f"corrupt: record {r.name!r} is not where its directory says")
            if self.at(r.head + _LOCAL.size, n) != r.name.encode():
                self.fail(f"corrupt: record {r.name!r} has another name in its own header")
        spans = sorted(self.records.values(), key=lambda r: r.head)
        for a, b in pairwise(spans):
            if a.begin + a.size > b.head:
                self.fail(f"malicious: records {a.name!r} and {b.name!r} overlap")
        folders = {name.split("/")[0] for name in self.records}
        if len(folders) != 1:
            self.fail(f"corrupt: records in {len(folders)} folders")
        cut = len(folders.pop()) + 1
        self.records = {name[cut:]: r for name, r in self.records.items()}

    def read(self, name):
        r = self.record(name)
        data = bytearray(r.size)
        self.read_into(name, memoryview(data))
        return data

    def record(self, name):
        if name not in self.records:
            self.fail(f"corrupt: no record {name!r}")
        return self.records[name]

    def read_into(self, name, memory):
        """The bytes of a record, into memory of its size."""
        r = self.record(name)
        self.file.seek(self.start + r.begin)
        crc = 0
        for i in range(0, r.size, _CHUNK):
            part = memory[i : i + _CHUNK]
            if hasattr(self.file, "readinto"):
                got = self.file.readinto(part)
            else:
                data = self.file.read(len(part))
                got = len(data)
                part[:got] = data
            if got != len(part):
                self.fail(f"truncated: record {name!r} ends after {i + got} of {r.size} bytes")
            crc = zlib.crc32(part, crc)
        if self.checked and crc != r.crc:
            self.fail(f"corrupt: the bytes of record {name!r} do not have its checksum")


def write(file, folder, records):
    """A zip of (name, bytes-like) in `folder/`, in order; `file` needs nothing but write().

    PyTorch's last two records, `version` and `.data/serialization_id`, are added.
    """
    central, place, total = [], 0, 0

    def record(name, memory):
        nonlocal place, total
        memory = memoryview(memory).cast("B")
        path, size, crc = f"{folder}/{name}".encode(), len(memory), 0
        for i in range(0, size, _CHUNK):
            crc = zlib.crc32(memory[i : i + _CHUNK], crc)
        total = zlib.crc32(struct.pack("<I", crc), zlib.crc32(name.encode(), total))
        wide = struct.pack("<HHQQ", 1, 16, size, size) if size >= _MOST else b""
        filled = place + _LOCAL.size + len(path) + len(wide) + 4
        padding = -filled % ALIGNMENT
        extra = wide + b"FB" + struct.pack("<H", padding) + b"Z" * padding
        short = min(size, _MOST)
        version = 45 if wide else 0
        head = (version, _UTF8, 0, 0, 0, crc, short, short, len(path), len(extra))
        file.write(_LOCAL.pack(b"PK\x03\x04", *head) + path + extra)
        for i in range(0, size, _CHUNK):
            file.write(memory[i : i + _CHUNK])
        more = struct.pack("<QQ", size, size) if wide else b""
        if place >= _MOST:
            more += struct.pack("<Q", place)
        more = struct.pack("<HH", 1, len(more)) + more if more else b""
        at = (0, 0, 0, 0, min(place, _MOST))
        head = (45 if more else 0, *head[1:-1], len(more))
        central.append(_CENTRAL.pack(b"PK\x01\x02", 0, *head, *at) + path + more)
        place += _LOCAL.size + len(path) + len(extra) + size

    for name, memory in records:
        record(name, memory)
    record("version", b"3\n")
    record(".data/serialization_id", f"{zlib.crc32(b'', total):020d}{total:020d}".encode())
    directory, count = b"".join(central), len(central)
    size, end = len(directory), place + len(directory)
    file.write(directory)
    file.write(_END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, place))
    file.write(_LOCATOR.pack(b"PK\x06\x07", 0, end, 1))
    many = min(count, 0xFFFF)
    last = (0, 0, many, many, min(size, _MOST), min(place, _MOST), 0)
    file.write(_END.pack(b"PK\x05\x06", *last))


def preamble(data):
    """The records that stand before the storages: `data`, and what PyTorch says of the format."""
    yield "data.pkl", data
    yield ".format_version", b"1"
    yield ".storage_alignment", str(ALIGNMENT).encode()
    yield "byteorder", sys.byteorder.encode()
