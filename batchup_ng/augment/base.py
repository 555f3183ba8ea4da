"""The form of an augmentation: an operation draws numbers for each sample, and changes the sample's image by them.

An operation draws a fixed count of uniform numbers per sample, for any images. So the change of a sample depends only
on its own row of draws, not on its batch or on earlier operations. Operations change one image at a time: intermediate
results stay in a processor's cache. Operations are classes with names like functions, because users use them as
functions.

Memory: an operation writes in place only to images that nothing else refers to. These are images that an earlier
operation of its chain made, and images of a batch that a source gave to ``source.map(operation)`` and does not keep.
Any other array belongs to the caller, and the caller may use it again. The first operation that writes to it copies it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..memory.leases import BufferPool
from ..randomness import SampleRng
from ..tensors import is_any_tensor
from ..validation import known_names, not_negative
from .options import ADVICE_ON_AUGMENT_OPTIONS

BATCH_MEMORY = BufferPool(max_free=8, max_bytes=1 << 28)
"""Memory for new batches. It is reused when a batch is gone, because fresh memory costs more than most changes."""


class Operation:
    """A function of a batch, for ``source.map(operation, rng="sample")``.

    It takes the parts of a batch, by place or by name, and returns the same parts with the images changed. The images
    are the part ``"image"`` of a dict, else the first part: an array ``(n, height, width, channels)``, or ``(n, height,
    width)``, which becomes ``(n, height, width, 1)``; of `uint8`, or of `float32` in any range. :class:`compose` chains
    operations, and takes the name or place of the images if another part has them. Results that `uint8` cannot hold are
    rounded and clipped; `float32` is not clipped.

    Raises:
        ArgumentTypeError: the images are no such array, or ``rng="sample"`` is missing.
        ArgumentError: the images have a shape that the operation cannot take.
    """

    numbers: int = 0  # draws per sample
    random: ClassVar[bool] = True
    in_place: ClassVar[bool] = False  # whether it may write to its input images
    last: ClassVar[bool] = False  # whether no operation can take the result

    def __call__(self, *batch: Any, rng: SampleRng | None = None, **named: Any) -> Any:
        """Return the batch as a tuple, or as a dict if its parts were given by name."""
        return self.writing_to((), *batch, rng=rng, **named)

    def writing_to(self, own: Collection[Any], /, *batch: Any, rng: SampleRng | None = None, **named: Any) -> Any:
        """Do the same, and write in place to the parts with the names or places in `own`.

        Only the owner of a batch may call it: nothing else may refer to these parts. A source calls it, in
        :class:`~batchup_ng.data_source.MapDataSource`.
        """
        return compose(self).writing_to(own, *batch, rng=rng, **named)

    def checked(self, images: Any) -> Any:
        """Return images as ``(n, height, width, channels)``. Refuse anything but a batch of images."""
        if not isinstance(images, np.ndarray):
            raise ArgumentTypeError(f"images must be a NumPy array, not {_in_words(images)}")
        if images.dtype not in (np.uint8, np.float32):
            raise ArgumentTypeError(
                f"images must be uint8 or float32, not {images.dtype}; convert them: x.astype('f4')"
            )
        if images.ndim not in (3, 4) or (images.ndim == 4 and not 1 <= images.shape[3] <= 4):
            raise ArgumentError(
                f"images must be (n, height, width, channels), with 1 to 4 channels, or (n, height, width), not "
                f"{images.shape}; compose(image=) says which part of a batch they are"
            )
        return images[..., np.newaxis] if images.ndim == 3 else images

    def draw(self, rng: Any) -> Any:
        """Return one row of draws per sample, by the same calls of `rng` for each batch."""
        return rng.random(self.numbers)

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        """Return images and labels, changed by the draws. The labels are None if the batch has none.

        With `in_place` it may write to `images` if they are an array. The array is writable and C-contiguous.
        """
        raise NotImplementedError


class InPlace(Operation):
    """An operation that changes each image with probability `p`, and keeps its shape and dtype."""

    p: float = 1.0
    in_place = True

    def __post_init__(self) -> None:
        number("p", self.p, 0.0, 1.0)

    def draw(self, rng: Any) -> Any:
        return rng.random(1 + self.numbers)

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        for image, numbers in zip(images, drawn.tolist(), strict=True):
            self.perhaps(image, *numbers)
        return images, labels

    def perhaps(self, image: np.ndarray, chance: float, *numbers: float) -> None:
        """Change an image ``(height, width, channels)`` by `numbers`, if `chance`, in [0, 1), is below `p`."""
        if chance < self.p:
            self.change(image, *numbers)

    def change(self, image: np.ndarray, *numbers: float) -> None:
        """Change an image in place."""
        raise NotImplementedError


class compose(Operation):
    """Applies operations one after the other.

    >>> from batchup_ng.augment import flip, random_crop
    >>> chain = compose(flip(p=1.0), random_crop(2, padding=1), image="x")
    >>> rng = SampleRng(7, np.arange(3))
    >>> batch = chain(y=np.arange(3), x=np.zeros((3, 2, 2, 3), np.uint8), rng=rng)
    >>> {name: part.shape for name, part in batch.items()}
    {'y': (3,), 'x': (3, 2, 2, 3)}

    Args:
        *operations: Operations of this module. An inner ``compose`` is replaced by its operations. ``normalize`` is the
            last one. Your own functions go before or after the chain, by ``source.map``.
        image: The part of a batch with the images: its name, or its place from 0. Default: ``"image"`` of a dict, else
            the first.
        label: The part with the labels, which ``mixup`` and ``cutmix`` change. Default: ``"label"`` of a dict, else the
            second.

    Raises:
        ArgumentError: an operation follows ``normalize``; in a call: the batch has no such part.
        ArgumentTypeError: an argument is no operation.
    """

    @known_names(ADVICE_ON_AUGMENT_OPTIONS)
    def __init__(self, *operations: Operation, image: int | str | None = None, label: int | str | None = None) -> None:
        chain: list[Operation] = []
        for place, operation in enumerate(operations):
            if not isinstance(operation, Operation):
                listed = isinstance(operation, (list, tuple))
                remedy = "pass compose(a, b)" if listed else "apply a function of your own by source.map(fn)"
                raise ArgumentTypeError(
                    f"operations[{place}] must be an operation of batchup_ng.augment, such as flip() or "
                    f"albumentations(pipeline), not {operation!r:.80}; {remedy}"
                )
            chain.extend(operation.operations if isinstance(operation, compose) else (operation,))
        for operation in chain[:-1]:
            if operation.last:
                raise ArgumentError(f"{type(operation).__name__} must be the last operation; move it to the end")
        self.operations: tuple[Operation, ...] = tuple(chain)
        self.image = image if image is None or isinstance(image, str) else not_negative("image", image)
        self.label = label if label is None or isinstance(label, str) else not_negative("label", label)

    def checked(self, images: Any) -> Any:
        return self.operations[0].checked(images) if self.operations else super().checked(images)

    def writing_to(self, own: Collection[Any], /, *batch: Any, rng: SampleRng | None = None, **named: Any) -> Any:
        parts = dict[Any, Any](named or enumerate(batch))
        place, beside = _part(parts, self.image, "image", 0), _part(parts, self.label, "label", 1)
        if place not in parts:
            raise ArgumentError(
                f"image must be one of the batch's parts, {list(parts)}, not {self.image!r}; pass compose(image=)"
            )
        images, labels = self.checked(parts[place]), None if beside == place else parts.get(beside)
        mine = place in own
        for operation in self.operations:
            if operation.random and not isinstance(rng, SampleRng):
                raise ArgumentTypeError(
                    f"{type(operation).__name__} needs random numbers for each sample, and rng is {rng!r:.60}; pass "
                    f"source.map(fn, rng='sample')"
                )
            images = operation.checked(images)
            if operation.in_place and isinstance(images, np.ndarray) and not (mine and images.flags.carray):
                images = copied(images)
            images, labels = operation.apply(images, labels, operation.draw(rng))
            mine = True  # it was copied, or the operation made it
        parts[place] = images
        if labels is not None:
            parts[beside] = labels
        return parts if named else tuple(parts.values())

    def __repr__(self) -> str:
        parts = (("image", self.image), ("label", self.label))
        chosen = [f"{name}={value!r}" for name, value in parts if value is not None]
        return f"compose({', '.join([*map(repr, self.operations), *chosen])})"


def _part(parts: dict[Any, Any], chosen: int | str | None, name: str, place: int) -> Any:
    """Return the key of the part that the user chose, by default `name`, or else the key at `place`; None if none."""
    if isinstance(chosen, str):
        return chosen
    if chosen is None and name in parts:
        return name
    return next(islice(parts, place if chosen is None else chosen, None), None)  # counts the parts that have names too


def _in_words(images: Any) -> str:
    """Describe an object that is no array, with the remedy."""
    kind = type(images).__name__
    if not hasattr(images, "__array__"):
        return f"a {kind}; read them with one size, ImageFiles(size=...)"
    of_torch = "x.numpy(), of (n, channels, height, width) x.permute(0, 2, 3, 1).numpy()"
    convert = of_torch if is_any_tensor(images) else "numpy.asarray(x)"
    return (
        f"a {kind} {tuple(getattr(images, 'shape', ()))} of {getattr(images, 'dtype', '')}; convert it in a map: "
        f"{convert}; batchup_ng.frameworks makes tensors of the results"
    )


def copied(images: np.ndarray) -> np.ndarray:
    """Return a copy in writable memory."""
    out = BATCH_MEMORY.empty(images.shape, images.dtype)
    out[...] = images
    return out


def number(name: str, value: Any, least: float, most: float) -> float:
    """Return a number within bounds, both included."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentTypeError(f"{name} must be a number, not {value!r} of type {type(value).__name__}")
    if not (least <= value <= most and math.isfinite(value)):
        bounds = f"between {least:g} and {most:g}" if most < np.inf else f"at least {least:g}, and finite"
        raise ArgumentError(f"{name} must be {bounds}, not {value:g}")
    return float(value)


def span(name: str, value: Any, least: float, most: float, around: float | None = None) -> tuple[float, float]:
    """Return a range (low, high) within bounds. A number d means ``around - d`` to ``around + d``, cut to bounds."""
    if around is not None and not isinstance(value, (tuple, list)):
        reach = number(name, value, 0.0, np.inf if most == np.inf else most - around)
        return max(least, around - reach), around + reach
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ArgumentTypeError(f"{name} must be a pair of numbers, (low, high), not {value!r}")
    low, high = (number(f"{name}[{i}]", each, least, most) for i, each in enumerate(value))
    if low > high:
        raise ArgumentError(f"{name} must be (low, high), not {value!r}; swap them")
    return low, high


def between(limits: tuple[float, float], u: float) -> float:
    """Return the number at `u` in [0, 1) of the way from the lower to the upper limit."""
    return limits[0] + (limits[1] - limits[0]) * u
