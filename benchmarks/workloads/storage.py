"""The workload ``storage``: images in files of several formats."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats import FORMATS, Format
from benchmarks.workloads import base


def pictures(samples: int, side: int) -> np.ndarray:
    """Return images, ``(samples, side, side, 3) uint8``, that are smooth in their upper half, with noise in the lower.

    The noise has four bits. The images compress to about half.
    """
    drawn, lines = np.random.default_rng(0), np.arange(side)
    slopes = [(down * lines[:, None] + right * lines) // 8 for down, right in product(range(-2, 3), repeat=2)]
    planes = np.array(slopes).astype(np.uint8)[..., None]
    lower = np.s_[side // 2 :]
    noise = np.frombuffer(drawn.bytes(3 * side * side * (1 + samples // 20)), np.uint8) & 15
    images = np.empty((samples, side, side, 3), np.uint8)
    for image in images:
        np.add(planes[drawn.integers(len(planes))], drawn.integers(256, size=3, dtype=np.uint8), out=image)
        start = drawn.integers(len(noise) - image[lower].size)
        image[lower] += noise[start : start + image[lower].size].reshape(image[lower].shape)
    return images


def drawn_rows(rows: int, count: int) -> base.Rows:
    """Return `count` random rows in increasing order, for a random epoch of a slow format."""
    return np.sort(np.random.default_rng(2).permutation(rows)[:count])


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file())


class Storage(base.Data):
    """20,000 images of 128x128x3 bytes with a label each, 983 MB.

    Each process that reads opens the file itself, with the plain code of its format. :meth:`prepare` writes the file of
    a part when the part begins, from the arrays that :meth:`make` writes.
    """

    @classmethod
    def make(cls, folder: Path, quick: bool) -> base.Workload:
        images = pictures(*((300, 16) if quick else (20_000, 128)))
        y_sum = base.save_labels(folder, len(images))
        FORMATS["npy"].write(folder / "npy", images, np.load(folder / "labels.npy"))
        x_sum = int(base.probe(images).sum())
        return base.Workload(
            folder=str(folder), samples=len(images), y_sum=y_sum, x_sum=x_sum, detail={"format": "npy"}
        )

    @classmethod
    def prepare(cls, workload: base.Workload) -> base.Workload:
        """Return the workload in a file of its format. Write the file if it is missing and its library is there."""
        name = workload.detail["format"]
        form, path = FORMATS[name], Path(workload.folder, name)
        source = FORMATS["npy"](Path(workload.folder, "npy"), ())
        if not path.exists() and all(map(find_spec, form.needs)):
            form.write(path, source.x, source.y)
            os.sync()  # otherwise pending writes share the disk with the first part
        made = replace(workload, detail={"format": name, "bytes": size_of(path)})
        count = form.drawn * workload.batch_size
        if workload.order != "random" or not 0 < count < workload.samples:
            return made
        rows = drawn_rows(len(source.x), count)
        y_sum, x_sum = int(source.y[rows].sum()), int(base.probe(source.x[rows]).sum())
        return replace(made, samples=count, y_sum=y_sum, x_sum=x_sum)

    def __init__(self, workload: base.Workload) -> None:
        self.workload, self.path = workload, Path(workload.folder, workload.detail["format"])
        self.form: type[Format] = FORMATS[workload.detail["format"]]
        rows, *shape = np.load(Path(workload.folder, "npy", "x.npy"), mmap_mode="r").shape
        self.shape = tuple(shape)
        self.rows = drawn_rows(rows, workload.samples) if workload.samples < rows else None
        self._file: tuple[int, Any] = (0, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_file": (0, None)}

    def accessors(self, **options: Any) -> list[Any]:
        return self.form.ours(self.path, self.shape)

    @property
    def file(self) -> Any:
        """The file, open in this process."""
        if self._file[0] != os.getpid():
            self._file = os.getpid(), self.form(self.path, self.shape)
        return self._file[1]

    def sample(self, row: int) -> tuple[Any, ...]:
        sample: tuple[Any, ...] = self.file.sample(row if self.rows is None else int(self.rows[row]))
        return sample

    def batch(self, rows: base.Rows) -> base.Batch:
        out = np.empty((len(rows), *self.shape), np.uint8), np.empty(len(rows), np.int64)
        self.file.take(rows if self.rows is None else self.rows[rows], *out)
        return out

    def fill(self, rows: base.Rows, out: base.Batch) -> None:
        if self.workload.order == "contiguous":
            self.file.slice(int(rows[0]), *out)
        else:
            self.file.take(rows if self.rows is None else self.rows[rows], *out)
