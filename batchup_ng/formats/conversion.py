"""Writes the rows of a source into a file of another format, and goes on after a kill.

Unfinished work lies in a folder next to the target (:mod:`.partial`). The journal there records the progress: how many
rows the writer (:mod:`.base`) has brought to the disk, and the state of the loader for the next rows. It is updated
after a number of batches that follows from the size of the first batch, or sooner if later batches are larger. Both
depend on the rows alone. So a writer makes its checkpoints at the same rows whether it was killed or not, and writes
the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..accessors.storage.remote import is_remote
from ..data_source import AbstractDataSource
from ..display import counted, progress_bar
from ..error_context import raise_if_of_signal_handler, shortened
from ..errors import ArgumentError, BatchupError, WriteError
from ..faults.policy import ErrorPolicy, error_policy
from ..loader import Loader, source_of
from ..validation import known_names, path_text, positive_int, size_in_bytes, true_or_false
from ..work_pool import AbstractWorkerPool
from .base import Writer
from .columns import Column, Values, columns_of, fitting, named_parts
from .hdf5 import ChunkedHdf5
from .lmdb import LmdbWriter
from .npy import NpyWriter
from .parquet import ParquetWriter
from .partial import Partial
from .prepared import class_names_of, contents_of, names_of, prepared
from .tar import TarWriter
from .zarr import ZarrWriter

PART_BYTES = 1 << 26
"""Bytes of rows between two checkpoints, plus a batch at most: kept in memory, and lost by a kill."""

ASSUMED_VALUE_BYTES = 100
"""Assumed bytes of a value of unknown size."""

JOURNAL_VERSION = 3
"""Version of the journal and of the writers' results."""

WRITERS: tuple[type[Writer], ...] = (NpyWriter, ChunkedHdf5, LmdbWriter, ZarrWriter, ParquetWriter, TarWriter)
WRITER_BY_ENDING: dict[str, type[Writer]] = {**{writer.ending: writer for writer in WRITERS}, ".hdf5": ChunkedHdf5}
"""The writer for each ending of a path."""


@dataclasses.dataclass(frozen=True)
class Converted:
    """The result of :func:`convert`.

    Attributes:
        paths: The files, or the one folder.
        rows: Their number of rows.
        skipped: The samples that ``on_error="skip"`` left out: their paths or keys, or their row numbers if they have
            none.
    """

    paths: tuple[str, ...]
    rows: int
    skipped: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Journal:
    """The progress of a conversion.

    Attributes:
        about: The source and the options.
        columns: The columns of the first batch.
        every: Batches between two checkpoints, at most.
        rows: The number of rows that are safe.
        state: The loader's state after them.
        place: The writer's place after them.
        skipped: The samples that were left out.
        done: The names of the results, once they are complete.
    """

    about: dict[str, Any]
    columns: list[Any]
    every: int
    rows: int = 0
    state: Any = None
    place: Any = None
    skipped: list[str] = dataclasses.field(default_factory=list)
    done: list[str] | None = None


