"""Threads and worker processes of every kind fill one cache, read each other's rows, hand out the same batches."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import batchup_ng as bu
from tests.accessors.counting import Counting
from tests.accessors.image_helpers import colours, save
from tests.extent import methods
from tests.left import named_shared_memory
from tests.messages import raises, warns
from tests.work_pool.processes.serialization_helpers import ended, wait_until

LABELS = np.arange(40)


@pytest.fixture
def paths(tmp_path):
    return [save(tmp_path / f"{i}.jpg", colours(seed=i)) for i in range(len(LABELS))]


@pytest.fixture(params=["memory", "folder"])
def where(request, tmp_path):
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" if request.param == "folder" else None


def flipped(x, y, rng):
    turned = rng.random() < 0.5
    return np.where(turned[:, None, None, None], x[:, :, ::-1], x), y


def epochs(source):
    """Two epochs of a source, augmented."""
    source = source.map(flipped, rng="sample")
    return [[(x.copy(), y) for x, y in source.batch_iterator(8, shuffle=5, epoch=epoch)] for epoch in (0, 1)]


def assert_same(one, other):
    for mine, theirs in zip(one, other, strict=True):
        for (x, y), (x2, y2) in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(x, x2, strict=True)
            np.testing.assert_array_equal(y, y2, strict=True)


def test_batches_are_the_same_with_and_without_a_cache(pools, paths, where):
    source = bu.ArrayDataSource([bu.ImageFiles(paths, 8), LABELS])
    expected = epochs(source)
    assert_same(epochs(source.cache(where)), expected)
    with warns(bu.CacheWarning):
        partly = source.cache(limit=7 * 8 * 8 * 3)
    for pool in pools:
        cached = source.cache(where)
        assert_same(epochs(pool.parallel_data_source(cached)), expected)
        assert_same(epochs(pool.parallel_data_source(cached)), expected)
        assert_same(epochs(pool.parallel_data_source(partly)), expected)


def test_the_second_epoch_opens_no_file(pools, paths, where):
    expected = epochs(bu.ArrayDataSource([bu.ImageFiles(paths, 8), LABELS]))
    sources = [bu.ArrayDataSource([bu.ImageFiles(paths, 8), LABELS]).cache(where) for _ in range(3)]
    in_pools = [sources[0], *[pool.parallel_data_source(one) for pool, one in zip(pools, sources[1:], strict=True)]]
    for source in in_pools:
        for _ in source.batch_iterator(8, shuffle=5):
            pass
    for path in paths:
        os.remove(path)
    for source in in_pools:
        assert_same(epochs(source), expected)
    for source in sources:  # in this process what the workers have written
        assert "40 of 40 rows kept" in repr(source)
        assert_same(epochs(source), expected)


@pytest.mark.in_turn
@pytest.mark.parametrize("method", methods("spawn"))
def test_workers_of_either_start_method_share_the_rows(tmp_path, method):
    slow = Counting(tmp_path / "log", 60)
    cached = bu.Cached(slow)
    expected = slow.expected(range(60))
    for read in ([*range(60)], []):
        with bu.WorkerProcessPool(2, start_method=method) as pool:
            batches = pool.parallel_data_source(bu.ArrayDataSource([cached])).batch_iterator(7)
            np.testing.assert_array_equal(np.concatenate([x for (x,) in batches]), expected)
        assert slow.read() == read
    np.testing.assert_array_equal(cached[:], expected)
    assert slow.read() == []


class Deadly(Counting):
    """Kills the process that reads row 30 for the first time, with the row in its hands."""

    def read_into(self, rows, out):
        out[...] = self[rows]
        if 30 in rows and not Path(self.log + ".killed").exists():
            Path(self.log + ".killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore::batchup_ng.WorkerWarning")
def test_the_replacement_of_a_killed_worker_shares_the_rows(tmp_path, where):
    slow = Deadly(tmp_path / "log", 60)
    source = bu.ArrayDataSource([slow]).cache(where)
    expected = bu.ArrayDataSource([slow.expected(range(60))])
    with bu.WorkerProcessPool(1) as pool:
        parallel = pool.parallel_data_source(source)
        for _ in range(2):
            both = [np.concatenate([x for (x,) in one.batch_iterator(7, shuffle=1)]) for one in (parallel, expected)]
            np.testing.assert_array_equal(*both)
    read = slow.read()
    assert sorted(set(read)) == [*range(60)]
    assert len(read) == 67  # those of the batch that the worker died with are read once more
    assert "60 of 60 rows kept" in repr(source)


PROGRAM = """
import sys
import numpy as np
import batchup_ng as bu
from tests.accessors.counting import Counting
source = bu.ArrayDataSource([Counting(sys.argv[1], 60)]).cache()
with bu.WorkerProcessPool(2) as pool:
    for (x,) in pool.parallel_data_source(source).batch_iterator(4):
        pass
    print(source.columns[0], flush=True)
    input()
