"""The public check of a source: what is right passes, each kind of hidden state is found and its map is named."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError, ArgumentTypeError, InOrderNotSupported, NotReproducible, SerializationError
from batchup_ng.graph.arrays import ArraysNode
from batchup_ng.memory.leases import Lease
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import RandomAccessSampler
from batchup_ng.testing import assert_reproducible
from tests.extent import thorough
from tests.messages import raises
from tests.properties.graphs import graphs

ROWS = bu.ArrayDataSource([np.arange(100.0)])
HERE = ("serial", "threads")
"""Pools that need no processes."""
FEW: dict[str, Any] = {"pools": HERE, "max_batches": 3}
"""As much as is needed where it does not matter in how many settings a source is read."""


def each_sample(*batch: Any, rng: Any) -> Any:
    return (batch[0] + rng.normal(), *batch[1:])


def each_batch(*batch: Any, rng: np.random.Generator) -> Any:
    return (batch[0] + rng.normal(size=len(batch[0])), *batch[1:])


def between(make: Callable[..., Any], **options: Any) -> Any:
    """Return a graph in which a map stands among others that are right."""
    one = ROWS.map(each_sample, rng="sample").map(make, **options).map(each_batch, rng="batch")
    return bu.zip(ROWS, bu.concat(bu.subset(one, np.arange(50)), bu.subset(ROWS, np.arange(50))))


def caught(source: Any, culprit: str, setting: str = "", **options: Any) -> NotReproducible:
    """Return the error for a source, which names what is to blame, and begins with the setting that found it."""
    with pytest.raises(NotReproducible) as raised:
        assert_reproducible(source, **options)
    error = raised.value
    assert isinstance(error, AssertionError)
    assert error.culprit == culprit
    assert culprit in str(error)
    assert error.setting.startswith(setting)
    assert error.setting in str(error)
    return error


# -- what is right -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [thorough(None), 3])
@pytest.mark.in_turn
def test_a_right_source_passes_in_every_setting(shuffle: int | None, in_full: bool) -> None:
    source = bu.zip(ROWS.map(each_sample, rng="sample"), ROWS.map(lambda x: (x * 2,)))
    source = source if in_full else source.map(each_batch, rng="batch")
    assert_reproducible(source, shuffle=shuffle, max_batches=8 if in_full else 5)
    if in_full:
        assert_reproducible(source.map(each_batch, rng="batch"), shuffle=shuffle, batch_size=16)


@given(graphs(), st.integers(1, 7), st.sampled_from([None, 0, 9]))
def test_any_graph_of_ours_passes(source: Any, size: int, shuffle: int | None) -> None:
    try:
        source.plan(size, shuffle)
    except InOrderNotSupported:
        assume(False)
    assert_reproducible(source, size, shuffle=shuffle, **FEW)


def test_old_code_that_draws_globally_passes_where_it_is_seeded() -> None:
    def old(x: np.ndarray) -> Any:
        return (x + np.random.rand(len(x)) + random.random(),)

    def both(x: np.ndarray, rng: Any) -> Any:
        return (old(x)[0] + rng.normal(),)

    before = repr((random.getstate(), np.random.get_state()))
    few = {**FEW, "pools": ("serial", "processes"), "batch_sizes": ()}
    assert_reproducible(ROWS.map(old).map(both, rng="sample"), **few)
    assert "draws for all of it at once, as from a global generator" in str(caught(ROWS.map(old), "old", "is cut by"))
    error = caught(ROWS.map(old), "old", "is made with pools=('threads',)", batch_sizes=(), pools=HERE)
    assert "a global generator" in str(error)
    assert "pass pools=('serial', 'processes')" in str(error)
    error = caught(ROWS.map(old), "old", "is read again", shuffle=None)
    assert "a global one that is not seeded (shuffle= is no int)" in str(error)
    assert before == repr((random.getstate(), np.random.get_state()))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9])
def test_small_and_empty_sources_pass(n: int) -> None:
    assert_reproducible(bu.ArrayDataSource([np.arange(n)]).map(each_sample, rng="sample"), pools=HERE)


def test_only_the_first_batches_of_a_huge_or_endless_source_are_read() -> None:
    read: list[int] = []

    class Huge:
        shape = (10**12,)

        def __len__(self) -> int:
            return 10**12

        def __getitem__(self, rows: Any) -> np.ndarray:
            read.append(len(rows))
            return np.asarray(rows)

    assert_reproducible(bu.ArrayDataSource([Huge()]), pools=HERE, max_batches=2)
    assert 0 < sum(read) < 2000
    weighted = bu.ArrayDataSource([np.arange(9)], sampler=bu.WeightedSampler(np.arange(9.0)))
    assert_reproducible(weighted.map(each_sample, rng="sample"), **FEW)


def test_arrays_are_not_copied_nor_classes_changed() -> None:
    big = np.zeros((1000, 1000))
    seen: set[int] = set()

    class Watched(bu.ArrayDataSource):
        calls = itertools.count()

        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            seen.add(self.data[0].__array_interface__["data"][0])
            next(self.calls)
            return (self.data[0][indices],)

    calls, method = Watched.calls, Watched.samples_by_indices_nomapping
    assert_reproducible(Watched([big]), **FEW)
    assert seen == {big.__array_interface__["data"][0]}
    assert next(calls) > 0
    assert (Watched.calls, Watched.samples_by_indices_nomapping) == (calls, method)


def test_what_cannot_be_copied_is_checked_as_it_is() -> None:
    lock = threading.Lock()

    def locked(x: np.ndarray) -> Any:
        with lock:
            return (x * 2,)

    assert_reproducible(ROWS.map(locked), **FEW)
    with raises(SerializationError):
        assert_reproducible(ROWS.map(locked), pools=("processes",))


def test_other_batch_sizes_are_left_alone_where_they_may_differ() -> None:
    def centred(x: np.ndarray) -> Any:
        return (x - x.mean(),)

    assert_reproducible(ROWS.map(centred), batch_sizes=(), **FEW)
    assert_reproducible(ROWS.map(centred).map(each_batch, rng="batch"), **FEW)
    error = caught(ROWS.map(centred).map(each_sample, rng="sample"), "centred", "is cut by batch_size=4", **FEW)
    assert "pass batch_sizes=()" in str(error)
    caught(ROWS.map(centred), "centred", "is cut by batch_size=3", batch_sizes=(3,), **FEW)


def test_a_sampler_that_takes_one_batch_size_is_asked_for_no_other_if_that_is_said() -> None:
    class Eights(RandomAccessSampler):
        def num_indices_generated(self) -> int:
            return 100

        def rows_at(self, positions: np.ndarray, key: Any) -> np.ndarray:
            return positions

        def row_plan(self, batch_size: int, *options: Any) -> Any:
            if batch_size != 8:
                raise ArgumentError(f"batch_size must be 8, not {batch_size}")
            return super().row_plan(batch_size, *options)

    source = bu.ArrayDataSource([np.arange(100)], sampler=Eights())
    assert_reproducible(source, 8, batch_sizes=(), **FEW)
    with raises(ArgumentError):
        assert_reproducible(source, 8, **FEW)


# -- what is found -------------------------------------------------------------------------------------------------


def test_a_counter_in_a_closure() -> None:
    calls = itertools.count()

    def counting(x: np.ndarray) -> Any:
        return (x + next(calls),)

    error = caught(between(counting), "counting", "is read again")
    assert (error.epoch, error.batch, error.leaf) == (0, 0, "[1]")
    assert "map(fn, rng='sample') or map(fn, rng='batch')" in str(error)
    caught(bu.CompositeDataSource([ROWS, ROWS.map_samples(lambda x: (x + next(calls),))]), "<lambda>")


def test_a_counter_that_an_epoch_leaves_as_it_was() -> None:
    state = {"calls": 0}

    def alternating(x: np.ndarray) -> Any:
        state["calls"] += 1
        return (x + state["calls"] % 2,)

    error = caught(between(alternating), "alternating", "is read without those before it")
    assert "depends on the calls before" in str(error)


def test_a_generator_of_ones_own_and_the_time() -> None:
    own = np.random.default_rng(0)
    caught(between(lambda x: (x + own.normal(size=len(x)),)), "<lambda>", "is read again")
    caught(between(lambda x: (x + time.perf_counter_ns(),)), "<lambda>", "is read again")


def test_the_process() -> None:
    def marked(x: np.ndarray) -> Any:
        return (x + os.getpid(),)

    error = caught(ROWS.map(marked), "marked", "is read in another process", pools=("processes",))
    assert "os.getpid()" in str(error)
    assert_reproducible(ROWS.map(marked), **FEW)


def test_the_thread_in_an_epoch_that_is_not_the_first() -> None:
    class LateNode(ArraysNode):
        def read(self, rows: Any, key: Any, buffers: Any) -> Any:
            elsewhere = threading.current_thread() is not threading.main_thread()
            return (rows + (key.epoch if elsewhere else 0),)

    class Late(bu.ArrayDataSource, node=LateNode):
        def __init__(self, data: list[Any]) -> None:
            super().__init__(data)
            self._show(LateNode(data, None, self.sampler))

    setting = "is made with pools=('threads',), 1 worker"
    assert caught(bu.zip(ROWS, Late([np.arange(100)])), "Late", setting, pools=("threads",)).epoch == 1


def test_a_cache_that_depends_on_the_order() -> None:
    numbers: dict[float, int] = {}

    def numbered(x: np.ndarray) -> Any:
        return (np.array([numbers.setdefault(float(v), len(numbers)) for v in x]),)

    assert caught(bu.zip(ROWS, ROWS.map(numbered)), "numbered", "is read without those before it").leaf == "[1]"
    assert numbers == {}


class Shift:
    """A map that adds a number, which is lost in each copy."""

    def __init__(self) -> None:
        self.by = 1.0

    def __getstate__(self) -> dict[str, float]:
        return {"by": 0.0}

    def __call__(self, x: np.ndarray) -> Any:
        return (x + self.by,)


def test_a_map_whose_copies_are_not_the_same() -> None:
    error = caught(bu.zip(ROWS, ROWS.map(Shift())), "Shift", "is read by the source itself", pools=("threads",))
    assert "a copy of it, such as each process gets, is not the same" in str(error)


def test_an_array_that_is_handed_out_again_passes() -> None:
    of_threads: dict[int, np.ndarray] = {}

    def reusing(x: np.ndarray) -> Any:
        memory = of_threads.setdefault(threading.get_ident(), np.empty(1000))
        np.multiply(x, 2, out=memory[: len(x)])
        return (memory[: len(x)],)

    assert_reproducible(ROWS.map(reusing), max_batches=4)  # it is copied where it is returned


def in_place_on_lease(x: np.ndarray, *others: Any) -> Any:
    root: Any = x
    while isinstance(root, np.ndarray):
        root = root.base
    changed = x if isinstance(root, Lease) else x.copy()
    np.negative(changed, out=changed)
    return (x, changed, *others)


@pytest.mark.parametrize("n", [1, 70])
def test_a_map_that_writes_to_large_batches_only(n: int) -> None:
    rows = bu.ArrayDataSource([np.arange(100.0 * n).reshape(100, n)])  # a batch of 64 bytes, or of 4.4 kB
    error = caught(rows.map(in_place_on_lease), "in_place_on_lease", **FEW)
    assert error.setting == "is read into memory on lease"
    assert "write to a copy" in str(error)
    caught(bu.zip(rows, rows.map(in_place_on_lease)), "in_place_on_lease", error.setting, batch_sizes=(), **FEW)


def test_views_of_what_the_library_augments_pass() -> None:
    flip = augment.flip()
    images = np.random.default_rng(1).integers(0, 256, (64, 32, 32, 3), dtype=np.uint8)
    twice = bu.ArrayDataSource([images]).map(lambda x, rng: (flip(x, rng=rng)[0], flip(x, rng=rng)[0], x), rng="sample")
    for size in (8, 48):  # of 25 and of 147 kB
        assert_reproducible(twice.map(flip, rng="sample"), size, **FEW)


def test_a_map_that_does_otherwise_with_all_in_one_batch() -> None:
    rows = bu.ArrayDataSource([np.ones((100, 400))])
    error = caught(rows.map(lambda x: (x + (x.nbytes > 1 << 16),)), "<lambda>", "is cut by batch_size=24", **FEW)
    assert (error.batch, error.row) == (0, 0)


def test_an_accessor_and_a_source_of_ones_own() -> None:
    class Noisy:
        shape = (100,)

        def __len__(self) -> int:
            return 100

        def __getitem__(self, rows: Any) -> np.ndarray:
            return np.asarray(rows) + np.random.default_rng().normal(size=len(rows))

    class Jittering(bu.RandomAccessDataSource):
        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            return (indices + np.random.default_rng().normal(),)

    caught(bu.ArrayDataSource([np.arange(100), Noisy()]), "Noisy")
    caught(bu.zip(ROWS, bu.ArrayDataSource([Noisy()]).map(lambda x: (x,))), "Noisy")
    caught(bu.subset(Jittering(100), np.arange(40)), "Jittering")


class Sampler(RandomAccessSampler):
    """A sampler of 100 rows by any function."""

    def __init__(self, rows: Callable[[np.ndarray], np.ndarray]) -> None:
        self._rows = rows

    def num_indices_generated(self) -> int:
        return 100

    def rows_at(self, positions: np.ndarray, key: Any) -> np.ndarray:
        return self._rows(positions)


def other_rows_than_in(process: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that gives other rows in all processes but one."""
    return lambda at: (at + (os.getpid() != process)) % 100


