"""A source over a file. The ending of its name selects one of the library's accessors."""

from __future__ import annotations

import fnmatch
import functools
import glob
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from .. import validation
from ..accessors.storage.arrow import ArrowRows
from ..accessors.storage.arrow_column import Paths
from ..accessors.storage.hdf5 import Hdf5Rows
from ..accessors.storage.lmdb import LmdbRows
from ..accessors.storage.npy import NpyRows, NpzRows
from ..accessors.storage.parquet import ParquetRows
from ..accessors.storage.remote import is_remote
from ..accessors.storage.safetensors import SafetensorsRows
from ..accessors.storage.shard_paths import shard_paths
from ..accessors.storage.tar import TarShards
from ..accessors.storage.text import TextLines
from ..accessors.storage.zarr import ZarrRows
from ..data_source.array import ArrayDataSource
from ..errors import ArgumentError, ArgumentTypeError, BatchupError
from .table_columns import names_of

SAVED_DATASET_FILES = "data-*.arrow"
"""Pattern of the files that ``Dataset.save_to_disk`` of Hugging Face writes to its folder."""


@validation.known_names({"index": "make the accessor: ArrayDataSource({'x': TextLines(path, index=...)})"})
def from_file(paths: Paths, columns: Sequence[str] | None = None) -> ArrayDataSource:
    """Return a source over the rows of a file: batches are dicts of its columns.

    The ending selects the accessor. ``.h5``, ``.hdf5``: :class:`~batchup_ng.Hdf5Rows`; ``.zarr``, ``.zarr.zip``:
    :class:`~batchup_ng.ZarrRows`; ``.parquet``: :class:`~batchup_ng.ParquetRows`; ``.arrow``, ``.feather``:
    :class:`~batchup_ng.ArrowRows`; ``.tar``: :class:`~batchup_ng.TarShards`; ``.lmdb``, ``.mdb``:
    :class:`~batchup_ng.LmdbRows`, with the columns of ml-pyxis if the file has its layout; ``.safetensors``:
    :class:`~batchup_ng.SafetensorsRows`; ``.npz``: :class:`~batchup_ng.NpzRows`. ``.npy``
    (:class:`~batchup_ng.NpyRows`), other LMDB files, ``.txt`` and ``.jsonl`` (:class:`~batchup_ng.TextLines`) have one
    column, ``"x"``. A folder may be an LMDB folder (with ``data.mdb``), or the result of ``Dataset.save_to_disk`` of
    Hugging Face (``data-*.arrow``). For a ``DatasetDict`` pass the folder of one split. If you need options of an
    accessor, create it yourself.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/digits.npz", image=np.zeros((3, 8, 8)), label=np.arange(3))
    ...     next(from_file(f"{folder}/digits.npz", ["label"]).batch_iterator(2))
    {'label': array([0, 1])}

    Args:
        paths: The file, or its URL. For tars, Parquet and Arrow files, also a list, or a pattern such as
            ``"train-{000..099}.tar"``.
        columns: The name of a column, or several; None for all.

    Raises:
        ArgumentError: the ending is of no known format; there is no such column; columns differ in length.
        SampleReadError: a file cannot be read; ``.source`` is its path.
        ImportError: the format needs a library that is not installed.
    """
    if not isinstance(paths, (str, os.PathLike, list, tuple)):
        raise ArgumentTypeError(f"paths must be a path or a list of paths, not {paths!r:.80}; pass that of the file")
    path = os.fspath(paths if isinstance(paths, (str, os.PathLike)) else shard_paths(paths)[0])
    ending = _ending(path)
    if ending is None:
        _refuse_known(path)
        raise ArgumentError(
            f"paths must end in one of {', '.join(COLUMNS_BY_ENDING)}, not {path!r}; read a folder of pictures by "
            f"from_folder, a .csv of their paths by from_csv, others by an accessor: "
            f"ArrayDataSource({{'x': NpyRows(path)}})"
        )
    if ending == ".arrow" and os.path.isdir(path):
        paths = _saved_files(path)
    elif ending not in SHARDED_ENDINGS and not isinstance(paths, (str, os.PathLike)):
        if len(paths) > 1:
            raise ArgumentError(f"paths must be one {ending} file, not {len(paths)}; join sources by batchup_ng.concat")
        paths = path
    return ArrayDataSource(COLUMNS_BY_ENDING[ending](paths, None if columns is None else names_of(columns)))


