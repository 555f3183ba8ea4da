"""The statistics of several columns, and the file that holds them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import ArgumentError
from ..replaced_file import replace_text
from ..validation import path_text
from .column import ColumnStatistics
from .column_json import as_json, from_json
from .table import table_of

HEAD = '{"batchup_ng statistics": 1,'
"""The first characters of each file, with the version of its layout."""


class Statistics(Mapping[Any, ColumnStatistics]):
    """The statistics of columns by name; by place for columns without names.

    ``print`` shows a table. :func:`batchup_ng.statistics` makes it.
    """

    def __init__(self, columns: Mapping[Any, ColumnStatistics]) -> None:
        self._columns: dict[Any, ColumnStatistics] = dict(columns)

    def __getitem__(self, name: Any) -> ColumnStatistics:
        """Return the statistics of a column, by its name or place as given to ``statistics``."""
        if name in self._columns:
            return self._columns[name]
        raise KeyError(f"there are no statistics of a column {name!r}; there are of {list(self._columns)}")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return table_of(list(self._columns.values()))

    def for_images(self) -> tuple[Any, Any]:
        """Return mean and std of the images as ``augment.normalize`` takes them: see
        :meth:`ColumnStatistics.for_images`.
        """
        return self.of_images().for_images()

    def of_images(self) -> ColumnStatistics:
        """Return the column of images: ``"image"``, else the only column with statistics of channels."""
        if "image" in self._columns:
            return self._columns["image"]
        images = [column for column in self._columns.values() if column.axis == "channels"]
        if len(images) != 1:
            raise ArgumentError(
                f"stats must have one column of images, and the columns are {list(self._columns)}; pass one of them: "
                f"stats['photo']"
            )
        return images[0]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file. :meth:`load` returns equal statistics. Other files at `path` are replaced."""
        replace_text(path_text("path", path), self.as_text(""))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistics:
        """Return the statistics in a file of :meth:`save`, or of ``statistics(cache=)``.

        Raises:
            ArgumentError: the file holds no statistics, or is damaged.
            OSError: the file cannot be read.
        """
        with open(path_text("path", path), "rb") as file:
            found = cls.from_bytes(file.read(), None)
        if found is None:
            raise ArgumentError(
                f"path must be a whole file of Statistics.save, and {path!r} is none; compute them again"
            )
        return found

    def as_text(self, digest: str) -> str:
        """Return the content of a file. `digest` stands for the data."""
        columns = json.dumps([as_json(column) for column in self._columns.values()])
        told = f'"digest": {json.dumps(digest)}, "crc32": {zlib.crc32(columns.encode())}, "columns": {columns}'
        return f"{HEAD} {told}}}\n"

    @classmethod
    def from_bytes(cls, content: bytes, digest: str | None) -> Statistics | None:
        """Return the statistics in a file; None if it is damaged, or for other data than `digest` if this is given."""
        try:
            told = json.loads(content)
            if digest is not None and told["digest"] != digest:
                return None
            if told["crc32"] != zlib.crc32(json.dumps(told["columns"]).encode()):
                return None
            columns = [from_json(each) for each in told["columns"]]
        except (ValueError, TypeError, LookupError, RecursionError):
            return None
        return cls({column.name: column for column in columns})
