"""Copies of a source, for a trial of some batches."""

from __future__ import annotations

import io
import warnings
from typing import Any, NamedTuple

import numpy as np

from ... import tensors
from ...graph.arrays import ArraysNode
from ...memory.budget import BUDGET
from ...memory.leases import FRESH
from .serialization import Pickler, load_result
from .shared_arrays import ROOM_TO_SPARE


class CopyToTry(NamedTuple):
    """A copy of a source or a data set, and its tensors: each of the user's with its copy."""

    value: Any
    tensors: list[tuple[Any, Any]]

    def has_changed(self) -> bool:
        """Return whether the user's code has written to a tensor of the copy."""
        return any(not np.array_equal(_bytes(original), _bytes(copy)) for original, copy in self.tensors)


def copy_to_try(value: Any) -> CopyToTry:
    """Return a copy of `value` that shares the memory of its large arrays, read-only.

    PyTorch writes to such memory all the same, so tensors have memory of their own, except for columns of a source,
    which are only read. Raises :class:`MemoryError` if there is no room for them, another error if `value` cannot be
    pickled.
    """
    with io.BytesIO() as file:
        pickler = _PicklerToTry(file)
        pickler.dump(value)
        pickled = file.getvalue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that a tensor should be writable
        return CopyToTry(load_result(pickled, pickler.memory), pickler.tensors)


class _PicklerToTry(Pickler):
    """Puts the memory of arrays aside, read-only, and copies tensors."""

    def __init__(self, file: io.BytesIO) -> None:
        self.memory = memory = list[memoryview]()  # a local name, otherwise the callback would make a cycle
        super().__init__(file, protocol=5, buffer_callback=lambda buffer: memory.append(buffer.raw().toreadonly()))
        self.tensors: list[tuple[Any, Any]] = []
        self._columns: set[int] = set()
        self._room = BUDGET.free() * ROOM_TO_SPARE

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ArraysNode):
            self._columns.update(map(id, obj.data))
        elif tensors.is_tensor(obj) and id(obj) not in self._columns:
            self._room -= obj.numel() * obj.element_size()
            if self._room < 0:
                raise MemoryError("there is no room for a copy of the tensors")
            copy = tensors.copied(obj, FRESH)
            self.tensors.append((obj, copy))
            return super().reducer_override(copy)
        return super().reducer_override(obj)


def _bytes(tensor: Any) -> np.ndarray:
    return tensors.bytes_of(tensor if tensors.is_dense(tensor) else tensors.copied(tensor, FRESH))
