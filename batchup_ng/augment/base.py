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

import copy
import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ..columns import ANNOTATIONS
from ..errors import ArgumentError, ArgumentTypeError, MapCallError
from ..randomness import SampleRng
from ..tensors import is_any_tensor
from ..validation import known_names, not_negative
from .annotation_columns import AnnotationColumns, place_among
from .annotations import Annotations
from .batch_memory import copied
from .options import ADVICE_ON_AUGMENT_OPTIONS
from .parts import Part, axes_of, key_of, like_images, sizes_of
from .points import UNMOVED, Moves
from .ranges import number


class Operation:
    """A function of a batch, for ``source.map(operation)``.

    It takes the parts of a batch, by place or by name, and returns the same parts with the images changed. The images
    are the first part of a tuple, and the part ``"image"`` of a dict, or the only part of a dict that looks like
    images: an array ``(n, height, width, channels)``, or ``(n, height, width)``, which becomes ``(n, height, width,
    1)``; of `uint8`, or of `float32` in any range. :class:`compose` chains operations, and takes the name or place of
    the images if another part has them. Results that `uint8` cannot hold are rounded and clipped; `float32` is not
    clipped.

    Raises:
        ArgumentTypeError: the images are no such array, or a call without ``rng=`` needs random numbers.
        ArgumentError: the images have a shape that the operation cannot take.
        MapCallError: a dict without ``"image"`` has several parts, and none or several look like images.
    """

    numbers: int = 0  # draws per sample
    random: ClassVar[bool] = True
    in_place: ClassVar[bool] = False  # whether it may write to its input images
    last: bool = False  # whether no operation can take the result
    companion_counts: tuple[int, ...] = (0,)  # how many companions of each sample it takes

    @property
    def default_rng(self) -> str | None:
        """What ``source.map(operation)`` takes for ``rng=``: ``"sample"`` for an operation that draws numbers."""
        return "sample" if self.random else None

    def __call__(self, *batch: Any, rng: SampleRng | None = None, **named: Any) -> Any:
        """Return the batch as a tuple, or as a dict if its parts were given by name."""
        return self.writing_to((), *batch, rng=rng, **named)

    def writing_to(self, own: Collection[Any], /, *batch: Any, rng: SampleRng | None = None, **named: Any) -> Any:
        """Do the same, and write in place to the parts with the names or places in `own`.

        Only the owner of a batch may call it: nothing else may refer to these parts. A source calls it, in
        :class:`~batchup_ng.data_source.MapDataSource`.
        """
        return compose(self).writing_to(own, *batch, rng=rng, **named)

    def with_companions(
        self, others: Sequence[Any], /, *batch: Any, rng: SampleRng | None = None, **named: Any
    ) -> Any:
        """Do the same with companions of the samples. ``source.map(operation, companions=...)`` calls it.

        `others` are batches in the form of this one. Sample i of each is a companion of sample i.
        """
        return compose(self).with_companions(others, *batch, rng=rng, **named)

    def checked(self, images: Any) -> Any:
        """Return images as ``(n, height, width, channels)``. Refuse anything but a batch of images."""
        if not isinstance(images, np.ndarray):
            raise ArgumentTypeError(f"images must be a NumPy array, not {_in_words(images)}")
        if images.dtype not in (np.uint8, np.float32) and images.ndim in (3, 4):
            raise ArgumentTypeError(
                f"images must be uint8 or float32, not {images.dtype}; convert them: x.astype('f4')"
            )
        if images.ndim not in (3, 4) or (images.ndim == 4 and not 1 <= images.shape[3] <= 4):
            raise ArgumentError(
                f"images must be (n, height, width, channels), with 1 to 4 channels, or (n, height, width), not "
                f"{images.shape}; on= and compose(image=) say which part of a batch they are"
            )
        return images[..., np.newaxis] if images.ndim == 3 else images

    def for_columns(self, columns: Sequence[Any]) -> Operation:
        """Return what is called with `columns` by place. ``source.map(operation, on=columns)`` calls it.

        Raises:
            ArgumentError: one of the columns would not move with the images.
        """
        chain = compose(self).for_columns(columns)
        return self if len(columns) == 1 else chain  # of several, which knows them by their names

    @property
    def keeps_points(self) -> bool:
        """Whether it leaves each point of an image where it is, so that boxes, masks and keypoints stay right."""
        return False

    def draw(self, rng: Any) -> Any:
        """Return one row of draws per sample, by the same calls of `rng` for each batch."""
        return rng.random(self.numbers)

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        """Return images and labels, changed by the draws. The labels are None if the batch has none.

        With `in_place` it may write to `images` if they are an array. The array is writable and C-contiguous.
        """
        raise NotImplementedError

    def moves(self, size: tuple[int, int], drawn: Any) -> Moves | None:
        """Return how :meth:`apply` moves the points of images of this height and width. None: not at all."""
        return None

    def apply_to_all(self, images: Any, labels: Any, drawn: Any, annotations: Annotations) -> tuple[Any, Any]:
        """Return images and labels as :meth:`apply` does, and move the annotations with them."""
        moves = self.moves(images.shape[1:3], drawn)
        if moves is not None:
            annotations.move(moves)
        return self.apply(images, labels, drawn)

    def join(self, own: Part, others: Sequence[Part], drawn: Any) -> Part:
        """Return the parts of the samples, changed by the draws, with the parts of their companions.

        With `in_place` it may write to the images of `own`, as :meth:`apply`.
        """
        raise NotImplementedError

    def check_annotations(self, columns: AnnotationColumns) -> None:
        """Raise :class:`~batchup_ng.errors.ArgumentError` if the operation cannot move these annotations."""


