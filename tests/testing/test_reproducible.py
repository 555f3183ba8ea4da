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
from batchup_ng.errors import ArgumentError, ArgumentTypeError, InOrderNotSupported, NotReproducible, SerializationError
from batchup_ng.sampling import RandomAccessSampler
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.differences import first_difference
from tests.extent import thorough
from tests.properties.graphs import graphs

ROWS = bu.ArrayDataSource([np.arange(100.0)])
HERE = ("serial", "threads")
"""Pools that need no processes."""
FEW: dict[str, Any] = {"pools": HERE, "workers": (2,), "max_batches": 3, "resumes": 1}
"""As much as is needed where it does not matter on how many transports a source is read."""


def each_sample(*batch: Any, rng: Any) -> Any:
    return (batch[0] + rng.normal(), *batch[1:])


def each_batch(*batch: Any, rng: np.random.Generator) -> Any:
    return (batch[0] + rng.normal(size=len(batch[0])), *batch[1:])


def between(make: Callable[..., Any], **options: Any) -> Any:
    """Return a graph in which a map stands among others that are right."""
    one = ROWS.map(each_sample, rng="sample").map(make, **options).map(each_batch, rng="batch")
    return bu.zip(ROWS, bu.concat(bu.subset(one, np.arange(50)), bu.subset(ROWS, np.arange(50))))


def caught(source: Any, culprit: str, **options: Any) -> NotReproducible:
    """Return the error for a source, which names what is to blame."""
    with pytest.raises(NotReproducible) as raised:
        assert_reproducible(source, **options)
    error = raised.value
    assert isinstance(error, AssertionError)
    assert error.culprit == culprit
    assert culprit in str(error)
    assert error.epoch == 0
    return error


# -- what is right -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [thorough(None), 3])
def test_a_right_source_passes_on_every_road(shuffle: int | None, in_full: bool) -> None:
    source = bu.zip(ROWS.map(each_sample, rng="sample"), ROWS.map(lambda x: (x * 2,)))
    source = source if in_full else source.map(each_batch, rng="batch")
    few: dict[str, Any] = {} if in_full else {"workers": (2,), "max_batches": 5, "resumes": 2}
    assert_reproducible(source, shuffle=shuffle, **few)
    if in_full:
        assert_reproducible(source.map(each_batch, rng="batch"), shuffle=shuffle, batch_size=16)


@given(graphs(), st.integers(1, 7), st.sampled_from([None, 0, 9]))
def test_any_graph_of_ours_passes(source: Any, size: int, shuffle: int | None) -> None:
    try:
        source.plan(size, shuffle)
    except InOrderNotSupported:
        assume(False)
    assert_reproducible(source, size, shuffle=shuffle, pools=HERE, workers=(2,), max_batches=3, resumes=2)


def test_old_code_that_draws_globally_passes_where_it_is_seeded() -> None:
    def old(x: np.ndarray) -> Any:
        return (x + np.random.rand(len(x)) + random.random(),)

    def both(x: np.ndarray, rng: Any) -> Any:
        return (old(x)[0] + rng.normal(),)

    few = {**FEW, "pools": ("serial", "processes")}
    assert_reproducible(ROWS.map(old).map(both, rng="sample"), **few)
    error = caught(ROWS.map(old), "old")
    assert error.setting == "is made by a pool of 1 thread"
    assert "draws from the global generator of numpy.random, which all threads share" in str(error)
    error = caught(ROWS.map(old), "old", shuffle=None)
    assert error.setting == "is read again"
    assert "only an int as shuffle= makes the library do so" in str(error)


def test_the_source_and_the_global_generators_are_left_as_they_were() -> None:
    source = ROWS.map(lambda x: (x + np.random.rand(),))
    before = repr((random.getstate(), np.random.get_state()))
    assert_reproducible(source, pools=("serial",))
    caught(source, "<lambda>", pools=("threads",))
    caught(source, "<lambda>", shuffle=None)
    assert before == repr((random.getstate(), np.random.get_state()))
    assert "read" not in vars(source)
    assert "read" not in vars(source.source)


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


def test_large_arrays_are_not_copied() -> None:
    big = np.zeros((1000, 1000))
    seen: set[int] = set()

    def look(x: np.ndarray) -> Any:
        return (x[:, 0],)

    class Watched(bu.ArrayDataSource):
        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            seen.add(self.data[0].__array_interface__["data"][0])
            return (self.data[0][indices],)

    assert_reproducible(Watched([big]).map(look), **FEW)
    assert seen == {big.__array_interface__["data"][0]}


def test_what_cannot_be_copied_is_checked_as_it_is() -> None:
    lock = threading.Lock()

    def locked(x: np.ndarray) -> Any:
        with lock:
            return (x * 2,)

    source = ROWS.map(locked)
    assert_reproducible(source, **FEW)
    assert "read" not in vars(source)
    with pytest.raises(SerializationError, match="lock"):
        assert_reproducible(source, pools=("processes",))


