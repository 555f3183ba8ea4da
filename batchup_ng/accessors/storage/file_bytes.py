"""The content of whole files, local or at URLs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ...errors import SampleReadError
from ..base import chosen_rows, files_digest
from ..own_rows import OwnRows
from ..packed_paths import packed_paths
from .base import called, reason
from .open_file import regular
from .remote import is_remote, read_files, stamps_of
from .shard_paths import shard_paths


class FileBytes(OwnRows):
    """Files as rows: each row is the whole content of a file, as ``bytes``. Several rows are a list.

    Files may be at URLs; the files of a batch are fetched at once. Each access reads the file again, so a changed file
    gives its new content.

    ::

        pictures = ImageBytes(FileBytes([f"s3://bucket/{name}" for name in names]), size=224)

    Args:
        paths: A list of paths and URLs, used as they are; or a pattern such as ``"s3://bucket/cats/*.jpg"``, whose
            files are sorted by name. Relative paths are relative to the folder that is current now.

    Raises:
        SampleReadError: nothing matches the pattern.
        ArgumentError: there are no paths; or a pattern is for a server that cannot list files.
        ArgumentTypeError: one of the paths is not a path.
        ImportError: a library that a URL needs is not installed.
    """

    def __init__(self, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> None:
        self._paths = packed_paths(shard_paths(paths) if isinstance(paths, (str, os.PathLike)) else paths)
        self._folder = os.getcwd()

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, rows: Any) -> Any:
        """Return the content of one file for an int, else a list, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: a file cannot be read; ``.source`` is its path.
        """
        chosen = chosen_rows(rows, len(self))
        several = [chosen] if isinstance(chosen, int) else chosen.tolist()
        paths = self.file_paths(several)
        fetched = iter(read_files(list(filter(is_remote, paths))))
        contents = [next(fetched) if is_remote(path) else _content(path) for path in paths]
        for row, found in zip(several, contents, strict=True):
            if isinstance(found, Exception):
                name = self.sample_name(row)
                raise SampleReadError(f"row {row}, {called(name)}, cannot be read ({reason(found)})", name) from found
        return contents[0] if isinstance(chosen, int) else contents

    __getitems__ = __getitem__

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the URLs and absolute paths of `rows`."""
        paths = [self._paths[row] for row in rows]
        return [path if is_remote(path) else os.path.join(self._folder, path) for path in paths]

    def sample_name(self, row: int) -> str:
        """Return the path of a file."""
        return self._paths[row % len(self)]

    def fingerprint(self) -> list[Any]:
        """Return everything that the rows depend on: path, size and modification time of each file, all queried."""
        paths = self.file_paths(range(len(self)))
        rows = [row for row, path in enumerate(paths) if is_remote(path)]
        urls = [paths[row] for row in rows]
        facts = hashlib.sha256(repr(list(zip(rows, urls, stamps_of(urls), strict=True))).encode()).hexdigest()
        return [type(self).__name__, files_digest(path for path in paths if not is_remote(path)), facts]

    def __repr__(self) -> str:
        return f"FileBytes({len(self)} files)"


def _content(path: str) -> bytes | Exception:
    try:
        regular(path)
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        return error
