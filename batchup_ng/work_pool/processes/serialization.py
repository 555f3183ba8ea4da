"""How a value is packed for workers: its large arrays apart from the rest.

    pack(value) ──> Packed: a pickle, and beside it, uncopied, the memory of large arrays
                       │ which transport they take is chosen when it is known how much memory there is
                       ▼
    Packed.buffers ──> one shared copy, named by its place │ in the frame itself │ a number, to ask for rows by

Who owns what. A :class:`Packed` refers to the arrays of the value, and owns no memory. Packing copies no large array,
so that a refusal costs nothing: what cannot be pickled is found before a process is started or a byte is copied.

What crosses the boundary: the pickle, which holds for each large array its dtype, shape and strides; the array's memory
as out-of-band buffer. An array over a file crosses as the name of the file (:mod:`.mapped`). Every array of 64 KiB or
more arrives on memory of its own, which the worker may write to if the original may be; what it writes nobody else
sees. Long lists of samples are packed into one array (:mod:`.packed_list`). Arrays of objects, small ones, subclasses
with a pickle of their own go as NumPy pickles them.
"""

from __future__ import annotations

import functools
import io
import pickle
import struct
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from ...accessors.map_style import MapStyle
from ...accessors.uint8_to_float32 import ImageArrayUInt8ToFloat32
from ...data_source.array import ArrayDataSource
from ...errors import SerializationError
from .blame import culprit
from .by_value import CACHED, Pickler, send_by_value_if_need_be
from .file_arrays import Stretch, reopened, stretch_of
from .packed_list import packed_list
from .protocol import Placed
from .served import ServedArray
from .shared_arrays import Bulk

SMALLEST_APART = 1 << 16
"""Bytes below which an array travels in the frame: a map of its own would cost more than a copy."""

_TICKET = struct.Struct("<q")
"""What arrives before an array that can be served: the number to ask for it by; -1 where the array itself follows."""


class Servable:
    """An array of a source's that can stay with the consumer: the source only asks it for rows.

    Attributes:
        array: The array.
        bulk: Its memory.
    """

    def __init__(self, array: np.ndarray, bulk: Bulk) -> None:
        self.array = array
        self.bulk = bulk


class Packed:
    """A value that is ready to travel, without a copy of its large arrays.

    Attributes:
        pickled: The pickle.
        servable: The arrays that can be served.
        others: The other large arrays, which workers need whole.
        mapped: How many arrays travel as a file's name.
    """

    def __init__(self) -> None:
        self.pickled = b""
        self.servable: list[Servable] = []
        self.others: list[Bulk] = []
        self.mapped = 0
        self._items: list[Servable | Bulk | memoryview] = []

    def buffers(
        self, place: Callable[[Bulk], Placed | memoryview], serve: Callable[[np.ndarray], int] | None = None
    ) -> list[Placed | memoryview]:
        """Return the out-of-band buffers of the pickle.

        Args:
            place: Returns where the memory of an array was put, or that memory, to be sent along.
            serve: Returns the number under which an array is served; None sends them all.
        """
        found: list[Placed | memoryview] = []
        for item in self._items:
            if isinstance(item, Bulk):
                found.append(place(item))
            elif isinstance(item, Servable):
                found.append(memoryview(_TICKET.pack(-1 if serve is None else serve(item.array))))
                found.append(memoryview(b"") if serve is not None else place(item.bulk))
            else:
                found.append(item)
        return found

    def add(self, item: Servable | Bulk | memoryview) -> None:
        """Append what stands for the next buffer, or the next two, of the pickle."""
        self._items.append(item)
        if isinstance(item, Servable):
            self.servable.append(item)
        elif isinstance(item, Bulk):
            self.others.append(item)


def pack(value: Any) -> Packed:
    """Return `value` ready to travel; copies no large array.

    Raises:
        SerializationError: it cannot be pickled; the message names the part that is to blame.
    """
    packed = Packed()
    try:
        _dump(value, packed)
    except Exception as error:
        raise SerializationError(
            f"{culprit('the ' + type(value).__name__, value, travels)} cannot be sent to a worker process: {error}; "
            f"use WorkerThreadPool, or let the worker open such things itself"
        ) from error
    return packed


def travels(value: Any) -> bool:
    """Return whether `value` can be packed."""
    try:
        _dump(value, Packed())
    except Exception:
        return False
    return True


def _dump(value: Any, packed: Packed) -> None:
    with io.BytesIO() as file:
        _Packer(file, packed).dump(value)
        packed.pickled = file.getvalue()


_StandIns = dict[int, tuple[pickle.PickleBuffer, Servable | Bulk | memoryview | None]]
"""Empty buffers by their identity, with what each stands for."""


