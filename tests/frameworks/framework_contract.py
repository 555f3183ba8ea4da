"""The contract of what hands batches over to a framework, for the tests of each framework to inherit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool

N, SIZE = 83, 8
NUMBERS = np.arange(N, dtype=np.int32)
VECTORS = np.random.RandomState(0).normal(size=(N, 5)).astype(np.float32)


def fails_at_40(numbers: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if 40 in numbers:
        raise ValueError("number 40 is not wanted")
    return numbers, vectors


class FrameworkContract:
    """What every adapter must do; a subclass says how a loader is handed over, and how to look into a batch.

    Arrays of the batches are int32 and float32, which every framework has. Results are compared with the batches of
    the source itself, read by its own ``batch_iterator``.
    """

    saves_state = True
    """Whether the loader, or what was made of it, can be asked for a state in the middle of an epoch."""

    def handed_over(self, loader: bu.Loader) -> Any:
        """Return what each iteration over is one epoch of the loader, in the framework's way."""
        raise NotImplementedError

    def arrays(self, batch: Any) -> dict[str, np.ndarray] | tuple[np.ndarray, ...]:
        """Return the arrays of one batch that the framework was given, as NumPy's, in the container they came in."""
        raise NotImplementedError

    def rows_of(self, epoch: Any) -> list[tuple[Any, ...]]:
        """Return all batches of an iteration, each as a tuple of its arrays' values, shapes and dtypes."""
        return [_told(self.arrays(batch)) for batch in epoch]

    @pytest.fixture(params=["serial", "threads", "processes"])
    def pool(self, request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> Iterator[AbstractWorkerPool]:
        if request.param == "serial":
            with bu.SerialPool() as serial:
                yield serial
        else:
            yield pools[["threads", "processes"].index(request.param)]

    @pytest.fixture
    def source(self) -> bu.ArrayDataSource:
        return bu.ArrayDataSource([NUMBERS, VECTORS])

    # -- order, shapes, dtypes ---------------------------------------------------------------------------------

    def test_each_iteration_is_the_next_epoch(self, source: bu.ArrayDataSource, pool: AbstractWorkerPool) -> None:
        with bu.Loader(source, SIZE, shuffle=7, pool=pool, buffer=3) as loader:
            batches = self.handed_over(loader)
            epochs = [self.rows_of(batches) for _ in range(3)]
        assert epochs == [expected(source, epoch=epoch) for epoch in range(3)]
        assert epochs[0] != epochs[1]

    @pytest.mark.parametrize("drop_last", [False, True])
    def test_the_last_batch(self, source: bu.ArrayDataSource, pool: AbstractWorkerPool, drop_last: bool) -> None:
        with bu.Loader(source, SIZE, drop_last=drop_last, pool=pool) as loader:
            sizes = [len(np.asarray(first)) for first, *_ in map(self.arrays, self.handed_over(loader))]
        assert sizes == [SIZE] * (N // SIZE) + ([] if drop_last else [N % SIZE])

    def test_columns_with_names(self, pool: AbstractWorkerPool) -> None:
        named = bu.ArrayDataSource({"number": NUMBERS, "vector": VECTORS})
        with bu.Loader(named, SIZE, shuffle=1, pool=pool) as loader:
            found = self.rows_of(self.handed_over(loader))
        assert found == expected(named, shuffle=1)

    def test_shards_share_out_the_epoch(self, source: bu.ArrayDataSource, pool: AbstractWorkerPool) -> None:
        found = []
        for rank in range(2):
            with bu.Loader(source, SIZE, shuffle=7, shard=(rank, 2), pool=pool) as loader:
                found.append(self.rows_of(self.handed_over(loader)))
        assert found == [expected(source, shard=(rank, 2)) for rank in range(2)]

    # -- its end -----------------------------------------------------------------------------------------------

    def test_a_loop_that_is_left_early(self, source: bu.ArrayDataSource, pool: AbstractWorkerPool) -> None:
        with bu.Loader(source, SIZE, shuffle=7, pool=pool, buffer=3) as loader:
            batches = self.handed_over(loader)
            for number, _ in enumerate(batches):
                if number == 2:
                    break
            assert self.rows_of(batches) == expected(source, epoch=1)

    def test_a_closed_loader_leaves_nothing(self, source: bu.ArrayDataSource, pool: AbstractWorkerPool) -> None:
        loader = bu.Loader(source, SIZE, shuffle=7, pool=pool, buffer=3)
        iterator = iter(self.handed_over(loader))
        next(iterator)
        loader.close()
        loader.close()

    # -- errors ------------------------------------------------------------------------------------------------

    def test_an_exception_names_the_row(self, source: bu.ArrayDataSource, pool: AbstractWorkerPool) -> None:
        with bu.Loader(source.map(fails_at_40), SIZE, pool=pool) as loader:
            seen, error = self.until_it_fails(self.handed_over(loader))
        assert seen == 5
        assert "number 40 is not wanted" in error
        assert re.search(r"row 40\b", error)

    def test_an_exception_names_the_file(self, tmp_path: Path, pool: AbstractWorkerPool) -> None:
        paths = [tmp_path / f"{number}.png" for number in range(6)]
        for path in paths:
            Image.new("RGB", (4, 4)).save(path)
        paths[4].write_bytes(b"no picture")
        with bu.Loader([bu.ImageFiles(paths, size=(4, 4)), np.arange(6)], 2, pool=pool) as loader:
            seen, error = self.until_it_fails(self.handed_over(loader))
        assert seen == 2
        assert str(paths[4]) in error

    def until_it_fails(self, batches: Any) -> tuple[int, str]:
        """Return how many batches an iteration gave before it failed, and the text of its error."""
        seen = 0
        try:
            for _ in batches:
                seen += 1
        except Exception as error:
            return seen, str(error)
        raise AssertionError(f"{seen} batches, and no error")

    # -- resume ------------------------------------------------------------------------------------------------

    def test_it_resumes_in_mid_epoch(self, source: bu.ArrayDataSource, pool: AbstractWorkerPool) -> None:
        if not self.saves_state:
            pytest.skip("no state is saved in mid-epoch")
        with bu.Loader(source, SIZE, shuffle=7, pool=pool, start_epoch=2) as loader:
            batches = iter(self.handed_over(loader))
            seen = [_told(self.arrays(next(batches))) for _ in range(4)]
            state = json.loads(json.dumps(loader.state_dict()))
        with bu.Loader(source, SIZE, shuffle=7, pool=pool) as loader:
            again = self.handed_over(loader)
            loader.load_state_dict(state)
            rest, following = self.rows_of(again), self.rows_of(again)
        assert seen + rest == expected(source, epoch=2)
        assert following == expected(source, epoch=3)

    # -- memory ------------------------------------------------------------------------------------------------

    def test_batches_that_are_kept_do_not_change(self, pool: AbstractWorkerPool) -> None:
        wide = np.arange(64 * 20000, dtype=np.float32).reshape(64, 20000)  # batches of 640 kB, on lease
        with bu.Loader([np.arange(64, dtype=np.int32), wide], 8, shuffle=3, pool=pool, buffer=2) as loader:
            for _ in range(2):
                kept = list(self.handed_over(loader))
                for rows, columns in map(self.arrays, kept):
                    np.testing.assert_array_equal(columns, wide[rows])
                del kept, rows, columns


def _told(arrays: dict[str, np.ndarray] | tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    parts = sorted(arrays.items()) if isinstance(arrays, dict) else [("", part) for part in arrays]
    return tuple((name, str(part.dtype), part.shape, part.tolist()) for name, part in parts)


def expected(source: bu.AbstractDataSource, epoch: int = 0, **options: Any) -> list[tuple[Any, ...]]:
    """Return the batches of an epoch as ``rows_of`` returns them."""
    iterator = source.batch_iterator(SIZE, **{"shuffle": 7, **options}, epoch=epoch)
    return [_told(batch) for batch in iterator]
