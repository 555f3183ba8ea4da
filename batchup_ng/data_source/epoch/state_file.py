"""A file that holds a state: the old one or the new one, whenever the program is killed.

A state is written to a new file beside it, which is synchronised with the disk and then takes its place. A kill in the
midst of that leaves the new one, ``.NAME.XXXXXXXX.tmp``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Mapping
from typing import Any

from ...error_context import unless_of_signal_handler
from ...errors import StateError
from ...signals import InterruptsHeld

MAX_BYTES = 1 << 26
"""Bytes of a file beyond which it is not looked at; only the state of a stream's own iterator can come near."""


def write_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file, which holds either what it held or all of the new state, whatever happens meanwhile.

    A link is followed. A file that is there keeps its permissions; a new one has those that the umask leaves.

    Raises:
        OSError: it cannot be written, or what is there is no plain file; it is as it was.
        StateError: it is larger than what :func:`read_state` reads; the file is as it was.
    """
    text = json.dumps(state, allow_nan=False, indent=1)  # of ASCII characters
    if len(text) > MAX_BYTES:
        raise StateError(
            f"this state has {len(text)} bytes, and a file of at most {MAX_BYTES} is read; let the stream's own "
            f"iterator keep less in its state"
        )
    replace_text(path, text)


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to a file, which holds either what it held or all of the text, as :func:`write_state` says.

    It is UTF-8; halves of surrogate pairs, which names of files may hold, are written as they are.
    """
    with InterruptsHeld():  # or what a signal's handler raises would leave a file behind, or pass for one that lacks
        _replace_text(os.path.realpath(path), text)


def _replace_text(target: str, text: str) -> None:
    if os.path.lexists(target) and not os.path.isfile(target):  # also a link that leads to itself
        raise OSError(errno.EINVAL, "only a plain file can be replaced", target)
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:  # closed before it is renamed: what fails there leaves the old one
            with unless_of_signal_handler(OSError):  # there is none yet, or its file system knows no permissions
                os.chmod(beside, stat.S_IMODE(os.stat(target).st_mode))
            file.write(text.encode("utf-8", "surrogatepass"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    with unless_of_signal_handler(OSError):  # not every file system can make a new name last, nor every user
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_state(path: str | os.PathLike[str]) -> Any:
    """Return the state that a file holds, as it stands there, unchecked.

    Raises:
        OSError: the file cannot be read.
        StateError: it holds no JSON, or is no regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for one who writes
        raise StateError(f"{os.fspath(path)!r} must be a regular file, not a pipe, a folder or a device; save to one")
    with open(path, "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise StateError(f"{os.fspath(path)!r} holds more than {MAX_BYTES} bytes, as no state that was written does")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{os.fspath(path)!r} holds no state: {error}") from error
