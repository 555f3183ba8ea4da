"""Tuples and dicts of arrays as they come back from a worker, said in few words: nearly all batches are such.

Who owns what: the bytes of large arrays lie in slots that the task was lent, those of small ones in the message. What
crosses the boundary is an ARRAYS frame: its buffers are the parts of slots that were written; its pickle names, for
each array, one of them and where in it the array begins, or holds the bytes, then dtype and shape. That runs far less
code than pickling arrays does, which counts between two large batches: each sweeps the processor's caches.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...memory_pool import is_plain
from .output_buffers import TaskMemory
from .protocol import SMALLEST_OUTSIDE, Placed

Said = tuple[int, Any, str, tuple[int, ...]]
"""Which buffer, where in it, dtype, shape; for a small array -1 and its bytes in the place of the first two."""


def packed(result: Any, memory: TaskMemory) -> tuple[bytes, list[Placed]] | None:
    """Return the pickle and the buffers of the ARRAYS frame of `result`; None if that is not for such a frame.

    Large arrays that lie elsewhere are copied to a slot.
    """
    names = None
    if type(result) is dict and all(type(name) is str for name in result):
        names, result = tuple(result), tuple(result.values())
    if type(result) is not tuple or len(set(map(id, result))) < len(result):
        return None
    for part in result:
        if type(part) is not np.ndarray or not (part.nbytes and part.flags.c_contiguous and is_plain(part.dtype)):
            return None
    said: list[Said] = []
    slots: list[int] = []
    for part in result:
        if part.nbytes < SMALLEST_OUTSIDE:
            said.append((-1, part.tobytes(), part.dtype.str, part.shape))
            continue
        where = memory.within(part)
        if where is None:
            return None
        slot, at = where
        if slot not in slots:
            slots.append(slot)
        said.append((slots.index(slot), at, part.dtype.str, part.shape))
    return pickle.dumps((names, said), 5), [memory.written(slot) for slot in slots]


def unpacked(pickled: bytes, buffers: Sequence[Any]) -> tuple[np.ndarray, ...] | dict[str, np.ndarray]:
    """Return the arrays that a frame tells of: writable, large ones in the memory of `buffers`."""
    said: list[Said]
    names, said = pickle.loads(pickled)
    arrays = tuple(
        [
            np.ndarray(shape, kind, bytearray(at)) if type(at) is bytes else np.ndarray(shape, kind, buffers[i], at)
            for i, at, kind, shape in said
        ]
    )
    return arrays if names is None else dict(zip(names, arrays, strict=True))
