"""LMDB values as ml-pyxis and Caffe write them: several named arrays in one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ...errors import ArgumentTypeError
from ...extras import library
from ...validation import one_of
from ..base import function_told

MAX_VARINT_BYTES = 10
"""Bytes of the longest number of variable length in a protobuf message (its encoding guide, "Base 128 Varints")."""

UNPACKED_FLOAT = np.dtype([("tag", "u1"), ("number", "<f4")])
"""A float of a repeated protobuf field that is not packed."""


Decode: TypeAlias = "str | Callable[[bytes], Any] | Field | None"
"""How to decode a value: by a layout, by a user's function, as one array of such a result, or not at all."""


class Field:
    """Takes one array out of a value with several: ``field(value)``."""

    def __init__(self, decode: Decode, name: str) -> None:
        self.decode, self.name = decode, name

    def __call__(self, value: memoryview) -> Any:
        """Return the array, which may lie over `value`."""
        if self.decode == "pyxis":
            return pyxis(value, self.name)[self.name]
        return decoded(self.decode, value)[self.name]

    def fingerprint(self) -> list[Any]:
        """Return everything that the array depends on but the value: name, `decode`."""
        told = self.decode if self.decode is None or isinstance(self.decode, str) else function_told(self.decode)
        return [type(self).__name__, self.name, told]


def decoded(decode: Decode, value: memoryview) -> Any:
    """Decode a value by `decode`, which :func:`checked_decode` has passed. Arrays may lie over the value."""
    if isinstance(decode, str):
        return LAYOUTS[decode](value)
    if isinstance(decode, Field):
        return decode(value)
    return bytes(value) if decode is None else decode(bytes(value))


def checked_decode(decode: Any) -> Any:
    """Return `decode`, if it is the name of a layout, a function or None."""
    if decode is None or callable(decode):
        return decode
    if not isinstance(decode, str):
        raise ArgumentTypeError(f"decode must be None, 'pyxis', 'datum' or a function of bytes, not {decode!r:.80}")
    return one_of("decode", decode, LAYOUTS)


def msgpack() -> Any:
    """Return the library msgpack.

    Raises:
        ImportError: it is not installed.
    """
    return library("msgpack", "ml-pyxis's values need msgpack", "lmdb")


def pyxis(value: memoryview, only: str | None = None) -> dict[str, Any]:
    """Return the arrays of a sample that ml-pyxis wrote, or the array `only`.

    A sample is a map of names to maps of type, dtype, shape and bytes. Anything else is a plain msgpack value, as
    :func:`~batchup_ng.convert` writes text and bytes. msgpack refuses lengths that exceed the bytes.
    """
    fields = {name.decode(): packed for name, packed in msgpack().unpackb(value, raw=True).items()}
    return {name: _pyxis_value(fields[name]) for name in (fields if only is None else [only])}


def _pyxis_value(packed: bytes) -> Any:
    parts = msgpack().unpackb(packed, raw=True)
    if not isinstance(parts, dict) or b"dtype" not in parts:
        return msgpack().unpackb(packed)
    dtype = np.dtype(parts[b"dtype"].decode())
    if dtype.hasobject:
        raise ValueError("it was an array of Python objects, of which only addresses were written")
    return np.frombuffer(parts[b"data"], dtype).reshape(parts[b"shape"])


def datum(value: memoryview) -> dict[str, Any]:
    """Return ``"image"`` and ``"label"`` of Caffe's ``Datum``, as in its ``caffe.proto``.

    >>> datum(memoryview(bytes([8, 1, 16, 2, 24, 1, 34, 2, 70, 80, 40, 5])))
    {'image': array([[[70], [80]]], dtype=uint8), 'label': 5}
    """
    numbers = {1: 0, 2: 0, 3: 0, 5: 0, 7: 0}  # channels, height, width, label, encoded
    data, floats = memoryview(b""), []
    for field, content in _message(value):
        if field in numbers:
            numbers[field] = content
        elif field == 4:
            data = content
        elif field == 6:
            floats.append(np.frombuffer(content, "<f4") if isinstance(content, memoryview) else content)
    label = (numbers[5] + (1 << 31)) % (1 << 32) - (1 << 31)  # protobuf writes an int32 as 64 bits
    if numbers[7]:
        return {"image": bytes(data), "label": label}
    pixels = np.concatenate([np.empty(0, "<f4"), *floats]) if not len(data) else np.frombuffer(data, np.uint8)
    return {"image": pixels.reshape([numbers[1], numbers[2], numbers[3]]), "label": label}


def _message(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield number and content of each field of a protobuf message: an int, bytes, or an array of floats."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _varint(data, at)
        content: Any
        if tag & 7 == 0:
            content, at = _varint(data, at)
        elif tag & 7 == 2:
            length, at = _varint(data, at)
            content, at = data[at : at + length], at + length
        elif tag & 7 == 5 and at == start + 1:
            content = _floats(data, start)
            at = start + len(content) * UNPACKED_FLOAT.itemsize
        elif tag & 7 in (1, 5):
            length = 8 if tag & 7 == 1 else 4
            content, at = data[at : at + length], at + length
        else:
            raise ValueError(f"field {tag >> 3} is of type {tag & 7}, which protobuf does not have")
        if at > len(data):
            raise ValueError(f"field {tag >> 3} ends at byte {at} of {len(data)}")
        yield tag >> 3, content


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at a byte of a message, and where it ends."""
    number = 0
    for place, byte in enumerate(data[at : at + MAX_VARINT_BYTES]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, at + place + 1
    raise ValueError(f"the number at byte {at} does not end")


def _floats(data: memoryview, at: int) -> np.ndarray:
    """Return the consecutive floats of a message from byte `at` on, each after the tag at that byte."""
    count = (len(data) - at) // UNPACKED_FLOAT.itemsize
    records = np.frombuffer(data, UNPACKED_FLOAT, count, at) if count else np.empty(0, UNPACKED_FLOAT)
    others = np.flatnonzero(records["tag"] != data[at])
    if not count:
        raise ValueError(f"the float at byte {at} does not end")
    return records["number"][: others[0] if len(others) else count]


LAYOUTS: dict[str, Callable[[memoryview], dict[str, Any]]] = {"datum": datum, "pyxis": pyxis}
"""The layouts that `decode` may name."""
