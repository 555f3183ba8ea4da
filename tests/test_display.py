"""``repr``, the boxes of a notebook, what Tab completes."""

from __future__ import annotations

import html.parser
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source import AbstractDataSource

X, Y = np.zeros((10, 4, 4), np.uint8), np.arange(10)


def to_unit(image: Any, label: Any) -> Any:
    return {"image": image / 255, "label": label}


def is_odd(y: Any) -> bool:
    return bool(y % 2)


def graph() -> Any:
    return bu.ArrayDataSource({"image": X, "label": Y}).map(to_unit)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (graph, "<MapDataSource: 10 samples, fn=to_unit, of <ArrayDataSource: 10 samples, image: uint8 (10, 4, 4), "
                "label: int64 (10,)>>"),
        (lambda: bu.ArrayDataSource([Y], repeats=-1), "<ArrayDataSource: endless, sampler=StandardSampler(length=10, "
                                                      "repeats=-1), int64 (10,)>"),
        (lambda: bu.ArrayDataSource([Y], sampler=bu.WeightedSampler(Y + 1, num_samples=5)).with_index(),
         "<IndexedDataSource: 5 samples, of <ArrayDataSource: 5 samples, sampler=WeightedSampler(weights=float64 "
         "(10,), num_samples=5), int64 (10,)>>"),
        (lambda: bu.ArrayDataSource([Y]).map(lambda y, rng: (y,), rng="batch").take(3),
         "<TakeDataSource: 3 samples, n=3, of <MapDataSource: 10 samples, fn=<lambda>, rng='batch', of "
         "<ArrayDataSource: 10 samples, int64 (10,)>>>"),
        (lambda: bu.ArrayDataSource([bu.MapStyle([1, 2])]),
         "<ArrayDataSource: 2 samples, MapStyle(list of 2 samples)>"),
        (lambda: bu.ArrayDataSource([bu.ImageFiles(["a", "b"], size=(4, 6))]),
         "<ArrayDataSource: 2 samples, ImageFiles(2 files, size=(4, 6), mode='RGB', dtype=uint8)>"),
        (lambda: bu.ArrayDataSource([Y]).repeat(3),
         "<SubsetDataSource: 30 samples, repeats=3, of <ArrayDataSource: 10 samples, int64 (10,)>>"),
        (lambda: bu.ArrayDataSource([Y]).filter(is_odd),
         "<SubsetDataSource: 5 samples, rows=int64 (5,), of <ArrayDataSource: 10 samples, "
         "int64 (10,)>>"),
        (lambda: bu.StratifiedSampler(Y), "StratifiedSampler(y=int64 (10,))"),
        (lambda: bu.ArrayDataSource([Y]).epochs(2, 3, start_epoch=4),
         "<Epochs: next is epoch 4, the last is 5, of <ArrayDataSource: 10 samples, int64 (10,)>>"),
        (lambda: bu.ArrayDataSource([Y]).epochs(None, 3),
         "<Epochs: next is epoch 0, without end, of <ArrayDataSource: 10 samples, int64 (10,)>>"),
        (lambda: bu.ArrayDataSource([Y]).plan(3, epoch=2), "<SamplesPlan of epoch 2>"),
        (lambda: bu.CallableDataSource(to_unit), "<CallableDataSource: a stream, batch_iterator_fn=to_unit>"),
        (lambda: bu.StridedSampler(10, stride=2), "StridedSampler(length=10, stride=2)"),
        (lambda: bu.BlockShuffleSampler(10, 2), "BlockShuffleSampler(length=10, block=2)"),
        (lambda: bu.MixtureSampler([3, 4], [2, 1]),
         "MixtureSampler(lengths=[3, 4], weights=[2, 1], length=12)"),
        (lambda: bu.BalancedBatchSampler(Y % 2, 2),
         "BalancedBatchSampler(y=int64 (10,), per_class=2, classes_per_batch=2)"),
    ],
)  # fmt: skip
def test_sources_and_samplers(make: Any, expected: str) -> None:
    assert repr(make()) == expected


