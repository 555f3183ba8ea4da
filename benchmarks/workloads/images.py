"""``images``: 2,000 JPEG files of 400-560 x 300-420, decoded to 224x224 RGB bytes.

They are crops of the two photographs of scikit-learn, because synthetic images compress and decode unlike real ones. A
peer decodes by Pillow and resizes with its antialiased bilinear filter, unless its variant defines another way.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.workloads import base

SIZE = (224, 224)


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the files and the labels."""
    rng, photographs = np.random.default_rng(2), load_photographs()

    def cut(row: int, path: str) -> None:
        whole = photographs[row % len(photographs)]
        size = rng.integers((400, 300), (561, 421))
        left, top = rng.integers(0, np.array(whole.size) - size + 1)
        whole.crop((left, top, left + size[0], top + size[1])).save(path, quality=92)

    return write("images", folder, 80 if quick else 2_000, cut)


def load_photographs() -> list[Any]:
    """Return the two photographs, 640 x 427."""
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]  # ships no types

    return [Image.fromarray(photograph) for photograph in load_sample_images().images]


def write(kind: str, folder: Path, samples: int, save: Callable[[int, str], None]) -> base.Workload:
    """Write the labels, and each file by a call of `save` with its row and path."""
    pictures = Pictures(folder, samples)
    for row, path in enumerate(pictures.paths):
        save(row, path)
    y_sum = base.save_labels(folder, samples)
    with ThreadPoolExecutor() as executor:
        x_sum = sum(executor.map(lambda row: int(base.probe(pictures[[row]])[0]), range(samples)))
    return base.Workload(kind=kind, folder=str(folder), samples=samples, y_sum=y_sum, x_sum=x_sum, x_slack=4 * samples)


def by_pillow(path: str, out: NDArray[np.uint8]) -> None:
    with Image.open(path) as picture:
        out[...] = picture.resize(SIZE[::-1], Image.Resampling.BILINEAR)


def by_turbo(path: str, out: NDArray[np.uint8]) -> None:
    import simplejpeg

    decoded = simplejpeg.decode_jpeg(Path(path).read_bytes())
    out[...] = Image.fromarray(decoded).resize(SIZE[::-1], Image.Resampling.BILINEAR)


def by_opencv(path: str, out: NDArray[np.uint8]) -> None:
    import cv2
    import simplejpeg

    decoded = simplejpeg.decode_jpeg(Path(path).read_bytes())
    cv2.resize(decoded, SIZE[::-1], dst=out, interpolation=cv2.INTER_LINEAR)


def reduced(path: str, out: NDArray[np.uint8]) -> None:
    import cv2
    import simplejpeg

    data = Path(path).read_bytes()
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    factor = next((each for each in (8, 4, 2) if height >= each * SIZE[0] and width >= each * SIZE[1]), 1)
    decoded = simplejpeg.decode_jpeg(data, min_height=-(-height // factor), min_width=-(-width // factor))
    cv2.resize(decoded, SIZE[::-1], dst=out, interpolation=cv2.INTER_LINEAR)


HOW = (by_pillow, by_turbo, by_opencv, reduced)
"""Decoders, by the number in ``detail["how"]``."""


def decoded(workload: base.Workload, how: Callable[[str, NDArray[np.uint8]], None]) -> base.Workload:
    """Return the workload with files that another of `HOW` decodes."""
    return replace(workload, detail={**workload.detail, "how": HOW.index(how)})


class Pictures:
    """A column of files: indexing by rows decodes them. A library with its own such column takes `paths`."""

    size = SIZE

    def __init__(self, folder: Path, samples: int, how: int = 0) -> None:
        self.paths = [str(folder / f"{row:05d}.jpg") for row in range(samples)]
        self.how = how

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        return self.into(rows, np.empty((len(rows), *self.size, 3), np.uint8))

    def into(self, rows: Any, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
        for place, row in zip(out, rows, strict=True):
            HOW[self.how](self.paths[row], place)
        return out

    def __len__(self) -> int:
        return len(self.paths)


class Data(base.Data):
    """Images with their labels."""

    def __init__(self, workload: base.Workload) -> None:
        folder = Path(workload.folder)
        pictures = Pictures(folder, workload.samples, workload.detail.get("how", 0))
        self.columns = (pictures, np.load(folder / "labels.npy"))

    def accessors(self) -> list[Any]:
        import batchup_ng as bu

        pictures, labels = self.columns
        return [bu.ImageFiles(pictures.paths, size=pictures.size), labels]

    def fill(self, rows: base.Rows, out: base.Batch) -> None:
        self.columns[0].into(rows, out[0])
        out[1][...] = self.columns[1][rows]
