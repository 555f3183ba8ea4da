"""Parsers of the files of standard data sets.

Each returns arrays, or :class:`Rows` whose arrays come block by block, for files that may be larger than memory. No
parser unpickles anything, and none takes memory that only a header claims to need. A file that breaks a rule of its
format raises ``ValueError`` with the rule; :func:`reading` names the file.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from ...error_context import raise_if_of_signal_handler
from ...errors import SampleReadError
from ...extras import library

BLOCK_BYTES = 8 << 20
"""Bytes of a block of rows."""

MAX_ROW_BYTES = 1 << 20
"""Maximum number of bytes of a row in a header. All known sets are below 30,000."""

BROKEN = (ValueError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, struct.error)
"""Exceptions of files that are not what they should be. A full disk raises none of them."""


class Rows(NamedTuple):
    """Rows of an array that come in blocks."""

    shape: tuple[int, ...]
    blocks: Iterator[np.ndarray]


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn an exception about the content of a file into a :class:`SampleReadError` that names the file."""
    try:
        yield
    except BROKEN as error:
        raise_if_of_signal_handler(error)
        why = str(error) or type(error).__name__
        raise SampleReadError(f"{path!r} is not the file that it should be: {why}", path) from error


def exactly(stream: Any, nbytes: int) -> bytes:
    """Read so many bytes."""
    parts, left = [], nbytes
    while left:
        part = stream.read(min(left, BLOCK_BYTES))
        if not part:
            raise ValueError(f"it ends {left} bytes too early")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def idx_rows(stream: Any, row: tuple[int, ...]) -> Rows:
    """Return the rows of an idx file of bytes, as MNIST has them, from its decompressed stream.

    Args:
        stream: The content.
        row: The shape of a row: () for labels.
    """
    magic = bytes([0, 0, 8, 1 + len(row)])
    if (found := exactly(stream, 4)) != magic:
        raise ValueError(f"it begins with the bytes {found.hex()}, and an idx file of this kind with {magic.hex()}")
    n, *rest = struct.unpack(f">{1 + len(row)}I", exactly(stream, 4 + 4 * len(row)))
    if tuple(rest) != row:
        raise ValueError(f"its rows are of shape {tuple(rest)}, and {row} is wanted")
    return Rows((n, *row), _in_blocks(stream, n, row))


