"""The sheet of images of docs/augmentation.md: four photographs before and after each operation.

    python -m benchmarks.report.pictures docs/figures/augmentation.jpg

scikit-image ships the photographs.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE, TEXT, GAP, ROWS = 88, 17, 10, 5
"""Pixels of an image's side, of a line of text, between blocks; number of blocks in a column."""
PHOTOGRAPHS = {"astronaut": (60, 20, 320), "coffee": (130, 20, 330), "chelsea": (90, 0, 300), "rocket": (110, 40, 380)}
"""Names of the photographs, and the square crop of each: left, top, side."""


def photographs() -> np.ndarray:
    """Return them as a batch: ``(4, SIDE, SIDE, 3) uint8``."""
    from skimage import data

    cut = [
        Image.fromarray(getattr(data, name)()).crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
        for name, (left, top, side) in PHOTOGRAPHS.items()
    ]
    return np.stack([np.asarray(picture) for picture in cut])


def blocks() -> dict[str, Any]:
    """Return the images of the sheet, by columns."""
    from batchup_ng import augment as a

    grey = (128, 128, 128)
    chain = [a.resized_crop(SIDE), a.flip(), a.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)]
    return {
        "before": a.compose(),
        "flip(p=1.0)": a.flip(p=1.0),
        f"random_crop({SIDE}, padding=20, fill=grey)": a.random_crop(SIDE, padding=20, fill=grey),
        f"resized_crop({SIDE}, scale=(0.1, 0.6))": a.resized_crop(SIDE, scale=(0.1, 0.6)),
        "affine(rotate=30, scale=(0.8, 1.2), shear=15, fill=grey)": a.affine(
            rotate=30, scale=(0.8, 1.2), shear=15, fill=grey
        ),
        "color_jitter(brightness=0.5, contrast=0.5)": a.color_jitter(brightness=0.5, contrast=0.5),
        "color_jitter(saturation=(0.0, 2.0))": a.color_jitter(saturation=(0.0, 2.0)),
        "color_jitter(hue=0.2)": a.color_jitter(hue=0.2),
        "grayscale(p=1.0)": a.grayscale(p=1.0),
        "blur((0.5, 2.5), p=1.0)": a.blur((0.5, 2.5), p=1.0),
        "cutout(p=1.0, fill=grey)": a.cutout(p=1.0, fill=grey),
        "rand_augment(2, 12, fill=grey)": a.rand_augment(2, 12, fill=grey),
        "mixup(2.0, num_classes=4)": a.mixup(2.0, num_classes=4),
        "cutmix(num_classes=4)": a.cutmix(num_classes=4),
        "compose(resized_crop, flip, color_jitter)": a.compose(*chain),
    }


def sheet() -> Image.Image:
    """Return all images on one sheet."""
    from batchup_ng import SampleRng

    made = blocks()
    width, height = 4 * SIDE + GAP, SIDE + TEXT + GAP
    page = Image.new("RGB", (-(-len(made) // ROWS) * width - GAP, ROWS * height - GAP), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(size=13)
    for number, (text, operation) in enumerate(made.items()):
        left, top = number // ROWS * width, number % ROWS * height
        pen.text((left, top), text, "black", font)
        images = operation(photographs(), np.arange(4), rng=SampleRng(number, np.arange(4)))[0]
        for place, image in enumerate(images):
            page.paste(Image.fromarray(image), (left + place * SIDE, top + TEXT))
    return page


if __name__ == "__main__":
    sheet().save(sys.argv[1], quality=75, optimize=True)