"""


@pytest.mark.in_turn
def test_nothing_is_left_of_a_program_that_is_killed(tmp_path):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path / "log"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with program:
        assert program.stdout.readline() == b"Cached(Counting, 60 of 60 rows kept in memory)\n"
        others = psutil.Process(program.pid).children(recursive=True)
        assert len(others) >= 2
        assert named_shared_memory([program.pid, *[other.pid for other in others]]) == set()
        program.kill()
    wait_until(lambda: all(ended(other.pid) for other in others))


# cache() of a source


def test_arrays_are_left_as_they_are(tmp_path):
    labels, slow = np.arange(12), Counting(tmp_path / "log")
    source = bu.ArrayDataSource({"x": slow, "y": labels}, indices=[3, 1])
    cached = source.cache()
    assert cached.columns["y"] is labels
    assert isinstance(cached.columns["x"], bu.Cached)
    assert source.columns["x"] is slow
    assert cached.fingerprint() == source.fingerprint()
    (batch,) = cached.batch_iterator(2)
    np.testing.assert_array_equal(batch["x"], slow.expected([3, 1]))
    assert [array is labels for array in bu.ArrayDataSource([labels]).cache().data] == [True]


def test_the_bytes_inside_a_conversion_are_cached(paths):
    source = bu.ArrayDataSource([bu.ImageArrayUInt8ToFloat32(bu.ImageFiles(paths, 8), -1, 1), LABELS])
    cached = source.cache()
    assert cached.columns[0].arr_u8.dtype == np.uint8
    assert repr(cached.columns[0].arr_u8) == "Cached(ImageFiles, 0 of 40 rows kept in memory)"
    np.testing.assert_array_equal(cached.columns[0][:], source.columns[0][:])
    made = bu.ArrayDataSource([bu.Cached(bu.ImageFiles(paths, 8)), LABELS])
    assert not made.node.traits.runs_user_code
    assert not cached.node.traits.runs_user_code
    assert made.node.traits.spreads_reads
    assert cached.node.traits.spreads_reads
    assert cached.cache().columns[0].arr_u8 is cached.columns[0].arr_u8


def test_a_source_of_a_folder_is_one_still(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        save(tmp_path / "data" / name / "0.png", colours(seed=len(name)))
    source = bu.from_folder(tmp_path / "data", size=8)
    cached = source.cache(tmp_path)
    assert (cached.class_names, cached.report) == (("cat", "dog"), source.report)
    assert not cached.node.traits.runs_user_code
    for mine, other in zip(cached.batch_iterator(2), source.batch_iterator(2), strict=True):
        assert_same([[mine]], [[other]])
    assert "2 of 2 rows kept in " in repr(cached)


@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")
def test_columns_share_the_limit(tmp_path):
    source = bu.ArrayDataSource([Counting(tmp_path / "a", row=(2,)), Counting(tmp_path / "b", row=(6,))])
    cached = source.cache(limit=5 * 32)
    assert all(repr(column).endswith(", room for 5)") for column in cached.columns)


def test_sources_without_rows_of_their_own_are_refused(tmp_path):
    source = bu.ArrayDataSource([Counting(tmp_path / "log")])
    with raises(bu.ArgumentTypeError):
        source.map(lambda x: (x,)).cache()
    with raises(bu.ArgumentError):
        bu.ArrayDataSource([bu.MapStyle([(1, 2)])]).cache()
