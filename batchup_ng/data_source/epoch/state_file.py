"""A file that contains a state: the old one or the new one, even if the program is killed at any time.

The state goes to a temporary file in the same folder. That file is synchronised with the disk and then replaces the
old file. A kill during the write leaves the temporary file, ``.NAME.XXXXXXXX.tmp``.
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
"""Maximum size of a file in bytes. Only the state of a stream's own iterator can come near it."""


def write_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file. At any time, the file has either its old content or the whole new state.

    Links are followed. An existing file keeps its permissions. A new file gets them from the umask.

    Raises:
        OSError: the file cannot be written, or the path is no plain file; its ``filename`` is the file. The file is
            unchanged.
        StateError: the state is larger than :func:`read_state` accepts. The file is unchanged.
    """
    text = json.dumps(state, allow_nan=False, indent=1)  # of ASCII characters
    if len(text) > MAX_BYTES:
        raise StateError(
            f"this state has {len(text)} bytes, and a file of at most {MAX_BYTES} is read; let the stream's own "
            f"iterator keep less in its state"
        )
    replace_text(path, text)


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to a file as :func:`write_state` does: the file has either its old content or all of the text.

    It is UTF-8. Lone surrogates, which file names may contain, are written unchanged.
    """
    replace_bytes(path, text.encode("utf-8", "surrogatepass"))


def replace_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to a file as :func:`write_state` does: the file has either its old content or all of this."""
    # An exception from a signal handler would leave the temporary file, or look like the error of a missing file.
    with InterruptsHeld():
        target = os.path.realpath(path)
        try:
            _replace(target, content)
        except OSError as error:  # of a full disk, it names no file; of a missing folder, the temporary file
            error.filename = target
            del error.filename2  # of a rename; None would be printed
            raise


def _replace(target: str, content: bytes) -> None:
    if os.path.lexists(target) and not os.path.isfile(target):  # also a link that leads to itself
        raise OSError(errno.EINVAL, "only a plain file can be replaced", target)
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:  # closed before the rename: an error in close keeps the old file
            with unless_of_signal_handler(OSError):  # no old file, or a file system without permissions
                os.chmod(beside, stat.S_IMODE(os.stat(target).st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    with unless_of_signal_handler(OSError):  # not every file system can sync a folder, nor every user
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_state(path: str | os.PathLike[str]) -> Any:
    """Return the state in a file, unchecked.

    Raises:
        OSError: the file cannot be read.
        StateError: it contains no JSON, is too large, or is no regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for a writer
        raise StateError(f"{os.fspath(path)!r} must be a regular file, not a pipe, a folder or a device; save to one")
    with open(path, "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise StateError(f"{os.fspath(path)!r} holds more than {MAX_BYTES} bytes, as no state that was written does")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{os.fspath(path)!r} holds no state: {error}") from error