@known_names({"num_workers": "pass the number of workers as workers=", "shuffle": "rows are written in their order"})
def convert(
    source: Any, path: str | os.PathLike[str], *, pool: str | AbstractWorkerPool = "auto", workers: int | None = None,
    batch_size: int = 64, size: int | None = None, quality: int | None = None, compression: str | None = None,
    chunk_rows: int | None = None, shard_rows: int | None = None, shard_bytes: int | str | None = None,
    on_error: str | ErrorPolicy = "raise", overwrite: bool = False, progress: bool | Callable[..., Any] = True,
) -> Converted:  # fmt: skip
    """Write all rows of a source, once and in their order, into a file of the format that `path` ends with.

    A pool makes the batches, and your thread writes them. Unfinished work lies in the folder ``PATH.partial``; when it
    is complete it gets its name. After a kill, a full disk, or a sample that cannot be read, make the same call again:
    it goes on from the last 64 MB, and the result equals an undisturbed run: byte for byte, in an LMDB row for row. If
    the folder holds a part of another source or of other options, that is an error unless `overwrite` is true. Sources
    are compared as far as accessors and arrays allow, without the functions of maps. The pool and `on_error` may
    differ.

    Columns have the names of a source of a dict; :func:`~batchup_ng.from_folder` and its like name them ``image`` and
    ``label``; others are ``x0``, ``x1``, ... Images without a size (:class:`~batchup_ng.ImageFiles` or
    :class:`~batchup_ng.ImageBytes` without ``size=``) are stored as they are encoded, byte for byte, unless `size` or
    `quality` is given; images with a size are arrays. ``class_names`` are stored as an attribute of that name, more
    than 4,000 in HDF5 as a data set of that name without axes, which holds JSON.

    ============  ==================================================================================================
    ``.npy``      One column, of rows of one shape and dtype.
    ``.h5``,      A data set per column: contiguous if all rows are of one shape and dtype and neither `compression` nor
    ``.hdf5``     `chunk_rows` is given, else in chunks. Text, bytes (as ``uint8``) and 1-D arrays may vary in length.
    ``.zarr``     A group of format 3 with an array for each column.
    ``.parquet``  One column each; arrays are lists of fixed size. While it is made, it takes twice its space.
    ``.lmdb``     The layout of ml-pyxis: anything but arrays with fields.
    ``.tar``      Shards of WebDataset, if the name has a field for their number: ``shards-{:05d}.tar``; else one file.
                  Anything. Class names are stored next to them, in ``shards-class_names.json``.
    ============  ==================================================================================================

    Args:
        source: A data source with random access, or any `data` that :class:`~batchup_ng.Loader` takes.
        path: The file to make; for Zarr and LMDB the folder.
        pool: As for the loader: ``"auto"``, ``"serial"``, ``"threads"``, ``"processes"``, or a pool of yours.
        workers: Number of workers. Default: all CPUs that this process may use.
        batch_size: Rows that a worker reads at once.
        size: Pixels of an image's shorter side, at most: larger images are made smaller and keep their ratio, none is
            enlarged, and each is encoded as JPEG.
        quality: Of these JPEGs, 1 to 100; 90 if only `size` is given.
        compression: ``"gzip"`` or ``"lzf"`` for the arrays of HDF5; ``"none"``, ``"snappy"`` (the default),
            ``"gzip"``, ``"zstd"`` or ``"lz4"`` for Parquet.
        chunk_rows: Rows of a chunk of HDF5 or Zarr, or of a row group of Parquet; None for 1 MB, or 8 MB for Parquet.
        shard_rows: The most samples of a tar file.
        shard_bytes: The most bytes of a tar file, unless one sample has more, as an int or ``"500MB"``; None for 1 GB
            if `shard_rows` is not given.
        on_error: ``"raise"``, ``"skip"``, or an :class:`~batchup_ng.ErrorPolicy` with one of these.
        overwrite: Whether an existing target is replaced, when the new one is complete. A part of the same call is
            continued in any case.
        progress: Whether to show progress if tqdm is installed, or a function like ``tqdm.tqdm``.

    Raises:
        ArgumentError: an argument breaks a rule; the target exists; the format cannot hold a column; the source is
            empty or never ends.
        ArgumentTypeError: an argument has a wrong type; the source only streams.
        BatchError: a sample cannot be made; the error names it.
        WriteError: nothing more can be written, for example because a disk is full.
        ImportError: the library of the format is not installed.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = convert(np.arange(6).reshape(3, 2), f"{folder}/x.npy", pool="serial", progress=False)
    ...     np.load(f"{folder}/x.npy").tolist(), done.rows
    ([[0, 1], [2, 3], [4, 5]], 3)
    """
    options = {
        "compression": compression,
        "chunk_rows": None if chunk_rows is None else positive_int("chunk_rows", chunk_rows),
        "shard_rows": None if shard_rows is None else positive_int("shard_rows", shard_rows),
        "shard_bytes": None if shard_bytes is None else size_in_bytes("shard_bytes", shard_bytes),
    }
    given = {name: value for name, value in options.items() if value is not None}
    place = path_text("path", path)
    if is_remote(place):
        raise ArgumentError(f"path must be on this machine, not {place!r}; copy what is written to the store")
    target = Path(os.path.abspath(place))
    writer = _writer_of(target, given)
    if error_policy(on_error).action == "replace":
        raise ArgumentError("on_error must be 'raise' or 'skip', not 'replace', by which rows would be written twice")
    overwrite = true_or_false("overwrite", overwrite)
    data = prepared(source_of(source), size, quality)
    about = {"version": JOURNAL_VERSION, **contents_of(data), "batch_size": batch_size, "options": given}
    loader = Loader(data, batch_size, pool=pool, workers=workers, on_error=on_error)
    with Partial(target) as partial, loader:
        journal = _found(partial, about, overwrite)
        if journal is None or journal.done is None:
            _check_free(writer.existing(target), overwrite)
            with _bar(progress, target.name, data.num_samples(), journal) as advance:
                journal = _Job(writer, partial, about, data).run(loader, journal, advance)
        assert journal.done is not None
        existing = writer.existing(target)
        _check_free(partial.in_the_way(journal.done, existing), overwrite)
        partial.publish(journal.done, existing)
    paths = tuple(str(target.with_name(name)) for name in journal.done)
    return Converted(paths, journal.rows, tuple(journal.skipped))


