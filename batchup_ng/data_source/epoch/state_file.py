"""A file that contains a state: the old one or the new one, even if the program is killed at any time."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from ...errors import StateError
from ...replaced_file import replace_text

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
