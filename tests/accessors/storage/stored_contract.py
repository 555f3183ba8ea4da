"""What every accessor over stored rows must do, beside what every accessor must."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.base import fingerprint_of
from batchup_ng.errors import ArgumentError, BatchError, SampleReadError
from batchup_ng.testing.accessors import AccessorContract, Made, assert_same_rows
from batchup_ng.work_pool import AbstractWorkerPool
from tests.extent import methods
from tests.messages import raises

PATIENCE = 600
"""Seconds after which what does not end is taken for stuck; it ends soon, unless the machine is busy."""


def delivered(source: Any, pool: AbstractWorkerPool) -> list[Any]:
    """Return the rows of a shuffled epoch, in order of their numbers."""
    rows: dict[int, Any] = {}
    for numbers, values in pool.parallel_data_source(source).batch_iterator(3, shuffle=1):
        rows.update(zip(numbers.tolist(), values, strict=True))
    return [rows[number] for number in sorted(rows)]


def native(rows: list[Any]) -> list[Any]:
    """Return rows with the byte order of this machine, which batches have."""
    return [row.astype(row.dtype.newbyteorder("=")) if hasattr(row, "dtype") else row for row in rows]


def replaced(path: Path) -> None:
    """Put another file of the same size in the place of one."""
    other = path.with_name("other")
    other.write_bytes(bytes(path.stat().st_size))
    other.replace(path)


def touched(path: Path) -> None:
    """Have a file say that it was changed long ago: the system's clock may not have gone on since it was written."""
    os.utime(path, ns=(1, 1))


