"""Packs: precompiled GPU kernels of one architecture in one file, read record by record.

    file = magic | images | records (JSON) | index (JSON) | length of the index, 8 bytes | magic
    index = {"format", "target", "records": {key: [offset, length]}}
    record = [kernel record, [[offset, length] of each image]]

Images, records and index are deflated. Kernel records are those of docs/gpu.md.
Equal images are stored once.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAGIC = b"RLCUPACK"
FORMAT = 1


class BadPack(ValueError):
    """A file that is no pack, or one of another version.

    Fails:  RUSHLIGHT_CUDA_KERNELS=some/other/file
    Mend:   write it anew with rushlight prebuild.
    """


def write(path: str | os.PathLike, target: int, records: Iterable[tuple[dict, list[bytes]]]) -> int:
    """Writes a pack for capability `target` (90 is 9.0). Returns the number of records; of equal
    keys the last one counts. The file appears when it is whole.
    """
    fresh = f"{os.fspath(path)}.part{os.getpid()}"
    known: dict[bytes, list[int]] = {}
    index: dict[str, list[int]] = {}
    try:
        with open(fresh, "wb") as file:
            file.write(MAGIC)

            def put(content: bytes) -> list[int]:
                packed = zlib.compress(content, 6)
                place = [file.tell(), len(packed)]
                file.write(packed)
                return place

            for record, images in records:
                places = []
                for image in images:
                    if image not in known:
                        known[image] = put(image)
                    places.append(known[image])
                index[record["key"]] = put(json.dumps([record, places]).encode())
            told = {"format": FORMAT, "target": target, "records": index}
            _, length = put(json.dumps(told).encode())
            file.write(length.to_bytes(8, "little") + MAGIC)
        os.replace(fresh, path)
    except BaseException:
        if os.path.exists(fresh):
            os.unlink(fresh)
        raise
    return len(index)


class Pack(Mapping):
    """key -> (kernel record, images), inflated when asked for."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            try:
                self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:  # an empty file
                raise BadPack(f"{self.path} is no pack of GPU kernels: it is empty") from None
        end = len(self.content) - len(MAGIC)
        whole = len(self.content) > 2 * len(MAGIC) + 8
        if not whole or self.content[: len(MAGIC)] != MAGIC or self.content[end:] != MAGIC:
            raise BadPack(f"{self.path} is no pack of GPU kernels")
        length = int.from_bytes(self.content[end - 8 : end], "little")
        told = self.inflated(end - 8 - length, length)
        if told["format"] != FORMAT:
            raise BadPack(
                f"{self.path} has format {told['format']}, and this version reads {FORMAT}"
            )
        self.target: int = told["target"]
        self.records: dict[str, list[int]] = told["records"]

    def inflated(self, offset: int, length: int) -> Any:
        return json.loads(zlib.decompress(self.content[offset : offset + length]))

    def __getitem__(self, key: str) -> tuple[dict, list[bytes]]:
        record, places = self.inflated(*self.records[key])
        images = [zlib.decompress(self.content[at : at + size]) for at, size in places]
        return record, images

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)
