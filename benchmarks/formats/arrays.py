"""Formats for arrays: npy, safetensors, HDF5, Zarr."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.formats.base import GROUP, Grouped, Mapped, Rows, Shape


class Npy(Mapped):
    """Two files of ``numpy.save``."""

    title = "npy"
    accessor = "NpyRows"

    @classmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        path.mkdir()
        np.save(path / "x.npy", images)
        np.save(path / "y.npy", labels)

    def __init__(self, path: Path, shape: Shape) -> None:
        self.x, self.y = np.load(path / "x.npy", mmap_mode="r"), np.load(path / "y.npy")

    @classmethod
    def ours(cls, path: Path, shape: Shape) -> list[Any]:
        import batchup_ng as bu

        return [bu.NpyRows(path / "x.npy"), bu.NpyRows(path / "y.npy")]


class Safetensors(Mapped):
    """One file, whose header is 8 bytes for its length, then JSON (github.com/huggingface/safetensors)."""

    title = "safetensors"
    accessor = "SafetensorsRows"
    needs = ("safetensors",)

    @classmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        from safetensors.numpy import save_file

        save_file({"x": images, "y": labels}, path)

    def __init__(self, path: Path, shape: Shape) -> None:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            about = json.loads(file.read(length))
        self.x, self.y = (
            np.memmap(path, dtype, "r", 8 + length + about[name]["data_offsets"][0], tuple(about[name]["shape"]))
            for name, dtype in (("x", np.uint8), ("y", np.int64))
        )
        self.path = path
        self.slices: Any = None

    def sample(self, row: int) -> tuple[Any, Any]:
        if self.slices is None:
            from safetensors import safe_open

            self.slices = safe_open(self.path, "numpy").get_slice("x")
        return self.slices[row : row + 1][0], self.y[row]


class Hdf5Contiguous(Mapped):
    """Data sets in one piece each: plain code maps them at their offset."""

    title = "HDF5, contiguous"
    accessor = "Hdf5Rows"
    needs = ("h5py",)
    rows: ClassVar[int] = 0  # rows of a chunk
    compression: ClassVar[str | None] = None

    @classmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        import h5py  # type: ignore[import-untyped]  # ships no types

        with h5py.File(path, "w") as file:
            chunks = (cls.rows, *images.shape[1:]) if cls.rows else None
            file.create_dataset("x", data=images, chunks=chunks, compression=cls.compression)
            file["y"] = labels

    def __init__(self, path: Path, shape: Shape) -> None:
        import h5py

        self.file = h5py.File(path)
        self.data, self.y = self.file["x"], self.file["y"][:]
        self.open(path)

    def open(self, path: Path) -> None:
        """Prepare the objects that plain code reads from."""
        self.x = np.memmap(path, self.data.dtype, "r", self.data.id.get_offset(), self.data.shape)

    def sample(self, row: int) -> tuple[Any, Any]:
        return self.data[row], self.y[row]


class Hdf5Rows(Hdf5Contiguous):
    """Chunks of a row: plain code selects each by h5py's low-level calls, in a third of the time of ``read_direct``."""

    title = "HDF5, chunks of a row"
    chunk = GROUP
    rows = 1

    def open(self, path: Path) -> None:
        import h5py

        self.all, self.one = self.data.id.get_space(), h5py.h5s.create_simple(self.data.shape[1:])

    def pick(self, rows: Rows, x: np.ndarray) -> None:
        shape = (1, *x.shape[1:])
        for place, row in enumerate(rows.tolist()):
            self.all.select_hyperslab((row, 0, 0, 0), shape)
            self.data.id.read(self.one, self.all, x[place])

    def run(self, start: int, x: np.ndarray) -> None:
        self.data.read_direct(x, np.s_[start : start + len(x)])


class Decoded(Grouped):
    """A format whose library decodes chunks into existing memory, by :meth:`run`."""

    kept: np.ndarray  # memory for a chunk

    def group(self, number: int) -> np.ndarray:
        start = number * GROUP
        kept = self.kept[: len(self.y) - start]
        self.run(start, kept)
        return kept


class Hdf5Chunks(Decoded, Hdf5Rows):
    """Chunks of 64 rows, compressed by lzf, which is part of h5py."""

    title = f"HDF5, chunks of {GROUP}, lzf"
    drawn = 10
    rows = GROUP
    compression = "lzf"
    run = Hdf5Rows.run

    def open(self, path: Path) -> None:
        self.kept = np.empty((GROUP, *self.data.shape[1:]), np.uint8)


class Zarr(Decoded):
    """A group of two arrays of format 3, in chunks of 64 rows with zarr's default compression (zstd)."""

    title = f"Zarr 3, chunks of {GROUP}, zstd"
    accessor = "ZarrRows"
    needs = ("zarr",)
    drawn = 20

    @classmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        import zarr

        group = zarr.open_group(path, mode="w", zarr_format=3)
        group.create_array("x", data=images, chunks=(GROUP, *images.shape[1:]))
        group.create_array("y", data=labels)

    def __init__(self, path: Path, shape: Shape) -> None:
        import zarr

        file: Any = zarr.open_group(path, mode="r")
        self.x, self.y = file["x"], file["y"][:]
        self.kept = np.empty((GROUP, *shape), np.uint8)

    def run(self, start: int, x: np.ndarray) -> None:
        from zarr.core.buffer.cpu import NDBuffer

        self.x.get_basic_selection(slice(start, start + len(x)), out=NDBuffer.from_numpy_array(x))