def _check_free(existing: list[Path], overwrite: bool) -> None:
    """Refuse to replace existing files at the place of the target."""
    if existing and not overwrite:
        raise ArgumentError(
            f"path {str(existing[0])!r} exists; pass another, or overwrite=True, which replaces it in the end"
        )


def _found(partial: Partial, about: dict[str, Any], overwrite: bool) -> Journal | None:
    """Return the journal of an unfinished run; None if there is none to continue."""
    told = partial.journal()
    if told is None or not told.get("every"):  # no row is safe
        return None
    if told["about"] == about:
        return Journal(**told)
    if overwrite:
        return None
    differ = ", ".join(name for name in about if told["about"].get(name) != about[name])
    raise ArgumentError(
        f"{str(partial.folder)!r} holds a part of another conversion, which differs in {differ}; repeat that call to "
        f"go on with it, or pass overwrite=True to begin anew"
    )


@contextlib.contextmanager
def _bar(progress: Any, title: str, total: int, journal: Journal | None) -> Iterator[Callable[[int], object]]:
    """Draw a bar if it is wanted; yield a function that takes the number of rows just written."""
    drawn = progress_bar() if progress is True else progress or None
    if drawn is None:
        yield lambda rows: None
        return
    with drawn(total=total, initial=journal.rows if journal else 0, desc=title, unit=" rows", disable=None) as bar:
        yield bar.update


def _writer_of(path: Path, options: dict[str, Any]) -> type[Writer]:
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
    for module in writer.needs[1:]:
        try:
            importlib.import_module(module)
        except ImportError as error:
            extra = f"pip install 'batchup_ng[{writer.needs[0]}]'"
            raise ImportError(f"writing {writer.ending} needs {module}: {extra} ({error})") from error
    writer.check_name(path.name, options)
    return writer


def _check_columns(writer: type[Writer], columns: Sequence[Column]) -> None:
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


