"""The operation that applies an Albumentations pipeline to each image.

Albumentations keeps generators and parameters in its objects, so each thread calls a copy. ``set_random_seed`` would
give each transform of a pipeline its own generator from one seed: a flip with p=0.5 and another flip with p=0.5 would
act on the same images. With ``set_random_state`` they share one generator, and draw from it one after the other.
"""

from __future__ import annotations

import copy
import random
import threading
from typing import Any

import numpy as np

from ..batch import stack
from ..errors import ArgumentTypeError
from ..validation import known_names
from .base import Operation
from .options import ADVICE_ON_AUGMENT_OPTIONS


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
            is called with the image alone; masks and boxes need your own function in ``source.map_samples``.

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
        if not hasattr(self._of_thread, "transform"):
            self._of_thread.transform = copy.deepcopy(self.transform)
        transform, made = self._of_thread.transform, []
        if isinstance(images, list):
            images = [np.array(image) for image in images]  # an array was already copied, unless the operation owns it
        for image, generator in zip(images, drawn, strict=True):
            transform.set_random_state(generator, random.Random(int(generator.integers(2**63))))
            made.append(np.asarray(transform(image=image)["image"]))
        return (stack(made) if made else images), labels
