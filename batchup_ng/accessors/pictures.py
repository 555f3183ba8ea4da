"""Encoded images as an array that is decoded when it is read: the base for images in files and in memory."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import IO, Any, TypeVar

import numpy as np
import PIL
from PIL import Image, ImageFile

from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError, SampleReadError
from ..randomness import SampleRng
from ..signals import InterruptsHeld
from ..validation import height_and_width, no_unknown, one_of, positive_int
from .base import checked_rows, chosen_rows
from .crops import CROPS, CenterCrop, RandomResizedCrop
from .image_decoding import CHANNELS, RESIZE_FILTERS, Decoding, opencv, simplejpeg
from .own_rows import PICTURE_ADVICE, PictureRows
from .spreading import spread_rows

PicturesType = TypeVar("PicturesType", bound="Pictures")

DECODERS = ("auto", "pillow", "simplejpeg")


class Pictures(PictureRows):
    """Images; a subclass opens the encoded ones.

    Args:
        size: ``(height, width)``, or one int for a square; None keeps the size of each image.
        mode: ``"RGB"``, ``"L"`` (grey) or ``"RGBA"``.
        dtype: Any numeric dtype that holds all of 0–255.
        resize: How images are resized to `size`. ``"bilinear"`` and Pillow's other filters, ``"box"``, ``"hamming"``,
            ``"bicubic"`` and ``"lanczos"``, are antialiased, which is good for images that are made much smaller;
            ``"nearest"`` is not. ``"fast"`` uses OpenCV's bilinear filter, which is not either, after a JPEG decoder
            that makes a half, a quarter or an eighth if that is enough (extra ``images``).
        crop: The part that is resized to `size`: None for the whole image, which changes the ratio of its sides;
            ``"center"`` or a :class:`CenterCrop`; ``"random"`` or a :class:`RandomResizedCrop`, which takes another
            part of each sample in each epoch.
        decoder: ``"auto"`` decodes JPEG by simplejpeg if it is installed (extra ``images``), others by Pillow;
            ``"simplejpeg"`` insists on it; ``"pillow"`` does without. The pixels are the same.
        max_pixels: Images with more pixels are refused before they are decoded. The default is Pillow's own limit.
        truncated: The treatment of a file that ends too early: ``"error"``, or ``"fill"``, which fills the missing part
            as Pillow does if ``PIL.ImageFile.LOAD_TRUNCATED_IMAGES`` is set (grey or black). None takes the present
            value of that variable. If it is set later, ``"error"`` refuses every file that Pillow decodes, because
            Pillow no longer reports whether a file is whole.
    """

    def __init__(
        self, size: int | tuple[int, int] | None, mode: str, dtype: Any, *, resize: str, crop: Any, decoder: str,
        max_pixels: int, truncated: str | None,
    ) -> None:  # fmt: skip
        self._dtype = _checked_dtype(dtype)
        if truncated is None:
            truncated = "fill" if ImageFile.LOAD_TRUNCATED_IMAGES else "error"
        self._decoding = Decoding(
            mode=one_of("mode", mode, CHANNELS),
            size=None if size is None else height_and_width(size),
            resize=one_of("resize", resize, ("fast", *RESIZE_FILTERS)),
            crop=_checked_crop(crop, size),
            max_pixels=positive_int("max_pixels", max_pixels),
            fills=one_of("truncated", truncated, ("error", "fill")) == "fill",
            pillow=one_of("decoder", decoder, DECODERS) == "pillow",
        )
        if decoder == "simplejpeg" and simplejpeg() is None:
            raise ImportError("decoder='simplejpeg' needs simplejpeg: pip install 'batchup_ng[images]'")
        if resize == "fast":
            opencv()  # raise now if it is missing, before any read

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def sample_name(self, row: int) -> str | None:
        """Return the path of an image; None if it has none."""

    @abstractmethod
    def _encoded(self, rows: Sequence[int]) -> Any:
        """Return the argument of :meth:`_opened` for each of `rows`."""

    @abstractmethod
    def _contents(self) -> Any:
        """Return everything that the encoded images depend on, for :meth:`fingerprint`."""

    @abstractmethod
    def _opened(self, encoded: Any) -> bytes | IO[bytes]:
        """Return the bytes of an encoded image; if they are too many for memory, the file, to be closed."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every returned array."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """``(len, height, width, 3)``, with the last axis of the mode; ``AttributeError`` without `size`."""
        if self._decoding.size is None:
            raise AttributeError("pictures of several sizes have no common `shape`; pass size= to have them resized")
        return (len(self), *self._decoding.size, *CHANNELS[self._decoding.mode])

    @property
    def have_size(self) -> bool:
        """Whether all images are resized to one size."""
        return self._decoding.size is not None

    @property
    def draws(self) -> bool:
        """Whether rows are drawn at random."""
        return self._decoding.crop is not None and self._decoding.crop.draws > 0

    def with_options(self: PicturesType, **options: Any) -> PicturesType:
        """Return an accessor of the same encoded images with other options. Those left out stay as they are.

        Args:
            **options: As for the constructor, which also checks them: `size`, `mode`, `dtype`, `resize`, `crop`,
                `decoder`, `max_pixels`, `truncated`.
        """
        how = self._decoding
        present = {
            "size": how.size, "mode": how.mode, "dtype": self._dtype, "resize": how.resize, "crop": how.crop,
            "decoder": "pillow" if how.pillow else "auto", "max_pixels": how.max_pixels,
            "truncated": "fill" if how.fills else "error",
        }  # fmt: skip
        no_unknown("with_options", options, present, PICTURE_ADVICE)
        made = copy.copy(self)
        Pictures.__init__(made, **{**present, **options})
        return made

    def __getitem__(self, rows: Any) -> Any:
        """Return the images of `rows`, in the order asked for, as the class describes.

        Here a random crop depends only on the number of the row, and is the same each time.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: an image cannot be decoded; ``.source`` is its path.
        """
        chosen = chosen_rows(rows, len(self))
        several = [chosen] if isinstance(chosen, int) else chosen.tolist()
        pictures: Any
        if self._decoding.size is None:
            pictures = self._pictures(several)
        else:
            pictures = np.empty((len(several), *self.shape[1:]), self._dtype)
            self.read_into(np.asarray(several, np.intp), pictures)
        return pictures[0] if isinstance(chosen, int) else pictures

    def read_into(self, rows: np.ndarray, out: np.ndarray, rng: SampleRng | None = None) -> None:
        """Decode `rows`, a 1-D integer array, straight into `out`, by several threads if others are idle.

        `out` is ``(len(rows), *shape[1:])``; without `size`, it has the common shape of these images. If an image
        cannot be decoded, the rows of `out` before it are written.

        Args:
            rng: The numbers for random crops; None draws them by the row numbers.

        Raises:
            IndexError: a row is out of range.
            ArgumentError: `out` has another shape than the images.
            SampleReadError: an image cannot be decoded; ``.source`` is its path.
        """
        if len(out) != len(rows):
            raise ArgumentError(f"out must have one row for each of the {len(rows)} rows asked for, not {len(out)}")
        numbers = checked_rows(rows, len(self))
        crop = self._decoding.crop
        drawn: Any = [None] * len(rows)
        if crop is not None and crop.draws:
            drawn = (SampleRng(0, numbers) if rng is None else rng).random(crop.draws)
        encoded = self._encoded(listed := numbers.tolist())
        sized = self._decoding.size is not None and out.shape[1:] == self.shape[1:]
        straight = sized and out.dtype == np.uint8 and out.flags.c_contiguous and out.flags.writeable

        def read(place: int) -> None:
            row, target = int(numbers[place]), out[place] if straight else None
            picture = self._picture(row, encoded[place], drawn[place], target)
            if picture is target:
                return
            if picture.shape != out.shape[1:]:
                raise ArgumentError(
                    f"out must have rows of the shape of picture {row}, {picture.shape}, not {out.shape[1:]}; "
                    f"allocate it from the accessor's shape, with size= where pictures differ"
                )
            out[place] = picture

        spread_rows(read, listed, self.sample_name)

    def read_encoded(self, rows: Sequence[int]) -> list[bytes]:
        """Return the images `rows`, none negative, encoded as they are stored, regardless of the options.

        Raises:
            SampleReadError: an image cannot be read; ``.source`` is its path.
        """
        contents = []
        for row, encoded in zip(rows, self._encoded(rows), strict=True):
            try:
                opened = self._opened(encoded)
                if not isinstance(opened, bytes):
                    with opened:
                        opened = opened.read()
            except OSError as error:
                raise self._unreadable(row, error) from error
            contents.append(opened)
        return contents

    def fingerprint(self) -> list[Any]:
        """Return everything that the images depend on: options, versions of the decoders, the encoded images."""
        libraries = [PIL, simplejpeg(), opencv() if self._decoding.resize == "fast" else None]
        versions = [getattr(library, "__version__", None) for library in libraries]
        return [str(self._decoding), str(self._dtype), versions, self._contents()]

    def _pictures(self, rows: list[int]) -> list[np.ndarray]:
        """Return images, each in its own size."""
        encoded = self._encoded(rows)
        pictures: list[Any] = [None] * len(rows)

        def read(place: int) -> None:
            pictures[place] = self._picture(rows[place], encoded[place]).astype(self._dtype)

        spread_rows(read, rows, self.sample_name)
        return pictures

    def _picture(self, row: int, encoded: Any, drawn: Any = None, out: np.ndarray | None = None) -> np.ndarray:
        """Return one image as a ``uint8`` array; in `out`, if that is given."""
        try:
            with InterruptsHeld():  # Pillow blames the file for any error, and may decode on without a part of it
                return self._decoding.picture(self._opened(encoded), drawn, out)
        except MemoryError:
            raise  # a fault of this machine, not of the file
        except Exception as error:
            raise self._unreadable(row, error) from error

    def _unreadable(self, row: int, error: Exception) -> SampleReadError:
        return unreadable(f"picture {row}", self.sample_name(row), error)

    def _options(self) -> str:
        how = self._decoding
        resize = "" if how.resize == "bilinear" else f", resize={how.resize!r}"
        crop = "" if how.crop is None else f", crop={how.crop}"
        return f"size={how.size}, mode={how.mode!r}, dtype={self._dtype}{resize}{crop}"