def test_other_batch_sizes_are_left_alone_where_they_may_differ() -> None:
    def centred(x: np.ndarray) -> Any:
        return (x - x.mean(),)

    assert_reproducible(ROWS.map(centred), batch_sizes=(), **FEW)
    assert_reproducible(ROWS.map(centred).map(each_batch, rng="batch"), **FEW)
    error = caught(ROWS.map(centred).map(each_sample, rng="sample"), "centred", **FEW)
    assert error.setting == "is cut by batch_size=4"
    assert "pass batch_sizes=()" in str(error)
    with pytest.raises(NotReproducible, match="batch_size=3"):
        assert_reproducible(ROWS.map(centred), batch_sizes=(3,), **FEW)


def test_a_sampler_that_wants_a_batch_size_is_asked_for_no_other() -> None:
    class Fours(RandomAccessSampler):
        def num_indices_generated(self) -> int:
            return 100

        def rows_at(self, positions: np.ndarray, key: Any) -> np.ndarray:
            return positions

        def check_batch_size(self, batch_size: int) -> None:
            if batch_size != 8:
                raise ArgumentError(f"batch_size must be 8, not {batch_size}")

    source = bu.ArrayDataSource([np.arange(100)], sampler=Fours())
    assert_reproducible(source, 8, **FEW)
    with pytest.raises(ArgumentError, match="must be 8, not 4"):
        assert_reproducible(source, 8, batch_sizes=(4,), **FEW)


# -- what is found -------------------------------------------------------------------------------------------------


def test_a_counter_in_a_closure() -> None:
    calls = itertools.count()

    def counting(x: np.ndarray) -> Any:
        return (x + next(calls),)

    error = caught(between(counting), "counting")
    assert (error.batch, error.setting, error.leaf) == (0, "is read again", "[1]")
    assert "map(fn, rng='sample') or map(fn, rng='batch')" in str(error)


def test_a_counter_that_an_epoch_leaves_as_it_was() -> None:
    state = {"calls": 0}

    def alternating(x: np.ndarray) -> Any:
        state["calls"] += 1
        return (x + state["calls"] % 2,)

    error = caught(between(alternating), "alternating")
    assert error.setting == "is read without those before it"
    assert "depends on the calls before" in str(error)


def test_a_generator_of_ones_own() -> None:
    own = np.random.default_rng(0)

    def drawing(x: np.ndarray) -> Any:
        return (x + own.normal(size=len(x)),)

    caught(between(drawing), "drawing")


def test_the_time() -> None:
    def stamped(x: np.ndarray) -> Any:
        return (x + time.perf_counter_ns(),)

    caught(between(stamped), "stamped")


def test_the_process() -> None:
    def marked(x: np.ndarray) -> Any:
        return (x + os.getpid(),)

    error = caught(ROWS.map(marked), "marked", pools=("processes",))
    assert error.setting == "is made by a pool of 1 process"
    assert "os.getpid()" in str(error)
    assert_reproducible(ROWS.map(marked), **FEW)


def test_the_thread() -> None:
    def marked(x: np.ndarray) -> Any:
        return (x + threading.get_ident(),)

    assert caught(between(marked), "marked").setting == "is made by a pool of 1 thread"


class Scaling:
    """A map that keeps a running maximum."""

    def __init__(self) -> None:
        self.most = 1.0

    def __call__(self, x: np.ndarray) -> Any:
        self.most = max(self.most, float(x.max()))
        return (x / self.most,)


def test_state_on_an_object() -> None:
    caught(between(Scaling()), "Scaling")


def test_a_cache_that_depends_on_the_order() -> None:
    numbers: dict[float, int] = {}

    def numbered(x: np.ndarray) -> Any:
        return (np.array([numbers.setdefault(float(v), len(numbers)) for v in x]),)

    source = bu.zip(ROWS, ROWS.map(numbered))
    error = caught(source, "numbered")
    assert error.setting == "is read without those before it"
    assert error.leaf == "[1]"


def test_an_array_that_is_handed_out_again() -> None:
    memory = np.empty(1000)

    def reusing(x: np.ndarray) -> Any:
        np.multiply(x, 2, out=memory[: len(x)])
        return (memory[: len(x)],)

    assert_reproducible(ROWS.map(reusing), workers=(1,), max_batches=4)  # it is copied where it is returned


def test_a_batch_that_lies_otherwise_in_memory() -> None:
    one, other = (np.zeros((2, 3)),), (np.zeros((3, 2)).T,)
    difference = first_difference(one, other)
    assert difference is not None
    assert difference.leaf == "[0]"
    assert "strides (24, 8)" in difference.words
    assert first_difference(one, (np.zeros((2, 3)),)) is None
    assert first_difference(([1], one), ((1,), one)) is not None


def test_a_map_of_samples() -> None:
    calls = itertools.count()

    def one(x: float) -> Any:
        return (x + next(calls),)

    caught(bu.CompositeDataSource([ROWS, ROWS.map_samples(one)]), "one")


