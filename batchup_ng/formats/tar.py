"""Writes tar files in WebDataset's layout: shards with a file for each column of each sample.

The files of a sample stand one after the other, ``KEY.EXTENSION``. The key is the number of the sample. The extension
depends on the column and is the same for all samples: ``cls`` for whole numbers that int64 holds, ``txt``, ``json``,
``npy``. For bytes, if all of the first batch are images, it is the extension of the first, such as ``jpg``; else
``bin``. If two columns had the same extension, the names are ``NAME.EXTENSION`` for each.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..platforms import system
from .base import Writer, pwrite_all, synchronised
from .columns import Column, Values, check_keys

SHARD_BYTES = 1_000_000_000
"""Bytes of a shard if no size was given."""

PICTURE = re.compile(
    rb"(?P<jpg>\xff\xd8\xff)|(?P<png>\x89PNG\r\n)|(?P<gif>GIF8[79]a)|(?P<tif>II\*\0|MM\0\*)|(?P<jp2>\0\0\0\x0cjP)|"
    rb"(?P<webp>RIFF.{4}WEBP)|(?P<avif>.{4}ftypavif)|(?P<bmp>BM.{4}\0{4}.{4}[\x0c\x28\x34\x38\x40\x6c\x7c]\0{3})",
    re.DOTALL,
)  # fmt: skip
"""First bytes of encoded images, with the extensions of their files."""


class TarWriter(Writer):
    """Appends samples to a shard, and begins another when it is full."""

    ending = ".tar"
    can_hold = "anything"
    options = ("shard_rows", "shard_bytes")
    _extensions: list[str] | None = None  # until the first batch

    def check(self) -> None:
        self._most_rows = self.given.get("shard_rows", 1 << 62)
        default = (1 << 62) if "shard_rows" in self.given or self._name(0) == self._name(1) else SHARD_BYTES
        self._most_bytes = self.given.get("shard_bytes", default)
        endings = [_extension(column) for column in self.columns]
        self._prefixes = [
            f"{column.name}." if endings.count(own) > 1 else ""
            for column, own in zip(self.columns, endings, strict=True)
        ]
        names: dict[str, str] = {}
        for column, prefix, own in zip(self.columns, self._prefixes, endings, strict=True):
            if (other := names.setdefault(f"{prefix}{own}".lower(), column.name)) != column.name:
                raise ArgumentError(
                    f"columns of a .tar file must have names that differ by more than case, by which no reader tells "
                    f"files apart, and {other!r}, {column.name!r} do not; rename one"
                )

    @classmethod
    def check_name(cls, name: str, options: dict[str, Any]) -> None:
        if not re.fullmatch(r"[^{}]*(\{(0?:(0\d+)?d?)?\}[^{}]*)?", name) or re.search(r"%\d*d", name):
            raise ArgumentError(
                f"path may have one field, {{}} or such as {{:05d}}, for the number of a shard, not {name!r}; rename it"
            )
        if options and "{" not in name:
            raise ArgumentError(f"{next(iter(options))}= needs a field for the number in path: 'shards-{{:05d}}.tar'")

    @classmethod
    def existing(cls, path: Path) -> list[Path]:
        before, field, behind = path.name.partition("{")
        pattern = re.escape(before) + (r"\d+" + re.escape(behind.partition("}")[2]) if field else "")
        names = sorted(os.listdir(path.parent))
        found = [name for name in names if re.fullmatch(pattern, name)]
        beside = [names_file(path.name)] if names_file(path.name) in names else []  # "x-{}.tar" and "x.tar" share it
        return [path.with_name(name) for name in found + beside]

    @classmethod
    def holds(cls, column: Column) -> bool:
        return True

    def begin(self) -> None:
        self._shard, self._shard_rows, self._bytes = 0, 0, 0
        self._open()

    def resume(self, place: Any) -> None:
        self._shard, self._shard_rows, self._bytes, self._extensions = place
        later = self._shard + 1
        while self._name(later) != self._name(0) and self._path(later).exists():
            self._path(later).unlink()
            later += 1
        self._open()

    def write(self, values: Values, n: int) -> None:
        if self._extensions is None:
            self._extensions = [_extension(column, values[column.name]) for column in self.columns]
        for place in range(n):
            sample = self._sample(self.row + place, {name: column[place] for name, column in values.items()})
            full = self._bytes + len(sample) > self._most_bytes or self._shard_rows == self._most_rows
            if full and self._shard_rows:
                self._end()
                self._shard, self._shard_rows, self._bytes = self._shard + 1, 0, 0
                self._open()
            assert self._handle is not None
            pwrite_all(self._handle, sample, self._bytes)
            self._bytes += len(sample)
            self._shard_rows += 1

    def checkpoint(self) -> Any:
        assert self._handle is not None
        os.fsync(self._handle)
        return [self._shard, self._shard_rows, self._bytes, self._extensions]

    def finish(self) -> None:
        self._end()
        if self.class_names:
            beside = self.made / names_file(self.path.name)
            beside.write_text(json.dumps(self.class_names), encoding="utf-8")
            synchronised(beside)

    def _name(self, shard: int) -> str:
        return self.path.name.format(shard)

    def _path(self, shard: int) -> Path:
        return self.made / self._name(shard)

    def _open(self) -> None:
        self._handle = os.open(self._path(self._shard), os.O_RDWR | os.O_CREAT | system.NOT_INHERITED, 0o666)
        os.ftruncate(self._handle, self._bytes)

    def _end(self) -> None:
        """Write the end of a shard: two empty blocks, filled up to a whole record."""
        assert self._handle is not None
        end = self._bytes + 2 * tarfile.BLOCKSIZE
        os.ftruncate(self._handle, -(-end // tarfile.RECORDSIZE) * tarfile.RECORDSIZE)
        os.fsync(self._handle)
        self.close()

    def _sample(self, number: int, sample: dict[str, Any]) -> bytes:
        """Return the files of a sample as a shard stores them."""
        assert self._extensions is not None
        made = []
        for column, prefix, extension in zip(self.columns, self._prefixes, self._extensions, strict=True):
            if extension == "json":
                check_keys(column.name, number, sample[column.name], (str,), "JSON cannot keep")
            try:
                data = _encoded(extension, sample[column.name])
            except TypeError as error:
                raise ArgumentError(
                    f"column {column.name!r} of source must hold what JSON can, and does not ({error}); map it, or "
                    f"take a field of it, such as ParquetRows(path, {column.name + '.bytes'!r})"
                ) from error
            header = tarfile.TarInfo(f"{number:09d}.{prefix}{extension}")
            header.size = len(data)
            made += [header.tobuf(tarfile.PAX_FORMAT), data, b"\0" * (-len(data) % tarfile.BLOCKSIZE)]
        return b"".join(made)


def names_file(name: str) -> str:
    """Return the name of the file of class names next to the shards.

    >>> names_file("train-{:05d}.tar")
    'train-class_names.json'
    """
    return f"{name.removesuffix('.tar').partition('{')[0].rstrip('-_.')}-class_names.json"


def _extension(column: Column, values: Sequence[Any] = ()) -> str:
    """Return the extension of a column's files; for bytes, by the values of the first batch."""
    if column.kind == "fixed":
        assert column.dtype is not None
        number = column.shape == () and column.dtype.kind in "iu" and np.can_cast(column.dtype, np.int64)
        return "cls" if number else "npy"
    if column.kind == "bytes" and values:
        return picture_extension(values)
    return {"ragged": "npy", "text": "txt", "json": "json", "bytes": "bin"}[column.kind]


def _encoded(extension: str, value: Any) -> bytes:
    """Return the bytes of a file."""
    if extension == "cls":
        return b"%d" % int(value)
    if extension == "npy":
        file = io.BytesIO()
        np.save(file, np.asarray(value), allow_pickle=False)
        return file.getvalue()
    if isinstance(value, bytes):
        return value
    return (value if extension == "txt" else json.dumps(value)).encode("utf-8")


def picture_extension(values: Sequence[bytes]) -> str:
    """Return the extension for the first value, by its first bytes; ``"bin"`` if any value is not an image.

    >>> picture_extension([b"\\xff\\xd8\\xff\\xe0...", b"GIF89a..."]), picture_extension([b"GIF89a...", b"BMW"])
    ('jpg', 'bin')
    """
    found = PICTURE.match(values[0])
    return str(found.lastgroup) if found and all(map(PICTURE.match, values)) else "bin"