def _checked_crop(crop: Any, size: Any) -> CenterCrop | RandomResizedCrop | None:
    if crop is None:
        return None
    if isinstance(crop, str):
        crop = CROPS[one_of("crop", crop, CROPS)]
    if not isinstance(crop, (CenterCrop, RandomResizedCrop)):
        raise ArgumentTypeError(
            f"crop must be None, 'center', 'random', CenterCrop(...) or RandomResizedCrop(...), not {crop!r}"
        )
    if size is None:
        raise ArgumentError("crop= needs size=, which the part that is cut out is resized to")
    return crop


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


def unreadable(called: str, name: str | None, error: Exception) -> SampleReadError:
    """Return the error of an image that cannot be opened or decoded. `called` is its number, in words."""
    named = "" if name is None else f", {shortened(repr(name), 400)},"
    return SampleReadError(f"{called}{named} {_reason(error)}", name)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f"cannot be opened ({type(error).__name__}: {error.strerror}); check its path and permissions"
    # The repr keeps control characters, which the file may contain, from reaching a terminal.
    text = repr(str(error))[1:-1]
    remedy = "raise max_pixels if you trust it" if isinstance(error, Image.DecompressionBombError) else "replace it"
    return f"cannot be decoded ({type(error).__name__}: {text:.500}); {remedy}, or leave it out by on_error='skip'"