def _refuse_known(path: str) -> None:
    """Raise an error with advice if a path is close to a readable one: compressed, or a folder of several splits."""
    if path.lower().endswith(COMPRESSED_ENDINGS):
        raise ArgumentError(
            f"paths must not be compressed as a whole, as {path!r} is, for rows lie nowhere in it; decompress it first"
        )
    splits = sorted(map(os.path.dirname, glob.glob(os.path.join(glob.escape(path), "*", SAVED_DATASET_FILES))))
    if splits and os.path.isfile(os.path.join(path, "dataset_dict.json")):
        listed = ", ".join(repr(os.path.basename(split)) for split in dict.fromkeys(splits))
        raise ArgumentError(
            f"paths must be one data set, and {path!r} is a saved DatasetDict of {listed}; pass the folder of one, "
            f"such as {splits[0]!r}"
        )


def _saved_files(path: str) -> list[str]:
    """Return the files of a saved data set, as its ``state.json`` lists them: the folder may contain older files.

    One that is listed and is not there is returned too, so that its reader raises an error.
    """
    found = sorted(glob.glob(os.path.join(glob.escape(path), SAVED_DATASET_FILES)))
    try:
        with open(os.path.join(path, "state.json"), "rb") as file:
            names = [each["filename"] for each in json.load(file)["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return found
    listed = [os.path.join(path, name) for name in names if _is_saved_name(name)]
    return listed if listed and len(listed) == len(names) else found


def _is_saved_name(name: Any) -> bool:
    """Return whether Hugging Face's `datasets` would name a file of a saved data set so."""
    return isinstance(name, str) and os.path.basename(name) == name and fnmatch.fnmatchcase(name, SAVED_DATASET_FILES)


def is_stored(path: str) -> bool:
    """Return whether :func:`from_file` knows the format of a path."""
    return _ending(path) is not None


def _ending(path: str) -> str | None:
    """Return the ending that names the format of a path, or None. The content of a folder determines its ending."""
    name = (path.partition("?")[0] if is_remote(path) else path).rstrip("/").lower()  # a URL may have a signature
    ending = next((ending for ending in COLUMNS_BY_ENDING if name.endswith(ending)), None)
    if ending is None and os.path.exists(os.path.join(path, "data.mdb")):
        return ".lmdb"
    return ".arrow" if ending is None and glob.glob(os.path.join(glob.escape(path), SAVED_DATASET_FILES)) else ending


def _lmdb(path: Any, names: Sequence[str] | None) -> dict[str, Any]:
    try:
        LmdbRows(path, "pyxis")
    except BatchupError:
        return _alone(LmdbRows)(path, names)
    return dict(LmdbRows.columns(path, names))


def _alone(reader: Callable[[Any], Any]) -> Callable[[Any, Sequence[str] | None], dict[str, Any]]:
    """Return a function that makes the one column of a file without column names."""

    def opened(path: Any, names: Sequence[str] | None) -> dict[str, Any]:
        if names is not None and list(names) != ["x"]:
            raise ArgumentError(f"columns must be None, as {os.fspath(path)!r} has one without a name, not {names!r}")
        return {"x": reader(path)}

    return opened


COMPRESSED_ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".tgz", ".tbz2", ".txz")
"""Endings of files that must be decompressed first."""

SHARDED_ENDINGS = (".parquet", ".arrow", ".feather", ".tar")
"""Endings of formats in which several files make one data set."""

COLUMNS_BY_ENDING: dict[str, Callable[[Any, Sequence[str] | None], dict[str, Any]]] = {
    ".npy": _alone(NpyRows),
    ".npz": NpzRows.columns,
    ".h5": Hdf5Rows.columns,
    ".hdf5": Hdf5Rows.columns,
    ".zarr": ZarrRows.columns,
    ".zarr.zip": ZarrRows.columns,
    ".parquet": ParquetRows.columns,
    ".arrow": ArrowRows.columns,
    ".feather": ArrowRows.columns,
    ".tar": TarShards.columns,
    ".lmdb": _lmdb,
    ".mdb": _lmdb,
    ".safetensors": SafetensorsRows.columns,
    ".txt": _alone(TextLines),
    ".jsonl": _alone(functools.partial(TextLines, decode=json.loads)),
}
"""For each ending, the function that makes the columns of a file."""
