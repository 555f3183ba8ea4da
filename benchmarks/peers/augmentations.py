"""Augmentations of batches in memory: ours, and torchvision's ``transforms.v2``, with one thread each.

torchvision takes tensors ``(n, 3, h, w)``, which are prepared in that layout. A transform of a batch draws once for the
whole batch. To get draws for each image, users call it in their data set, one image at a time, and stack the results:
``torchvision-images``. ``torchvision-batch`` is a single call with one draw, the fastest possible use.

Ours write in place to their batch, as in ``source.map``, where no other object holds the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import OURS, Feed, Variant
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = 10


@dataclass(frozen=True)
class Operation:
    """One operation in both libraries."""

    name: str
    title: str  # on the page
    ours: Callable[[Any], Any]  # makes it from batchup_ng.augment
    theirs: Callable[[Any], Any]  # makes it from torchvision.transforms.v2
    floats: bool = False  # whether images are float32 from 0 to 1
    whole: bool = False  # whether it works only on whole batches, with their labels


def normalizing(v2: Any, dtype: str = "float32") -> Any:
    """Return the transform to float32 from 0 to 1, then normalised, then to `dtype`."""
    import torch

    to = v2.ToDtype(torch.float32, scale=True)
    return v2.Compose([to, v2.Normalize(MEAN, STD), *([v2.ToDtype(torch.float16)] if dtype == "float16" else [])])


def normalizes(layout: str, dtype: str) -> Operation:
    """Return the operation that normalises to a layout and dtype; torchvision's stays channels first."""
    return Operation(
        f"normalize-{layout.lower()}-{dtype}", f"normalize, to {dtype} {layout}",
        lambda a: a.normalize(MEAN, STD, layout=layout, dtype=dtype), partial(normalizing, dtype=dtype),
    )  # fmt: skip


def bilinear(v2: Any) -> Any:
    return v2.InterpolationMode.BILINEAR


NOTHING = Operation("", "", lambda a: a.compose(), lambda v2: v2.Identity())
OPERATIONS = (
    Operation("flip", "flip, all", lambda a: a.flip(p=1.0), lambda v2: v2.RandomHorizontalFlip(1.0)),
    Operation("flip-vertical", "flip top and bottom, all", lambda a: a.flip(p=1.0, vertical=True),
              lambda v2: v2.RandomVerticalFlip(1.0)),
    Operation("random_crop", "random_crop to 224, padding 28", lambda a: a.random_crop(224, padding=28),
              lambda v2: v2.RandomCrop(224, padding=28)),
    Operation("resized_crop", "resized_crop to 224", lambda a: a.resized_crop(224),
              lambda v2: v2.RandomResizedCrop(224)),
    Operation("resized_crop-half", "resized_crop to 112", lambda a: a.resized_crop(112),
              lambda v2: v2.RandomResizedCrop(112)),
    Operation("affine", "affine: 20°, shift 0.1, scale 0.9–1.1, shear 10°",
              lambda a: a.affine(rotate=20, translate=0.1, scale=(0.9, 1.1), shear=10),
              lambda v2: v2.RandomAffine(20, (0.1, 0.1), (0.9, 1.1), (-10, 10, -10, 10), interpolation=bilinear(v2))),
    Operation("brightness", "color_jitter: brightness 0.4", lambda a: a.color_jitter(brightness=0.4),
              lambda v2: v2.ColorJitter(0.4)),
    Operation("color_jitter", "color_jitter: brightness, contrast, saturation 0.4",
              lambda a: a.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4),
              lambda v2: v2.ColorJitter(0.4, 0.4, 0.4)),
    Operation("color_jitter-hue", "color_jitter: the same, hue 0.1",
              lambda a: a.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
              lambda v2: v2.ColorJitter(0.4, 0.4, 0.4, 0.1)),
    Operation("grayscale", "grayscale, all", lambda a: a.grayscale(p=1.0), lambda v2: v2.RandomGrayscale(1.0)),
    Operation("blur", "blur, σ 0.1–2, all", lambda a: a.blur((0.1, 2.0), p=1.0),
              lambda v2: v2.GaussianBlur(13, (0.1, 2.0))),
    Operation("cutout", "cutout, all", lambda a: a.cutout(p=1.0), lambda v2: v2.RandomErasing(1.0)),
    *(normalizes(layout, dtype) for layout in ("NHWC", "NCHW") for dtype in ("float32", "float16")),
    Operation("rand_augment", "rand_augment, 2 of magnitude 9", lambda a: a.rand_augment(2, 9),
              lambda v2: v2.RandAugment(2, 9, interpolation=bilinear(v2))),
    Operation("mixup", "mixup of float32", lambda a: a.mixup(num_classes=CLASSES),
              lambda v2: v2.MixUp(num_classes=CLASSES), floats=True, whole=True),
    Operation("cutmix", "cutmix", lambda a: a.cutmix(num_classes=CLASSES),
              lambda v2: v2.CutMix(num_classes=CLASSES), whole=True),
    Operation("chain", "resized_crop, flip, color_jitter with hue, normalize to NCHW",
              lambda a: a.compose(a.resized_crop(224), a.flip(),
                                  a.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
                                  a.normalize(MEAN, STD, layout="NCHW")),
              lambda v2: v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(),
                                     v2.ColorJitter(0.4, 0.4, 0.4, 0.1), normalizing(v2)])),
)  # fmt: skip


