"""``shuffle="blocks"`` with ``shard=``: what the ranks read of real files, all together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.storage import arrow_column

from .remote_server import serving
from .test_tar import write

N, CHUNK = 4000, 20
ROWS = np.arange(N * 4, dtype=np.int32).reshape(N, 4)


def opened(kind: str, folder: Path) -> Any:
    """Return an accessor with a cache of its own, as in a process of its own. Write the file if it is not there."""
    path, new = folder / "x", not (folder / "x").exists()
    if kind == "hdf5":
        h5py = pytest.importorskip("h5py")
        if new:
            with h5py.File(path, "w") as file:
                file.create_dataset("x", data=ROWS, chunks=(CHUNK, 4), compression="gzip")
        return bu.Hdf5Rows(path, "x")
    if kind == "zarr":
        library = pytest.importorskip("zarr")
        if new:
            library.create_array(str(path), data=ROWS, chunks=(CHUNK, 4))
        return bu.ZarrRows(path)
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    if new:
        table = pyarrow.table({"x": pyarrow.array(ROWS[:, 0])})
        parquet.write_table(table, path, row_group_size=CHUNK)
    return bu.ParquetRows(path, "x")


def counted(monkeypatch: pytest.MonkeyPatch, accessor: Any) -> list[int]:
    """Return a list that gets the number of chunks of each decoding."""
    decoded: list[int] = []
    name = "_decode" if hasattr(accessor, "_decode") else "_decoded"
    original = getattr(type(accessor), name)

    def counting(self: Any, *arguments: Any) -> Any:
        decoded.append(1 if name == "_decode" else arguments[2] - arguments[1])
        return original(self, *arguments)

    monkeypatch.setattr(type(accessor), name, counting)
    return decoded


@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize("groups", [None, 8])
@pytest.mark.parametrize("kind", ["hdf5", "zarr", "parquet"])
@pytest.mark.in_turn
def test_chunks_are_decoded_about_once_by_all_ranks(
    kind: str, groups: int | None, world: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_column, "RUN_BYTES", 1)  # otherwise these short row groups are one chunk
    decoded = counted(monkeypatch, opened(kind, tmp_path))
    monkeypatch.setattr(type(opened(kind, tmp_path)), "natural_window", 16)
    seen: list[int] = []
    for rank in range(world):
        source = bu.ArrayDataSource([opened(kind, tmp_path), np.arange(N)])
        shuffle = ("blocks", 3) if groups is None else ("blocks", 3, groups)
        for rows, numbers in source.batch_iterator(10, shuffle, shard=(rank, world), uneven="drop"):
            assert (rows.reshape(len(rows), -1)[:, 0] == ROWS[numbers, 0]).all()
            seen += numbers.tolist()
    assert len(set(seen)) == len(seen) == N
    assert N / CHUNK <= sum(decoded) <= 1.3 * N / CHUNK


@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")  # there are fewer blocks than ranks
def test_a_tar_behind_a_url_is_fetched_about_once_by_all_ranks(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    sent: list[int] = []
    with serving(tmp_path) as server:
        path = write(tmp_path / "x.tar", [(f"{row}.bin", bytes([row % 256]) * 20_000) for row in range(120)])
        shards = bu.TarShards(server.url("x.tar"))
        server.fails("GET x.tar", lambda handler, content: sent.append(len(content)) is None, 10**4)
        seen = []
        for rank in range(4):
            source = bu.ArrayDataSource([shards, np.arange(120)])
            for data, numbers in source.batch_iterator(10, ("blocks", 3), shard=(rank, 4)):
                assert [each[:1] * 20_000 for each in data] == list(data)
                assert [each[0] for each in data] == [row % 256 for row in numbers.tolist()]
                seen += numbers.tolist()
        assert sorted(seen) == list(range(120))
        assert 120 * 20_000 <= sum(sent) <= 1.3 * path.stat().st_size
