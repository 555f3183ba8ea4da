"""The writer of each format: chosen by the ending of a path, and checked for what it can hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..extras import library
from ..validation import one_of
from .base import Writer
from .columns import Column
from .hdf5 import ChunkedHdf5
from .lmdb import LmdbWriter
from .npy import NpyWriter
from .parquet import ParquetWriter
from .tar import TarWriter
from .zarr import ZarrWriter

WRITERS: tuple[type[Writer], ...] = (NpyWriter, ChunkedHdf5, LmdbWriter, ZarrWriter, ParquetWriter, TarWriter)
WRITER_BY_ENDING: dict[str, type[Writer]] = {**{writer.ending: writer for writer in WRITERS}, ".hdf5": ChunkedHdf5}
"""The writer for each ending of a path."""


def writer_of(path: Path, options: dict[str, Any]) -> type[Writer]:
    """Return the writer for the ending of a path. Refuse options that it does not have, and check its libraries."""
    writer = WRITER_BY_ENDING.get(path.suffix.lower())
    if writer is None:
        raise ArgumentError(f"path must end with one of {', '.join(WRITER_BY_ENDING)}, and is {str(path)!r}; rename it")
    if not path.parent.is_dir():
        raise ArgumentError(f"path must lie in a folder that exists, not in {str(path.parent)!r}; make it")
    for name in options:
        if name not in writer.options:
            takers = ", ".join(each.ending for each in WRITERS if name in each.options)
            raise ArgumentError(f"{name}= is an option of {takers}, and path is {str(path)!r}; leave it out")
    if "compression" in options:
        one_of("compression", options["compression"], writer.compressions)
    for module in writer.needs[1:]:
        library(module, f"writing {writer.ending} needs {module}", writer.needs[0])
    writer.check_name(path.name, options)
    return writer


def check_columns(writer: type[Writer], columns: Sequence[Column]) -> None:
    """Refuse columns that a format cannot hold."""
    for column in columns:
        if column.name in ("", ".", "..") or "/" in column.name or "\0" in column.name:
            raise ArgumentError(f"columns must have names without '/', nor '.' or '..', not {column.name!r}; rename it")
        if not writer.holds(column):
            others = ", ".join(each.ending for each in WRITERS if all(map(each.holds, columns)))
            raise ArgumentError(
                f"path must be of a format that holds column {column.name!r}, which is {column}; {writer.ending} holds "
                f"{writer.can_hold}; pass one of {others}, or map the column"
            )
