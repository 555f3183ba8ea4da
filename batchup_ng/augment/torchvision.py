"""The operation that applies a transform of torchvision to each image.

Its transforms draw from torch's generator for the CPU. A process has one such generator. This operation gives it a
state for each sample, and then restores the old state. A lock lets one thread at a time do so.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..batch import stack
from ..errors import ArgumentError, ArgumentTypeError
from ..tensors import is_any_tensor
from ..validation import known_names, one_of
from .annotations import Annotations, Sample
from .base import Operation
from .boxes import box_convert
from .options import ADVICE_ON_AUGMENT_OPTIONS

TORCHS_GENERATOR = threading.Lock()
"""Held while torch's generator has the state of a sample."""


class torchvision(Operation):
    """Applies a transform of ``torchvision.transforms.v2`` to each image, with random numbers of the sample.

    The transform gets a ``tv_tensors.Image``. If ``compose`` names boxes, masks or keypoints, it gets a dict with these
    too, as ``tv_tensors`` (keypoints need torchvision 0.23). The results have its dtype; they are an array if all have
    one shape, else a list.

    ::

        transform = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()])
        train = source.map(augment.torchvision(transform), rng="sample")

    Use it in a pool of processes or in the plain loop. In a pool of threads only one thread at a time transforms, and
    results are the same only if your loop does not draw from torch's generator for the CPU in the meantime.

    Args:
        transform: A transform, or a function with the same arguments. ``compose`` drops boxes, so
            ``SanitizeBoundingBoxes`` can be left out.
        layout: ``"NHWC"``: results have channels last, as other operations take them. ``"NCHW"``: ``(n, channels,
            height, width)``, as in PyTorch; it is then the last operation of its chain.

    Raises:
        ArgumentError: `layout` is another; in a call: the transform drops keypoints, or boxes without their labels.
        ArgumentTypeError: `transform` cannot be called; in a call: it returns no tensor for an image.
    """

    @known_names(ADVICE_ON_AUGMENT_OPTIONS)
    def __init__(self, transform: Any, *, layout: str = "NHWC") -> None:
        if not callable(transform):
            raise ArgumentTypeError(
                f"transform must be a transform of torchvision.transforms.v2, such as v2.RandomHorizontalFlip(), not "
                f"{transform!r:.80}"
            )
        self.transform = transform
        self.layout = one_of("layout", layout, ("NHWC", "NCHW"))
        self.last = layout == "NCHW"

    def __repr__(self) -> str:
        return f"torchvision({type(self.transform).__name__}, layout={self.layout!r})"

    def draw(self, rng: Any) -> Any:
        return rng.integers(2**63)

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[Any, Any]:
        made = self._results([_as_image(image) for image in images], drawn)
        return self._joined([_checked(image) for image in made], images), labels

    def apply_to_all(self, images: Any, labels: Any, drawn: Any, annotations: Annotations) -> tuple[Any, Any]:
        samples = list(annotations.samples())
        given = [_as_dict(image, sample) for image, sample in zip(images, samples, strict=True)]
        results = self._results(given, drawn)
        made = [_checked(result["image"]) for result in results]
        annotations.replace([_answer(sample, result) for sample, result in zip(samples, results, strict=True)])
        return self._joined(made, images), labels

    def _results(self, given: Sequence[Any], seeds: np.ndarray) -> list[Any]:
        """Return what the transform makes of each sample, with torch's generator seeded for it."""
        import torch

        results = []
        with TORCHS_GENERATOR:
            state = torch.get_rng_state()
            try:
                for sample, seed in zip(given, seeds.tolist(), strict=True):
                    torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed devices
                    results.append(self.transform(sample))
            finally:
                torch.set_rng_state(state)
        return results

    def _joined(self, made: Sequence[Any], images: np.ndarray) -> Any:
        """Return the images that the transform made in the layout of results. If there are none, return `images`."""
        arrays = [np.asarray(tensor) for tensor in made]
        if self.layout == "NHWC":
            arrays = [np.ascontiguousarray(array.transpose(1, 2, 0)) for array in arrays]
        return stack(arrays) if arrays else images


def _checked(made: Any) -> Any:
    """Return what a transform made of an image, if it is a tensor."""
    if not is_any_tensor(made) or made.ndim != 3:
        raise ArgumentTypeError(
            f"transform must return a tensor (channels, height, width) for each image, not a {type(made).__name__} "
            f"{tuple(getattr(made, 'shape', ()))}; put v2.ToImage() at its end"
        )
    return made


def _as_image(image: np.ndarray) -> Any:
    """Return a copy of an image as a tensor of torchvision's: ``(channels, height, width)``."""
    import torch
    from torchvision import tv_tensors

    return tv_tensors.Image(torch.from_numpy(np.array(image.transpose(2, 0, 1), order="C")))


def _as_dict(image: np.ndarray, sample: Sample) -> dict[str, Any]:
    """Return a sample as the argument of a transform. The labels are the places of the boxes."""
    import torch
    from torchvision import tv_tensors

    size, given = image.shape[:2], {"image": _as_image(image)}
    if sample.boxes is not None:
        boxes = torch.from_numpy(sample.boxes.astype(np.float32))
        given["boxes"] = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size)
        given["labels"] = torch.arange(len(boxes))
    if sample.keypoints is not None:
        keypoints = torch.from_numpy(sample.keypoints.astype(np.float32))
        given["keypoints"] = tv_tensors.KeyPoints(keypoints, canvas_size=size)
    of_image = [mask.transpose(2, 0, 1) if mask.ndim == 3 else mask for mask in sample.masks.values()]
    for name, masks in (("masks", of_image), ("box_masks", sample.box_masks.values())):
        plain = [mask.astype(np.uint8) if mask.dtype == bool else np.array(mask, order="C") for mask in masks]
        given[name] = [tv_tensors.Mask(torch.from_numpy(mask)) for mask in plain]
    return given


def _answer(sample: Sample, result: dict[str, Any]) -> Sample:
    """Return the annotations of a sample that a transform returned."""
    answer = Sample(size=tuple(result["image"].shape[-2:]))
    if sample.boxes is not None:
        boxes, answer.kept = result["boxes"], np.asarray(result["labels"], np.intp)
        if len(boxes) != len(answer.kept):
            raise ArgumentError("transform must drop boxes with their labels, or none; compose(min_area=) drops them")
        found = getattr(boxes, "format", None)  # none after v2.ToPureTensor
        in_fmt = "xyxy" if found is None else found.value.lower()
        answer.boxes = box_convert(np.asarray(boxes, np.float64), in_fmt, "xyxy")
    if sample.keypoints is not None:
        answer.keypoints = np.asarray(result["keypoints"], np.float64)
        answer.kept_keypoints = np.arange(len(sample.keypoints))
        if sample.keypoints.ndim == 2 and len(answer.keypoints) != len(sample.keypoints):
            raise ArgumentError("transform must keep all keypoints; compose(remove_invisible=True) drops them")
    for (key, mask), made in zip(sample.masks.items(), result["masks"], strict=True):
        moved = np.asarray(made).astype(mask.dtype)
        answer.masks[key] = np.ascontiguousarray(moved.transpose(1, 2, 0)) if mask.ndim == 3 else moved
    for (key, masks), made in zip(sample.box_masks.items(), result["box_masks"], strict=True):
        answer.box_masks[key] = np.asarray(made).astype(masks.dtype)
    return answer