def raw_rows(stream: Any, nbytes: int, row: tuple[int, ...]) -> Rows:
    """Return the rows of a stream of `nbytes` without a header."""
    size = math.prod(row)
    if nbytes % size:
        raise ValueError(f"it has {nbytes} bytes, which is no multiple of {size}, the bytes of a row")
    return Rows((nbytes // size, *row), _in_blocks(stream, nbytes // size, row))


def _in_blocks(stream: Any, n: int, row: tuple[int, ...]) -> Iterator[np.ndarray]:
    size = math.prod(row)
    assert size <= MAX_ROW_BYTES
    step = BLOCK_BYTES // size
    for start in range(0, n, step):
        k = min(step, n - start)
        yield np.frombuffer(exactly(stream, k * size), np.uint8).reshape(k, *row)
    if stream.read(1):
        raise ValueError("it has more bytes than its rows need")


def whole(rows: Rows) -> np.ndarray:
    """Return all rows in memory: for labels."""
    blocks = list(rows.blocks)
    return np.concatenate(blocks) if blocks else np.empty(rows.shape, np.uint8)


def checked_labels(labels: np.ndarray, n: int, n_classes: int, first: int = 0) -> np.ndarray:
    """Return the labels of `n` images, numbered from `first` in the file, as ``(n,) int64`` numbered from 0."""
    if len(labels) != n:
        raise ValueError(f"it has {len(labels)} labels for {n} images")
    numbers = labels.astype(np.int64) - first
    if n and not 0 <= numbers.min() <= numbers.max() < n_classes:
        wrong = labels[(numbers < 0) | (numbers >= n_classes)][0]
        raise ValueError(f"its labels must be {first} to {first + n_classes - 1}, and one is {wrong}")
    return numbers


def cifar_rows(content: bytes, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the images ``(n, 32, 32, 3) uint8`` and labels ``(n, n_labels) uint8`` of a file of CIFAR's binary form.

    A record has the labels, then the planes red, green and blue.
    """
    record = n_labels + 3 * 32 * 32
    if not content or len(content) % record:
        raise ValueError(f"it has {len(content)} bytes, which is no multiple of {record}, the bytes of a record")
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    return records[:, n_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, :n_labels]


def matlab_arrays(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the images ``(32, 32, 3, n) uint8`` and labels ``(n,)`` of a file of SVHN, as they are in the file.

    Raises:
        ImportError: SciPy is not installed.
    """
    scipy_io = library("scipy.io", "svhn needs SciPy", "datasets")
    try:
        found = scipy_io.loadmat(path, variable_names=["X", "y"])
    except (MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # of many types, zlib's and struct's among them
        raise_if_of_signal_handler(error)
        raise ValueError(f"SciPy cannot read it ({type(error).__name__}: {error})") from error
    images, labels = found.get("X"), found.get("y")
    if images is None or labels is None:
        raise ValueError(f"it must hold X and y, and holds {sorted(name for name in found if name[0] != '_')}")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise ValueError(f"X must be uint8 (32, 32, 3, n), and is {images.dtype} {images.shape}")
    if labels.dtype.kind not in "ui" or labels.shape != (images.shape[3], 1):
        raise ValueError(f"y must be whole numbers ({images.shape[3]}, 1), and is {labels.dtype} {labels.shape}")
    return images, labels[:, 0]


PIXEL = re.compile(rb"(\d+):(\S+)")
"""An item of a line in the format of LIBSVM."""


def usps_rows(lines: Iterable[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return the images ``(n, 16, 16) uint8`` and labels 1 to 10, ``(n,) int64``, of text in the format of LIBSVM.

    Values -1 to 1 become 0 to 255 in float32, rounded down, as in torchvision.
    """
    images, labels = [], []
    for number, line in enumerate(lines, 1):
        label, *items = line.split()
        pairs = [PIXEL.fullmatch(item) for item in items]
        if None in pairs or [int(pair[1]) for pair in pairs if pair] != list(range(1, 257)):
            raise ValueError(f"line {number} must have the values 1:... to 256:...")
        values = np.array([float(pair[2]) for pair in pairs if pair], np.float32)
        if not (np.abs(values) <= 1).all():
            raise ValueError(f"the values of line {number} must be -1 to 1")
        images.append(((values + 1) / 2 * 255).astype(np.uint8).reshape(16, 16))
        labels.append(int(label))
    if not images:
        raise ValueError("it is empty")
    return np.stack(images), np.array(labels, np.int64)


def fold_rows(content: bytes, n: int) -> np.ndarray:
    """Return the rows of each fold of STL-10, ``(folds, rows) int64``; each is below `n`."""
    folds = [[int(word) for word in line.split()] for line in content.splitlines() if line.strip()]
    if not folds or len({len(fold) for fold in folds}) != 1:
        raise ValueError("its lines must have equally many row numbers")
    if not all(0 <= row < n for fold in folds for row in fold):
        raise ValueError(f"its row numbers must be 0 to {n - 1}")
    return np.array(folds, np.int64)


def tar_members(path: str) -> Iterator[tuple[str, IO[bytes], int]]:
    """Yield the name, the content and the size of each plain file in a ``.tar.gz``, in their order.

    Nothing is extracted. Links and devices are passed over.
    """
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            if member.isreg() and not member.issparse():
                content = archive.extractfile(member)
                assert content is not None
                yield member.name.removeprefix("./"), content, member.size


def wanted_members(path: str, names: Iterable[str]) -> Iterator[tuple[str, IO[bytes], int]]:
    """Yield the members with these names, each of which must be there once."""
    left, seen = set(names), set()
    for name, content, size in tar_members(path):
        if name in seen:
            raise ValueError(f"it has {name!r} twice")
        if name in left:
            left.remove(name)
            seen.add(name)
            yield name, content, size
    if left:
        raise ValueError(f"it lacks {sorted(left)}")


@contextlib.contextmanager
def zip_member(path: str, name: str) -> Iterator[Any]:
    """Open a gzip file within a zip file. Nothing is extracted."""
    with zipfile.ZipFile(path) as archive:
        if name not in archive.namelist():
            raise ValueError(f"it lacks {name!r}")
        with archive.open(name) as packed, gzip.open(packed) as content:
            yield content
