"""Files by which ``python -m batchup_ng top`` asks a running program for its figures.

Who writes what. ``top`` touches ``PID.ask`` once a second, in a folder that only the user may enter. The loop of the
program looks for that file at most once a second, as it hands out a batch. While the file is fresh, the loop writes its
figures to ``PID.json``. There is no thread, socket or signal. Nothing is read from ``PID.ask``.

The folder is ``batchup_ng`` in the user's folder for running programs, ``$XDG_RUNTIME_DIR`` or ``/run/user/UID``, and
``batchup_ng-UID`` in ``$TMPDIR`` or ``/tmp``. Both may be used, because a job on a cluster often has other variables
than a terminal. Only ``top`` makes a folder. Each side opens it without following a link, checks the owner and the
permissions of what it opened, and reaches the files through that descriptor.

After a fork the child has its own PID, so it looks for its own file. If two threads look at once, both write.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping

from ..error_context import unless_of_signal_handler
from ..errors import BatchupError
from ..meters import batch_times
from ..platforms import system
from ..signals import InterruptsHeld
from .figures import figures

LOOKS_EVERY = 1.0
"""Seconds from one look of a loop to the next."""

FRESH = 5.0
"""Age in seconds above which nobody asks any more."""


class FolderRefused(BatchupError):
    """The folder of the files belongs to another user, others may enter it, or it is none."""


def folders(environment: Mapping[str, str]) -> list[str]:
    """Return the folders that a program with these environment variables looks into."""
    user = os.getuid()
    running = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    temporary = environment.get("TMPDIR") or "/tmp"
    return [os.path.join(running, "batchup_ng"), os.path.join(temporary, f"batchup_ng-{user}")]


@contextlib.contextmanager
def opened(folder: str) -> Iterator[int]:
    """Open a folder, and give its descriptor.

    Raises:
        FolderRefused: it is not only the user's.
        OSError: it does not exist, or is no folder.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise FolderRefused(
                f"{folder!r} must be a folder of user {os.getuid()} that nobody else may enter, and is of user "
                f"{status.st_uid} with permissions {stat.S_IMODE(status.st_mode):o}; remove it, or set another TMPDIR"
            )
        yield handle
    finally:
        os.close(handle)


def look(now: float) -> None:
    """Write the figures of this program where somebody asks for them. No failure of that reaches the loop."""
    batch_times.look_due = now + LOOKS_EVERY
    with InterruptsHeld():
        for folder in folders(os.environ):
            with unless_of_signal_handler(), opened(folder) as handle:
                if _is_asked(handle):
                    _answer(handle)
                    _answered.add(folder)
                elif folder in _answered:  # `top` was killed
                    _answered.discard(folder)
                    os.unlink(f"{os.getpid()}.json", dir_fd=handle)


_answered: set[str] = set()
"""The folders with an answer of this program."""

if system.HAS_LIVE_FIGURES:
    batch_times.look, batch_times.look_due = look, 0.0


def _is_asked(folder: int) -> bool:
    try:
        status = os.stat(f"{os.getpid()}.ask", dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
    return own and abs(time.time() - status.st_mtime) < FRESH  # the clock may have been set back


def _answer(folder: int) -> None:
    """Replace the answer of this program, at once and whole."""
    text = json.dumps(figures(), default=float)  # of NumPy's numbers
    name, beside = f"{os.getpid()}.json", f"{os.getpid()}.{threading.get_ident()}.part"
    how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(beside, how, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as writer:  # closed before the rename
            writer.write(text)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
