"""Event files, read back by a reader of their formats that is written here."""

import glob
import math
import os
import struct
import zlib

import pytest

import rushlight
from rushlight.utils.tensorboard import SummaryWriter
from rushlight.utils.tensorboard.records import crc32c, masked


def number(data, at):
    made = shift = 0
    while True:
        byte = data[at]
        made |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return made, at


def fields(data):
    """{field: [values]} of a message: ints, 4 or 8 bytes, or bytes."""
    made, at = {}, 0
    while at < len(data):
        key, at = number(data, at)
        kind, size = key & 7, {1: 8, 5: 4}.get(key & 7)
        if kind == 0:
            value, at = number(data, at)
        else:
            if kind == 2:
                size, at = number(data, at)
            value, at = data[at : at + size], at + size
        made.setdefault(key >> 3, []).append(value)
    return made


def events(folder):
    """[(step, fields of the value)] of the one file of a folder; the checksums must be right."""
    (path,) = glob.glob(os.path.join(folder, "events.out.tfevents.*"))
    with open(path, "rb") as file:
        data, at, made = file.read(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + length]
        checks = struct.unpack_from("<I", data, at + 8) + struct.unpack_from(
            "<I", data, at + 12 + length
        )
        assert checks == (masked(data[at : at + 8]), masked(body))
        made.append(fields(body))
        at += 16 + length
    assert made[0][3] == [b"brain.Event:2"]
    return [(e.get(2, [0])[0], fields(fields(e[5][0])[1][0])) for e in made[1:] if 5 in e]


def test_the_checksum_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_scalars_of_every_kind_of_number(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        given = [0.5, 2, rushlight.tensor(1.5), rushlight.tensor([[2.5]], requires_grad=True)]
        for step, x in enumerate(given):
            writer.add_scalar("loss/train", x, step)
        with pytest.raises(AssertionError, match="one number"):
            writer.add_scalar("loss", rushlight.zeros(2))
    got = [(s, v[1][0], struct.unpack("<f", v[2][0])[0]) for s, v in events(tmp_path)]
    assert got == [(i, b"loss/train", x) for i, x in enumerate((0.5, 2.0, 1.5, 2.5))]


def test_several_scalars_have_a_file_each(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("a/b", {"train": 1.0, "test": 2.0}, 3)
    for name, x in (("train", 1.0), ("test", 2.0)):
        ((step, value),) = events(tmp_path / f"a_b_{name}")
        assert step == 3 and value[1] == [b"a/b"]
        assert struct.unpack("<f", value[2][0]) == (x,)


def test_texts(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "a | b: \u00e9", 1)
    ((_, value),) = events(tmp_path)
    assert value[1] == [b"note/text_summary"]
    assert fields(value[8][0])[8] == ["a | b: \u00e9".encode()]
    assert fields(fields(value[9][0])[1][0])[1] == [b"text"]


def pixels(content):
    """(width, height, rows) of a PNG without filters."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(content):
        size, name = struct.unpack_from(">I4s", content, at)
        body = content[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", content, at + 8 + size)[0] == zlib.crc32(name + body)
        if name == b"IHDR":
            width, height = struct.unpack_from(">II", body)
        data += body if name == b"IDAT" else b""
        at += 12 + size
    rows = zlib.decompress(data)
    line = len(rows) // height
    return width, height, [list(rows[i * line + 1 : (i + 1) * line]) for i in range(height)]


def test_images(tmp_path):
    grey = rushlight.tensor([[[0.0, 1.0, 0.5]]])
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("grey", grey, 0)
        colours = rushlight.arange(6, dtype=rushlight.uint8).reshape(1, 2, 3)
        writer.add_image("colour", colours, 1, dataformats="HWC")
        writer.add_images("two", rushlight.stack([grey, grey * 0]), 2)
        with pytest.raises(AssertionError, match="dataformats"):
            writer.add_image("bad", grey, dataformats="HW")
    made = [pixels(fields(value[4][0])[4][0]) for _, value in events(tmp_path)]
    assert made[0] == (3, 1, [[0, 0, 0, 255, 255, 255, 127, 127, 127]])
    assert made[1] == (2, 1, [[0, 1, 2, 3, 4, 5]])
    assert made[2] == (6, 1, [made[0][2][0] + [0] * 9])


def test_histograms_count_every_value(tmp_path):
    values = [-3.0, 0.0, 0.0, 0.1, 5.0]
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("h", rushlight.tensor(values), 0)
        writer.add_histogram("h", rushlight.tensor(values), 1, bins=4)
        with pytest.raises(ValueError, match="no values"):
            writer.add_histogram("h", rushlight.zeros(0))
    for step, value in events(tmp_path):
        message = fields(value[5][0])
        told = [struct.unpack("<d", message[i][0])[0] for i in range(1, 6)]
        assert told == pytest.approx([-3.0, 5.0, 5, sum(values), sum(v * v for v in values)])
        limits, counts = (
            struct.unpack(f"<{len(message[i][0]) // 8}d", message[i][0]) for i in (6, 7)
        )
        assert len(limits) == len(counts) and sum(counts) == 5 and math.isfinite(limits[-1])
        if step:
            assert limits == (-3.0, -1.0, 1.0, 3.0, 5.0) and counts == (0, 1, 3, 0, 1)


def test_writing_goes_on_after_close(tmp_path):
    writer = SummaryWriter(tmp_path / "a", flush_secs=1)
    writer.add_scalar("x", 1.0)
    writer.close()
    writer.add_scalar("x", 2.0)
    writer.close()
    assert len(os.listdir(tmp_path / "a")) == 2
    assert SummaryWriter.__init__.__defaults__[:2] == (None, "")
