"""``photographs``: 256 crops of the photographs of ``images``, 224x224 RGB bytes in memory, with a label each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.workloads import arrays, base, images


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the images and the labels."""
    photographs = [np.asarray(photograph) for photograph in images.load_photographs()]
    rng, side = np.random.default_rng(3), 224
    cut = np.empty((16 if quick else 256, side, side, 3), np.uint8)
    for row, place in enumerate(cut):
        whole = photographs[row % len(photographs)]
        top, left = rng.integers(0, np.array(whole.shape[:2]) - side + 1)
        place[...] = whole[top : top + side, left : left + side]
    return arrays.save("photographs", folder, cut)


Data = arrays.Data
