"""A file that remembers the answer of a long computation, for the same data in the next program.

It holds JSON: a head of its kind, then the digest of the data. Each of the two shows that the file is of this kind. So
damage to one of them does not make it the file of another program, which would be refused. It is written as saved
states are: at any time the file has its old content or the whole new one. So two programs may write it at the same
time; the last one stays.
"""

from __future__ import annotations

import os
import stat
from typing import Any, ClassVar

from .. import log
from ..accessors.storage.remote import is_remote
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, CacheWarning
from ..replaced_file import replace_text
from ..validation import path_text
from ..warn import warn_consumer

NEXT = ' "digest": "'
"""What follows the head in each file."""


class AnswerFile:
    """The file of one answer. The constructor checks that the path can be one.

    Attributes:
        head: The first characters of each file of this kind, with the version of its layout.
        of: The computation with its article, for errors.
        noun: The answer, for warnings.
        task: The computation, for warnings.

    Args:
        path: The file. Its folder must exist.

    Raises:
        ArgumentError: `path` is at a URL or in no folder, or an existing file is not of this kind.
        ArgumentTypeError: `path` is no path.
        OSError: the file cannot be read.
    """

    head: ClassVar[str]
    of: ClassVar[str]
    noun: ClassVar[str]
    task: ClassVar[str]

    def __init__(self, path: Any) -> None:
        self.path = path_text("cache", path)
        if is_remote(self.path):
            raise ArgumentError(f"cache must be a file on this machine, not {self.path!r}; pass a path")
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise ArgumentError(f"cache must be a file in a folder that exists, and {folder!r} does not; make it first")
        self._check_kind()

    def _check_kind(self) -> None:
        """Refuse to replace a file of another kind. An empty file may be replaced."""
        if not os.path.exists(self.path):
            return
        start = ""
        if regular := stat.S_ISREG(os.stat(self.path).st_mode):  # opening a pipe would wait for a writer
            with open(self.path, "rb") as file:
                start = file.read(len(self.head + NEXT)).decode("latin-1")
        if not regular or not (self.head.startswith(start[: len(self.head)]) or start[len(self.head) :] == NEXT):
            raise ArgumentError(
                f"cache must be a new file, or the file of {self.of}, and {self.path!r} is something else; pass "
                f"another path, or delete that file if nobody needs it"
            )

    def content(self, most_bytes: int) -> bytes:
        """Return the bytes of the file; none if there is no file, or if it has more than `most_bytes`.

        Warns:
            CacheWarning: the file does not begin with its head.
        """
        try:
            with open(self.path, "rb") as file:
                raw = file.read(most_bytes)
                more = file.read(1)
        except FileNotFoundError:
            return b""
        if raw and not raw.startswith(self.head.encode()):
            self.warn_of_damage()
            return b""
        return b"" if more else raw

    def warn_of_damage(self) -> None:
        """Warn that the answer is computed again."""
        warn_consumer(f"{self.noun} in {self.path!r} is damaged; {self.task} is computed anew", CacheWarning)

    def log_of_others(self) -> None:
        """Log that the file is about other samples, or another function."""
        log.note("%s in %r is of other samples or functions; %s is computed again", self.noun, self.path, self.task)

    def replace(self, text: str) -> None:
        """Write the file.

        Warns:
            CacheWarning: the file cannot be written, for example because the disk is full. Nothing else is lost.
        """
        try:
            replace_text(self.path, text)
        except OSError as error:
            raise_if_of_signal_handler(error)
            warn_consumer(
                f"{self.noun} cannot be kept in {self.path!r}: {error}; {self.task} is complete, and the next program "
                f"computes it again",
                CacheWarning,
            )