def shortened(path: Path) -> None:
    """Cut a file in half."""
    os.truncate(path, path.stat().st_size // 2)


class StoredContract(AccessorContract):
    """The contract; `make` writes its files below `tmp_path`, the first of them that of the first row."""

    library: ClassVar[tuple[str, str] | None] = None
    """The optional library by which the format is read, and the extra that installs it."""

    change_in_mid_epoch: ClassVar[Callable[[Path], Any]] = staticmethod(shortened)
    """How a file changes while it is read; one that is mapped, and takes time to read, cannot bear to be cut short."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> Iterator[Made]:
        """An accessor with its rows, which is closed, or each error that a test caught would keep files open."""
        accessor, expected = self.make(tmp_path)
        yield accessor, expected
        accessor.close()

    @pytest.fixture
    def source(self, made: Made) -> Any:
        """A source that gives the rows, each with its number."""
        return bu.ArrayDataSource([made[0]], include_indices=True)

    def test_every_pool_gives_the_rows(self, made: Made, source: Any, pools: list[AbstractWorkerPool]) -> None:
        for pool in [bu.SerialPool(), *pools]:
            assert_same_rows(delivered(source, pool), native(made[1]))

    @pytest.mark.thorough
    @pytest.mark.parametrize("method", methods("forkserver"))
    def test_every_way_to_start_a_process_gives_the_rows(self, made: Made, source: Any, method: str) -> None:
        with bu.WorkerProcessPool(2, start_method=method) as pool:
            assert_same_rows(delivered(source, pool), native(made[1]))

    def test_a_pickle_is_small_and_opens_the_files_anew(self, made: Made) -> None:
        accessor, expected = made
        accessor[0]
        pickled = pickle.dumps(accessor)
        assert len(pickled) < 5000
        accessor.close()
        assert_same_rows(pickle.loads(pickled)[:], expected)

    def test_a_fork_reads_what_was_opened_before(self, made: Made) -> None:
        accessor, expected = made
        accessor[0]
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE)
            try:
                for _ in range(20):
                    assert_same_rows(accessor[:], expected)
                accessor.close()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        for _ in range(20):
            assert_same_rows(accessor[::-1], expected[::-1])
        assert os.waitpid(child, 0)[1] == 0
        assert_same_rows(accessor[:], expected)

    def test_closing_lets_go_of_the_files(self, made: Made) -> None:
        accessor, expected = made
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            assert_same_rows(accessor[:], expected)
            accessor.close()
            accessor.close()
        assert len(os.listdir("/proc/self/fd")) <= before

    def test_closing_leaves_other_threads_their_rows(self, made: Made) -> None:
        accessor, expected = made

        def read() -> None:
            for _ in range(10):
                assert_same_rows(accessor[:], expected)

        with ThreadPoolExecutor(2) as threads:
            readings = [threads.submit(read) for _ in range(2)]
            while wait(readings, timeout=0.0005).not_done:
                accessor.close()
        for reading in readings:
            reading.result()

    def test_f26_a_file_that_changes_is_named(self, made: Made) -> None:
        accessor, _ = made
        accessor[0]
        path = self.file(accessor)
        kept = path.with_name("kept")
        for change in (touched, replaced, Path.unlink, shortened):  # the last of which a map cannot bear
            shutil.copy2(path, kept)
            change(path)
            with raises(SampleReadError) as caught:
                accessor[np.array([1, 0])]
            assert caught.value.source == accessor.file_paths([0])[0]
            kept.replace(path)

    def test_f26_a_file_that_changes_in_mid_epoch_is_named(self, made: Made, pools: list[AbstractWorkerPool]) -> None:
        accessor, _ = made
        path = self.file(accessor)
        source = bu.ArrayDataSource([accessor]).repeat(100)
        for pool in pools:
            kept = path.with_name("kept")
            shutil.copy2(path, kept)
            batches = pool.parallel_data_source(source, batch_buffer_size=2).batch_iterator(len(accessor))
            next(batches)
            self.change_in_mid_epoch(path)
            with raises(BatchError) as caught:
                list(batches)
            assert isinstance(caught.value, SampleReadError)
            kept.replace(path)

    def test_f26_a_file_that_changes_while_rows_are_read_is_named(
        self, made: Made, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        accessor, _ = made
        kind, path = type(accessor), self.file(accessor)
        name = "_fill" if hasattr(accessor, "shape") else "_values"
        read = getattr(kind, name)

        def changed_meanwhile(*args: Any) -> Any:
            found = read(*args)
            os.utime(path, ns=(1, 1))
            return found

        monkeypatch.setattr(kind, name, changed_meanwhile)
        with raises(SampleReadError):
            accessor[np.array([1, 0])]

    def test_memory_of_any_order_is_written_to_but_none_that_is_read_only(self, made: Made) -> None:
        accessor, expected = made
        if not hasattr(accessor, "shape"):
            pytest.skip("rows of this accessor are no arrays of one shape")
        out = np.zeros((2, *accessor.shape[1:], 2), accessor.dtype)[..., 1]
        accessor.read_into(np.array([1, 0]), out)
        assert_same_rows(out, expected[1::-1])
        out.flags.writeable = False
        with raises(ArgumentError):
            accessor.read_into(np.array([1, 0]), out)

    def test_a_pipe_is_refused(self, made: Made) -> None:
        path = self.file(made[0])
        path.unlink()
        os.mkfifo(path)
        signal.alarm(PATIENCE)
        try:
            with raises(SampleReadError):
                self.opened(made[0])
        finally:
            signal.alarm(0)

    def test_the_name_of_a_row_says_its_file(self, made: Made) -> None:
        accessor, _ = made
        assert str(accessor.sample_name(1)).startswith(accessor.file_paths([1])[0])

    def test_the_fingerprint_is_that_of_the_file(self, made: Made) -> None:
        accessor, _ = made
        before = fingerprint_of(accessor)
        assert fingerprint_of(pickle.loads(pickle.dumps(accessor))) == before
        os.utime(self.file(accessor), ns=(1, 1))
        assert fingerprint_of(pickle.loads(pickle.dumps(accessor))) == before, "it is that of when this was made"

    def test_a_file_that_is_none_of_this_format_is_refused(self, made: Made, tmp_path: Path) -> None:
        path = self.file(made[0])
        for content in (b"", b"\0", bytes(range(256)) * 40):
            path.write_bytes(content)
            with pytest.raises(SampleReadError) as caught:
                self.opened(made[0])
            assert made[0].file_paths([0])[0] in str(caught.value.source)
        path.unlink()
        with raises(SampleReadError):
            self.opened(made[0])

    def file(self, accessor: Any) -> Path:
        """Return the file of the first row."""
        return Path(accessor.file_paths([0])[0])

    def opened(self, like: Any) -> Any:
        """Return an accessor over the files of another, made anew by its class with the options of the other."""
        return type(like)(like.paths[0])

    def test_each_step_of_a_read_is_defined_once(self, made: Made) -> None:
        for name in ("_handle", "_fill", "_values", "read_into", "natural_block", "natural_window", "close"):
            defined = [vars(kind)[name] for kind in type(made[0]).__mro__ if name in vars(kind)]
            assert len([each for each in defined if not getattr(each, "__isabstractmethod__", False)]) <= 1, name

    def test_blocks_are_told(self, made: Made) -> None:
        accessor, _ = made
        assert accessor.natural_block >= 1
        assert accessor.natural_window >= 1

    def test_the_repr_says_what_it_is(self, made: Made) -> None:
        text = repr(made[0])
        assert text.startswith(f"{type(made[0]).__name__}(")
        assert f"{len(made[0])} rows" in text

    def test_a_library_that_is_missing_is_named_with_its_extra(
        self, made: Made, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if self.library is None:
            pytest.skip("this format needs no library")
        module, extra = self.library
        monkeypatch.setitem(sys.modules, module, None)
        with raises(ImportError) as caught:
            self.opened(made[0])
        assert f"[{extra}]" in str(caught.value)
