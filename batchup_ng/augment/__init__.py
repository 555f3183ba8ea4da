"""Augmentations: functions of batches of images. Each draw belongs to a sample's position in the epoch.

All are functions for ``source.map(..., rng="sample")``::

    chain = augment.compose(augment.flip(), augment.random_crop(32, padding=4), augment.normalize(mean, std))
    train = source.map(chain, rng="sample")

They take ``(n, height, width, channels)`` arrays of `uint8` or `float32`. They leave the other parts of a batch
unchanged, with two exceptions: boxes, masks and keypoints that ``compose`` names move with the images, and ``mixup``
and ``cutmix`` mix the labels. All pools give the same batches. Except with mixing without ``companions=``, the result
for a sample does not depend on the batch size either. ``flip``, ``random_crop``, ``cutout``, ``normalize``, ``mosaic``,
``copy_paste`` and the mixing need only NumPy,
``albumentations`` and ``torchvision`` their libraries. The others need OpenCV (``pip install 'batchup_ng[images]'``),
and their last bits depend on its version.
"""

from typing import TYPE_CHECKING, Any

from .albumentations import albumentations
from .base import compose
from .boxes import box_convert
from .choice import choose, rand_augment
from .color import blur, color_jitter, grayscale
from .copying import copy_paste
from .geometry import affine, cutout, flip, random_crop, resized_crop
from .mixing import cutmix, mixup
from .mosaic import mosaic
from .normalize import normalize
from .resizing import letterbox, resize
from .torchvision import torchvision

__all__ = [
    "affine",
    "albumentations",
    "blur",
    "box_convert",
    "choose",
    "color_jitter",
    "compose",
    "copy_paste",
    "cutmix",
    "cutout",
    "flip",
    "grayscale",
    "letterbox",
    "mixup",
    "mosaic",
    "normalize",
    "rand_augment",
    "random_crop",
    "resize",
    "resized_crop",
    "torchvision",
]

_OF_TORCHVISION = {
    "random_resized_crop": "resized_crop(size), or images=partial(ImageFiles, crop='random') before decoding",
    "random_horizontal_flip": "flip()",
    "random_vertical_flip": "flip(vertical=True)",
    "random_affine": "affine(...)",
    "random_erasing": "cutout()",
    "gaussian_blur": "blur()",
}
"""Names in torchvision, each with the operation here that does the same."""


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        known = f"; {_OF_TORCHVISION[name]} does that" if name in _OF_TORCHVISION else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{known}", name=name)
