"""An accessor that turns stored bytes into floating point numbers as they are read, bit for bit like BatchUp 0.2.3.

Scale and offset are rounded to ``float32`` once. Each value is converted, multiplied by the scale, and added to the
offset; each step is rounded to ``float32``. A fused multiply-add, or a table made in ``float64``, would differ in the
last bit.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.paging import file_name
from ..randomness import SampleRng
from .base import fingerprint_of, sample_name


class ImageArrayUInt8ToFloat32:
    """Images stored as ``uint8`` in 0–255, read as ``float32`` from `val_lower` to `val_upper`.

    ``a[rows]`` is ``arr_u8[rows]`` converted, of the same shape. If `arr_u8` returns a list of arrays (images of
    several sizes), it is the list of these, converted. Nothing is written to `arr_u8`.

    >>> ImageArrayUInt8ToFloat32(np.array([0, 255], dtype=np.uint8), -1.0, 1.0)[:]
    array([-1.,  1.], dtype=float32)

    Args:
        arr_u8: A NumPy array or any accessor.
        val_lower: The result for 0.
        val_upper: The result for 255. It may be the lower of the two, which inverts the image.

    Attributes:
        scale: The factor for a stored value, ``float32``.
        offset: The number that is then added, ``float32``.

    Raises:
        ArgumentTypeError: `arr_u8` is not an accessor, or a limit is not a number.
    """

    dtype = np.float32

    @validation.known_names({})
    def __init__(self, arr_u8: Any, val_lower: float = 0.0, val_upper: float = 1.0) -> None:
        if not hasattr(arr_u8, "__len__") or not hasattr(arr_u8, "__getitem__"):
            raise ArgumentTypeError(
                f"arr_u8 must have __len__ and __getitem__, as a NumPy array has; {type(arr_u8).__name__} does not"
            )
        for name, value in (("val_lower", val_lower), ("val_upper", val_upper)):
            if not isinstance(value, Real):
                raise ArgumentTypeError(f"{name} must be a number, not {value!r}; pass a float")
        self.arr_u8 = arr_u8
        self.offset = np.float32(val_lower)
        self.scale = np.float32((val_upper - val_lower) / 255.0)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array inside; ``AttributeError`` if it has none because its rows differ."""
        shape: tuple[int, ...] = self.arr_u8.shape
        return shape

    def __len__(self) -> int:
        return len(self.arr_u8)

    def __getitem__(self, rows: Any) -> Any:
        """Return the rows of the array inside, as ``float32``."""
        stored = self.arr_u8[rows]
        if isinstance(stored, (list, tuple)):
            return [self._converted(picture) for picture in stored]
        return self._converted(stored)

    @property
    def draws(self) -> bool:
        """Whether rows are drawn at random."""
        return getattr(self.arr_u8, "draws", False)

    def read_into(self, rows: np.ndarray, out: np.ndarray, rng: SampleRng | None = None) -> None:
        """Write `rows` into `out`, with the same bits as ``a[rows]``; random rows are drawn from `rng`.

        Raises:
            ArgumentError: `out` has another shape or dtype.
        """
        if rng is None:
            stored = np.asarray(self.arr_u8[rows])
        else:
            stored = np.empty((len(rows), *self.shape[1:]), np.uint8)
            self.arr_u8.read_into(rows, stored, rng)
        if out.shape != stored.shape or out.dtype != np.float32:
            raise ArgumentError(
                f"out must be {stored.shape} float32, not {out.shape} {out.dtype}; allocate it from shape and dtype"
            )
        np.multiply(stored, self.scale, out=out, dtype=np.float32, casting="unsafe")
        np.add(out, self.offset, out=out)

    def sample_name(self, row: int) -> str | None:
        """Return the inner array's name for the row, or the file that it is mapped from."""
        name = sample_name(self.arr_u8, row)
        return file_name(self.arr_u8) if name is None else name

    def fingerprint(self) -> list[Any]:
        """Return everything that the rows depend on: scale, offset, the fingerprint of the array inside."""
        return [float(self.scale), float(self.offset), fingerprint_of(self.arr_u8)]

    def __repr__(self) -> str:
        return f"ImageArrayUInt8ToFloat32({len(self)} rows, scale={self.scale}, offset={self.offset})"

    def _converted(self, stored: Any) -> Any:
        return np.asarray(stored).astype(np.float32) * self.scale + self.offset
