"""The folder beside the target in which it is made, with the journal that tells how far it is.

A journal is replaced as a whole, after what it tells of was brought to the disk. One of a target that is whole says so
before anything is moved to its place, and names what is: after a kill it is moved on, and then the folder goes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

from ..data_source.epoch.state_file import read_state, replace_text
from ..errors import ArgumentError, WriteError
from .base import synchronised

JOURNAL = "journal.json"


class Partial:
    """The folder ``TARGET.partial``, locked for this process; the files of it are only looked at when it is open.

    Attributes:
        made: The folder of what is moved to the target's place.
        work: The folder of what is not.

    Raises:
        ArgumentError: another process is at it.
        WriteError: it cannot be made.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(f"{target.name}.partial")
        self.made, self.work = self.folder / "made", self.folder / "work"

    def __enter__(self) -> Partial:
        try:
            self.folder.mkdir(exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            told = WriteError(
                f"path {str(self.target)!r} cannot be written, since the folder {str(self.folder)!r} beside it cannot "
                f"be made ({error.strerror}); remove what is there, or pass another path"
            )
            told.errno = error.errno
            raise told from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ArgumentError(
                f"path {str(self.target)!r} is being written by another process, in {str(self.folder)!r}; wait for it, "
                f"or pass another path"
            ) from None
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if not (self.folder / JOURNAL).exists():
                self.clear()
                self.folder.rmdir()
        finally:
            os.close(self._lock)

    def journal(self) -> Any:
        """Return what the journal says; None where there is none."""
        path = self.folder / JOURNAL
        return read_state(path) if path.exists() else None

    def clear(self) -> None:
        """Empty the folder, the journal first."""
        (self.folder / JOURNAL).unlink(missing_ok=True)
        for path in list(self.folder.iterdir()):
            _remove(path)

    def begin(self) -> None:
        """Make the empty folders for a new target."""
        self.clear()
        self.made.mkdir()
        self.work.mkdir()

    def save(self, text: str) -> None:
        """Replace the journal."""
        replace_text(self.folder / JOURNAL, text)

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
        for folder in (self.made, self.work):
            shutil.rmtree(folder, ignore_errors=True)
        (self.folder / JOURNAL).unlink()


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
