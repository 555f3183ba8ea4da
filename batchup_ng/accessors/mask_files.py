"""Image files whose pixels are numbers of classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..error_context import raise_if_of_signal_handler
from ..errors import SampleReadError
from ..signals import InterruptsHeld
from .base import chosen_rows, files_digest
from .image_decoding import header_size, stored_values
from .own_rows import OwnRows
from .packed_paths import packed_paths
from .pictures import unreadable
from .spreading import spread_rows
from .storage.open_file import regular


class MaskFiles(OwnRows):
    """Masks in files, ``(height, width)`` each, as an accessor: several rows are a list, each in its own size.

    Values are the numbers in the file: palette numbers, or grey levels, without a conversion of colours. So a mask of
    one bit has 0 and 1, a mask of four bits has 0 to 15, and a PGM file has 0 to its maxval. Masks are turned upright
    by their EXIF orientation, as images are.

    Args:
        paths: As for :class:`~batchup_ng.ImageFiles`.
        dtype: An integer dtype that holds all values.
        max_pixels: Masks with more pixels are refused before they are decoded.
    """

    spreads_reads = True

    def __init__(self, paths: Any, dtype: Any, max_pixels: int = 89_478_485) -> None:
        self._paths = packed_paths(paths)
        self._folder = os.getcwd()
        self.dtype = np.dtype(dtype)
        self._max_pixels = max_pixels

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, rows: Any) -> Any:
        """Return one mask for an int, else a list of masks, in the order asked for.

        Raises:
            IndexError: a row is out of range.
            SampleReadError: a mask cannot be decoded, is lossy, counts 0 as white (PBM, some TIFF), has colours, or a
                value that the dtype cannot hold; ``.source`` is its path. A JPEG 2000 counts as lossy if its header
                names the irreversible wavelet.
        """
        chosen = chosen_rows(rows, len(self))
        several = np.atleast_1d(chosen).tolist()
        masks: list[Any] = [None] * len(several)

        def read(place: int) -> None:
            masks[place] = self._mask(several[place])

        spread_rows(read, several, self.sample_name)
        return masks[0] if isinstance(chosen, int) else masks

    def size(self, row: int) -> tuple[int, int] | None:
        """Return height and width of an upright mask, by its header; None if that cannot be read."""
        (path,) = self.file_paths([row])
        try:
            regular(path)
            with open(path, "rb") as file:
                return header_size(file, self._max_pixels)
        except OSError as error:
            raise_if_of_signal_handler(error)
            return None

    def sample_name(self, row: int) -> str:
        """Return the path of a mask."""
        return self._paths[row % len(self)]

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the absolute paths of masks."""
        return [os.path.join(self._folder, self._paths[row]) for row in rows]

    def fingerprint(self) -> list[Any]:
        """Return everything that the masks depend on."""
        return [self.dtype.str, files_digest(path for row in range(len(self)) for path in self.file_paths([row]))]

    def __repr__(self) -> str:
        return f"MaskFiles({len(self)} files, dtype={self.dtype})"

    def _mask(self, row: int) -> np.ndarray:
        (path,) = self.file_paths([row])
        try:
            regular(path)
            with InterruptsHeld(), open(path, "rb") as file:
                values = stored_values(file, self._max_pixels)
        except MemoryError:
            raise
        except Exception as error:
            raise unreadable(f"mask {row}", self.sample_name(row), error) from error
        mask = values.astype(self.dtype)
        if mask.dtype != values.dtype and not np.array_equal(mask, values):
            raise SampleReadError(
                f"mask {row}, {self.sample_name(row)!r:.400}, has values from {values.min()} to {values.max()}, which "
                f"{self.dtype} cannot hold; pass mask_dtype='int32'",
                self.sample_name(row),
            )
        return mask