class Ready(Feed):
    """Batches in memory, in order. Without an operation they are delivered unchanged."""

    def __init__(self, workload: Workload, workers: int) -> None:
        images, labels = open_data(workload).columns
        self.operation = OPERATIONS[workload.detail["operation"]] if workload.detail else NOTHING
        if self.operation.floats:
            images = (images / 255).astype(np.float32)
        if self.operation.whole:
            labels = labels % CLASSES
        starts = range(0, len(images), workload.batch_size)
        self.batches = [tuple(part[k : k + workload.batch_size] for part in (images, labels)) for k in starts]


class Ours(Ready):
    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        import cv2

        from batchup_ng import SampleRng, augment
        from batchup_ng.memory.leases import BufferPool

        cv2.setNumThreads(1)
        memory = BufferPool()
        self.lent = [(memory.empty(x.shape, x.dtype), y) for x, y in self.batches]
        self.apply = partial(self.operation.ours(augment).writing_to, (0,))  # it owns the batch, as in source.map
        self.rng = SampleRng

    def epoch(self, number: int) -> Iterator[Batch]:
        for (out, _), (x, _) in zip(self.lent, self.batches, strict=True):
            out[...] = x
        return (
            self.apply(x, y, rng=self.rng(number, np.arange(k * len(x), (k + 1) * len(x))))
            for k, (x, y) in enumerate(self.lent)
        )


class Theirs(Ready):
    def __init__(self, workload: Workload, workers: int, each: bool) -> None:
        super().__init__(workload, workers)
        import torch

        torch.set_num_threads(1)
        turned = [(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), y) for x, y in self.batches]
        self.batches = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in turned]
        self.apply, self.each = self.operation.theirs(torchvision_v2()), each

    def epoch(self, number: int) -> Iterator[Batch]:
        import torch

        torch.manual_seed(number)
        for x, y in self.batches:
            if self.operation.whole:
                yield self.apply(x, y)
            else:
                yield torch.stack([self.apply(image) for image in x]) if self.each else self.apply(x), y


def torchvision_v2() -> Any:
    """Return ``torchvision.transforms.v2``. If torchvision lacks its compiled operators, declare two that v2 names."""
    import torch

    try:
        from torchvision.transforms import v2
    except RuntimeError:
        lack = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            lack.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from torchvision.transforms import v2

        v2.lack = lack  # must live as long as the module
    return v2


make = partial(Variant, workloads=("photographs",))
VARIANTS = (
    make(name="ours-augment", family=OURS, open=Ours, needs=("cv2",)),
    make(name="torchvision-images", family="torchvision", open=partial(Theirs, each=True), needs=("torchvision",)),
    make(name="torchvision-batch", family="torchvision", open=partial(Theirs, each=False), needs=("torchvision",)),
)
