"""A file that holds a state: the old one or the new one, whenever the program is killed.

A state is written beside its file, synchronised with the disk, then takes the file's place. What it is written to has
one name for each file, and is locked while that goes on, so that two that save at once do not mix. Whoever is killed in
the midst of it leaves that one file, and the next to save writes over it. Where files cannot be locked (some network
file systems, Windows), or the name is somebody else's, it is a new name each time, and a kill leaves that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Mapping
from typing import Any

from ...errors import StateError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # the module is missing there

MAX_BYTES = 1 << 26
"""Bytes of a file beyond which it is not looked at; only the state of a stream's own iterator can come near."""

PATIENCE = 5.0
"""Seconds that another who saves to the same file may take, until it is no longer waited for."""

_PAUSE = 0.001
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def write_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file, which holds either what it held or all of the new state, whatever happens meanwhile.

    A link is followed. A file that is there keeps its permissions; a new one has those that the umask leaves.

    Raises:
        OSError: it cannot be written, or what is there is no plain file; it is as it was.
        StateError: it is larger than what :func:`read_state` reads; the file is as it was.
    """
    target = os.path.realpath(path)
    text = json.dumps(state, allow_nan=False, indent=1)  # of ASCII characters
    if len(text) > MAX_BYTES:
        raise StateError(
            f"this state has {len(text)} bytes, and a file of at most {MAX_BYTES} is read; let the stream's own "
            f"iterator keep less in its state"
        )
    _check_plain(target)
    handle, name = _temporary(target)
    try:
        _write(handle, text, target)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(handle), os.lstat(name)):
                os.unlink(name)
        raise
    finally:
        _release(handle)
    _sync_folder(os.path.dirname(target))


def _check_plain(target: str) -> None:
    """Refuse what a file must not take the place of: a folder, a pipe, a device such as /dev/null."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(target).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "a state goes into a file, not a folder", target)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "a state goes into a plain file, whose place it takes", target)


def _write(handle: int, text: str, target: str) -> None:
    """Write all of a file anew, with the permissions of the file whose place it is to take."""
    if hasattr(os, "fchmod"):
        with contextlib.suppress(OSError):  # there is none, or its file system knows no permissions
            os.fchmod(handle, stat.S_IMODE(os.stat(target).st_mode))
    with os.fdopen(handle, "w", encoding="utf-8", closefd=False) as file:
        file.truncate(0)
        file.write(text)
        file.flush()
        os.fsync(handle)


def _temporary(target: str) -> tuple[int, str]:
    """Return an open file beside `target`, with its name: that which is always used, if it can be locked."""
    folder, name = os.path.split(target)
    usual = os.path.join(folder, f".{name}.tmp")
    with contextlib.suppress(OSError):
        handle = _locked(usual)
        if handle is not None:
            return handle, usual
    own = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    return os.open(own, _FLAGS | os.O_EXCL, 0o666), own


def _locked(name: str) -> int | None:
    """Return the file of that name, opened and locked; None if that cannot be.

    Raises:
        OSError: it cannot be opened, or not be locked.
    """
    if fcntl is None:
        return None
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        handle = os.open(name, _FLAGS, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_mine(handle, name):
                handle, mine = -1, handle
                return mine
        except BlockingIOError:
            time.sleep(_PAUSE)
        except PermissionError:
            raise
        except OSError:  # this file system knows no locks
            os.unlink(name)
            raise
        finally:
            if handle >= 0:
                os.close(handle)
    return None


def _is_mine(handle: int, name: str) -> bool:
    """Return whether an open file still has that name, which another who saved may have taken from it.

    Raises:
        OSError: it is no file of this user's own, alone under its name.
    """
    opened = os.fstat(handle)
    if not stat.S_ISREG(opened.st_mode) or opened.st_uid != os.geteuid() or opened.st_nlink > 1:
        raise PermissionError(f"{name!r} is no plain file of this user's")
    try:
        return os.path.samestat(opened, os.lstat(name))
    except FileNotFoundError:
        return False


def _release(handle: int) -> None:
    """Close a file; unlock it, even if a process that was forked meanwhile has it open too."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _sync_folder(folder: str) -> None:
    """Make a new name in a folder last, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(handle)
    finally:
        os.close(handle)


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state that a file holds, as it stands there.

    Raises:
        OSError: the file cannot be read.
        StateError: it holds no JSON object.
    """
    with open(path, "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise StateError(f"{os.fspath(path)!r} holds more than {MAX_BYTES} bytes, as no state that was written does")
    try:
        state = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{os.fspath(path)!r} holds no state: {error}") from error
    if not isinstance(state, dict):
        raise StateError(f"{os.fspath(path)!r} holds no state, but a JSON {type(state).__name__}")
    return state
