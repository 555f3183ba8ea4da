"""Writes ``.npy`` files."""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..platforms import system
from .base import Writer, pwrite_all
from .columns import Column, Values


class FixedRows(Writer):
    """Writes rows of one shape and dtype at known offsets of a file. After a kill, they may be written again there."""

    _offsets: list[int]

    @classmethod
    def holds(cls, column: Column) -> bool:
        return column.kind == "fixed"

    @abstractmethod
    def make(self) -> None:
        """Make the file for all `rows`, before any is written."""

    @abstractmethod
    def offsets(self) -> list[int]:
        """Return where the rows of each column begin in the file."""

    def begin(self) -> None:
        self.make()
        self.resume(None)

    def resume(self, place: Any) -> None:
        self._offsets = self.offsets()
        self._handle = os.open(self.path, os.O_RDWR | system.NOT_INHERITED)

    def write(self, values: Values, n: int) -> None:
        assert self._handle is not None
        for column, offset in zip(self.columns, self._offsets, strict=True):
            data = np.ascontiguousarray(values[column.name]).reshape(-1).view(np.uint8)
            pwrite_all(self._handle, data, offset + self.row * column.row_bytes)

    def checkpoint(self) -> Any:
        assert self._handle is not None
        os.fsync(self._handle)


class NpyWriter(FixedRows):
    """One column as ``numpy.save`` writes it, byte for byte."""

    ending = ".npy"
    can_hold = "one column, of rows of one shape and dtype"

    def check(self) -> None:
        if len(self.columns) > 1:
            names = ", ".join(repr(column.name) for column in self.columns)
            raise ArgumentError(
                f"a .npy file holds one column, and source has {len(self.columns)} ({names}); pass the ending of "
                f"another format, or convert each column to a file of its own"
            )

    def make(self) -> None:
        self.path.write_bytes(self._header(self.rows))

    def offsets(self) -> list[int]:
        return [len(self._header(self.rows))]

    def finish(self) -> None:
        assert self._handle is not None
        header = self._header(self.row)
        assert [len(header)] == self._offsets  # NumPy leaves room in it for any number of rows
        pwrite_all(self._handle, header, 0)
        os.ftruncate(self._handle, len(header) + self.row * self.columns[0].row_bytes)
        os.fsync(self._handle)

    def _header(self, rows: int) -> bytes:
        (column,) = self.columns
        header = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(column.dtype)  # type: ignore[arg-type]  # it has one, being fixed
        shape = (rows, *column.shape)
        np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
        return header.getvalue()
