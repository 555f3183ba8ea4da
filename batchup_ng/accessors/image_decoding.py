"""Decoding of encoded images.

The steps, in this order: open the file, decode it, reduce 16 bits to 8, turn it by its EXIF orientation, convert it to
the requested mode, crop, resize. A step that would change nothing is left out. For an upright file, the result is
``Image.open(path).convert(mode).resize((width, height), filter)``, byte for byte, whichever library decodes.
simplejpeg (libjpeg-turbo) decodes if it is installed and has nothing to complain of, else Pillow. Pillow decides
whether a file is whole or broken. With ``resize="fast"`` the JPEG decoder makes a half, a quarter or an eighth of the
image, by leaving out the higher frequencies, as long as that is no smaller than the requested size. OpenCV does the
rest, without antialiasing.

Nothing in a file is trusted. Only files in one of `IMAGE_FORMATS` are decoded. None of these formats runs another
program. Files are opened through Pillow's table of readers, not by ``Image.open``, whose limit of pixels is global to
the process.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import re
import struct
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from PIL import ExifTags, Image, ImageFile, ImageOps, JpegImagePlugin, UnidentifiedImageError

from ..error_context import raise_if_of_signal_handler
from ..memory.leases import BufferPool
from .crops import Box, CenterCrop, RandomResizedCrop

IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""Formats that are read, by Pillow's names, if the installed Pillow can."""
CHANNELS = {"RGB": (3,), "L": (), "RGBA": (4,)}
"""Modes, with the axes that each adds to height and width."""
RESIZE_FILTERS = {each.name.lower(): each for each in Image.Resampling}
"""Pillow's ways to resize, all antialiased but the first."""
REDUCING_FACTORS = (8, 4, 2)
"""Factors by which the decoder reduces. libjpeg-turbo has no vector code for others, which are slower than no
reduction."""
MAX_BYTES_READ_WHOLE = 1 << 27
"""Files with more bytes are not read into memory; Pillow decodes them piece by piece."""
ORIENTATION_MARKERS = frozenset({0xE1, 0xFF, *range(0xD0, 0xD8)})
"""JPEG markers after which Pillow looks for an orientation: APP1, which holds EXIF or XMP data, and markers without a
length, fill bytes and RST, which are rare before the first scan."""
UINT8 = np.dtype(np.uint8)
SCRATCH_MEMORY = BufferPool(max_free=4, max_bytes=1 << 28)
"""Memory for images that are decoded and then resized: fresh memory costs as much as decoding."""


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How an image is decoded and changed; :class:`~.pictures.Pictures` describes the options."""

    mode: str
    size: tuple[int, int] | None
    resize: str
    crop: CenterCrop | RandomResizedCrop | None
    max_pixels: int
    fills: bool
    pillow: bool

    def picture(self, data: bytes | IO[bytes], drawn: Any = None, out: np.ndarray | None = None) -> np.ndarray:
        """Return an image as ``uint8``, ``(height, width)`` with the axis of the mode; in `out`, if that is given.

        Args:
            data: The encoded image, or a file at its beginning, which is closed.
            drawn: Numbers from [0, 1), as many as the crop draws.
            out: Contiguous, of the shape of the image.
        """
        if not isinstance(data, bytes):
            with data:
                return self._made(ByPillow(data, self), drawn, out)
        turbo = None if self.pillow else simplejpeg()
        if turbo is not None and data.startswith(b"\xff\xd8\xff"):
            try:
                return self._made(ByTurbo(turbo, data, self), drawn, out)
            except ValueError as error:  # simplejpeg refuses files that are broken, rare or odd
                raise_if_of_signal_handler(error)
        return self._made(ByPillow(io.BytesIO(data), self), drawn, out)

    def _made(self, stored: ByTurbo | ByPillow, drawn: Any, out: np.ndarray | None) -> np.ndarray:
        box = Box(0, 0, stored.size)
        if self.crop is not None and self.size is not None:
            box = self.crop.box(stored.size, self.size, drawn)
        if self.size is None or box.size == self.size:
            return _cut(stored, box, 1, out)
        if self.resize == "fast":
            cv2, room = opencv(), min(box.size[0] // self.size[0], box.size[1] // self.size[1])
            factor = next((each for each in REDUCING_FACTORS if each <= room), 1) if stored.reduces else 1
            pixels = _cut(stored, box, factor, None)
            resized: np.ndarray = cv2.resize(pixels, self.size[::-1], dst=out, interpolation=cv2.INTER_LINEAR)
        else:
            image = stored.image()
            if box.size != stored.size:
                image = image.crop((box.left, box.top, box.left + box.size[1], box.top + box.size[0]))
            resized = np.asarray(image.resize(self.size[::-1], RESIZE_FILTERS[self.resize]))
        if out is None or resized is out:
            return resized
        out[...] = resized
        return out


def _cut(stored: ByTurbo | ByPillow, box: Box, factor: int, out: np.ndarray | None) -> np.ndarray:
    """Return a part of an image, reduced by `factor`; in `out`, if that is given."""
    whole = box.size == stored.size
    pixels = stored.pixels(factor, out if whole else None)
    if not whole:
        edges = (box.top, box.top + box.size[0], box.left, box.left + box.size[1])
        # Half up, not to even: two pixels, reduced to one, would become none.
        top, bottom, left, right = ((2 * edge + factor) // (2 * factor) for edge in edges)
        pixels = pixels[top:bottom, left:right]
    if out is None or pixels is out:
        return np.ascontiguousarray(pixels)
    out[...] = pixels
    return out


class ByTurbo:
    """A JPEG that simplejpeg decodes.

    Attributes:
        size: Height and width of the upright image.
        reduces: Whether the decoder can reduce it.

    Raises:
        ValueError: here or in :meth:`pixels`: simplejpeg would decode it otherwise than Pillow, or complains of it.
    """

    reduces = True

    def __init__(self, turbo: Any, data: bytes, how: Decoding) -> None:
        height, width, colours, _ = turbo.decode_jpeg_header(data)
        if height * width > how.max_pixels or colours not in ("YCbCr", "RGB", "Gray"):
            raise ValueError("refused, or printed in four colours")
        self._turbo = turbo
        self._data = data
        self._stored = height, width
        self._mode = how.mode
        self._kind = how.mode if how.mode != "L" or colours == "Gray" else "RGB"  # other decoders' grey differs
        self._orientation = _orientation(data)
        self.size = (width, height) if self._orientation >= 5 else (height, width)

    def pixels(self, factor: int, out: np.ndarray | None) -> np.ndarray:
        """Return the upright pixels, in the mode, reduced by `factor`."""
        height, width = (-(-side // factor) for side in self._stored)
        shape = height, width, {"RGB": 3, "RGBA": 4, "L": 1}[self._kind]
        as_it_is = self._orientation == 1 and (self._kind == self._mode)
        made = out.reshape(shape) if out is not None and as_it_is else SCRATCH_MEMORY.empty(shape, UINT8)
        colours = "GRAY" if self._kind == "L" else self._kind
        got = self._turbo.decode_jpeg(
            self._data, colours, min_height=height, min_width=width, min_factor=factor, buffer=made
        )
        assert got.shape == shape
        if out is not None and as_it_is:
            return out
        if self._kind != self._mode:
            made = np.asarray(Image.fromarray(made).convert(self._mode))
        elif self._kind == "L":
            made = made[..., 0]
        return _turned(made, self._orientation)

    def image(self) -> Image.Image:
        """Return the whole image."""
        return Image.fromarray(self.pixels(1, None))


class ByPillow:
    """An image that Pillow decodes, with the attributes of :class:`ByTurbo`."""

    def __init__(self, file: IO[bytes], how: Decoding) -> None:
        self._file = file
        self._how = how
        self._image: Any = _open(file, how.max_pixels)
        self.reduces = isinstance(self._image, JpegImagePlugin.JpegImageFile)
        if self.reduces:  # decoded later, when its reduction is known
            turned = _orientation_of(self._image) >= 5
        else:
            turned = False
            self._load()
        self.size: tuple[int, int] = self._image.size if turned else self._image.size[::-1]

    def pixels(self, factor: int, out: np.ndarray | None) -> np.ndarray:
        """Return the upright pixels, in the mode, reduced by `factor`."""
        return np.asarray(self.image(factor))

    def image(self, factor: int = 1) -> Image.Image:
        """Return the whole image, reduced by `factor`."""
        if self.reduces:
            if factor > 1:
                self._image.draft(None, [side // factor for side in self._image.size])
            self._load()
        stored, mode = self._image, self._how.mode
        image: Image.Image = _in_8_bits(stored) if stored.mode[0] in "IF" else stored
        if mode != "RGBA":
            image.info.pop("transparency", None)  # its conversion is wasted, and warns at times
        return image if image.mode == mode else image.convert(mode)

    def _load(self) -> None:
        _load(self._image, self._file, self._how.fills)
        _turn_upright(self._image)


def upright_size(file: IO[bytes], max_pixels: int) -> tuple[int, int]:
    """Return height and width of the upright image, by its header. `file` is at its beginning.

    An orientation that the file holds behind its pixels, or a TIFF's with an older Pillow, does not count.
    """
    image = _open(file, max_pixels)
    holds = isinstance(image, JpegImagePlugin.JpegImageFile) or not _HOLD_ORIENTATION.isdisjoint(image.info)
    turned = holds and _orientation_of(image) >= 5
    size: tuple[int, int] = image.size if turned else image.size[::-1]
    return size


def header_size(file: IO[bytes], max_pixels: int) -> tuple[int, int] | None:
    """Return :func:`upright_size`, or None if the header cannot be read."""
    try:
        return upright_size(file, max_pixels)
    except MemoryError:
        raise
    except Exception as error:  # Pillow may raise anything for a broken file
        raise_if_of_signal_handler(error)
        return None


def stored_values(file: IO[bytes], max_pixels: int) -> np.ndarray:
    """Return the grey levels or palette numbers of an upright image as they are stored: ``(height, width)`` integers.

    Pillow multiplies grey levels of 2 and 4 bits to fill 8 bits, so this function divides them again. PGM files are
    decoded without Pillow's scaling.

    Raises:
        ValueError: its pixels are colours, or no whole numbers; a lossy compression holds them, which does not keep
            numbers; the file counts 0 as white; or a number exceeds the most that the header of a PGM file says.
    """
    image: Any = _open(file, max_pixels)
    if image.format in ("JPEG", "MPO") or image.info.get("compression") in ("jpeg", "tiff_jpeg"):
        raise ValueError("it is a JPEG, whose compression changes numbers of classes; write masks as PNG")
    if image.format == "JPEG2000" and _irreversible(file):
        raise ValueError("it is a lossy JPEG 2000, whose compression changes numbers of classes; write masks as PNG")
    if image.mode not in ("1", "L", "P", "I") and image.mode[:4] != "I;16":
        raise ValueError(
            f"its pixels are of mode {image.mode!r}, not class numbers in a grey image or a palette; write it with the "
            f"numbers of the classes"
        )
    decoded_as = image.tile[0][3] if image.tile else ""
    raw_mode = decoded_as if isinstance(decoded_as, str) else str((decoded_as or [""])[0])
    if INVERTED_MODE.search(raw_mode):
        raise ValueError("it counts 0 as white, and readers differ in its numbers of classes; write masks as PNG")
    most = _unscaled(image)
    _load(image, file, False)
    _turn_upright(image)
    values = np.asarray(image)
    if values.dtype == bool:
        return values.astype(np.uint8)
    if (values > most).any():
        raise ValueError(f"its header says numbers up to {most}, and it holds {values.max()}; write masks as PNG")
    if image.format == "TIFF" and image.mode in ("L", "I"):  # Pillow ignores the sign of 8 bits, and adds one to 32
        values = values.view(f"{'i' if image.tag_v2.get(339) == (2,) else 'u'}{values.itemsize}")
    return values // _GREY_STEPS.get(raw_mode, 1)


_GREY_STEPS = {"L;2": 85, "L;2R": 85, "L;4": 17, "L;4R": 17}
"""What Pillow multiplies grey levels of 2 and 4 bits by, for each of its raw modes."""

INVERTED_MODE = re.compile(r";\d?IR?$")
"""Pillow's raw modes of grey levels that it inverts: of PBM files, and of TIFF files that count 0 as white."""


