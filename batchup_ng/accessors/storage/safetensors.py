"""Arrays in files of Hugging Face's safetensors, by memory map.

A file is 8 bytes, the length of its header, little-endian; the header, JSON with the dtype, shape and place of each
array; then the arrays (the format's own description: README.md of huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import SampleReadError
from .base import of_one_length
from .npy import NamedRows
from .open_file import regular

MAX_HEADER_BYTES = 100_000_000
"""Bytes of a header that the reference implementation reads: ``MAX_HEADER_SIZE``."""

SAFETENSORS_DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8",
}  # fmt: skip
"""The dtypes that NumPy has; the others are bfloat16 and types of 8 bits or fewer."""


class SafetensorsRows(NamedRows):
    """The rows of one array of a safetensors file. The array may be larger than memory.

    >>> import tempfile
    >>> header = b'{"x": {"dtype": "U8", "shape": [3, 2], "data_offsets": [0, 6]}}'
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(len(header).to_bytes(8, "little") + header + bytes([1, 2, 3, 4, 5, 6]))
    ...     file.flush()
    ...     SafetensorsRows(file.name)[[2, 0]].tolist()
    [[5, 6], [1, 2]]

    Args:
        path: The file.
        name: The array; it may be left out if there is only one.

    Raises:
        SampleReadError: the file is not there, is not a safetensors file, or is shorter than it says; or the array has
            a dtype that NumPy does not have, such as bfloat16: its bits would be read as whole numbers.
        ArgumentError: there is no array of that name.
    """

    @classmethod
    def columns(cls, path: str | os.PathLike[str], names: Sequence[str] | None = None) -> dict[str, SafetensorsRows]:
        """Return an accessor for each array of a file: ``ArrayDataSource(SafetensorsRows.columns(path))``.

        Args:
            path: The file.
            names: Which; None for all.

        Raises:
            SampleReadError: as the class.
            ArgumentError: as the class; or the arrays differ in length.
        """
        header, _ = _header(cls._known(os.fspath(path)))
        return of_one_length(path, {name: cls(path, name) for name in (header if names is None else names)})

    def _open(self, path: str) -> np.ndarray:
        header, start = _header(path)
        name = self._chosen(path, header)
        shape, dtype, begin, end = _place(path, name, header[name])
        if end == begin:
            return np.empty(shape, dtype)
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), start + end, access=mmap.ACCESS_READ)
        return np.ndarray(shape, dtype, mapped, start + begin)


def _header(path: str) -> tuple[dict[str, Any], int]:
    """Return the header of a file, and where the arrays begin.

    Raises:
        SampleReadError: the file is not there, or is not a safetensors file.
    """
    try:
        regular(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(MAX_HEADER_BYTES, os.fstat(file.fileno()).st_size - 8):
                raise ValueError(f"its header would be {length} bytes long")
            header = json.loads(file.read(length).decode())
    except OSError as error:
        raise SampleReadError(f"{path!r} cannot be opened ({type(error).__name__}: {error.strerror})", path) from error
    except (ValueError, RecursionError) as error:
        raise SampleReadError(f"{path!r} is no safetensors file ({type(error).__name__}: {error})", path) from error
    if not isinstance(header, dict):
        raise SampleReadError(f"{path!r} is no safetensors file: its header is a {type(header).__name__}", path)
    header.pop("__metadata__", None)
    return header, 8 + length


def _place(path: str, name: str, entry: dict[str, Any]) -> tuple[list[int], np.dtype[Any], int, int]:
    """Return the shape and dtype of an array, and its first and last byte, counted from the end of the header."""
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    if entry["dtype"] not in SAFETENSORS_DTYPES:
        raise SampleReadError(
            f"{path!r}: array {name!r} is of dtype {entry['dtype']!r:.40}, which NumPy does not have; save it as F32 "
            f"or F16, by safetensors.torch.save_file({{name: tensor.float()}}, path)",
            path,
        )
    if not all(type(number) is int and number >= 0 for number in [begin, end, *shape]):
        raise ValueError(f"array {name!r} has a shape or place that is not of whole numbers")
    dtype = np.dtype(SAFETENSORS_DTYPES[entry["dtype"]])
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError(f"array {name!r} of {shape} {dtype} has {end - begin} bytes")
    return shape, dtype, begin, end