class InPlace(Operation):
    """An operation that changes each image with probability `p`, and keeps its shape and dtype."""

    p: float = 1.0
    in_place = True

    def __post_init__(self) -> None:
        number("p", self.p, 0.0, 1.0)

    @property
    def keeps_points(self) -> bool:
        return type(self).moved is InPlace.moved

    def draw(self, rng: Any) -> Any:
        return rng.random(1 + self.numbers)

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        for image, numbers in zip(images, drawn.tolist(), strict=True):
            self.perhaps(image, *numbers)
        return images, labels

    def apply_to_all(self, images: Any, labels: Any, drawn: Any, annotations: Annotations) -> tuple[Any, Any]:
        size = images.shape[1:3]
        moves = [self.perhaps_moved(size, *numbers) for numbers in drawn.tolist()]
        for maps in itertools.zip_longest(*moves, fillvalue=UNMOVED):
            annotations.move(Moves(np.stack(maps), size))
        return self.apply(images, labels, drawn)

    def perhaps(self, image: np.ndarray, chance: float, *numbers: float) -> None:
        """Change an image ``(height, width, channels)`` by `numbers`, if `chance`, in [0, 1), is below `p`."""
        if chance < self.p:
            self.change(image, *numbers)

    def perhaps_moved(self, size: tuple[int, int], chance: float, *numbers: float) -> list[np.ndarray]:
        """Return the maps of the points of an image that :meth:`perhaps` changes by the same numbers.

        What a map moves out of the image is gone, so the next one must not bring it back.
        """
        one = self.moved(size, *numbers) if chance < self.p else None
        return [] if one is None else [one]

    def change(self, image: np.ndarray, *numbers: float) -> None:
        """Change an image in place."""
        raise NotImplementedError

    def moved(self, size: tuple[int, int], *numbers: float) -> np.ndarray | None:
        """Return the map of the points of an image that :meth:`change` changes: ``(2, 3)``. None: it moves none."""
        return None


