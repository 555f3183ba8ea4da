"""Image files as an array that is decoded when it is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import IO, Any

import numpy as np

from ..errors import ArgumentError
from ..validation import known_names
from .base import files_digest
from .image_decoding import MAX_BYTES_READ_WHOLE
from .own_rows import PICTURE_ADVICE
from .packed_paths import packed_paths
from .pictures import Pictures
from .storage.open_file import regular
from .storage.remote import is_remote


class ImageFiles(Pictures):
    """Image files as an accessor: ``len(a)``, ``a[int]``, ``a[slice]``, ``a[index array]``, ``a[boolean mask]``.

    With `size`, several rows are one array ``(n, height, width, 3)`` of `dtype` (``(n, height, width)`` for mode
    ``"L"``, ``(n, height, width, 4)`` for ``"RGBA"``), and one row is the same without the first axis. Without `size`,
    several rows are a list of such arrays, each in the size of its image. The caller may write to all arrays.

    The values are 0–255 for every `dtype`, cast as by ``astype``;
    :class:`~batchup_ng.accessors.ImageArrayUInt8ToFloat32` around it scales them. Images with 16 bits are scaled
    to 8, rounded. Images are turned upright by their EXIF orientation (unreadable EXIF data counts as upright). A file
    with several frames gives its first. `size` does not keep the ratio of the sides without `crop`. Transparency is
    dropped, not blended, unless `mode` is ``"RGBA"``.

    Args:
        paths: A sequence of ``str`` or ``os.PathLike``: a list, a NumPy array, a pandas column (by position). Relative
            paths are relative to the folder that is current now, regardless of when and where they are read.
        size: As for :class:`~batchup_ng.accessors.pictures.Pictures`; so are the other arguments.

    Raises:
        ArgumentError: an argument breaks a rule; `paths` is empty.
        ArgumentTypeError: an argument has a wrong type; `paths` is one path, or holds anything but paths.
        ImportError: ``"fast"`` or ``"simplejpeg"`` is requested, and the extra ``images`` is not installed.
    """

    @known_names(PICTURE_ADVICE)
    def __init__(
        self, paths: Iterable[str | os.PathLike[str]], size: int | tuple[int, int] | None = None, mode: str = "RGB",
        dtype: Any = np.uint8, *, resize: str = "bilinear", crop: Any = None, decoder: str = "auto",
        max_pixels: int = 89_478_485, truncated: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            size, mode, dtype, resize=resize, crop=crop, decoder=decoder, max_pixels=max_pixels, truncated=truncated
        )
        self._paths = packed_paths(paths)
        if is_remote(self._paths[0]):
            raise ArgumentError(
                f"paths must be files of this machine, not {self._paths[0]!r}; pass ImageBytes(FileBytes(urls), size)"
            )
        self._folder = os.getcwd()

    def __len__(self) -> int:
        return len(self._paths)

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the absolute paths of the images `rows`."""
        return [os.path.join(self._folder, self._paths[row]) for row in rows]

    def sample_name(self, row: int) -> str:
        """Return the path of an image."""
        return self._paths[row % len(self)]

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} files, {self._options()})"

    def _encoded(self, rows: Sequence[int]) -> list[str]:
        return self.file_paths(rows)

    def _contents(self) -> str:
        return files_digest(path for row in range(len(self)) for path in self.file_paths([row]))

    def _opened(self, encoded: str) -> bytes | IO[bytes]:
        found = regular(encoded)
        if found.st_size > MAX_BYTES_READ_WHOLE:
            return open(encoded, "rb")
        with open(encoded, "rb", buffering=0) as file:
            data: bytes = file.read(found.st_size)
            return data if len(data) == found.st_size else data + file.read()
