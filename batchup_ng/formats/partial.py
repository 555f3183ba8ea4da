"""The folder beside the target in which it is made, with the journal that tells how far it is.

A journal is replaced as a whole, after what it tells of was brought to the disk. One of a target that is whole says so
before anything is moved to its place, and names what is: after a kill it is moved on, and then the folder goes.

A folder is ours if our journal is in it: the journal comes first and goes last. A folder of another is refused, and
nothing in it is touched.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

from ..data_source.epoch.state_file import read_state, replace_text
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, StateError, WriteError
from .base import synchronised

JOURNAL = "journal.json"

UNFINISHED = re.compile(r"\.journal\.json\.[0-9a-f]+\.tmp")
"""Names of journals that a kill left unfinished."""


class Partial:
    """The folder ``TARGET.partial``, locked for this process; the files of it are only looked at when it is open.

    Attributes:
        made: The folder of what is moved to the target's place.
        work: The folder of what is not.

    Raises:
        ArgumentError: another process is at it; the folder there is not ours.
        WriteError: it cannot be made.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(f"{target.name}.partial")
        self.made, self.work = self.folder / "made", self.folder / "work"
        self._lock = -1
        self._useless = False  # whether nothing in it is worth to be kept

    def __enter__(self) -> Partial:
        try:
            while self._lock < 0:
                self._open()
            self._check_ours()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if self._useless:
                self._clear()
                (self.folder / JOURNAL).unlink()
            with contextlib.suppress(OSError):  # it holds a journal, or files of others
                self.folder.rmdir()
        finally:
            self._close()

    def journal(self) -> dict[str, Any] | None:
        """Return what the journal says; None where there is none.

        Raises:
            ArgumentError: it is not ours.
        """
        path = self.folder / JOURNAL
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):  # such as a FIFO, which would be waited for
                raise StateError(f"{str(path)!r} is no file")
            told = read_state(path)
            if type(told) is dict and type(told.get("about")) is dict and "version" in told["about"]:
                return told
        except FileNotFoundError:
            return None
        except StateError:
            pass
        raise self._refused(f"whose {JOURNAL} is not one of convert")

    def begin(self, text: str) -> None:
        """Make the empty folders for a new target, with a journal that tells of no row."""
        replace_text(self.folder / JOURNAL, text)
        self._useless = True
        self._clear()
        self.made.mkdir()
        self.work.mkdir()

    def save(self, text: str) -> None:
        """Replace the journal."""
        replace_text(self.folder / JOURNAL, text)
        self._useless = False

    def in_the_way(self, names: list[str], existing: list[Path]) -> list[Path]:
        """Return which of the `existing` files were not moved to their place from here before a kill."""
        return [path for path in existing if path.name not in names or os.path.lexists(self.made / path.name)]

    def publish(self, names: list[str], stale: list[Path]) -> None:
        """Move what was made to its place, and remove what of an older target is in the way, then the folder.

        Args:
            names: Of what was made; what is not here any more was moved before a kill.
            stale: Files of the older target, of which those with these names stay.
        """
        for made in self.made.iterdir() if self.made.exists() else ():
            place = self.target.with_name(made.name)
            if os.path.lexists(place) and (place.is_dir() or made.is_dir()):  # which the system does not replace
                _remove(place)
            os.replace(made, place)
        for path in stale:
            if path.name not in names:
                _remove(path)
        synchronised(self.target.parent)
        self._useless = True

    def _open(self) -> None:
        """Make the folder, and lock it; a process that ends may remove it in between."""
        try:
            self.folder.mkdir(exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if self.target.parent.is_dir():
                return
            raise
        except OSError as error:
            raise_if_of_signal_handler(error)
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and self.folder.is_symlink():
                raise self._refused("which is a link") from None
            told = WriteError(
                f"path {str(self.target)!r} cannot be written, since the folder {str(self.folder)!r} beside it cannot "
                f"be made ({error.strerror}); remove what is there, or pass another path"
            )
            told.errno = error.errno
            raise told from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArgumentError(
                f"path {str(self.target)!r} is being written by another process, in {str(self.folder)!r}; wait for it, "
                f"or pass another path"
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._lock), os.lstat(self.folder)):
                return
        self._close()

    def _check_ours(self) -> None:
        names = os.listdir(self.folder)
        if JOURNAL not in names and not all(map(UNFINISHED.fullmatch, names)):
            raise self._refused(f"which has no {JOURNAL}")

    def _refused(self, why: str) -> ArgumentError:
        return ArgumentError(
            f"path {str(self.target)!r} would be made in {str(self.folder)!r}, {why}, so it may be of another program; "
            f"rename or remove that, or pass another path"
        )

    def _clear(self) -> None:
        """Remove what is ours but the journal."""
        names = [name for name in os.listdir(self.folder) if UNFINISHED.fullmatch(name)]
        for path in (self.made, self.work, *map(self.folder.joinpath, names)):
            if os.path.lexists(path):
                _remove(path)

    def _close(self) -> None:
        handle, self._lock = self._lock, -1
        if handle >= 0:
            os.close(handle)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