def _unscaled(image: Any) -> int:
    """Let Pillow decode the numbers of a PGM file without scaling them; return the most that its header allows."""
    white = 255 if image.mode == "L" else 65535
    if image.format != "PPM" or image.tile[0][0] == "raw":
        return (1 << 32) - 1
    decoder, box, offset, (raw_mode, most) = image.tile[0]
    text = decoder == "ppm_plain"
    args = (raw_mode, white) if text else ("L" if image.mode == "L" else "I;16B", 0, 1)
    image.tile = [(decoder if text else "raw", box, offset, args)]
    return int(most)


def _irreversible(file: IO[bytes]) -> bool:
    """Return whether a JPEG 2000 is always lossy: by the wavelet that its header names (ISO 15444-1, A.6.1)."""
    file.seek(0)
    head = file.read(1 << 16)
    at = head.find(b"\xff\x4f\xff\x51") + 2  # the first marker is SOC, the next is SIZ
    while head[at : at + 2] not in (b"\xff\x52", b"\xff\x90", b""):  # up to the coding style, or the first tile
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return head[at : at + 2] == b"\xff\x52" and head[at + 13 : at + 14] == b"\0"


@functools.cache
def simplejpeg() -> Any:
    """Return the module; None if it is not installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


@functools.cache
def found_opencv() -> Any:
    """Return the module ``cv2``, whose calls release the interpreter's lock; None if it is not installed."""
    try:
        import cv2
    except ModuleNotFoundError:
        return None
    return cv2


