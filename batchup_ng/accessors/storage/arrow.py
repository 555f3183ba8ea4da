"""Columns of Arrow files: Feather, streams, the data sets of Hugging Face."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from ...errors import SampleReadError
from .arrow_column import ArrowColumn
from .arrow_schema import field_path
from .arrow_types import as_numbers, pyarrow
from .base import Files
from .chunks import UnfitRow

LARGE_ROW_BYTES = 1024
"""Bytes of a row from which on rows are copied one by one: an index array would need fresh memory."""

ARROW_MAGIC = b"ARROW1"
"""First bytes of an Arrow file, but not of a stream (Arrow Columnar Format, "IPC File Format")."""


class ArrowRows(ArrowColumn):
    """A column of Arrow files, as an array or as values (see the base class).

    The files have Arrow's IPC format: Feather (version 2), streams, and the files that Hugging Face's library
    `datasets` keeps (``folder/*.arrow``). They are mapped, and rows are copied straight out of the map. Compressed
    batches are decoded whole, and all of them once when the accessor is made. A compressed stream is refused, because
    it can only be read from its beginning.

    ::

        tokens = ArrowRows("dataset/train/*.arrow", "input_ids")
        source = ArrayDataSource(ArrowRows.columns("table.feather"))  # batches are dicts
    """

    each_thread = True  # pyarrow does not say that a reader is safe among threads

    def _open(self, path: str) -> Any:
        return Batches(path, self.column)

    def _schema(self, handle: Any) -> Any:
        return handle.schema

    def _parts(self, handle: Any) -> list[tuple[int, int, int]]:
        return [self._part(handle, handle.array(number)) for number in range(handle.count)]

    def _part(self, handle: Batches, array: Any) -> tuple[int, int, int]:
        begin = 0 if handle.maps(array) else -1
        if begin < 0 and handle.streamed:
            raise SampleReadError(
                f"{handle.path!r} is a compressed stream; write it as a file, by pyarrow.ipc.new_file", handle.path
            )
        if begin == 0 and self._form is not None and len(array):
            begin = -1
            with contextlib.suppress(UnfitRow, pyarrow().ArrowInvalid):  # reading such a row raises it
                begin = handle.place(as_numbers(self._leaf(trusted(array)), self._form, self.fill))
        return len(array), array.nbytes, begin

    def _decoded(self, handle: Any, first: int, last: int) -> Any:
        return [trusted(handle.array(number)) for number in range(first, last)]

    def _copy(self, files: Files, rows: np.ndarray, out: np.ndarray) -> None:
        dtype = self._dtype
        n = self.row_bytes // dtype.itemsize  # numbers of a row
        chunks = self._ends.searchsorted(rows, "right")
        begins = self._before[chunks] + rows * n
        into = out.reshape(len(out), n)  # `out` is in C order
        for number, handle in files.items():
            here: Any = slice(None) if len(files) == 1 else np.flatnonzero(self._files[chunks] == number)
            content = handle.bytes
            values = content[: len(content) // dtype.itemsize * dtype.itemsize].view(dtype)
            firsts = begins[here]
            if (firsts[1:] - firsts[:-1] == n).all():
                into[here] = values[firsts[0] : firsts[0] + len(firsts) * n].reshape(len(firsts), n)
            elif n * dtype.itemsize < LARGE_ROW_BYTES:
                into[here] = values[firsts[:, None] + np.arange(n)]
            else:
                for place, first in zip(np.arange(len(out))[here].tolist(), firsts.tolist(), strict=True):
                    into[place] = values[first : first + n]


def trusted(array: Any) -> Any:
    """Return an array that does not reach outside its memory: pyarrow trusts the offsets in files.

    Raises:
        ArrowInvalid: the array does.
    """
    array.validate(full=True)
    return array


class Batches:
    """One column of the batches of a file, mapped."""

    def __init__(self, path: str, column: str) -> None:
        pa, self.path = pyarrow(), path
        with pa.memory_map(path) as mapped:
            self._buffer = mapped.read_buffer()
        self.streamed = self._buffer[: len(ARROW_MAGIC)].to_pybytes() != ARROW_MAGIC
        opens = pa.ipc.open_stream if self.streamed else pa.ipc.open_file
        self.bytes = np.frombuffer(self._buffer, np.uint8)
        self.schema = opens(self._buffer).schema
        if column:
            fields = [self.schema.names.index(field_path(self.schema, column, path)[0][0])]
            selecting = pa.ipc.IpcReadOptions(included_fields=fields)
            if self.streamed:
                self._batches = [batch.column(0) for batch in opens(self._buffer, options=selecting)]
                self.count = len(self._batches)
            else:
                self._reader, self._field = opens(self._buffer), fields[0]
                self.count = self._reader.num_record_batches
                if self.count and not self.maps(self.array(0)):  # else selecting would copy mapped data
                    self._reader, self._field = opens(self._buffer, options=selecting), 0

    def array(self, number: int) -> Any:
        """Return the column of batch `number`."""
        array = self._batches[number] if self.streamed else self._reader.get_batch(number).column(self._field)
        array.validate()
        return array

    def maps(self, array: Any) -> bool:
        """Return whether an array lies in the file, not in memory that it was decoded into."""
        start, end = self._buffer.address, self._buffer.address + self._buffer.size
        parts = [part for part in array.buffers() if part is not None and part.size]
        return all(start <= part.address < end for part in parts)

    def place(self, values: np.ndarray) -> int:
        """Return where in the file an array begins; -1 if it lies elsewhere, or is not aligned for its dtype."""
        place = int(values.__array_interface__["data"][0]) - int(self._buffer.address)
        return place if 0 <= place < self._buffer.size and place % values.itemsize == 0 else -1
