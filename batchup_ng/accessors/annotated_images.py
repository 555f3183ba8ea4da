"""Image files whose boxes, masks or keypoints are in their pixels."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, SampleReadError
from .annotations import RESIZE_ALL
from .image_decoding import header_size
from .image_files import ImageFiles
from .mask_files import MaskFiles


class AnnotatedImages(ImageFiles):
    """:class:`ImageFiles` in their own sizes. A size or a crop is refused, because the annotations would not move.

    An image that is not as high and wide as its annotations say fails when it is read.

    Args:
        paths: As for :class:`ImageFiles`.
        sizes: Height and width that the annotations were made for, ``(n, 2) int``; or masks, whose headers have them.
    """

    def __init__(self, paths: Any, sizes: np.ndarray | MaskFiles) -> None:
        super().__init__(paths)
        self._sizes = sizes

    def with_options(self, **options: Any) -> AnnotatedImages:
        for name in ("size", "crop"):
            if options.get(name) is not None:
                raise ArgumentError(
                    f"{name} must be left out where images have boxes, masks or keypoints, which it would not move; "
                    f"{RESIZE_ALL}"
                )
        return super().with_options(**options)

    def __repr__(self) -> str:
        return f"AnnotatedImages({len(self)} files, {self._options()})"

    def read_encoded(self, rows: Sequence[int]) -> list[bytes]:
        contents = super().read_encoded(rows)
        for row, data in zip(rows, contents, strict=True):
            if header_size(io.BytesIO(data), self._decoding.max_pixels) not in (None, self._expected(row)):
                self._picture(row, self.file_paths([row])[0])  # raises, unless an orientation is after the pixels
        return contents

    def _picture(self, row: int, encoded: Any, drawn: Any = None, out: np.ndarray | None = None) -> np.ndarray:
        picture = super()._picture(row, encoded, drawn, out)
        size, expected = picture.shape[:2], self._expected(row)
        if expected not in (None, size) and not self._mask_fits(row, size):
            name, by = self.sample_name(row), "its annotations say"
            if isinstance(self._sizes, MaskFiles):
                by = f"its mask {self._sizes.sample_name(row)!r:.400} is"
            raise SampleReadError(
                f"picture {row}, {name!r:.400}, must be as high and wide as {by}, {expected}, not {size} (upright, by "
                f"its EXIF orientation); correct the one or the other, or leave it out by on_error='skip'",
                name,
            )
        return picture

    def _expected(self, row: int) -> tuple[int, ...] | None:
        """Return the height and width by the annotations; None for a mask that cannot be read."""
        sizes = self._sizes
        return sizes.size(row) if isinstance(sizes, MaskFiles) else tuple(sizes[row].tolist())

    def _mask_fits(self, row: int, size: tuple[int, ...]) -> bool:
        """Return whether the decoded mask has this size. Its header lacks an orientation that is after its pixels."""
        return isinstance(self._sizes, MaskFiles) and self._sizes[row].shape == size
