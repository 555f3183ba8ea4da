"""Picture files as an array that is decoded when it is read.

What a pixel is: the file is opened, decoded, reduced to 8 bits where it holds 16, turned as its EXIF orientation says,
converted to the mode asked for, resized, in that order, each step left out where it would change nothing. For an
upright file that is ``Image.open(path).convert(mode).resize((width, height), resample)``, byte for byte.

Nothing in a file is trusted. Only regular files in one of `FORMATS` are opened, none of which runs another program, and
through Pillow's table of readers, not by ``Image.open``, whose limit of pixels is global to the process.
"""

from __future__ import annotations

import errno
import functools
import glob
import os
import stat
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

import numpy as np
from PIL import Image, ImageFile, ImageOps, JpegImagePlugin, UnidentifiedImageError

from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError, SampleReadError
from ..validation import one_of, positive_int
from .base import checked_rows, chosen_rows

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""Formats that are read, as Pillow names them, where the installed Pillow can."""
MODES = {"RGB": (3,), "L": (), "RGBA": (4,)}
"""Modes that are offered, with the axes that they add to height and width."""
RESAMPLE = {each.name.lower(): each for each in Image.Resampling}


class ImageFiles:
    """Picture files as an accessor: ``len(a)``, ``a[int]``, ``a[slice]``, ``a[index array]``, ``a[boolean mask]``.

    With `size`, several rows are one array ``(n, height, width, 3)`` of `dtype` (``(n, height, width)`` for mode
    ``"L"``, ``(n, height, width, 4)`` for ``"RGBA"``), and one row is that without its first axis. Without `size`
    several rows are a list of such arrays, each of its own picture's size. All arrays are the caller's to write to.

    The values are 0–255 whatever `dtype` is, cast as by ``astype``;
    :class:`~batchup_ng.accessors.ImageArrayUInt8ToFloat32` around it scales them. Pictures with 16 bits are scaled
    to 8, rounded. Pictures are turned upright by their EXIF orientation (unreadable EXIF data counts as upright), a
    file with several frames gives its first, and `size` does not keep the ratio of the sides. Transparency is
    dropped, not blended, unless `mode` is ``"RGBA"``.

    Args:
        paths: A sequence of ``str`` or ``os.PathLike``: a list, a NumPy array, a pandas column (by position). Relative
            ones are looked up in the folder that is current now, whatever it is when they are read, and wherever.
        size: ``(height, width)``, or one int for a square; None leaves each picture its own.
        mode: ``"RGB"``, ``"L"`` (grey) or ``"RGBA"``.
        dtype: Any numeric dtype that holds all of 0–255.
        resample: ``"nearest"``, ``"box"``, ``"bilinear"``, ``"hamming"``, ``"bicubic"`` or ``"lanczos"``.
        max_pixels: Pictures with more are refused before they are decoded. The default is Pillow's own limit.
        truncated: What to do about a file that ends too early: ``"error"``, or ``"fill"`` what is missing, as Pillow
            does where ``PIL.ImageFile.LOAD_TRUNCATED_IMAGES`` is set (grey or black). None is what that says now. Where
            it is set later, ``"error"`` refuses every file, since none can be told to be whole.

    Raises:
        ArgumentError: an argument breaks a rule; `paths` is empty.
        ArgumentTypeError: an argument is of a wrong kind; `paths` is one path, or holds anything but paths.
    """

    def __init__(
        self, paths: Iterable[str | os.PathLike[str]], size: int | tuple[int, int] | None = None, mode: str = "RGB",
        dtype: Any = np.uint8, *, resample: str = "bilinear", max_pixels: int = 89_478_485,
        truncated: str | None = None,
    ) -> None:
        self._mode: str = one_of("mode", mode, MODES)
        self._size = None if size is None else _checked_size(size)
        self._dtype = _checked_dtype(dtype)
        self._resample: str = one_of("resample", resample, RESAMPLE)
        self._max_pixels = positive_int("max_pixels", max_pixels)
        if truncated is None:
            truncated = "fill" if ImageFile.LOAD_TRUNCATED_IMAGES else "error"
        self._fills = one_of("truncated", truncated, ("error", "fill")) == "fill"
        self._paths = _PackedPaths(paths)
        self._folder = os.getcwd()

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every array that is returned."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """``(len, height, width, 3)``, the last axis as the mode has it; ``AttributeError`` without `size`."""
        if self._size is None:
            raise AttributeError("pictures of several sizes have no common `shape`; pass size= to have them resized")
        return (len(self), *self._size, *MODES[self._mode])

    def __getitem__(self, rows: Any) -> Any:
        """Return the pictures of `rows`, in the order asked for, as the class says.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: a file cannot be read as a picture; ``.source`` is its path.
        """
        chosen = chosen_rows(rows, len(self))
        if isinstance(chosen, int):
            return self._picture(chosen).astype(self._dtype)
        if self._size is None:
            return [self._picture(row).astype(self._dtype) for row in chosen.tolist()]
        out = np.empty((len(chosen), *self.shape[1:]), self._dtype)
        self.read_into(chosen, out)
        return out

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Decode `rows`, a 1-D integer array, straight into `out`, one after the other.

        `out` is ``(len(rows), *shape[1:])``; without `size`, of the one shape that these pictures have. If a file
        cannot be read, the rows of `out` before it are written.

        Raises:
            IndexError: a row is out of range.
            ArgumentError: `out` has another shape than the pictures.
            SampleReadError: a file cannot be read.
        """
        if len(out) != len(rows):
            raise ArgumentError(f"out must have one row for each of the {len(rows)} rows asked for, not {len(out)}")
        for place, row in enumerate(checked_rows(rows, len(self)).tolist()):
            picture = self._picture(row)
            if picture.shape != out.shape[1:]:
                raise ArgumentError(
                    f"out must have rows of the shape of picture {row}, {picture.shape}, not {out.shape[1:]}; "
                    f"allocate it from the accessor's shape, with size= where pictures differ"
                )
            out[place] = picture

    def sample_name(self, row: int) -> str:
        """Return the path of a picture."""
        return self._paths[row % len(self)]

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} files, size={self._size}, mode={self._mode!r}, dtype={self._dtype})"

    def _picture(self, row: int) -> np.ndarray:
        """Return one picture as a read-only ``uint8`` array."""
        path = self._paths[row]
        try:
            image = _decode(os.path.join(self._folder, path), self._mode, self._max_pixels, self._fills)
            if self._size is not None and image.size != self._size[::-1]:
                image = image.resize(self._size[::-1], RESAMPLE[self._resample])
            return np.asarray(image)
        except MemoryError:
            raise  # says something about this machine, not about the file
        except Exception as error:
            raise SampleReadError(f"picture {row}, {shortened(repr(path), 400)}, {_reason(error)}", path) from error


