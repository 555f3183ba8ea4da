"""Formats for tables: Arrow, Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats.base import GROUP, Grouped, Rows, Shape


class Columns(Grouped):
    """A format whose column of images stores no shape."""

    needs = ("pyarrow",)
    shape: Shape

    @classmethod
    def ours(cls, path: Path, shape: Shape) -> list[Any]:
        import batchup_ng as bu

        accessor = getattr(bu, cls.accessor)
        return [accessor(path, "x", shape=shape), accessor(path, "y")]


class Arrow(Columns):
    """An IPC file with record batches of 64 rows, lists of a fixed size: plain code views the buffers in the map."""

    title = f"Arrow, batches of {GROUP}"
    accessor = "ArrowRows"
    chunk = 0  # nothing is decoded

    @classmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        import pyarrow as pa

        size = images[0].size
        schema = pa.schema({"x": pa.list_(pa.uint8(), size), "y": pa.int64()})
        with pa.ipc.new_file(path, schema) as file:
            for start in range(0, len(images), GROUP):
                x = pa.FixedSizeListArray.from_arrays(images[start : start + GROUP].reshape(-1), size)
                file.write(pa.record_batch([x, labels[start : start + GROUP]], schema=schema))

    def __init__(self, path: Path, shape: Shape) -> None:
        import pyarrow as pa

        file = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [file.get_batch(number) for number in range(file.num_record_batches)]
        self.x = [batch["x"].flatten().to_numpy().reshape(-1, *shape) for batch in batches]
        self.y = np.concatenate([batch["y"].to_numpy() for batch in batches])
        self.table, self.shape = pa.Table.from_batches(batches), shape

    def pick(self, rows: Rows, x: np.ndarray) -> None:
        groups, within = np.divmod(rows, GROUP)
        for place, (group, row) in enumerate(zip(groups.tolist(), within.tolist(), strict=True)):
            x[place] = self.x[group][row]

    def group(self, number: int) -> np.ndarray:
        images: np.ndarray = self.x[number]
        return images

    def sample(self, row: int) -> tuple[Any, Any]:
        return self.table["x"][row].values.to_numpy().reshape(self.shape), self.table["y"][row].as_py()


class Parquet(Columns):
    """Row groups of 64, images as bytes, without compression."""

    title = f"Parquet, row groups of {GROUP}"
    accessor = "ParquetRows"
    drawn = 50

    @classmethod
    def write(cls, path: Path, images: np.ndarray, labels: np.ndarray) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema({"x": pa.binary(), "y": pa.int64()})
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
            for start in range(0, len(images), GROUP):
                x = pa.array([image.tobytes() for image in images[start : start + GROUP]])
                file.write_table(pa.table([x, labels[start : start + GROUP]], schema=schema))

    def __init__(self, path: Path, shape: Shape) -> None:
        import pyarrow.parquet as pq

        self.x = pq.ParquetFile(path, memory_map=True)
        self.y = self.x.read(["y"])["y"].to_numpy()
        self.shape = shape
        self.kept = -1, np.empty(0)

    def group(self, number: int) -> np.ndarray:
        column = self.x.read_row_group(number, ["x"], use_threads=False)["x"].chunk(0)
        return np.frombuffer(column.buffers()[2], np.uint8).reshape(-1, *self.shape)

    def sample(self, row: int) -> tuple[Any, Any]:
        if self.kept[0] != row // GROUP:
            self.kept = row // GROUP, self.group(row // GROUP)
        return self.kept[1][row % GROUP], self.y[row]