@pytest.mark.parametrize(
    ("rows", "setting"),
    [
        (lambda at: np.random.randint(0, 100, len(at)), "is read again"),
        (lambda at: np.random.RandomState(len(at)).randint(0, 100, len(at)), "is read without those before it"),
        (lambda at: (at + len(at)) % 100, "is read without those before it"),
        (other_rows_than_in(os.getpid()), "is read in another process"),
    ],
)
def test_a_sampler_of_ones_own(rows: Any, setting: str) -> None:
    source = bu.ArrayDataSource([np.arange(100.0)], sampler=Sampler(rows)).map(each_sample, rng="sample")
    error = caught(source, "Sampler", setting, pools=("processes",))
    assert "its row numbers differ: row" in str(error)
    assert "draw only from what rows_at(positions, key) is given" in str(error)


def test_a_map_that_works_on_batches_hides_no_order_that_depends_on_their_size() -> None:
    class SizedNode(ArraysNode):
        def row_plan(self, batch_size: int, key: Any, drop_last: bool) -> Any:
            return super().row_plan(batch_size, OrderKey(batch_size, 0), drop_last)

    class Sized(bu.ArrayDataSource, node=SizedNode):
        def __init__(self, data: list[Any]) -> None:
            super().__init__(data)
            self._show(SizedNode(data, None, self.sampler))

    caught(Sized([np.arange(100.0)]).map(each_batch, rng="batch"), "Sized", "is cut by batch_size=4", pools=())


