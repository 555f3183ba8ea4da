"""The folder of the standard data sets.

::

    FOLDER/mnist/train_image.npy, train_label.npy, ...      a set: the folder is there if all of it is
    FOLDER/downloads/mnist/train-images-idx3-ubyte.gz       files to convert; NAME.part while they come
    FOLDER/downloads/mnist/made/                            the results, before they are complete

A process locks the folder of downloads while it fetches a set. The results are brought to the disk, then their folder
is renamed to the set's, so a kill at any time leaves either no set or all of it. The next call removes half results and
continues the downloads. The downloads are removed when the set is there, except the archive of EMNIST, which all its
splits need.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any, TypeAlias

from ...display import progress_of
from ...error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ...errors import ArgumentError, BatchupError, WriteError
from ...extras import library
from ...log import note
from ...platforms import system
from ...validation import path_text
from . import table
from .converting import CONVERSIONS
from .fetching import fetched

VARIABLE = "BATCHUP_NG_DATA"
"""The environment variable with the folder of all sets."""

KEPT_DOWNLOADS = ("emnist",)
"""Downloads of several sets, which stay."""

PathLike: TypeAlias = "str | os.PathLike[str] | None"


def root_of(path: PathLike) -> str:
    """Return the folder of all sets: `path`, or as the environment says, or pooch's cache of this user.

    Raises:
        ImportError: the folder of the user is wanted, and pooch is not installed.
    """
    if path is not None:
        chosen = path_text("path", path)
    elif not (chosen := os.environ.get(VARIABLE, "")):
        needs = f"the folder of data sets, without path= or {VARIABLE}, needs pooch"
        chosen = str(library("pooch", needs, "datasets").os_cache("batchup_ng"))
    return os.path.abspath(os.path.expanduser(chosen))


def folder_of(name: str, path: PathLike = None) -> str:
    """Return the folder of a set, which exists if the set was fetched."""
    return os.path.join(root_of(path), name)


def kept(name: str, path: PathLike, progress: Any) -> str:
    """Return the folder of a set. Download and convert the set if it is not there.

    Raises:
        ArgumentError: there is no set of that name.
        DownloadError: no mirror has sent a file.
        ImportError: a library is not installed.
        SampleReadError: a file is not what it should be.
        WriteError: the folder cannot be written to, or the disk is full.
    """
    if name not in CONVERSIONS:
        raise ArgumentError(f"name must be one of {', '.join(CONVERSIONS)}, not {name!r:.80}")
    progress_of(progress, name, "B")  # refuses what is none, also if nothing is to be downloaded
    target = folder_of(name, path)
    if os.path.isdir(target):
        return target
    download, convert = CONVERSIONS[name]
    downloads = os.path.join(os.path.dirname(target), "downloads", download)
    try:
        with _locked(downloads):
            if not os.path.isdir(target):  # another process may have made it while this one waited
                made = os.path.join(downloads, "made")
                _remove_unfinished(downloads, made)
                paths = [fetched(file, downloads, progress) for file in table.FILES[download]]
                os.mkdir(made)
                try:
                    convert(paths, made)
                    _synchronise(made)
                    os.rename(made, target)
                except BaseException:
                    shutil.rmtree(made, ignore_errors=True)  # it may be what fills the disk
                    raise
                _synchronise_names(os.path.dirname(target))
                if download not in KEPT_DOWNLOADS:
                    shutil.rmtree(downloads, ignore_errors=True)
    except OSError as error:
        raise_if_of_signal_handler(error)
        if isinstance(error, BatchupError):
            raise
        which = f" ({error.filename!r})" if error.filename else ""
        told = WriteError(
            f"{name!r} cannot be kept in {os.path.dirname(target)!r}: {error.strerror or error}{which}; make room, or "
            f"pass another folder as path= or in {VARIABLE}, and make the same call again, which continues the download"
        )
        told.errno = error.errno
        raise told from error
    return target


def _remove_unfinished(downloads: str, made: str) -> None:
    """Remove what a kill has left: half results, and files of pooch's whose checksum was not compared."""
    shutil.rmtree(made, ignore_errors=True)
    for name in os.listdir(downloads):
        if name.startswith("tmp"):
            os.remove(os.path.join(downloads, name))


def _synchronise(folder: str) -> None:
    """Bring all files below a folder to the disk."""
    for where, _, names in os.walk(folder):
        for name in names:
            system.synchronise(os.path.join(where, name))
        _synchronise_names(where)


def _synchronise_names(folder: str) -> None:
    with unless_of_signal_handler(OSError):  # not every file system can sync a folder
        system.synchronise(folder)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Make a folder and lock it. The process that had the lock before may have removed the folder."""
    while True:
        os.makedirs(folder, exist_ok=True)
        try:
            lock = system.open_to_lock(folder)
        except FileNotFoundError:
            continue
        try:
            try:
                system.lock_file(lock, wait=False)
            except BlockingIOError:
                note("another process fetches a data set in %r; waiting for it", folder)
                system.lock_file(lock)
            if _holds(lock, folder):
                yield
                return
        finally:
            system.close_lock(lock, folder)


def _holds(lock: int, folder: str) -> bool:
    try:
        return system.locks(lock, folder)
    except FileNotFoundError:
        return False
