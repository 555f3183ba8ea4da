"""The folder next to the target where the target is made, with a journal of the progress.

The journal is replaced as a whole, after the rows that it records were brought to the disk. When a target is complete,
the journal says so, and names the files, before anything is moved to its place. After a kill, the move is continued,
and then the folder is removed.

A folder is ours if our journal is in it: the journal comes first and goes last. Any other folder is refused, and
nothing in it is touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

from ..data_source.epoch.state_file import read_state
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, StateError, WriteError
from ..platforms import system
from ..replaced_file import replace_text
from .base import synchronised

JOURNAL = "journal.json"

UNFINISHED = re.compile(r"\.journal\.json\.[0-9a-f]+\.tmp")
"""Names of unfinished journals that a kill left."""


class Partial:
    """The folder ``TARGET.partial``, locked for this process. Its files are examined only after it is locked.

    Attributes:
        made: The folder of files that are moved to the target's place.
        work: The folder of all other files.

    Raises:
        ArgumentError: another process is working in it; the existing folder is not ours.
        WriteError: it cannot be made.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(f"{target.name}.partial")
        self.made, self.work = self.folder / "made", self.folder / "work"
        self._lock = -1
        self._useless = False  # whether nothing in it is worth keeping

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
            with contextlib.suppress(OSError):  # it holds a journal, or files of other programs
                self.folder.rmdir()
        finally:
            self._close()

    def journal(self) -> dict[str, Any] | None:
        """Return the content of the journal; None if there is none.

        Raises:
            ArgumentError: the journal is not ours.
        """
        path = self.folder / JOURNAL
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):  # reading a FIFO, for example, would block
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
        """Make the empty folders for a new target, with a journal that records no row."""
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
        """Return the `existing` files that were not moved to their place from here before a kill."""
        return [path for path in existing if path.name not in names or os.path.lexists(self.made / path.name)]

    def publish(self, names: list[str], stale: list[Path]) -> None:
        """Move the results to their place, and remove an older target's other files, then the folder.

        Args:
            names: The names of the results; any that are no longer here were moved before a kill.
            stale: Files of the older target; files with one of `names` stay.
        """
        for made in self.made.iterdir() if self.made.exists() else ():
            place = self.target.with_name(made.name)
            if os.path.lexists(place) and (place.is_dir() or made.is_dir()):  # the system does not replace folders
                _remove(place)
            os.replace(made, place)
        for path in stale:
            if path.name not in names:
                _remove(path)
        synchronised(self.target.parent)
        self._useless = True

    def _open(self) -> None:
        """Make the folder, and lock it. A process that ends may remove it in between."""
        try:
            with contextlib.suppress(FileExistsError):  # mkdir(exist_ok=True) fails if it goes before it is looked at
                self.folder.mkdir()
            self._lock = system.open_to_lock(str(self.folder))
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
            system.lock_file(self._lock, wait=False)
        except BlockingIOError:
            raise ArgumentError(
                f"path {str(self.target)!r} is being written by another process, in {str(self.folder)!r}; wait for it, "
                f"or pass another path"
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if system.locks(self._lock, str(self.folder)):
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
        """Remove our files except the journal."""
        names = [name for name in os.listdir(self.folder) if UNFINISHED.fullmatch(name)]
        for path in (self.made, self.work, *map(self.folder.joinpath, names)):
            if os.path.lexists(path):
                _remove(path)

    def _close(self) -> None:
        handle, self._lock = self._lock, -1
        if handle >= 0:
            system.close_lock(handle, str(self.folder))


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