class _Job:
    """One run over the rows that are not yet written.

    Args:
        writer: The writer of the format.
        partial: The folder of the unfinished work.
        about: The source and the options, for the journal.
        source: The source.
    """

    def __init__(
        self, writer: type[Writer], partial: Partial, about: dict[str, Any], source: AbstractDataSource
    ) -> None:
        self._format = writer
        self._partial = partial
        self._source = source
        self._names = names_of(source)
        self._journal = Journal(about, [], 0)
        self._writer: Writer | None = None
        self._unsafe_bytes = 0  # of rows after the last checkpoint

    def run(self, loader: Loader, journal: Journal | None, advance: Callable[[int], object]) -> Journal:
        """Write the rows after the journal's checkpoint, and return the final journal; `advance` takes numbers of rows.
        """
        with contextlib.closing(self):
            if journal is None:
                with self._telling():
                    self._partial.begin(json.dumps(vars(self._journal)))
            else:
                loader.load_state_dict(journal.state)
                writer = self._open(journal)
                with self._telling():
                    writer.resume(journal.place)
            skipped = self._journal.skipped
            n_batches = 0  # since the last checkpoint
            for batch in loader if loader.epoch == 0 else ():  # a state after the last batch is of the next epoch
                advance(self._write(named_parts(batch, self._names)))
                n_batches += 1
                if n_batches == self._journal.every or self._unsafe_bytes > PART_BYTES:
                    self._checkpoint(loader, skipped)
                    n_batches = 0
            if n_batches:
                self._checkpoint(loader, skipped)
            return self._finished()

    def close(self) -> None:
        """Close the writer's files."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, parts: dict[str, Any]) -> int:
        """Write a batch, and return its number of rows. The first batch decides about the columns."""
        if self._writer is None:
            columns, values = columns_of(parts)
            _check_columns(self._format, columns)
            every = max(1, PART_BYTES // max(1, _bytes_of(values)))
            told = [column.as_json() for column in columns]
            writer = self._open(dataclasses.replace(self._journal, columns=told, every=every))
            with self._telling():
                writer.begin()
        else:
            writer = self._writer
            values = fitting(writer.columns, parts, writer.row)
        n = len(next(iter(values.values())))
        with self._telling():
            writer.write(values, n)
        writer.row += n
        self._unsafe_bytes += _bytes_of(values)
        return n

    def _open(self, journal: Journal) -> Writer:
        """Make the writer for a journal."""
        columns = [Column.from_json(parts) for parts in journal.columns]
        options = journal.about["options"]
        self._writer = self._format.chosen(columns, options)(
            self._partial.made, self._partial.work, self._partial.target.name, columns, int(self._source.num_samples()),
            journal.every * journal.about["batch_size"], class_names_of(self._source), options,
        )  # fmt: skip
        self._writer.row = journal.rows
        self._journal = journal
        return self._writer

    def _checkpoint(self, loader: Loader, skipped: list[str]) -> None:
        """Bring the written rows to the disk, then the journal that records them."""
        assert self._writer is not None
        failed = [error for error in loader.errors if error.row is not None]  # a later try might make the others
        errors = [error.row if error.source is None else error.source for error in failed]
        with self._telling():
            place = self._writer.checkpoint()
            state = loader.state_dict()
            self._save(place=place, rows=self._writer.row, state=state, skipped=[*skipped, *map(str, errors)])
        self._unsafe_bytes = 0

    def _finished(self) -> Journal:
        """Complete the result, and record it in the journal."""
        if self._writer is None:
            raise ArgumentError("source must have rows, and has none that could be read")
        with self._telling():
            self._writer.finish()
            self._writer.close()
            names = [path.name for path in self._partial.made.iterdir()]
            self._save(done=sorted(names, key=lambda name: [(len(part), part) for part in re.split(r"(\d+)", name)]))
        return self._journal

    def _save(self, **changes: Any) -> None:
        journal = dataclasses.replace(self._journal, **changes)
        self._partial.save(json.dumps(vars(journal)))
        self._journal = journal

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn any exception of a library that cannot write into an error that names the target and a remedy."""
        try:
            yield
        except (BatchupError, MemoryError):
            raise
        except Exception as error:
            raise_if_of_signal_handler(error)
            reason = f"{type(error).__name__}: {shortened(str(error), 300)}"
            told = WriteError(
                f"{str(self._partial.target)!r} cannot be written ({reason}); {counted(self._journal.rows, 'row')} of "
                f"it are safe, in {str(self._partial.folder)!r}: mend that, as by making room, and make the same call "
                f"again to go on"
            )
            told.errno = getattr(error, "errno", None)
            raise told from error


def _bytes_of(values: Values) -> int:
    """Return the approximate bytes of a batch's columns."""
    arrays = [column for column in values.values() if isinstance(column, np.ndarray)]
    others = [value for column in values.values() if not isinstance(column, np.ndarray) for value in column]
    sizes = (
        getattr(each, "nbytes", len(each) if isinstance(each, (str, bytes)) else ASSUMED_VALUE_BYTES)
        for each in others
    )
    return sum(array.nbytes for array in arrays) + sum(sizes)
