"""The programs that are measured under a limit: their data, their source, their pool.

Each holds nearly all that its limit allows, because its data, or its batches ahead, have more bytes than the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MB = 10**6
COLUMNS = 100
SMALL = 8
"""Rows of data at scale 0."""


@dataclass(frozen=True)
class Setting:
    """One program.

    Args:
        title: Its data and its pool.
        limit: The limit on memory in MB.
        make: Writes the data for a scale between 0 and 1 to a folder.
        source: Opens them there.
        pool: Makes the pool.
        batch: Rows of a batch.
    """

    title: str
    limit: int
    make: Callable[[Path, float], None]
    source: Callable[[Path, Any], Any]
    pool: Callable[[Any], Any]
    batch: int


def _make_array(folder: Path, scale: float) -> None:
    rows = np.lib.format.open_memmap(folder / "x.npy", "w+", np.int32, (max(SMALL, int(800 * scale)), 1 << 17))
    rows[...] = np.arange(len(rows), dtype=np.int32)[:, None]
    rows.flush()


def _in_memory(folder: Path, bu: Any) -> Any:
    return bu.ArrayDataSource([np.load(folder / "x.npy")])


def _in_file(folder: Path, bu: Any) -> Any:
    return bu.ArrayDataSource([np.load(folder / "x.npy", mmap_mode="r")])


def _make_images(folder: Path, scale: float) -> None:
    from PIL import Image

    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    for number in range(max(SMALL, int(960 * scale))):
        Image.fromarray(np.roll(noise, number, 0)).resize((800, 600)).save(folder / f"{number:04d}.jpg")


def _images(folder: Path, bu: Any) -> Any:
    return bu.ArrayDataSource([bu.ImageFiles(sorted(map(str, folder.glob("*.jpg"))), size=(480, 640))])


def _make_table(folder: Path, scale: float) -> None:
    import h5py

    n, width = max(SMALL, int(6400 * scale)), 1 << 10
    with h5py.File(folder / "x.h5", "w") as file:
        rows = np.broadcast_to(np.arange(n, dtype=np.int32)[:, None], (n, width))
        for number in range(COLUMNS):
            options = {"chunks": (min(64, n), width), "compression": "gzip", "compression_opts": 1}
            file.create_dataset(f"c{number:02d}", data=rows, **options)


def _table(folder: Path, bu: Any) -> Any:
    return bu.from_file(folder / "x.h5").cache()


def _make_texts(folder: Path, scale: float) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    n = max(SMALL, int(6400 * scale))
    texts = {f"c{number:02d}": [f"{row:<4000}" for row in range(n)] for number in range(10)}
    parquet.write_table(pa.table({**texts, "row": np.arange(n, dtype=np.int32)}), folder / "x.parquet",
                        row_group_size=640)  # fmt: skip


def _texts(folder: Path, bu: Any) -> Any:
    columns = bu.ParquetRows.columns(folder / "x.parquet")
    return bu.ArrayDataSource(list(columns.values()))


SETTINGS = {
    "threads": Setting(
        "an array of the program, batches of 34 MB, 4 threads", 300, _make_array, _in_memory,
        lambda bu: bu.WorkerThreadPool(4), 64,
    ),
    "slots": Setting(
        "a mapped `.npy` file, batches of 34 MB in slots, 4 processes", 400, _make_array, _in_file,
        lambda bu: bu.WorkerProcessPool(4), 64,
    ),
    "copies": Setting(
        "an array of the program, copied for 4 processes that are spawned", 700, _make_array, _in_memory,
        lambda bu: bu.WorkerProcessPool(4, start_method="spawn"), 32,
    ),
    "images": Setting(
        "JPEG files, batches of 29 MB, 4 processes", 400, _make_images, _images, lambda bu: bu.WorkerProcessPool(4),
        32,
    ),
    "table": Setting(
        "HDF5, 100 compressed columns of 26 MB, `cache()`, 8 processes", 2000, _make_table, _table,
        lambda bu: bu.WorkerProcessPool(8), 32,
    ),
    "texts": Setting(
        "Parquet, 10 columns of texts of 26 MB, 4 processes", 600, _make_texts, _texts,
        lambda bu: bu.WorkerProcessPool(4), 64,
    ),
}  # fmt: skip
"""The programs by name."""