def opencv() -> Any:
    """Return the module ``cv2``.

    Raises:
        ImportError: it is not installed.
    """
    if (cv2 := found_opencv()) is None:
        raise ImportError("resize='fast' and most augmentations need OpenCV: pip install 'batchup_ng[images]'")
    return cv2


def _orientation(data: bytes) -> int:
    """Return the EXIF orientation of a JPEG, 1 to 8; 1 if there is none that can be read."""
    at = 2
    try:
        while data[at] == 0xFF and data[at + 1] != 0xDA:  # up to the first scan
            if data[at + 1] in ORIENTATION_MARKERS:
                return _orientation_of(JpegImagePlugin.JpegImageFile(io.BytesIO(data)))
            at += 2 + (data[at + 2] << 8) + data[at + 3]
    except IndexError:  # cut off; the decoder reports it
        pass
    return 1


def _orientation_of(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except MemoryError:
        raise
    except Exception as error:
        raise_if_of_signal_handler(error)
        return 1  # unreadable metadata is no reason to lose the image
    return orientation if orientation in range(1, 9) else 1


def _turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return pixels turned upright, as Pillow does (EXIF 2.32, 4.6.4 A)."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


_HOLD_ORIENTATION = frozenset({"exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"})


@functools.cache
def _readers() -> list[tuple[Callable[[IO[bytes], str], Image.Image], Callable[[bytes], bool | str] | None]]:
    """Return the function that opens each of `IMAGE_FORMATS`, and the function that recognises its first bytes."""
    Image.init()
    return [Image.OPEN[name] for name in IMAGE_FORMATS if name in Image.OPEN]


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
            cause = error  # Pillow raises these for a file of another format
            continue
        width, height = image.size
        if width * height > max_pixels:
            raise Image.DecompressionBombError(f"{width} × {height} pixels are more than max_pixels={max_pixels}")
        return image
    raise UnidentifiedImageError(f"not a picture in one of the formats {', '.join(IMAGE_FORMATS)}") from cause


def _load(stored: Any, file: IO[bytes], fills: bool) -> None:
    """Decode the pixels as Pillow does if its ``LOAD_TRUNCATED_IMAGES`` is `fills`.

    This function never sets that variable: other threads of the program may be decoding by it.
    """
    if ImageFile.LOAD_TRUNCATED_IMAGES and not fills:
        hidden = "PIL.ImageFile.LOAD_TRUNCATED_IMAGES hides whether a file is whole"
        raise OSError(f"{hidden}; unset it, or pass truncated='fill'")
    if fills and isinstance(stored, JpegImagePlugin.JpegImageFile):
        mark = iter([b"\xff\xd9"])  # the end mark, if the file lacks it: the decoder then fills the rest
        setattr(stored, "load_read", lambda size: file.read(size) or next(mark, b""))  # noqa: B010
    try:
        stored.load()
    except OSError as error:
        raise_if_of_signal_handler(error)
        if not fills:
            raise
        if stored.tile:  # the rest of Pillow's own load()
            stored.tile = []
            stored.load_end()
        stored.load()  # raises if there are no pixels at all


def _turn_upright(stored: Image.Image) -> None:
    """Turn a loaded image by its EXIF orientation (EXIF 2.32, 4.6.4 A)."""
    # Pillow turns TIFF files as they are loaded; most other files have no orientation.
    if stored.format == "TIFF" or _HOLD_ORIENTATION.isdisjoint(stored.info):
        return
    try:
        ImageOps.exif_transpose(stored, in_place=True)
    except MemoryError:
        raise
    except Exception as error:  # unreadable metadata is no reason to lose the image
        raise_if_of_signal_handler(error)


def _in_8_bits(stored: Image.Image) -> Image.Image:
    """Return a grey image of 16 bits scaled to 8; Pillow's own conversion clips at 255."""
    # Pillow opens 16-bit PPM files, and before version 11 PNG files too, as 32-bit integers.
    if stored.mode[:4] != "I;16" and not (stored.mode == "I" and stored.format in ("PNG", "PPM")):
        raise ValueError(f"pixels of mode {stored.mode!r} have no known range; write it with 8 or 16 bits a channel")
    white = 2 ** getattr(stored, "tag_v2", {}).get(258, (16,))[0] - 1  # TIFF tag BitsPerSample; 12 occurs too
    values = np.minimum(np.asarray(stored), white).astype(np.uint32)
    return Image.fromarray(((values * 255 + white // 2) // white).astype(np.uint8))
