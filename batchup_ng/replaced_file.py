"""Files that have their old or their new content, even if the program is killed at any time.

The content goes to a temporary file in the same folder. That file is synchronised with the disk and then replaces the
old file. A kill during the write leaves the temporary file, ``.NAME.XXXXXXXX.tmp``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat

from .error_context import unless_of_signal_handler
from .platforms import system
from .signals import InterruptsHeld


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to a file that has either its old content or all of the text at any time.

    It is UTF-8. Lone surrogates, which file names may contain, are written unchanged.

    Raises:
        OSError: as :func:`replace_bytes`.
    """
    replace_bytes(path, text.encode("utf-8", "surrogatepass"))


def replace_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to a file that has either its old content or all of this at any time.

    Links are followed. An existing file keeps its permissions. A new file gets them from the umask.

    Raises:
        OSError: the file cannot be written, or the path is no plain file; its ``filename`` is the file. The file is
            unchanged.
    """
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
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.NOT_INHERITED, 0o666)
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
        system.synchronise(folder)
