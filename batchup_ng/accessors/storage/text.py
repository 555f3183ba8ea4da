"""The lines of a text file."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ... import validation
from ...errors import ArgumentError, ArgumentTypeError
from ...validation import true_or_false
from .base import Files, StoredValues, runs
from .in_runs import RUN_BYTES, WINDOW_BYTES
from .index_file import indices_of
from .open_file import AnyFile, opened

LINE_END = ord("\n")

COMPRESSED_TEXT_MAGIC = {
    b"\x1f\x8b\x08": "gzip",
    b"BZh91AY&SY": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
"""First bytes of compressed files; no text begins with them."""


class TextLines(StoredValues):
    r"""The lines of a text file with random access. The file may be larger than memory.

    A line ends with ``\n``, or ``\r\n``; the last one may lack it. A byte order mark before UTF-8 is left out; a file
    with nothing else has no row. The reader finds the beginnings of the lines by reading the file once. It keeps 8
    bytes for each line, in memory and in an index. **The index is a file that it writes next to yours**, ``X.index``;
    `index` names another folder, or turns that off. An index is used as long as the size and modification time of the
    file stay the same. If it cannot be written, or ``X.index`` is a file of another kind, each program reads the file
    again. The index of a file at a URL is kept in ``~/.cache/batchup_ng``. An index next to such a file is used if it
    was made for a file of the same size with the same bytes in some places.

    A row is a ``str``, and several are a list.

    >>> import json, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/x.jsonl", "w") as file:
    ...         print('{"y": 0}', '{"y": 1}', '{"y": 4}', sep="\n", file=file)
    ...     TextLines(f"{folder}/x.jsonl")[0], TextLines(f"{folder}/x.jsonl", decode=json.loads)[[2, 1]]
    ('{"y": 0}', [{'y': 4}, {'y': 1}])

    Args:
        path: The file, or its URL.
        encoding: Encoding of the text, with one byte for a line end. None gives ``bytes``.
        errors: The treatment of bytes that are wrong in that encoding, as in ``bytes.decode``: ``"strict"``,
            ``"replace"``.
        keep_end: Whether rows keep their line end.
        decode: A function of each row, such as ``json.loads``; None leaves the row as it is.
        index: Whether ``X.index`` may be written; or a folder for the index, which is made if it is not there. An
            existing index next to the file is used in any case.

    Raises:
        SampleReadError: the file is not there, or is compressed.
        ArgumentError: there is no such encoding, or a line end has more than one byte in it.
        ArgumentTypeError: `decode` is not a function, or `index` is neither True, False nor a path.
    """

    takes_urls = True
    natural_window = WINDOW_BYTES // RUN_BYTES
    """How many blocks of `natural_block` rows a shuffle may mix and still read each block once."""

    @validation.known_names({})
    def __init__(
        self, path: str | os.PathLike[str], *, encoding: str | None = "utf-8", errors: str = "strict",
        keep_end: bool = False, decode: Callable[[Any], Any] | None = None,
        index: bool | str | os.PathLike[str] = True,
    ) -> None:  # fmt: skip
        self._keep_end = true_or_false("keep_end", keep_end)
        self._encoding, self._errors = _checked_encoding(encoding), errors
        self._mark = codecs.BOM_UTF8 if encoding is not None and codecs.lookup(encoding).name == "utf-8" else b""
        if decode is not None and not callable(decode):
            raise ArgumentTypeError(f"decode must be a function of a row, or None, not {decode!r}")
        self.decode = decode
        self.runs_user_code = decode is not None
        super().__init__([path])
        (found,) = indices_of(self, {"bounds": "<i8"}, _believable, _index, index)
        self._bounds = found["bounds"]
        if self._is_only_a_mark():
            self._bounds = self._bounds[:1]  # the index is of all encodings, and in others the mark is a line

    def _is_only_a_mark(self) -> bool:
        if not self._mark or len(self._bounds) != 2 or self._bounds[1] != len(self._mark):
            return False
        try:
            return bool(self._handle(0).read(0, len(self._mark)) == self._mark)
        except (OSError, EOFError) as error:
            raise self._unreadable(np.zeros(1, np.int64), error) from error

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @property
    def natural_block(self) -> int:
        """How many neighbouring rows are as cheap to read together as one."""
        return max(1, RUN_BYTES * len(self) // max(1, int(self._bounds[-1])))

    def _options(self) -> list[Any]:
        return [self._encoding, self._errors, self._keep_end]

    def sample_name(self, row: int) -> str | None:
        """Return ``"PATH:LINE"``, lines counted from 1 as editors do."""
        return f"{self.paths[0]}:{range(len(self))[row] + 1}"

    def _open(self, path: str) -> AnyFile:
        return opened(path, self._stamps[0])

    def _values(self, files: Files, rows: np.ndarray) -> list[Any]:
        file: AnyFile = files[0]
        values = []
        found = [(first, self._bounds[first : first + n + 1].tolist()) for first, n, _ in runs(rows)]
        contents = file.read_many([(bounds[0], bounds[-1] - bounds[0]) for _, bounds in found])
        for (first, bounds), raw in zip(found, contents, strict=True):
            for place, (start, end) in enumerate(pairwise(bounds)):
                line = raw[start - bounds[0] : end - bounds[0]]
                try:
                    values.append(self._row(line if start else line.removeprefix(self._mark)))
                except Exception as error:
                    raise self._unreadable(np.array([first + place]), error) from error
        return values

    def _row(self, line: bytes) -> Any:
        if not self._keep_end and line.endswith(b"\n"):
            line = line[: -2 if line.endswith(b"\r\n") else -1]
        row = line if self._encoding is None else line.decode(self._encoding, self._errors)
        return row if self.decode is None else self.decode(row)


def _index(file: AnyFile, size: int) -> dict[str, np.ndarray]:
    """Return where each line of a file of `size` bytes begins, and the end of the last line: ``(n + 1,) int64``.

    Raises:
        ValueError: the file is compressed.
    """
    found = [np.zeros(1, np.int64)]
    for start in range(0, size, file.scan_bytes):
        raw = file.read(start, min(size - start, file.scan_bytes))
        if start == 0 and (how := [how for magic, how in COMPRESSED_TEXT_MAGIC.items() if raw.startswith(magic)]):
            raise ValueError(f"it is compressed by {how[0]}, and lines cannot be read in place; decompress it")
        part = np.frombuffer(raw, np.uint8)
        found.append(np.flatnonzero(part == LINE_END) + (start + 1))
    bounds = np.concatenate(found)
    return {"bounds": bounds if bounds[-1] == size else np.append(bounds, size)}


def _believable(index: dict[str, np.ndarray], size: int) -> bool:
    bounds = index["bounds"]
    return len(bounds) > 0 and bounds[0] == 0 and bounds[-1] == size and bool((np.diff(bounds) > 0).all())


def _checked_encoding(encoding: str | None) -> str | None:
    try:
        if encoding is None or "\n".encode(encoding) == b"\n":
            return encoding
    except LookupError:
        raise ArgumentError(f"encoding must be one that Python has, not {encoding!r}; pass 'utf-8', or None") from None
    raise ArgumentError(
        f"encoding must be one in which a line end is one byte, not {encoding!r}; write the text as UTF-8 first"
    )
