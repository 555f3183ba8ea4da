"""Encoded images in memory, or in an accessor, as an array that is decoded when it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError
from ..validation import known_names
from .base import fingerprint_of, sample_name
from .column import check_indexed_by_rows
from .own_rows import PICTURE_ADVICE
from .pictures import Pictures


class ImageBytes(Pictures):
    """Encoded images as an accessor, like :class:`ImageFiles`, for JPEG, PNG and such in memory or in a database.

    >>> import io, numpy as np
    >>> from PIL import Image
    >>> encoded = io.BytesIO()
    >>> Image.new("RGB", (20, 10), "red").save(encoded, "PNG")
    >>> ImageBytes([encoded.getvalue()] * 3, size=4)[[0, 2]].shape
    (2, 4, 4, 3)

    Args:
        encoded: A list of ``bytes``, or an accessor whose rows are ``bytes`` or ``uint8`` arrays ``(nbytes,)``: a
            polars column, a NumPy array of objects. The rows of a batch are requested at once. A row may also be a
            dict with the bytes as ``"bytes"``, as Hugging Face stores images.
        size: As for :class:`~batchup_ng.accessors.pictures.Pictures`; so are the other arguments.

    Raises:
        ArgumentError: an argument breaks a rule.
        ArgumentTypeError: an argument has a wrong type.
        ImportError: ``"fast"`` or ``"simplejpeg"`` is requested, and the extra ``images`` is not installed.
    """

    @known_names(PICTURE_ADVICE)
    def __init__(
        self, encoded: Any, size: int | tuple[int, int] | None = None, mode: str = "RGB", dtype: Any = np.uint8, *,
        resize: str = "bilinear", crop: Any = None, decoder: str = "auto", max_pixels: int = 89_478_485,
        truncated: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            size, mode, dtype, resize=resize, crop=crop, decoder=decoder, max_pixels=max_pixels, truncated=truncated
        )
        if isinstance(encoded, (str, bytes)) or not (hasattr(encoded, "__len__") and hasattr(encoded, "__getitem__")):
            raise ArgumentTypeError(
                f"encoded must be a list of bytes, or an accessor whose rows are bytes, not {type(encoded).__name__}; "
                f"pass [data] for one picture, ImageFiles(paths) for files"
            )
        check_indexed_by_rows("encoded", encoded)
        self.encoded = encoded

    def __len__(self) -> int:
        return len(self.encoded)

    def sample_name(self, row: int) -> str | None:
        """Return the accessor's name for the row."""
        return sample_name(self.encoded, row)

    def __repr__(self) -> str:
        return f"ImageBytes({len(self)} pictures, {self._options()})"

    def _encoded(self, rows: Sequence[int]) -> Any:
        if isinstance(self.encoded, (list, tuple)):
            return [self.encoded[row] for row in rows]
        return self.encoded[np.asarray(rows, np.intp)]

    def _contents(self) -> Any:
        if not isinstance(self.encoded, (list, tuple, np.ndarray)):
            return fingerprint_of(self.encoded)
        digest = hashlib.sha256()
        for one in self.encoded:
            one = _bytes_of(one)
            digest.update(len(one).to_bytes(8, "little"))
            digest.update(one)
        return digest.hexdigest()

    def _opened(self, encoded: Any) -> bytes:
        encoded = _bytes_of(encoded)
        return encoded if isinstance(encoded, bytes) else np.asarray(encoded, np.uint8).tobytes()


def _bytes_of(row: Any) -> Any:
    return row["bytes"] if isinstance(row, dict) else row