class compose(Operation):
    """Applies operations one after the other.

    >>> from batchup_ng.augment import flip, random_crop
    >>> chain = compose(flip(p=1.0), random_crop(2, padding=1), image="x")
    >>> rng = SampleRng(7, np.arange(3))
    >>> batch = chain(y=np.arange(3), x=np.zeros((3, 2, 2, 3), np.uint8), rng=rng)
    >>> {name: part.shape for name, part in batch.items()}
    {'y': (3,), 'x': (3, 2, 2, 3)}

    With `boxes`, `masks` or `keypoints`, these parts move with the images: each operation moves them by the numbers
    that it drew for the image. Operations on colours, and ``cutout``, do not change them. Nothing writes to them.

    >>> chain = compose(flip(p=1.0), boxes="boxes")
    >>> image, boxes = np.zeros((1, 20, 30, 3), np.uint8), [np.array([[0, 5, 10, 15], [40, 0, 50, 10]])]
    >>> batch = chain(image=image, boxes=boxes, labels=[np.array([3, 4])], rng=SampleRng(7, np.arange(1)))
    >>> batch["boxes"], batch["labels"]  # the second box lies outside of the image
    ([array([[20.,  5., 30., 15.]], dtype=float32)], [array([3])])

    A box becomes the smallest box around its four moved corners. It is cut to the image at the start and after each
    operation. At the end it is dropped if less than `min_area` of it is left, or less than `min_visibility`: the
    product of the shares of its area that each cut left. Masks take the nearest pixel. A keypoint is dropped if it was
    outside of the image at the start or after an operation.

    Edges of boxes count from the edge of the image: a flip moves x to ``width - x``. Keypoints count from the centre of
    the first pixel: a flip moves x to ``width - 1 - x``, and a resize by s moves it to ``s * (x + 0.5) - 0.5``.

    Args:
        *operations: Operations of this module. An inner ``compose`` is replaced by its operations. ``normalize`` is the
            last one; ``mosaic`` and ``copy_paste`` are the first, and ``mixup`` and ``cutmix`` if they take companions.
            Your own functions go before or after the chain, by ``source.map``.
        image: The part of a batch with the images: its name, or its place from 0. Default: ``"image"`` of a dict, or
            its only part that looks like images: four axes, or three of `uint8` or `float32`; the first of a tuple.
        label: The part with the labels, which ``mixup`` and ``cutmix`` change. Default: ``"label"`` of a dict, else the
            second.
        boxes: The part with boxes, which has an array ``(k, 4)`` of finite numbers for each image: a list, an array of
            objects, or an array ``(n, k, 4)``. The result is a list of arrays ``(k, 4) float32``.
        box_format: ``"xyxy"``: left, top, right, bottom. ``"xywh"``: left, top, width, height, as in COCO.
            ``"cxcywh"``: x and y of the centre, width, height. In pixels. The result has the same format.
        box_labels: The parts with a row for each box, ``(k, ...)`` for each image. Rows of dropped boxes are dropped.
            The results are lists of arrays. Default: ``"labels"``, ``"difficult"`` and ``"iscrowd"``, if a dict has
            them. ``[]``: none. If boxes of a batch are dropped, and another part has as many rows as boxes for each
            image, it must be named here, or be left out of ``map(chain, on=[...])``.
        min_area: The least area that a box keeps, in square pixels of the result.
        min_visibility: The least share of its area that a box keeps, 0 to 1.
        masks: The parts with masks, of integers or other numbers: ``(n, height, width)`` or ``(n, height, width,
            channels)``. If `box_labels` names such a part too, it has a mask for each box: a list with an array ``(k,
            height, width)`` for each image.
        mask_fill: The value of masks where a new image shows no part of the old one.
        keypoints: The part with keypoints, which has an array ``(k, 2)`` for each image, x and y in pixels. Further
            values, ``(k, 2 + further)``, stay as they are. If `box_labels` names this part too, it has keypoints for
            each box, ``(k, m, 2)``. The result is a list of arrays of `float32`.
        keypoint_labels: The parts with a row for each keypoint.
        remove_invisible: Whether to drop keypoints outside of the image. Keypoints of boxes are only dropped with them.

    Raises:
        ArgumentError: an operation follows ``normalize``, or cannot move annotations, as ``mixup``; options contradict
            each other; in a call: a part has another shape.
        MapCallError: in a call: the batch has no such part, or a dict has a part ``"boxes"``, ``"bbox"``, ``"bboxes"``,
            ``"mask"``, ``"masks"`` or ``"keypoints"`` that no option names and an operation moves the images, or with
            `boxes` a part ``"labels"``, ``"difficult"`` or ``"iscrowd"`` that `box_labels` leaves out, or another one
            with a row for each box while boxes are dropped; or a part is a dict, or a list of dicts, that has one of
            these names, and an operation moves the images. It is an `ArgumentError` that no ``on_error=`` skips.
        ArgumentTypeError: an argument is no operation, or of the wrong kind.
    """

    @known_names(ADVICE_ON_AUGMENT_OPTIONS)
    def __init__(
        self,
        *operations: Operation,
        image: int | str | None = None,
        label: int | str | None = None,
        boxes: int | str | None = None,
        box_format: str = "xyxy",
        box_labels: int | str | Sequence[int | str] | None = None,
        min_area: float = 1.0,
        min_visibility: float = 0.0,
        masks: int | str | Sequence[int | str] | None = None,
        mask_fill: float = 0,
        keypoints: int | str | None = None,
        keypoint_labels: int | str | Sequence[int | str] | None = None,
        remove_invisible: bool = True,
    ) -> None:
        self.annotations = AnnotationColumns(
            boxes=boxes, box_format=box_format, box_labels=box_labels, min_area=min_area, min_visibility=min_visibility,
            masks=masks, mask_fill=mask_fill, keypoints=keypoints, keypoint_labels=keypoint_labels,
            remove_invisible=remove_invisible,
        )  # fmt: skip
        chain: list[Operation] = []
        for place, operation in enumerate(operations):
            if not isinstance(operation, Operation):
                listed = isinstance(operation, (list, tuple))
                remedy = "pass compose(a, b)" if listed else "apply a function of your own by source.map(fn)"
                raise ArgumentTypeError(
                    f"operations[{place}] must be an operation of batchup_ng.augment, such as flip() or "
                    f"albumentations(pipeline), not {operation!r:.80}; {remedy}"
                )
            operation.check_annotations(self.annotations)
            chain.extend(operation.operations if isinstance(operation, compose) else (operation,))
        for operation in chain[:-1]:
            if operation.last:
                raise ArgumentError(f"{type(operation).__name__} must be the last operation; move it to the end")
        for operation in chain[1:]:
            if 0 not in operation.companion_counts:
                raise ArgumentError(
                    f"{type(operation).__name__} must be the first operation, because it takes companions, which the "
                    f"operations before would not change; map these before: source.map({chain[0]!r:.80})"
                )
        self.operations: tuple[Operation, ...] = tuple(chain)
        self.image = image if image is None or isinstance(image, str) else not_negative("image", image)
        self.label = label if label is None or isinstance(label, str) else not_negative("label", label)
        self.columns: Sequence[Any] | None = None  # names or places of the parts of a call by place
        self.chosen = False  # whether the user says which of these columns has the images

    @property
    def default_rng(self) -> str | None:
        return "sample" if any(operation.random for operation in self.operations) else None

    @property
    def companion_counts(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.operations[0].companion_counts if self.operations else (0,)

    def check_annotations(self, columns: AnnotationColumns) -> None:
        if self.annotations.given:
            raise ArgumentError("boxes=, masks= and keypoints= must be given to the outer compose; pass them there")
        for operation in self.operations:
            operation.check_annotations(columns)

    def for_columns(self, columns: Sequence[Any]) -> compose:
        """Return this chain for a call with `columns` by place, which it may know by their names."""
        made = copy.copy(self)
        made.image = place_among("image", self.image, columns, default="image")
        made.label = place_among("label", self.label, columns, default="label")
        made.annotations = self.annotations.for_columns(columns)
        made.columns = columns
        made.chosen = self.image is not None
        self._refuse_unmoved(columns)
        return made

    def _refuse_unmoved(self, columns: Collection[Any], by_place: bool = False) -> None:
        """Refuse columns that must move with the images, and that no option names. `by_place`: they have no names."""
        moving = next((operation for operation in self.operations if not operation.keeps_points), None)
        if moving is not None:
            if not by_place:
                self.annotations.refuse_unmoved(columns, f"{type(moving).__name__}(...)")
            for name, column in columns.items() if isinstance(columns, Mapping) else ():
                if (inner := _annotation_in(column)) is not None:
                    last = "map DetectionTargets last" if isinstance(column, list) else "map such dicts last"
                    raise MapCallError(
                        f"{name!r} must be made after {type(moving).__name__} and all that moves images, because its "
                        f"{inner} would not move with them; augment columns, as by compose(..., "
                        f"{ANNOTATIONS[inner]}=column), and {last}"
                    )

    def _refuse_unchanged(self, parts: Mapping[Any, Any], place: Any) -> None:
        """Refuse a call by place if a second part may be images; any if a mask would not move with the images."""
        named = dict(zip(parts, self.columns or parts, strict=True))
        others = [key for key in self.annotations.unnamed(parts) if key != place]
        if self.columns is not None and not self.chosen:
            alike = [named[key] for key in sorted([place, *others]) if like_images(parts[key])]
            if len(alike) > 1:
                raise MapCallError(
                    f"image must be the column with images, for {alike} look like images; call map once for each, "
                    f"on={alike[0]!r}, or pass compose(..., image={alike[0]!r})"
                )
        moving = next((operation for operation in self.operations if not operation.keeps_points), None)
        own, shapes = getattr(parts[place], "shape", ()), {key: getattr(parts[key], "shape", ()) for key in others}
        # A column of the same shape may be another view. Only the first view changes.
        beside = [key for key in others if len(own) > 2 and shapes[key][:3] == own[:3] and shapes[key] != own]
        if moving is not None and beside:
            raise MapCallError(
                f"column {named[beside[0]]!r} has the height and width of the images, and {type(moving).__name__} "
                f"would not move it with them; pass compose(..., masks={named[beside[0]]!r}), or leave it out by "
                f"on={named[place]!r}"
            )

    def checked(self, images: Any) -> Any:
        return self.operations[0].checked(images) if self.operations else super().checked(images)

    def writing_to(self, own: Collection[Any], /, *batch: Any, rng: SampleRng | None = None, **named: Any) -> Any:
        return self._applied(own, (), batch, named, rng)

    def with_companions(
        self, others: Sequence[Any], /, *batch: Any, rng: SampleRng | None = None, **named: Any
    ) -> Any:
        return self._applied((), others, batch, named, rng)

    def _applied(self, own: Collection[Any], others: Sequence[Any], batch: Any, named: Any, rng: Any) -> Any:
        counts = self.companion_counts
        if len(others) not in counts:
            raise ArgumentError(
                f"{type(self.operations[0] if self.operations else self).__name__} takes "
                f"{' or '.join(map(str, counts))} companions of each sample, not {len(others)}; pass so many, as "
                f"source.map(operation, companions=...) does"
            )
        parts = dict[Any, Any](named or enumerate(batch))
        place, beside = key_of(parts, self.image, "image", 0), key_of(parts, self.label, "label", 1)
        if named and self.image is None and "image" not in named:
            place = self._only_images(named)
        if place not in parts:
            raise MapCallError(
                f"image must be one of the batch's parts, {list(parts)}, not {self.image!r}; pass compose(image=)"
            )
        if len(parts) > 1 and (not named or self.image is None):
            self._refuse_unchanged(parts, place)
        images, labels, annotations = self._taken(parts, place, beside)
        self._refuse_unmoved(parts, by_place=not named)
        companions = [self._taken(dict(each if named else enumerate(each)), place, beside) for each in others]
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
            drawn = operation.draw(rng)
            if companions:
                images, labels, annotations = operation.join(Part(images, labels, annotations), companions, drawn)
                companions = []
            elif annotations is None:
                images, labels = operation.apply(images, labels, drawn)
            else:
                images, labels = operation.apply_to_all(images, labels, drawn, annotations)
            mine = True  # it was copied, or the operation made it
        parts[place] = images
        if labels is not None:
            parts[beside] = labels
        if annotations is not None:
            self.annotations.put_into(parts, annotations, place, joined=len(others) > 0)
        return parts if named else tuple(parts.values())

    def _taken(self, parts: Mapping[Any, Any], place: Any, beside: Any) -> Part:
        """Return the images at `place`, the labels at `beside` and the annotations of a batch."""
        images, labels = self.checked(parts[place]), None if beside == place else parts.get(beside)
        annotations = self.annotations.taken_from(parts, sizes_of(images)) if self.annotations.given else None
        return Part(images, labels, annotations)

    def _only_images(self, parts: Mapping[str, Any]) -> str:
        """Return the part of a dict without ``"image"`` that has the images. Refuse to guess among several."""
        known = {"label", self.label}
        found = [name for name in self.annotations.unnamed(parts) if name not in known and like_images(parts[name])]
        if len(found) != 1 and len(parts) > 1:
            first = max(found, key=lambda name: axes_of(parts[name])[0]) if found else next(iter(parts))
            told = f"{found} look like images" if found else f"none of {list(parts)} looks like images"
            raise MapCallError(
                f"image must be the name of the part with images, for the batch has no part 'image', and {told}; pass "
                f"compose(..., image={first!r}), or to map on={first!r}"
            )
        return found[0] if found else next(iter(parts))

    def __repr__(self) -> str:
        options: dict[str, tuple[Any, Any]] = {"image": (self.image, None), "label": (self.label, None)}
        for field in dataclasses.fields(self.annotations):
            options[field.name] = getattr(self.annotations, field.name), field.default
        chosen = [f"{name}={value!r}" for name, (value, default) in options.items() if value != default]
        return f"compose({', '.join([*map(repr, self.operations), *chosen])})"


def _annotation_in(column: Any) -> str | None:
    """Return the name of an annotation in a dict, or in the first of a list of dicts."""
    found = column[0] if isinstance(column, list) and column else column
    if not isinstance(found, Mapping):
        return None
    names = (name if name in ANNOTATIONS else _annotation_in(inner) for name, inner in found.items())
    return next((name for name in names if name is not None), None)


def _in_words(images: Any) -> str:
    """Describe an object that is no array, with the remedy."""
    kind = type(images).__name__
    if not hasattr(images, "__array__"):
        return f"a {kind}; begin the chain with letterbox(size), or read them with one size, ImageFiles(size=...)"
    of_torch = "x.numpy(), of (n, channels, height, width) x.permute(0, 2, 3, 1).numpy()"
    convert = of_torch if is_any_tensor(images) else "numpy.asarray(x)"
    return (
        f"a {kind} {tuple(getattr(images, 'shape', ()))} of {getattr(images, 'dtype', '')}; convert it in a map: "
        f"{convert}; batchup_ng.frameworks makes tensors of the results"
    )
