"""The operation that turns images into the input of a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..validation import one_of
from .base import Operation
from .batch_memory import BATCH_MEMORY
from .options import names_checked

VALUES_AT_A_TIME = 60_000  # a multiple of each number of channels
"""About how many values are computed at a time. They stay in a processor's cache."""


@runtime_checkable
class OfImages(Protocol):
    """Statistics of images."""

    def for_images(self) -> tuple[Any, Any]:
        """Return mean and std, each a number or a list with one per channel. Those of `uint8` are for 0 to 1."""
        ...

    def of_images(self) -> Any:
        """Return the statistics of the images themselves, with the attributes `dtype`, `min` and `max`."""
        ...


@names_checked
@dataclass(frozen=True)
class normalize(Operation):
    """Returns ``(x - mean) / std``, in one pass over the images, in the layout and dtype that a network takes.

    `uint8` images are first divided by 255: `mean` and `std` are for values from 0 to 1, as published for data sets.
    `float32` images are not divided. It draws nothing: alone, it only needs ``source.map(normalize(mean, std))``.

    With statistics, the images must be in their unit. Statistics of `uint8` are only for `uint8` images, because
    `float32` images may go to 1 or to 255. Statistics of floats are only for `float32` images, unless all floats are
    from 0 to 1.

    >>> normalize(0.5, 0.5)(np.array([[[0, 255]]], np.uint8))[0].tolist()
    [[[[-1.0], [1.0]]]]

    Args:
        mean: Subtracted first: a number, or one per channel. Or the result of :func:`batchup_ng.statistics`, or its
            column of images, in place of `mean` and `std`.
        std: Divides the difference: a number above 0, or one per channel.
        layout: ``"NHWC"``: channels last, unchanged. ``"NCHW"``: ``(n, channels, height, width)``, as in PyTorch.
        dtype: ``"float32"`` or ``"float16"``.

    Raises:
        ArgumentError: an argument breaks a rule; in a call: the images have another number of channels, or may be in
            another unit than the statistics.
        ArgumentTypeError: `mean` or `std` is not made of numbers.
    """

    mean: float | tuple[float, ...] | OfImages
    std: float | tuple[float, ...] | None = None
    _: KW_ONLY
    layout: str = "NHWC"
    dtype: Any = "float32"
    image_dtype: str | None = field(default=None, init=False, repr=False)  # of the images that `mean` and `std` are for
    random: ClassVar[bool] = False
    last = True

    @property
    def keeps_points(self) -> bool:
        return True

    def __post_init__(self) -> None:
        one_of("layout", self.layout, ("NHWC", "NCHW"))
        one_of("dtype", np.dtype(self.dtype).name, ("float32", "float16"))
        if isinstance(self.mean, OfImages) and self.std is None:
            of_images, (mean, std) = self.mean.of_images(), self.mean.for_images()
            if of_images.dtype == "uint8":
                object.__setattr__(self, "image_dtype", "uint8")
            elif not (np.all(of_images.min >= 0) and np.all(of_images.max <= 1)):
                object.__setattr__(self, "image_dtype", "float32")
            object.__setattr__(self, "mean", mean)
            object.__setattr__(self, "std", std)
        for name in ("mean", "std"):
            values = np.asarray(getattr(self, name))
            if values.dtype.kind not in "iuf" or values.ndim > 1:
                raise ArgumentTypeError(f"{name} must be a number, or one a channel, not {getattr(self, name)!r}")
            if not np.isfinite(values).all() or (name == "std" and (values <= 0).any()):
                raise ArgumentError(f"{name} must be finite, and std above 0, not {getattr(self, name)!r}")
            object.__setattr__(self, name, values.item() if values.ndim == 0 else tuple(values.tolist()))

    def draw(self, rng: Any) -> None:
        """Draw nothing."""

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        if self.image_dtype not in (None, images.dtype.name):
            raise ArgumentError(
                f"images must be {self.image_dtype} for these statistics, not {images.dtype}, which may be in another "
                f"unit; compute the statistics of the source whose images come here, bu.statistics(source), or pass "
                f"numbers in the unit of the images: normalize(mean, std), from 0 to 1 for uint8"
            )
        n, height, width, channels = images.shape
        pixels, last = height * width, self.layout == "NHWC"
        out = BATCH_MEMORY.empty(
            (n, height, width, channels) if last else (n, channels, height, width), np.dtype(self.dtype)
        )
        # A run is contiguous in `out`: the values of all channels of an image, or of one channel.
        every = pixels * channels if last else pixels
        band = min(VALUES_AT_A_TIME, every)
        runs = [slice(None)] if last else [slice(c, c + 1) for c in range(channels)]
        mean, std = self.mean_and_std(channels)
        if images.dtype == np.uint8 and np.abs(mean).max() > 1:
            raise ArgumentError(
                f"mean and std must be those of values from 0 to 1 where images are uint8, and mean is {self.mean}; "
                f"divide both by 255"
            )
        make = _by_table if images.dtype == np.uint8 else _by_line
        converts = [make(mean[run], std[run], out.dtype, band) for run in runs]
        for image, place in zip(images.reshape(n, pixels, channels), out.reshape(n, len(runs), every), strict=True):
            for convert, values, result in zip(converts, image.reshape(1, -1) if last else image.T, place, strict=True):
                for start in range(0, every, VALUES_AT_A_TIME):
                    convert(values[start : start + VALUES_AT_A_TIME], result[start : start + VALUES_AT_A_TIME])
        return out, labels

    def mean_and_std(self, channels: int) -> tuple[np.ndarray, np.ndarray]:
        """Return both with one number per channel: ``(channels,) float64``."""
        try:
            mean, std = (np.broadcast_to(np.asarray(each, np.float64), channels) for each in (self.mean, self.std))
        except ValueError:
            raise ArgumentError(
                f"images must have as many channels as mean and std have numbers, not {channels}; mean is {self.mean}, "
                f"std {self.std}"
            ) from None
        return mean, std


Convert: TypeAlias = Callable[[np.ndarray, np.ndarray], None]
"""Converts some values of a run, and writes the results to its last argument; both are ``(m,)``."""


def _by_table(mean: np.ndarray, std: np.ndarray, dtype: np.dtype[Any], band: int) -> Convert:
    """Look up each byte among the 256 results of its channel. Each result was rounded once."""
    table = ((np.arange(256) / 255 - mean[:, None]) / std[:, None]).astype(dtype).reshape(-1)
    first, place = 256 * (np.arange(band) % len(mean)), np.empty(band, np.intp)

    def convert(values: np.ndarray, out: np.ndarray) -> None:
        at = place[: len(values)]
        at[...] = values
        if len(mean) > 1:
            at += first[: len(values)]
        table.take(at, out=out, mode="clip")  # "clip" writes directly to `out`; no place is beyond the table

    return convert


def _by_line(mean: np.ndarray, std: np.ndarray, dtype: np.dtype[Any], band: int) -> Convert:
    """Compute each result, in float32."""
    channel = np.arange(band) % len(mean)
    factor, offset = (1 / std).astype(np.float32)[channel], (-mean / std).astype(np.float32)[channel]

    def convert(values: np.ndarray, out: np.ndarray) -> None:
        out[...] = values * factor[: len(values)] + offset[: len(values)]

    return convert
