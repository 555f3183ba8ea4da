"""``images-large``: 200 JPEG files of 4000x3000, as cameras write them, decoded to 224x224 RGB bytes.

They are the photographs of ``images``, enlarged, some 5 MB each. Without added grain they would have only low
frequencies. 25 are made; each represents eight files.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.workloads import base, images

SIZE = (4000, 3000)
GRAIN = 8.0
"""Standard deviation in grey levels."""


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the files and the labels."""
    rng, photographs = np.random.default_rng(3), images.load_photographs()
    different = 2 if quick else 25
    grain = rng.normal(0.0, GRAIN, (SIZE[1] + 64, SIZE[0] + 64, 1)).astype(np.float32)

    def enlarge(row: int, path: str) -> None:
        if row >= different:
            os.link(folder / f"{row % different:05d}.jpg", path)
            return
        left, top = rng.integers(0, (100, 60))
        part = photographs[row % len(photographs)].crop((left, top, left + 480, top + 360))
        at_y, at_x = rng.integers(0, 64, 2)
        grey = grain[at_y : at_y + SIZE[1], at_x : at_x + SIZE[0]]
        large = np.asarray(part.resize(SIZE, Image.Resampling.BICUBIC), np.float32) + grey
        Image.fromarray(large.clip(0, 255).astype(np.uint8)).save(path, quality=92)

    return images.write("images_large", folder, 16 if quick else 200, enlarge)


Data = images.Data
