"""The 1,797 handwritten digits that the package ships; `digits.md` states their origin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

ARCHIVE = Path(__file__).with_name("digits.npz")


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits: `(images, labels)`.

    images: ``(1797, 8, 8) uint8``, 0 to 16; labels: ``(1797,) uint8``, 0 to 9.
    """
    with np.load(ARCHIVE, allow_pickle=False) as archive:
        return archive["images"], archive["labels"]


def write_digits(folder: str | Path) -> tuple[list[Path], np.ndarray]:
    """Write each digit as a grey PNG file of 8 × 8 pixels into a folder named after its class, ``0/0000.png``, ...;
    return the paths and the labels, ``(1797,) int64``. A pixel of ink n is written as n × 15.
    """
    images, labels = load_digits()
    folder = Path(folder)
    for label in np.unique(labels):
        (folder / str(label)).mkdir()
    paths = [folder / str(label) / f"{number:04d}.png" for number, label in enumerate(labels)]
    for path, image in zip(paths, images * np.uint8(15), strict=True):
        Image.fromarray(image).save(path)
    return paths, labels.astype(np.int64)
