"""Formats that store sample after sample: LMDB, tar."""

from __future__ import annotations

import os
import tarfile
import weakref
from collections.abc import Iterator
from io import BytesIO
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats.base import GROUP, Format, Rows, Shape

SHARDS = 4
"""Number of tar files, enough for several workers."""


class Lmdb(Format):
    """Bytes of each image under its number; labels in another file. ``get`` is faster than ``getmulti``."""

    title = "LMDB"
    accessor = "LmdbArray"
    needs = ("lmdb",)

    @classmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        import lmdb

        with lmdb.open(str(path), map_size=2 * images.nbytes + (1 << 20)) as file, file.begin(write=True) as changes:
            for row, image in enumerate(images):
                changes.put(key(row), image.tobytes(), append=True)
        np.save(path / "y.npy", labels)

    def __init__(self, path: Path, shape: Shape) -> None:
        import lmdb

        file = lmdb.open(str(path), readonly=True, lock=False, readahead=False)
        self.x, self.y, self.shape = file.begin(buffers=True), np.load(path / "y.npy"), shape

    def pick(self, rows: Rows, x: np.ndarray) -> None:
        self.copy((self.x.get(key(row)) for row in rows.tolist()), x)

    def run(self, start: int, x: np.ndarray) -> None:
        with self.x.cursor() as cursor:
            cursor.set_key(key(start))
            self.copy(islice(cursor.iternext(keys=False), len(x)), x)

    def copy(self, values: Iterator[memoryview], x: np.ndarray) -> None:
        """Copy `values` into the rows of `x`, in order."""
        out, size = memoryview(x).cast("B"), x[0].nbytes
        for place, value in enumerate(values):
            out[place * size : (place + 1) * size] = value

    def sample(self, row: int) -> tuple[Any, Any]:
        return np.frombuffer(self.x.get(key(row)), np.uint8).reshape(self.shape), self.y[row]

    @classmethod
    def ours(cls, path: Path, shape: Shape) -> list[Any]:
        import batchup_ng as bu

        return [bu.LmdbArray(path, "uint8", shape), np.load(path / "y.npy")]


def key(row: int) -> bytes:
    """Return the key of a row."""
    return b"%08d" % row


class Tar(Format):
    """Four tar files in WebDataset's layout, ``cls`` and ``npy``. Plain code has its own index.

    It reads a sample in one piece: the label, the bytes between it and the pixels, the pixels.
    """

    title = f"tar, {SHARDS} shards"
    accessor = "TarShards"
    chunk = GROUP

    @classmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        path.mkdir()
        for shard, rows in enumerate(np.array_split(np.arange(len(images)), SHARDS)):
            with tarfile.open(path / f"{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as file:
                for row in rows:
                    content = BytesIO()
                    np.save(content, images[row])
                    for name, value in (("cls", str(labels[row]).encode()), ("npy", content.getvalue())):
                        member = tarfile.TarInfo(f"{row:08}.{name}")
                        member.size = len(value)
                        file.addfile(member, BytesIO(value))

    def __init__(self, path: Path, shape: Shape) -> None:
        self.places: list[tuple[int, int]] = []  # for each row: the file, and the offset of its label
        self.members: list[tuple[tarfile.TarFile, tarfile.TarInfo, tarfile.TarInfo]] = []
        for each in sorted(path.glob("*.tar")):
            tar = tarfile.open(each)  # noqa: SIM115 - closed with this object
            weakref.finalize(self, tar.close)
            found = tar.getmembers()
            self.places += [(tar.fileobj.fileno(), member.offset_data) for member in found[::2]]
            self.members += [(tar, x, y) for y, x in zip(found[::2], found[1::2], strict=True)]
        header = self.members[0][1].size - int(np.prod(shape))
        lead = 2 * tarfile.BLOCKSIZE + header  # the label, and the bytes between it and the pixels
        self.leads = [bytearray(lead) for _ in range(GROUP)]
        self.gap = bytearray(self.places[1][1] - self.places[0][1] - lead - int(np.prod(shape)))

    def pick(self, rows: Rows, x: np.ndarray) -> None:
        for place, row in enumerate(rows.tolist()):
            file, offset = self.places[row]
            os.preadv(file, [self.leads[place], x[place]], offset)

    def run(self, start: int, x: np.ndarray) -> None:
        for file, run in groupby(enumerate(self.places[start : start + len(x)]), lambda each: each[1][0]):
            places, offsets = zip(*[(place, offset) for place, (_, offset) in run], strict=True)
            pieces = [piece for place in places for piece in (self.leads[place], x[place], self.gap)]
            os.preadv(file, pieces, offsets[0])

    def take(self, rows: Rows, x: np.ndarray, y: np.ndarray) -> None:
        self.pick(rows, x)
        self.read_labels(y)

    def slice(self, start: int, x: np.ndarray, y: np.ndarray) -> None:
        self.run(start, x)
        self.read_labels(y)

    def read_labels(self, y: np.ndarray) -> None:
        """Write the labels that were read with the images into `y`."""
        for place, lead in enumerate(self.leads[: len(y)]):
            y[place] = int(lead[: tarfile.BLOCKSIZE].rstrip(b"\0"))

    def sample(self, row: int) -> tuple[Any, Any]:
        tar, x, y = self.members[row]
        return np.load(BytesIO(tar.extractfile(x).read())), int(tar.extractfile(y).read())

    @classmethod
    def ours(cls, path: Path, shape: Shape) -> list[Any]:
        import batchup_ng as bu

        paths = sorted(path.glob("*.tar"))
        return [bu.TarShards(paths, "npy", shape=shape, dtype="uint8"), bu.TarShards(paths, "cls")]