def test_an_accessor() -> None:
    class Noisy:
        shape = (100,)

        def __len__(self) -> int:
            return 100

        def __getitem__(self, rows: Any) -> np.ndarray:
            return np.asarray(rows) + np.random.default_rng().normal(size=len(rows))

    caught(bu.ArrayDataSource([np.arange(100), Noisy()]), "Noisy")
    caught(bu.zip(ROWS, bu.ArrayDataSource([Noisy()]).map(lambda x: (x,))), "Noisy")


def test_a_source_of_ones_own() -> None:
    class Jittering(bu.RandomAccessDataSource):
        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            return (indices + np.random.default_rng().normal(),)

    caught(bu.subset(Jittering(100), np.arange(40)), "Jittering")


class Sampler(RandomAccessSampler):
    """A sampler of 100 rows by any function."""

    def __init__(self, rows: Callable[[np.ndarray], np.ndarray]) -> None:
        self._rows = rows

    def num_indices_generated(self) -> int:
        return 100

    def rows_at(self, positions: np.ndarray, key: Any) -> np.ndarray:
        return self._rows(positions)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (lambda at: np.random.randint(0, 100, len(at)), "when they are asked for again"),
        (lambda at: np.random.RandomState(len(at)).randint(0, 100, len(at)), "other rows when"),
        (lambda at: (at + len(at)) % 100, "other rows when"),
        (lambda at: (at + os.getpid()) % 100, "in another process"),
    ],
)
def test_a_sampler_of_ones_own(rows: Any, says: str) -> None:
    source = bu.ArrayDataSource([np.arange(100.0)], sampler=Sampler(rows)).map(each_sample, rng="sample")
    with pytest.raises(NotReproducible, match=says) as raised:
        assert_reproducible(source, pools=("processes",))
    assert raised.value.culprit == "Sampler"
    assert "draw only from what rows_at(positions, key) is given" in str(raised.value)


def test_a_sampler_that_looks_at_how_many_rows_are_asked_for() -> None:
    source = bu.ArrayDataSource([np.arange(100.0)], sampler=Sampler(lambda at: (at + len(at)) % 100))
    with pytest.raises(NotReproducible, match="are other rows when") as raised:
        assert_reproducible(source, shuffle=None, pools=())
    assert raised.value.culprit == "Sampler"


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
    assert "cannot be made when it is made by a pool of 1 process, though it can in a plain loop" in str(error)
    assert "I want to go home" in str(error)


def test_another_number_of_batches() -> None:
    class Shrinking(bu.ArrayDataSource):
        left = 9

        def num_samples(self, **options: Any) -> Any:
            return super().num_samples()

        def plan_of(self, options: Any) -> Any:
            type(self).left -= 1
            plan: Any = super().plan_of(options)
            plan.n_batches = min(plan.n_batches, type(self).left)
            return plan

    error = caught(Shrinking([np.arange(100)]), "Shrinking", pools=())
    assert "batches from there on, and here" in str(error)
    assert "The first to differ is the plan of Shrinking: how many batches it has is not a function of" in str(error)


# -- what is refused -----------------------------------------------------------------------------------------------


def test_what_has_no_random_access_is_refused() -> None:
    stream = bu.IteratorDataSource(iter([(np.arange(3),)]))
    for source in (stream, stream.map(each_sample, rng="sample")):
        with pytest.raises(ArgumentTypeError, match=r"must have random access .* only streams; check the sources"):
            assert_reproducible(source)
    with bu.WorkerThreadPool(1) as pool, pytest.raises(ArgumentTypeError, match="the one that was given to the pool"):
        assert_reproducible(pool.parallel_data_source(ROWS))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentTypeError, match=r"wrap arrays in ArrayDataSource"):
        assert_reproducible(np.arange(3))  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"batch_size": 0}, ArgumentError, "batch_size must be at least 1, not 0"),
        ({"shuffle": np.random.RandomState(1)}, ArgumentTypeError, "shuffle must be an int seed, or None"),
        ({"shuffle": True}, ArgumentTypeError, "shuffle must be an int seed, or None"),
        ({"shuffle": -1}, ArgumentError, "shuffle must not be negative"),
        ({"pools": "threads"}, ArgumentTypeError, r"pools must be a list, not 'threads'; pass \('threads',\)"),
        ({"pools": ("thread",)}, ArgumentError, "did you mean 'threads'"),
        ({"workers": (0,)}, ArgumentError, "workers must be at least 1"),
        ({"buffers": 3}, ArgumentTypeError, "buffers must be a list"),
        ({"worlds": (1.5,)}, ArgumentTypeError, "worlds must be a whole number"),
        ({"epochs": (-1,)}, ArgumentError, "epochs must not be negative"),
        ({"resumes": -1}, ArgumentError, "resumes must not be negative"),
        ({"max_batches": 0}, ArgumentError, "max_batches must be at least 1"),
        ({"batch_sizes": (0,)}, ArgumentError, "batch_sizes must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        assert_reproducible(ROWS, **options)


def test_it_needs_no_pytest() -> None:
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "import numpy as np, batchup_ng as bu\n"
        "from batchup_ng.testing import assert_reproducible\n"
        "assert_reproducible(bu.ArrayDataSource([np.arange(9)]), pools=('threads',))\n"
        "print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "fine\n", done.stderr
