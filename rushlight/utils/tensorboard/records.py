"""Event files: records with checksums (TFRecord), each a message in protobuf's encoding.

A record is its length (8 bytes, little-endian), the masked CRC-32C of those, the data, and the
masked CRC-32C of the data. A message is a sequence of fields: a key (number and kind), a value.
"""

import struct


def _table():
    made = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        made.append(n)
    return tuple(made)


_CRC = _table()


def crc32c(data):
    """The CRC-32C (Castagnoli) of bytes."""
    made = 0xFFFFFFFF
    for byte in data:
        made = _CRC[(made ^ byte) & 0xFF] ^ made >> 8
    return made ^ 0xFFFFFFFF


def masked(data):
    """The checksum as records keep it: rotated and moved, so that a checksum of data that holds
    checksums is a good one."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class RecordWriter:
    """Appends records to a file; what was written is in the file after flush()."""

    def __init__(self, path):
        self.file = open(path, "ab")  # noqa: SIM115  it stays open

    def write(self, data):
        length = struct.pack("<Q", len(data))
        checks = [struct.pack("<I", masked(part)) for part in (length, data)]
        self.file.write(length + checks[0] + data + checks[1])

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.close()


def varint(n):
    """An unsigned number, seven bits a byte; negative ones as 64 bits."""
    n &= 0xFFFFFFFFFFFFFFFF
    made = bytearray()
    while n > 0x7F:
        made.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes((*made, n))


def integer(field, n):
    return varint(field << 3) + varint(n)


def double(field, x):
    return varint(field << 3 | 1) + struct.pack("<d", x)


def single(field, x):
    return varint(field << 3 | 5) + struct.pack("<f", x)


def blob(field, data):
    """Bytes, text or a message."""
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def doubles(field, values):
    return blob(field, struct.pack(f"<{len(values)}d", *values))
