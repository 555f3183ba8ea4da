"""Workloads of photographs: JPEG files of two sizes, and crops in memory.

They are made of the two photographs of scikit-learn, because synthetic images compress and decode unlike real ones. A
peer decodes files by Pillow and resizes with its antialiased bilinear filter, unless its variant defines another way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.workloads import base
from benchmarks.workloads.arrays import Arrays

SIZE = (224, 224)


@cache
def photographs() -> list[Image.Image]:
    """Return the two photographs, 640 x 427."""
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]  # ships no types

    return [Image.fromarray(each) for each in load_sample_images().images]


def photograph(row: int, rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Return a random part of a photograph, of the first for even rows."""
    whole = photographs()[row % 2]
    left, top = rng.integers(0, np.array(whole.size) - (width, height) + 1)
    return whole.crop((left, top, left + width, top + height))


def by_pillow(path: str, out: NDArray[np.uint8]) -> None:
    with Image.open(path) as picture:
        out[...] = picture.resize(SIZE[::-1], Image.Resampling.BILINEAR)


def by_simplejpeg(path: str, out: NDArray[np.uint8], *, opencv: bool = False, reduced: bool = False) -> None:
    """Decode a file, reduced by 2, 4 or 8 if wanted; resize by OpenCV, or else by Pillow, antialiased."""
    import simplejpeg

    data, least = Path(path).read_bytes(), {}
    if reduced:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
        factor = next((each for each in (8, 4, 2) if height >= each * SIZE[0] and width >= each * SIZE[1]), 1)
        least = {"min_height": -(-height // factor), "min_width": -(-width // factor)}
    decoded = simplejpeg.decode_jpeg(data, **least)
    if opencv:
        import cv2

        cv2.resize(decoded, SIZE[::-1], dst=out, interpolation=cv2.INTER_LINEAR)
    else:
        out[...] = Image.fromarray(decoded).resize(SIZE[::-1], Image.Resampling.BILINEAR)


HOW: dict[str, Callable[[str, NDArray[np.uint8]], None]] = {
    "pillow": by_pillow,
    "turbo": by_simplejpeg,
    "opencv": partial(by_simplejpeg, opencv=True),
    "reduced": partial(by_simplejpeg, opencv=True, reduced=True),
}
"""Decoders, by ``detail["how"]``."""


def decoded(workload: base.Workload, how: str) -> base.Workload:
    """Return the workload with files that another of `HOW` decodes."""
    return replace(workload, detail={**workload.detail, "how": how})


class Pictures:
    """A column of files: indexing by rows decodes them. A library with its own such column takes `paths`."""

    def __init__(self, folder: Path, samples: int, how: str) -> None:
        self.paths = [str(folder / f"{row:05d}.jpg") for row in range(samples)]
        self.how = how

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        return self.into(rows, np.empty((len(rows), *SIZE, 3), np.uint8))

    def into(self, rows: Any, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
        for place, row in zip(out, rows, strict=True):
            HOW[self.how](self.paths[row], place)
        return out

    def __len__(self) -> int:
        return len(self.paths)


class Images(base.Data):
    """2,000 JPEG files of 400-560 x 300-420 with a label each, decoded to 224x224 RGB bytes."""

    @classmethod
    def make(cls, folder: Path, quick: bool) -> base.Workload:
        rng = np.random.default_rng(2)

        def cut(row: int, path: str) -> None:
            photograph(row, rng, *rng.integers((400, 300), (561, 421))).save(path, quality=92)

        return cls.write(folder, 80 if quick else 2_000, cut)

    @classmethod
    def write(cls, folder: Path, samples: int, save: Callable[[int, str], None]) -> base.Workload:
        """Write the labels, and each file by a call of `save` with its row and path."""
        pictures = Pictures(folder, samples, "pillow")
        for row, path in enumerate(pictures.paths):
            save(row, path)
        with ThreadPoolExecutor() as executor:
            x_sum = sum(executor.map(lambda row: int(base.probe(pictures[[row]])[0]), range(samples)))
        return base.Workload(
            folder=str(folder), samples=samples, y_sum=base.save_labels(folder, samples), x_sum=x_sum,
            x_slack=4 * samples,
        )  # fmt: skip

    def __init__(self, workload: base.Workload) -> None:
        folder = Path(workload.folder)
        pictures = Pictures(folder, workload.samples, workload.detail.get("how", "pillow"))
        self.columns = (pictures, np.load(folder / "labels.npy"))

    def accessors(self, **options: Any) -> list[Any]:
        import batchup_ng as bu

        pictures, labels = self.columns
        return [bu.ImageFiles(pictures.paths, size=SIZE, **options), labels]

    def fill(self, rows: base.Rows, out: base.Batch) -> None:
        self.columns[0].into(rows, out[0])
        out[1][...] = self.columns[1][rows]


class LargeImages(Images):
    """200 JPEG files of 4000x3000, as cameras write them, some 5 MB each, decoded to 224x224 RGB bytes.

    Enlarged photographs would have only low frequencies without added grain, whose standard deviation is 8 grey levels.
    25 are made; each represents eight files.
    """

    @classmethod
    def make(cls, folder: Path, quick: bool) -> base.Workload:
        rng, width, height = np.random.default_rng(3), 4000, 3000
        different = 2 if quick else 25
        grain = rng.normal(0.0, 8.0, (height + 64, width + 64, 1)).astype(np.float32)

        def enlarge(row: int, path: str) -> None:
            if row >= different:
                os.link(folder / f"{row % different:05d}.jpg", path)
                return
            part = photograph(row, rng, 480, 360).resize((width, height), Image.Resampling.BICUBIC)
            y, x = rng.integers(0, 64, 2)
            large = np.asarray(part, np.float32) + grain[y : y + height, x : x + width]
            Image.fromarray(large.clip(0, 255).astype(np.uint8)).save(path, quality=92)

        return cls.write(folder, 16 if quick else 200, enlarge)


class Photographs(Arrays):
    """256 crops of the photographs, 224x224 RGB bytes in memory, with a label each."""

    shape, quick_shape = (256, *SIZE, 3), (16, *SIZE, 3)

    @classmethod
    def draw(cls, shape: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng(3)
        return np.stack([np.asarray(photograph(row, rng, *SIZE)) for row in range(shape[0])])
