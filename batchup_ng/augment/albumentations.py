"""The operation that applies an Albumentations pipeline to each image.

Albumentations keeps generators and parameters in its objects, so each thread calls a copy. ``set_random_seed`` would
give each transform of a pipeline its own generator from one seed: a flip with p=0.5 and another flip with p=0.5 would
act on the same images. With ``set_random_state`` they share one generator, and draw from it one after the other.

Boxes and keypoints get a further column, their places, which Albumentations hands on: so it is known which are left.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..batch import stack
from ..errors import ArgumentError, ArgumentTypeError
from ..tensors import is_any_tensor
from ..validation import known_names
from .annotation_columns import AnnotationColumns
from .annotations import Annotations, Sample
from .base import Operation
from .boxes import box_convert
from .options import ADVICE_ON_AUGMENT_OPTIONS

BOX_FORMATS = {"pascal_voc": "xyxy", "coco": "xywh", "albumentations": "xyxy", "yolo": "cxcywh"}
"""Their formats of boxes, in ours."""

SHARES = ("albumentations", "yolo")
"""Their formats whose numbers are shares of the width and the height of the image."""


class albumentations(Operation):
    """Applies an Albumentations pipeline to each image, with random numbers that belong to the sample.

    If this operation is the first of its chain, images may also be a list of arrays of several sizes, as
    :class:`~batchup_ng.ImageFiles` without ``size=`` reads them. The results have the pipeline's dtype: an array if all
    have one shape, else a list. Further operations can change only an array of images, so ``ToTensorV2``, which moves
    the channels, comes last: ``(n, channels, height, width)``.

    ::

        pipeline = A.Compose([A.RandomResizedCrop(size=(224, 224)), A.HorizontalFlip(p=0.5)])
        train = source.map(augment.albumentations(pipeline), rng="sample")

    Args:
        transform: ``A.Compose([...])``, or a single transform, of Albumentations 2: ``pip install albumentations``. It
            is called with the image, and with the annotations that ``compose`` names: for boxes it needs
            ``bbox_params``, for keypoints ``keypoint_params`` of the format ``"xy"``. It may drop some of them.

    Raises:
        ArgumentTypeError: `transform` is no such transform.
    """

    in_place = True  # the user's transform may write to its image

    @known_names(ADVICE_ON_AUGMENT_OPTIONS)
    def __init__(self, transform: Any) -> None:
        if not callable(transform) or not hasattr(transform, "set_random_state"):
            raise ArgumentTypeError(
                f"transform must be a pipeline of Albumentations 2, such as A.Compose([A.HorizontalFlip()]), not "
                f"{transform!r:.80}; pip install -U albumentations, or apply another function by source.map_samples(fn)"
            )
        self.transform = transform
        self._of_thread = threading.local()

    def __reduce__(self) -> Any:
        return albumentations, (self.transform,)

    def __repr__(self) -> str:
        return f"albumentations({type(self.transform).__name__})"

    def checked(self, images: Any) -> Any:
        return images if isinstance(images, list) else super().checked(images)

    def draw(self, rng: Any) -> Any:
        return list(rng.generators())

    def apply(self, images: Any, labels: Any, drawn: Any) -> tuple[Any, Any]:
        made = [np.asarray(one["image"]) for one in self.results(images, drawn, ({} for _ in drawn))]
        return (stack(made) if made else images), labels

    def apply_to_all(self, images: Any, labels: Any, drawn: Any, annotations: Annotations) -> tuple[Any, Any]:
        annotations.drop()  # the library refuses boxes without area
        samples, made = list(annotations.samples()), []
        given = [self._given(sample, np.shape(image)[:2]) for sample, image in zip(samples, images, strict=True)]
        answers = []
        for sample, result in zip(samples, self.results(images, drawn, given), strict=True):
            made.append(np.asarray(result["image"]))
            answers.append(self._answer(sample, result))
        annotations.replace(answers)
        return (stack(made) if made else images), labels

    def results(self, images: Any, drawn: Any, given: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the result of the pipeline for each image with its further arguments `given`."""
        if not hasattr(self._of_thread, "transform"):
            self._of_thread.transform = copy.deepcopy(self.transform)
        transform = self._of_thread.transform
        for image, generator, beside in zip(images, drawn, given, strict=True):
            transform.set_random_state(generator, random.Random(int(generator.integers(2**63))))
            # An array was already copied, unless the operation owns it.
            yield transform(image=np.array(image) if isinstance(images, list) else image, **beside)

    def check_annotations(self, columns: AnnotationColumns) -> None:
        for option, processor, remedy in (
            ("boxes", "bboxes", "bbox_params=A.BboxParams('pascal_voc')"),
            ("keypoints", "keypoints", "keypoint_params=A.KeypointParams('xy')"),
        ):
            if columns.names(option) and self._params(processor) is None:
                raise ArgumentError(
                    f"transform must be an A.Compose that moves {option}; pass A.Compose([...], {remedy})"
                )
        boxes, keypoints = self._params("bboxes"), self._params("keypoints")
        if columns.names("boxes") and boxes.format not in BOX_FORMATS:
            raise ArgumentError(
                f"the format of bbox_params must be one of {', '.join(map(repr, BOX_FORMATS))}, not {boxes.format!r}; "
                f"any of these does, because boxes are converted"
            )
        if columns.names("keypoints") and keypoints.format != "xy":
            raise ArgumentError(f"the format of keypoint_params must be 'xy', not {keypoints.format!r}; pass 'xy'")
        if columns.grouped and keypoints.remove_invisible:
            raise ArgumentError(
                "keypoint_params must not drop keypoints that belong to boxes; pass A.KeypointParams('xy', "
                "remove_invisible=False)"
            )

    def _params(self, processor: str) -> Any:
        """Return the parameters of the pipeline for boxes or keypoints, or None."""
        found = getattr(self.transform, "processors", {}).get(processor)
        return None if found is None else found.params

    def _given(self, sample: Sample, size: tuple[int, int]) -> dict[str, Any]:
        """Return a sample as the arguments of the pipeline. The last column of boxes and keypoints are their places."""
        given: dict[str, Any] = {}
        if sample.boxes is not None:
            params = self._params("bboxes")
            boxes = box_convert(sample.boxes, "xyxy", BOX_FORMATS[params.format]) / _unit(params, size)
            given |= _with_places("bboxes", boxes, params, sample)
        if sample.keypoints is not None:
            points = sample.keypoints.reshape(-1, 2)
            points = np.where((points > -0.5) & (points < 0), 0, points)  # for them the first pixel begins at 0
            given |= _with_places("keypoints", points, self._params("keypoints"), sample)
        if sample.masks:
            masks = list(sample.masks.values())
            channels = [mask.reshape(*mask.shape[:2], -1) for mask in masks]
            given["mask"] = _numbers(masks[0] if len(masks) == 1 else np.concatenate(channels, axis=2))
        if sample.boxes is not None and len(sample.boxes) and sample.box_masks:
            given["masks"] = _numbers(np.concatenate(list(sample.box_masks.values())))
        return given

    def _answer(self, sample: Sample, result: dict[str, Any]) -> Sample:
        """Return the annotations of a sample that the pipeline returned."""
        image, answer = result["image"], Sample()
        size = tuple(image.shape[-2:] if is_any_tensor(image) else image.shape[:2])
        if sample.boxes is not None:
            params = self._params("bboxes")
            rows, answer.kept = _rows_and_places(result["bboxes"], 4)
            answer.boxes = box_convert(rows * _unit(params, size), BOX_FORMATS[params.format], "xyxy")
        if sample.keypoints is not None:
            points, answer.kept_keypoints = _rows_and_places(result["keypoints"], 2)
            answer.keypoints = points if sample.keypoints.ndim == 2 else points.reshape(sample.keypoints.shape)
        at = 0
        for key, mask in sample.masks.items():
            made = np.asarray(result["mask"])
            if len(sample.masks) > 1:
                end = at + (mask.shape[2] if mask.ndim == 3 else 1)
                made, at = made[:, :, at:end], end
            answer.masks[key] = made.astype(mask.dtype).reshape(*made.shape[:2], *mask.shape[2:])
        for i, (key, masks) in enumerate(sample.box_masks.items()):
            k = len(masks)
            made = np.asarray(result["masks"])[i * k : (i + 1) * k] if k else np.zeros((0, *size))
            answer.box_masks[key] = made.astype(masks.dtype)
        return answer


def _with_places(name: str, rows: np.ndarray, params: Any, sample: Sample) -> dict[str, Any]:
    """Return rows with their places as the last column, and the label fields of the pipeline."""
    places = np.arange(len(rows))
    fields = {field: sample.labels.get(field, places) for field in params.label_fields or ()}
    return {name: np.column_stack([rows, places]).astype(np.float32), **fields}


def _rows_and_places(given: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of `n` numbers, and their places, which are the next column."""
    if not len(given):  # without the column of places
        return np.zeros((0, n)), np.zeros(0, np.intp)
    rows = np.asarray(given, np.float64)
    return rows[:, :n], rows[:, n].astype(np.intp)


def _unit(params: Any, size: tuple[int, ...]) -> np.ndarray:
    """Return the divisors of boxes in pixels: width and height, twice, for formats with shares of the image."""
    return np.array(size[::-1] * 2 if params.format in SHARES else (1, 1, 1, 1), np.float64)


def _numbers(mask: np.ndarray) -> np.ndarray:
    """Return a mask as numbers that OpenCV takes."""
    return mask.view(np.uint8) if mask.dtype == bool else mask
