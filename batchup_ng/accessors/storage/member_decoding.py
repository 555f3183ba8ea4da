"""Decoders of tar members, by the extension of the member."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError
from .npy import npy_header

Decoder: TypeAlias = "Callable[[bytes], Any] | None"


def npy_array(encoded: bytes) -> np.ndarray:
    """Return the array that ``numpy.save`` wrote, in its own memory. Arrays of objects are refused."""
    shape, fortran, dtype, start = npy_header(encoded, len(encoded))
    return np.ndarray(shape, dtype, encoded, start, order="F" if fortran else "C").copy("K")


def int64(encoded: bytes) -> int:
    """Return a number that an array of labels can hold."""
    return int(np.int64(int(encoded)))


DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(["cls", "cls2", "index", "inx", "id"], int64),
    **dict.fromkeys(["txt", "text", "transcript"], bytes.decode),
    **dict.fromkeys(["json", "jsn"], json.loads),
    "npy": npy_array,
}
"""The decoders of WebDataset's ``autodecode`` that need no library."""

PICKLE_EXTENSIONS = ("pyd", "pkl", "pickle", "pth")
PICTURE_EXTENSIONS = frozenset(["jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "webp", "bmp", "gif", "tif", "tiff"])


def decoder_of(extensions: Iterable[str], decode: Any, remedy: str = "pass decode=None for its bytes") -> Decoder:
    """Return the function for members with one of these extensions. Only the part after an extension's last dot counts.

    Args:
        extensions: The extensions of one column.
        decode: The user's choice: ``"auto"``, a function, or None for bytes.
        remedy: The advice in the error if that is refused.
    """
    if decode is None or callable(decode):
        return decode  # type: ignore[no-any-return]
    if decode != "auto":
        raise ArgumentTypeError(f"decode must be 'auto', a function of bytes, or None for bytes, not {decode!r}")
    ends = [extension.rpartition(".")[2] for extension in extensions]
    if refused := [end for end in ends if end in PICKLE_EXTENSIONS]:
        raise ArgumentError(
            f"decode='auto' does not open .{refused[0]}, since a pickle can run any code; {remedy}, or a function that "
            f"you trust"
        )
    found = {DECODERS.get(end) for end in ends}
    if len(found) > 1:
        raise ArgumentError(f"the extensions {', '.join(ends)} are decoded in different ways; {remedy}, or a function")
    return found.pop()
