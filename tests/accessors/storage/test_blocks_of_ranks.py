"""``shuffle="blocks"`` with ``shard=``: what the ranks read of real files, all together."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.storage import arrow_column, chunks, in_runs, remote
from tests.extent import quick

from .remote_server import Server, serving
from .test_tar import write

CHUNK, WIDTH, WINDOW = 20, 25, 64
"""Rows of a chunk, numbers of a row, and how many chunks an order mixes."""

CHUNKS_A_RANK = 25
BATCH = 10
CACHE = 2 * WINDOW * CHUNK * WIDTH * 8  # as many windows as the default has room for

AT_URLS = ("zarr at a URL", "parquet at a URL", "tar at a URL")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make chunks, windows and runs as small as the files, and keep indices in a folder of the test's."""
    for module in (chunks, arrow_column):
        monkeypatch.setattr(module, "ORDER_CACHE_BYTES", CACHE)
    monkeypatch.setattr(arrow_column, "RUN_BYTES", 1)  # otherwise these short row groups are one chunk
    monkeypatch.setattr(in_runs, "RUN_BYTES", CHUNK * (WIDTH * 8 + 824))
    monkeypatch.setattr(in_runs, "WINDOW_BYTES", WINDOW * CHUNK * (WIDTH * 8 + 824))
    monkeypatch.setattr(remote, "RETRY_SECONDS", 3600.0)
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 250.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


