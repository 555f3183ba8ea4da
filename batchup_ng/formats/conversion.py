"""Writes the rows of a source into a file of another format, and goes on after a kill.

Unfinished work lies in a folder next to the target (:mod:`.partial`). The :mod:`.job` writes the rows there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..accessors.storage.remote import is_remote
from ..data_source.of_data import source_of
from ..display import progress_bar
from ..errors import ArgumentError
from ..faults.policy import ErrorPolicy, error_policy
from ..loader import Loader
from ..validation import known_names, path_text, positive_int, size_in_bytes, true_or_false
from ..work_pool import AbstractWorkerPool
from ..work_pool.parallel import WithConsumerMaps
from .job import Job, Journal
from .partial import Partial
from .prepared import contents_of, prepared
from .writers import writer_of

JOURNAL_VERSION = 3
"""Version of the journal and of the writers' results."""

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
    ``.hdf5``     `chunk_rows` is given, else in chunks. Text, bytes (as ``uint8``) and 1-D arrays, or lists of numbers,
                  may vary in length.
    ``.zarr``     A group of format 3 with an array for each column.
    ``.parquet``  One column each; arrays are lists of fixed size. While it is made, it takes twice its space.
    ``.lmdb``     The layout of ml-pyxis: anything but arrays with fields. Dicts and tuples as for ``.tar``.
    ``.tar``      Shards of WebDataset, if the name has a field for their number: ``shards-{:05d}.tar``; else one file.
                  Anything; dicts need text as keys, and tuples come back as lists. Class names are stored next to
                  them, in ``shards-class_names.json``.
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
    writer = writer_of(target, given)
    if error_policy(on_error).action == "replace":
        raise ArgumentError("on_error must be 'raise' or 'skip', not 'replace', by which rows would be written twice")
    overwrite = true_or_false("overwrite", overwrite)
    data = prepared(source_of(source, (WithConsumerMaps, Loader)), size, quality)
    about = {"version": JOURNAL_VERSION, **contents_of(data), "batch_size": batch_size, "options": given}
    loader = Loader(data, batch_size, pool=pool, workers=workers, on_error=on_error)
    with Partial(target) as partial, loader:
        journal = _found(partial, about, overwrite)
        if journal is None or journal.done is None:
            _check_free(writer.existing(target), overwrite)
            with _bar(progress, target.name, data.num_samples(), journal) as advance:
                journal = Job(writer, partial, about, data).run(loader, journal, advance)
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