def test_pools_parallel_sources_and_iterators() -> None:
    with bu.WorkerThreadPool(2) as pool:
        source = pool.parallel_data_source(bu.ArrayDataSource([Y]), on_error="skip", buffer_bytes=99)
        assert repr(pool) == "<WorkerThreadPool: 2 workers, open>"
        words = repr(source)
        for part in ("10 samples, at most 20 batches or 99 bytes ahead, ", "action='skip'", "by <WorkerThreadPool: 2"):
            assert part in words
        prefetched = repr(pool.prefetch(bu.CallableDataSource(to_unit), buffer_bytes=99))
        assert prefetched.startswith("<PrefetchDataSource: a stream, at most 20 batches or 99 bytes ahead, by <Wor")
        batches = source.batch_iterator(4)
        next(batches)
        assert repr(batches).startswith("<BatchIterator: 1/3 batches delivered, ")
        assert repr(batches).endswith(" buffered>")
        batches.close()
        assert repr(batches) == "<BatchIterator: 1/3 batches delivered, closed>"
    assert repr(pool) == "<WorkerThreadPool: 2 workers, closed>"
    endless = bu.ArrayDataSource([Y]).repeat().batch_iterator(4)
    assert repr(endless) == "<BatchIterator: 0 batches delivered, 0 buffered>"


class Odd(AbstractDataSource):
    """A source that fails at whatever it is asked."""

    def __init__(self, option: Any) -> None:
        self.option = option

    @property
    def is_random_access(self) -> bool:
        raise RuntimeError


class Loud:
    def __repr__(self) -> str:
        raise AssertionError("data was printed")


def test_nothing_fails_and_no_data_is_printed() -> None:
    assert repr(Odd(Loud())) == "<Odd>"
    assert repr(Odd.__new__(Odd)) == "<Odd>"
    assert "<Odd>" in repr(bu.CompositeDataSource([Odd(1), Odd(2)]))
    objects = bu.ArrayDataSource([np.array([Loud(), Loud()], object)], indices=np.arange(2))
    assert repr(objects) == "<ArrayDataSource: 2 samples, sampler=SubsetSampler(indices=int64 (2,)), object (2,)>"


def test_large_graphs_are_short() -> None:
    source: Any = bu.ArrayDataSource([Y])
    for _ in range(8):
        source = bu.CompositeDataSource([source, source])  # 2^8 places
    wide = bu.concat(*[bu.ArrayDataSource([Y])] * 500)
    for shown in (source, wide):
        assert len(repr(shown)) < 5000
        assert len(shown._repr_html_()) < 20000
    assert repr(wide).endswith("<ArrayDataSource: 10 samples, int64 (10,)>, 492 more>")


class Boxes(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open = self.deepest = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.open += tag == "div"
        self.deepest = max(self.deepest, self.open)

    def handle_endtag(self, tag: str) -> None:
        self.open -= tag == "div"


def test_the_graph_is_drawn_as_nested_boxes_without_script() -> None:
    evil = type("<script>alert(1)</script>", (), {"__call__": lambda self, **batch: batch})()
    source: Any = bu.ArrayDataSource({"<b onload=x>": Y}).map(evil)
    boxes = Boxes()
    boxes.feed(bu.concat(source, graph())._repr_html_())  # type: ignore[no-untyped-call]
    assert set(boxes.tags) == {"div", "b", "span", "br"}
    assert boxes.tags.count("div") == 5
    assert (boxes.open, boxes.deepest) == (0, 3)


def test_tab_completes_the_users_methods_of_pools() -> None:
    for make in (bu.SerialPool, lambda: bu.WorkerThreadPool(1), lambda: bu.WorkerProcessPool(1)):
        with make() as pool:
            names = {name for name in dir(pool) if not name.startswith("_")}
        users = {"close", "parallel_data_source", "prefetch", "shared_constant", "submit", "work_stream"}
        assert users <= names <= users | {"processes", "threads", "abandoned_threads", "resize"}


def test_tab_completes_what_users_call() -> None:
    with bu.SerialPool() as pool:
        for source in (graph(), pool.parallel_data_source(graph())):
            names = {name for name in dir(source) if not name.startswith("_")}
            assert {"map", "take", "filter", "with_index", "batch_iterator", "batch_map_mean", "num_samples",
                    "samples_by_indices", "samples_by_indices_nomapping", "batch_indices_iterator"} < names  # fmt: skip
            assert not names & {"read", "row_plan", "rows_at", "stream", "checkpointable"}
            assert source.fingerprint()
