"""``decoded``: 4,096 images of 224x224x3 bytes in memory, 617 MB, with a label each, as input of a network."""

from __future__ import annotations

from pathlib import Path

from benchmarks.workloads import arrays, base


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the images and the labels."""
    return arrays.write("decoded", folder, *((32, 32) if quick else (4_096, 224)))


Data = arrays.Data
