"""The sheet of images of docs/augmentation.md: four photographs before and after each operation.

    python -m benchmarks.report.pictures docs/figures

scikit-image ships the photographs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from skimage import data

from batchup_ng import SampleRng
from batchup_ng import augment as a

SIDE = 88
"""Pixels of an image's side."""
PHOTOGRAPHS = {"astronaut": (60, 20, 320), "coffee": (130, 20, 330), "chelsea": (90, 0, 300), "rocket": (110, 40, 380)}
"""Names of the photographs, and the square crop of each: left, top, side."""
GREY = (128, 128, 128)
OPERATIONS = {
    "before": a.compose(),
    "flip(p=1.0)": a.flip(p=1.0),
    "random_crop(88, padding=20, fill=grey)": a.random_crop(SIDE, padding=20, fill=GREY),
    "resized_crop(88, scale=(0.1, 0.6))": a.resized_crop(SIDE, scale=(0.1, 0.6)),
    "affine(rotate=30, scale=(0.8, 1.2), shear=15, fill=grey)": a.affine(
        rotate=30, scale=(0.8, 1.2), shear=15, fill=GREY
    ),
    "color_jitter(brightness=0.5, contrast=0.5)": a.color_jitter(brightness=0.5, contrast=0.5),
    "color_jitter(saturation=(0.0, 2.0))": a.color_jitter(saturation=(0.0, 2.0)),
    "color_jitter(hue=0.2)": a.color_jitter(hue=0.2),
    "grayscale(p=1.0)": a.grayscale(p=1.0),
    "blur((0.5, 2.5), p=1.0)": a.blur((0.5, 2.5), p=1.0),
    "cutout(p=1.0, fill=grey)": a.cutout(p=1.0, fill=GREY),
    "rand_augment(2, 12, fill=grey)": a.rand_augment(2, 12, fill=GREY),
    "mixup(2.0, num_classes=4)": a.mixup(2.0, num_classes=4),
    "cutmix(num_classes=4)": a.cutmix(num_classes=4),
    "compose(resized_crop, flip, color_jitter)": a.compose(
        a.resized_crop(SIDE), a.flip(), a.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
    ),
}


def photographs() -> np.ndarray:
    """Return them as a batch: ``(4, SIDE, SIDE, 3) uint8``."""
    cut = [
        Image.fromarray(getattr(data, name)()).crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
        for name, (left, top, side) in PHOTOGRAPHS.items()
    ]
    return np.stack([np.asarray(picture) for picture in cut])


if __name__ == "__main__":
    figure, places = plt.subplots(5, 3, figsize=(10.8, 5.7), layout="constrained")
    for number, (place, (text, operation)) in enumerate(zip(places.T.flat, OPERATIONS.items(), strict=True)):
        images = operation(photographs(), np.arange(4), rng=SampleRng(number, np.arange(4)))[0]
        place.imshow(np.hstack(images))
        place.set_title(text, loc="left", fontsize=8.5)
        place.axis("off")
    figure.savefig(Path(sys.argv[1], "augmentation.jpg"), dpi=100, pil_kwargs={"quality": 75, "optimize": True})