class Counted:
    """The rows of a file, and what was read of it.

    Attributes:
        rows: ``(n, WIDTH) int64``; the first number of a row is its own number.
        whole: Chunks or bytes of the file.
    """

    def __init__(self, kind: str, n: int, folder: Path, server: Server | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind, self.folder, self.server = kind, folder, server
        self.rows = np.random.default_rng(0).integers(0, 2**62, (n, WIDTH))
        self.rows[:, 0] = np.arange(n)
        self.read, self.lock = 0, threading.Lock()
        self._write()
        self.whole = self.rows.nbytes if server is not None else -(-n // CHUNK)
        if server is None and kind != "tar":
            self._count_decoding(monkeypatch)

    def _write(self) -> None:
        format_, path = self.kind.split()[0], self.folder / "x"
        if format_ == "hdf5":
            with pytest.importorskip("h5py").File(path, "w") as file:
                file.create_dataset("x", data=self.rows, chunks=(CHUNK, WIDTH), compression="gzip")
        elif format_ == "zarr":
            library = pytest.importorskip("zarr", minversion="3.0")
            library.create_array(str(path), data=self.rows, chunks=(CHUNK, WIDTH), compressors=None)
        elif format_ == "parquet":
            pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            lists = pa.FixedSizeListArray.from_arrays(pa.array(self.rows.reshape(-1)), WIDTH)
            parquet.write_table(pa.table({"x": lists}), path, row_group_size=CHUNK, use_dictionary=False)
        else:
            write(path, [(f"{number}.bin", row.tobytes()) for number, row in enumerate(self.rows)])

    def opened(self) -> Any:
        """Return an accessor with a cache of its own, as in a process of its own."""
        format_, path = self.kind.split()[0], str(self.folder / "x")
        if self.server is not None:
            path = self.server.url("x")
        if format_ == "hdf5":
            return bu.Hdf5Rows(path, "x", cache=CACHE)
        if format_ == "zarr":
            return bu.ZarrRows(path, cache=CACHE)
        if format_ == "parquet":
            return bu.ParquetRows(path, "x", cache=CACHE)
        shards = bu.TarShards(path, shape=(WIDTH,), dtype=np.int64)
        return shards if self.server is not None else InPages(shards, self)

    def _count_decoding(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count the chunks that are decoded."""
        kind = type(self.opened())
        original = kind._read_chunk

        def counting(accessor: Any, *arguments: Any) -> Any:
            self.add(1)
            return original(accessor, *arguments)

        monkeypatch.setattr(kind, "_read_chunk", counting)

    def add(self, n: int) -> None:
        """Count some more chunks; threads decode them."""
        with self.lock:
            self.read += n

    def times_read(self) -> float:
        """Return how often the file has been read since the last call."""
        read, self.read = self.read, 0
        if self.server is not None:
            read, self.server.sent = self.server.sent, 0
        return read / self.whole


class InPages:
    """A tar on a disk: nothing is decoded, so what counts are runs of the file that the system has to read anew.

    Its cache of pages has room for two windows.
    """

    def __init__(self, shards: Any, counted: Counted) -> None:
        self.shards, self.counted = shards, counted
        self.natural_block, self.natural_window = shards.natural_block, shards.natural_window
        self.kept: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, rows: Any) -> Any:
        for run in np.unique(np.atleast_1d(rows) // self.natural_block).tolist():
            self.counted.add(run not in self.kept)
            self.kept[run] = None
            self.kept.move_to_end(run)
            if len(self.kept) > 2 * self.natural_window:
                self.kept.popitem(last=False)
        return self.shards[rows]


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server | None]:
    """A server for the formats at URLs."""
    if "URL" not in request.node.name:
        yield None
        return
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    with serving(tmp_path) as server:
        yield server


KINDS = ("hdf5", "zarr", "parquet", "tar", *AT_URLS)


@pytest.mark.parametrize("most", quick([8], [8, 64]))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_turn
def test_all_ranks_together_read_a_file_about_once(
    kind: str, most: int, server: Server | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = CHUNKS_A_RANK * CHUNK * most // (8 if kind == "tar at a URL" else 1) - 7  # it has a request for each row
    counted = Counted(kind, n, tmp_path, server, monkeypatch)
    for world in [2, 4, 8] if most == 8 else [16, 32, 64] if server is None else [64]:
        for shuffle in (("blocks", 3), ("blocks", 3, most)):
            counted.opened()  # the headers of the tar, which one process reads for all
            counted.times_read()
            seen: list[int] = []
            for rank in range(world):
                source = bu.ArrayDataSource([counted.opened()])
                for rows, real in source.batch_iterator(BATCH, shuffle, shard=(rank, world), pad_mask=True):
                    numbers = rows[real, 0]
                    np.testing.assert_array_equal(rows[real], counted.rows[numbers])
                    seen += numbers.tolist()
            assert sorted(seen) == list(range(n))
            assert 0.95 < counted.times_read() <= 1.3


@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")  # 3 ranks read blocks of 8 groups
@pytest.mark.parametrize("groups", [None, 8])
@pytest.mark.parametrize("kind", quick(["hdf5", "tar"], KINDS))
def test_three_ranks_go_on_with_the_epoch_of_eight(
    kind: str, groups: int | None, server: Server | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 8 * 4 * CHUNK - 7
    counted = Counted(kind, n, tmp_path, server, monkeypatch)
    shuffle = ("blocks", 3) if groups is None else ("blocks", 3, groups)
    options: dict[str, Any] = {"pool": "serial", "shuffle": shuffle, "pad_mask": True}
    seen: list[int] = []
    for rank in range(8):
        with bu.Loader([counted.opened()], BATCH, shard=(rank, 8), **options) as loader:
            batches = iter(loader)
            for _ in range(3):
                rows, real = next(batches)
                seen += rows[real, 0].tolist()
            state = json.dumps(loader.state_dict())
    assert len(set(seen)) == len(seen) == 8 * 3 * BATCH
    for rank in range(3):
        with bu.Loader([counted.opened()], BATCH, shard=(rank, 3), **options) as loader:
            loader.load_state_dict(json.loads(state))
            for rows, real in loader:
                np.testing.assert_array_equal(rows, counted.rows[rows[:, 0]])
                seen += rows[real, 0].tolist()
    assert sorted(seen) == list(range(n))