def test_an_order_of_batchups_kind_that_draws_globally() -> None:
    class Listing(bu.ArrayDataSource):
        def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Any:
            order = np.random.permutation(100)
            return (order[at : at + batch_size] for at in range(0, 100, batch_size))

    caught(bu.CompositeDataSource([ROWS, Listing([np.arange(100)])]), "Listing")


def test_a_map_that_fails_elsewhere() -> None:
    home = os.getpid()

    def homesick(x: np.ndarray) -> Any:
        if os.getpid() != home:
            raise ValueError("I want to go home")
        return (x,)

    error = caught(ROWS.map(homesick), "homesick", pools=("processes",))
    assert "cannot be made when it is read in another process, though it can in a plain loop" in str(error)
    assert "I want to go home" in str(error)


# -- what is refused -----------------------------------------------------------------------------------------------


def test_what_has_no_random_access_is_refused() -> None:
    stream = bu.IteratorDataSource(iter([(np.arange(3),)]))
    for source in (stream, stream.map(each_sample, rng="sample")):
        with raises(ArgumentTypeError):
            assert_reproducible(source)  # type: ignore[arg-type]  # on purpose
    with bu.WorkerThreadPool(1) as pool, raises(ArgumentTypeError):
        assert_reproducible(pool.parallel_data_source(ROWS))  # type: ignore[arg-type]  # on purpose
    with raises(ArgumentTypeError):
        assert_reproducible(np.arange(3))  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, ArgumentError),
        ({"shuffle": np.random.RandomState(1)}, ArgumentTypeError),
        ({"shuffle": True}, ArgumentTypeError),
        ({"shuffle": -1}, ArgumentError),
        ({"pools": "threads"}, ArgumentTypeError),
        ({"pools": ("thread",)}, ArgumentError),
        ({"batch_sizes": 3}, ArgumentTypeError),
        ({"batch_sizes": (1.5,)}, ArgumentTypeError),
        ({"max_batches": 0}, ArgumentError),
        ({"batch_sizes": (0,)}, ArgumentError),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, error: type) -> None:
    with raises(error):
        assert_reproducible(ROWS, **options)


def test_it_needs_no_pytest() -> None:
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "import numpy as np, batchup_ng as bu\n"
        "from batchup_ng.testing import assert_reproducible\n"
        "assert_reproducible(bu.ArrayDataSource([np.arange(9)]), pools=('threads',))\n"
        "print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "fine\n", done.stderr
