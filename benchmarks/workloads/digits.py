"""``digits``: 60,000 images of 28x28 bytes in memory, 47 MB, with a label each, no map: the size of MNIST."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.workloads import arrays, base


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the images and the labels."""
    samples = 200 if quick else 60_000
    images = np.random.default_rng(3).integers(0, 256, (samples, 28, 28, 1), dtype=np.uint8)
    np.save(folder / "images.npy", images)
    return base.Workload(
        kind="digits",
        folder=str(folder),
        samples=samples,
        y_sum=base.save_labels(folder, samples),
        x_sum=int(base.probe(images).sum()),
        nbytes=images.nbytes,
    )


Data = arrays.Data