class _PackedPaths:
    """Paths in one ``bytes`` object, with an array of where each ends."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        if isinstance(paths, (str, bytes, os.PathLike)):
            pattern = isinstance(paths, str) and glob.has_magic(paths)
            options = ", recursive=True" if pattern and "**" in str(paths) else ""
            remedy = f"sorted(glob.glob({paths!r}{options}))" if pattern else f"[{paths!r}]"
            raise ArgumentTypeError(
                f"paths must be a sequence of paths, not the one {'pattern' if pattern else 'path'} {paths!r}; pass "
                f"{remedy}"
            )
        ordered = hasattr(paths, "__len__") and hasattr(paths, "__getitem__") and not isinstance(paths, Mapping)
        if not ordered or getattr(paths, "ndim", 1) != 1:
            raise ArgumentTypeError(
                f"paths must be a sequence (a list, a 1-D array, one column of a table), not {type(paths).__name__}; "
                f"pass list(paths), or sorted(paths) where they have no order, as those of glob.iglob and Path.glob"
            )
        encoded = [_encoded(position, path) for position, path in enumerate(paths)]
        if not encoded:
            raise ArgumentError("paths must hold at least one path; it is empty: check where they were looked for")
        self._joined = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> str:
        return self._joined[self._ends[row] : self._ends[row + 1]].decode("utf-8", "surrogatepass")


def _encoded(position: int, path: Any) -> bytes:
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        hint = "pass it through os.fsdecode" if isinstance(text, bytes) else "leave it out"
        raise ArgumentTypeError(f"paths must hold str or os.PathLike; at {position} it holds {path!r:.80}; {hint}")
    return text.encode("utf-8", "surrogatepass")


def _checked_size(size: Any) -> tuple[int, int]:
    if not isinstance(size, (tuple, list)):
        side = positive_int("size", size)
        return side, side
    if len(size) != 2:
        raise ArgumentError(f"size must be an int or (height, width), not {size!r}; pass two whole numbers")
    return positive_int("size[0], the height,", size[0]), positive_int("size[1], the width,", size[1])


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    if dtype is None:
        raise ArgumentTypeError("dtype must be a NumPy dtype, not None; pass numpy.uint8 or numpy.float32")
    try:
        known: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise ArgumentTypeError(f"dtype must be a NumPy dtype, not {dtype!r}; pass numpy.uint8 or such") from error
    if known.kind not in "uif" or not np.can_cast(np.uint8, known):
        raise ArgumentError(f"dtype must be numeric and hold all of 0–255, not {known}; pass numpy.uint8 or such")
    return known


_HOLD_ORIENTATION = frozenset({"exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"})


@functools.cache
def _readers() -> list[tuple[Callable[[IO[bytes], str], Image.Image], Callable[[bytes], bool | str] | None]]:
    """Return what opens each of `FORMATS`, with what recognises its first bytes."""
    Image.init()
    return [Image.OPEN[name] for name in FORMATS if name in Image.OPEN]


def _decode(path: str, mode: str, max_pixels: int, fills: bool) -> Image.Image:
    """Return the first frame of a picture file, upright and in `mode`; of one that ends too early, if it `fills`."""
    if not stat.S_ISREG(kind := os.stat(path).st_mode):
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, "a directory, not a file" if stat.S_ISDIR(kind) else "not a regular file")
    with open(path, "rb") as file:
        stored = _open(file, max_pixels)
        _load(stored, file, fills)
        _turn_upright(stored)
        image = _in_8_bits(stored) if stored.mode[0] in "IF" else stored
    if mode != "RGBA":
        image.info.pop("transparency", None)  # its conversion is wasted, and warns at times
    return image if image.mode == mode else image.convert(mode)


def _open(file: IO[bytes], max_pixels: int) -> Image.Image:
    prefix = file.read(16)
    if not prefix:
        raise UnidentifiedImageError("the file is empty")
    cause: Exception | None = None
    for factory, accept in _readers():
        try:
            accepted = accept is None or accept(prefix)
            if not accepted or isinstance(accepted, str):  # a string says what the installed Pillow lacks
                continue
            file.seek(0)
            image = factory(file, "")
        except (SyntaxError, IndexError, TypeError, struct.error) as error:
            cause = error  # what Pillow takes for: not of this format after all
            continue
        width, height = image.size
        if width * height > max_pixels:
            raise Image.DecompressionBombError(f"{width} × {height} pixels are more than max_pixels={max_pixels}")
        return image
    raise UnidentifiedImageError(f"not a picture in one of the formats {', '.join(FORMATS)}") from cause


def _load(stored: Any, file: IO[bytes], fills: bool) -> None:
    """Decode the pixels as Pillow does where its ``LOAD_TRUNCATED_IMAGES`` is `fills`.

    That one is never set here, for other threads of the program may be decoding by it.
    """
    if ImageFile.LOAD_TRUNCATED_IMAGES and not fills:
        hidden = "PIL.ImageFile.LOAD_TRUNCATED_IMAGES hides whether a file is whole"
        raise OSError(f"{hidden}; unset it, or pass truncated='fill'")
    if fills and isinstance(stored, JpegImagePlugin.JpegImageFile):
        mark = iter([b"\xff\xd9"])  # of the end, where the file lacks it: the decoder then fills the rest
        setattr(stored, "load_read", lambda size: file.read(size) or next(mark, b""))  # noqa: B010
    try:
        stored.load()
    except OSError:
        if not fills:
            raise
        if stored.tile:  # the rest of what Pillow's own load() does
            stored.tile = []
            stored.load_end()
        stored.load()  # which raises if there is nothing at all


def _turn_upright(stored: Image.Image) -> None:
    """Turn a loaded picture as its EXIF orientation says (EXIF 2.32, 4.6.4 A)."""
    # Pillow turns TIFF files as they are loaded; most other files hold nothing that could say.
    if stored.format == "TIFF" or _HOLD_ORIENTATION.isdisjoint(stored.info):
        return
    try:
        ImageOps.exif_transpose(stored, in_place=True)
    except MemoryError:
        raise
    except Exception:
        pass  # a note that cannot be read is no reason to lose the picture


def _in_8_bits(stored: Image.Image) -> Image.Image:
    """Return a grey picture of 16 bits scaled to 8; Pillow's own conversion clips at 255."""
    # Pillow opens 16-bit PPM files, and before version 11 PNG files too, as 32-bit integers.
    if stored.mode[:4] != "I;16" and not (stored.mode == "I" and stored.format in ("PNG", "PPM")):
        raise ValueError(f"pixels of mode {stored.mode!r} have no known range; write it with 8 or 16 bits a channel")
    white = 2 ** getattr(stored, "tag_v2", {}).get(258, (16,))[0] - 1  # TIFF tag BitsPerSample; 12 is met too
    values = np.minimum(np.asarray(stored), white).astype(np.uint32)
    return Image.fromarray(((values * 255 + white // 2) // white).astype(np.uint8))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f"cannot be opened ({type(error).__name__}: {error.strerror}); check its path and permissions"
    # The repr keeps control characters, which may come out of the file, from reaching a terminal.
    text = repr(str(error))[1:-1]
    remedy = "raise max_pixels if you trust it" if isinstance(error, Image.DecompressionBombError) else "replace it"
    return f"cannot be decoded ({type(error).__name__}: {text:.500}); {remedy}, or leave it out"
