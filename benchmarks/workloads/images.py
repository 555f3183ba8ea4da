"""``images``: 2,000 JPEG files of 400-560 x 300-420, decoded to 224x224 RGB bytes by Pillow.

They are cut from the two photographs that come with scikit-learn: synthetic pictures compress, hence decode, unlike
real ones.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.workloads import base


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the files and the labels."""
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]  # ships no types

    photographs = [Image.fromarray(photograph) for photograph in load_sample_images().images]
    rng, samples = np.random.default_rng(2), 80 if quick else 2_000
    pictures = Pictures(folder, samples)
    for row, path in enumerate(pictures.paths):
        whole = photographs[row % len(photographs)]
        size = rng.integers((400, 300), (561, 421))
        left, top = rng.integers(0, np.array(whole.size) - size + 1)
        whole.crop((left, top, left + size[0], top + size[1])).save(path, quality=92)
    y_sum = base.save_labels(folder, samples)
    with ThreadPoolExecutor() as executor:
        x_sum = sum(executor.map(lambda row: int(base.probe(pictures[[row]])[0]), range(samples)))
    return base.Workload(kind="images", folder=str(folder), samples=samples, y_sum=y_sum, x_sum=x_sum)


class Pictures:
    """Files as a column: indexed by rows, it decodes them. A library with such a column of its own takes `paths`."""

    size = (224, 224)

    def __init__(self, folder: Path, samples: int) -> None:
        self.paths = [str(folder / f"{row:05d}.jpg") for row in range(samples)]

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        return self.into(rows, np.empty((len(rows), *self.size, 3), np.uint8))

    def into(self, rows: Any, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
        for place, row in zip(out, rows, strict=True):
            with Image.open(self.paths[row]) as picture:
                place[...] = picture.resize(self.size[::-1], Image.Resampling.BILINEAR)
        return out

    def __len__(self) -> int:
        return len(self.paths)


class Data(base.Data):
    """Pictures with their labels."""

    def __init__(self, workload: base.Workload) -> None:
        folder = Path(workload.folder)
        self.columns = (Pictures(folder, workload.samples), np.load(folder / "labels.npy"))

    def fill(self, rows: base.Rows, out: base.Batch) -> None:
        self.columns[0].into(rows, out[0])
        out[1][...] = self.columns[1][rows]