class _Packer(Pickler):
    """Pickles one value, puts large arrays aside."""

    def __init__(self, file: io.BytesIO, packed: Packed) -> None:
        self._packed = packed
        self._stand_ins: _StandIns = {}
        # A method of its own would be a cycle, in which all that was pickled would stay until the collector runs.
        put_aside = functools.partial(_put_aside, packed, self._stand_ins)
        super().__init__(file, protocol=5, buffer_callback=put_aside)
        self._rows_only: dict[int, np.ndarray] = {}
        self._lists: dict[int, MapStyle] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            reduced = self._reduce_array(obj)
            if reduced is not None:
                return reduced
        elif isinstance(obj, ArrayDataSource):
            self._note_rows_only(obj)
        elif id(obj) in self._lists and (packed := packed_list(obj.dataset)) is not None:
            return MapStyle, (packed,)
        elif isinstance(obj, (types.FunctionType, types.ModuleType, type, CACHED, typing.NewType)):
            send_by_value_if_need_be(obj)
        return super().reducer_override(obj)

    def _note_rows_only(self, source: ArrayDataSource) -> None:
        """Remember the arrays and lists that `source` asks for nothing but rows."""
        for array in source.data:
            if type(array) is MapStyle and type(array.dataset) in (list, tuple):
                self._lists[id(array)] = array
            while type(array) is ImageArrayUInt8ToFloat32:
                array = array.arr_u8
            if type(array) in (np.ndarray, np.memmap):
                self._rows_only[id(array)] = array

    def _reduce_array(self, array: np.ndarray) -> Any:
        """Return how a large array is made again; None leaves it to NumPy."""
        kind = type(array)
        small = array.nbytes < SMALLEST_APART
        # NumPy would send a small array of a foreign byte order, unless it is contiguous, as one of the native order.
        if (small and array.dtype.isnative) or array.dtype.hasobject or not _pickles_like_an_array(kind):
            return None
        kind = np.ndarray if kind is np.memmap else kind
        over_file = None if small else stretch_of(array)
        if over_file is not None:
            self._packed.mapped += 1
            stretch, start = over_file
            return arrive_from_file, (stretch, kind, array.shape, array.dtype, array.strides, start)
        bulk = Bulk(array)
        shape, strides, start = bulk.view
        layout = (kind, shape, array.dtype, strides, start, array.flags.writeable)
        if small:
            return arrive, (self._stand_in(bulk.memory()), *layout)
        if id(array) in self._rows_only:
            first = self._stand_in(Servable(array, bulk))
            return arrive_or_be_served, (first, self._stand_in(None), *layout)
        return arrive, (self._stand_in(bulk), *layout)

    def _stand_in(self, item: Servable | Bulk | memoryview | None) -> pickle.PickleBuffer:
        """Return an empty buffer, which is replaced by what stands for `item` once it is pickled."""
        buffer = pickle.PickleBuffer(bytearray())
        self._stand_ins[id(buffer)] = (buffer, item)
        return buffer


def _put_aside(packed: Packed, stand_ins: _StandIns, buffer: pickle.PickleBuffer) -> None:
    if id(buffer) in stand_ins:
        item = stand_ins[id(buffer)][1]
        if item is not None:
            packed.add(item)
        return
    raw = buffer.raw()
    packed.add(Bulk(np.frombuffer(raw, np.uint8)) if raw.nbytes >= SMALLEST_APART else raw)


def _pickles_like_an_array(kind: type) -> bool:
    """Return whether nothing but dtype, shape and contents of an array of that type is pickled."""
    names = ("__reduce__", "__reduce_ex__", "__setstate__")
    return all(getattr(kind, name) is getattr(np.ndarray, name) for name in names)


def arrive(
    memory: Any, kind: Any, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...], start: int, writable: bool
) -> np.ndarray:
    """Return an array over memory that has arrived in a worker."""
    array = np.ndarray(shape, dtype, memory, start, strides)
    if not writable:
        array.flags.writeable = False
    return array if kind is np.ndarray else array.view(kind)


def arrive_or_be_served(ticket: Any, memory: Any, kind: Any, shape: tuple[int, ...], dtype: Any, *layout: Any) -> Any:
    """Return an array over memory that has arrived in a worker, or a stand-in for one that stays with the consumer."""
    (number,) = _TICKET.unpack(ticket)
    if number >= 0:
        return ServedArray(number, shape, dtype)
    return arrive(memory, kind, shape, dtype, *layout)


def arrive_from_file(
    stretch: Stretch, kind: Any, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...], start: int
) -> np.ndarray:
    """Return an array over a file that this worker opens for itself."""
    memory = reopened(Stretch(*stretch))
    return arrive(memory, kind, shape, dtype, strides, start, stretch.writable and memory.flags.writeable)
