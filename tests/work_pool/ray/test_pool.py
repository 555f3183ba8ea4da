"""The pool of Ray actors: the contract of every pool, on a cluster of several nodes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.work_pool import rereading
from tests.messages import raises
from tests.work_pool.processes.serialization_helpers import wait_until

from ..pool_contract import PoolContract
from .local_cluster import ROOT, started

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray, which leaves files to the collector


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a sample that hangs looked for faster."""
    monkeypatch.setattr(rereading, "SEARCH_SECONDS", 0.1)


def slow_at_77(x: int) -> tuple[int]:
    time.sleep(0.1 if x == 77 else 0.0)
    return (x,)


@pytest.mark.usefixtures("nodes")
class TestFourActors(PoolContract):
    """The contract, with actors on both nodes."""

    setup_class = teardown_class = None  # type: ignore[assignment]  # the tests of this folder share the pool

    @pytest.fixture
    def pool(self, four: Any) -> Any:
        return four

    def make(self) -> Any:
        return started(bu.WorkerRayPool(actors=2))

    @pytest.mark.thorough
    def test_strings_have_one_hash_in_all_actors(self, pool: Any) -> None:
        assert len(set(pool.work_stream((hash, ("a string",)) for _ in range(60)).retrieve_iter())) == 1
        assert sum(each["tasks"] > 1 for each in pool.stats()) > 1

    def test_a_slow_sample_is_named(self, pool: Any) -> None:
        source = bu.ArrayDataSource([np.arange(120)]).map_samples(slow_at_77)
        for _ in range(20):  # on a busy machine, others may take longer
            with bu.Loader(source, 10, pool=pool) as loader:
                for _ in loader:
                    pass
                named = {each["sample"]: each for each in loader.explain(trial=False).slowest_samples}
            if "row 77" in named:
                break
        assert named["row 77"]["step"] == "slow_at_77"
        assert named["row 77"]["seconds"] >= 0.1

    def test_what_each_actor_did_is_told(self, pool: Any) -> None:
        wait_until(lambda: not any(each["running"] for each in pool.stats()))  # tasks of streams that were broken off
        before = sum(each["tasks"] for each in pool.stats())
        assert len(list(pool.work_stream((abs, (k,)) for k in range(50)).retrieve_iter())) == 50
        told = pool.stats()
        assert sum(each["tasks"] for each in told) == before + 50
        assert len({each["node"] for each in told}) == 2, "both nodes have actors"
        assert {each["restarts"] for each in told} == {0}


def test_a_loader_takes_the_pool(nodes: Any) -> None:
    loader = bu.Loader([np.arange(20)], batch_size=4, pool=bu.WorkerRayPool(actors=1))
    with loader:
        assert [batch[0].tolist() for batch in loader] == [list(range(k, k + 4)) for k in range(0, 20, 4)]


def test_the_traceback_of_an_error_names_the_node(lone: Any) -> None:
    source = bu.ArrayDataSource([np.arange(20)]).map(lambda x: (1 / (x - 7).astype(object),))
    with pytest.raises(bu.BatchError) as caught:
        list(lone.parallel_data_source(source).batch_iterator(4))
    assert "(on node 127.0.0." in caught.value.traceback


def test_batches_that_are_not_copied_are_read_only(nodes: Any) -> None:
    source = bu.ArrayDataSource([np.arange(200_000.0)])
    with bu.WorkerRayPool(actors=1, copy=False) as pool:
        given = list(pool.parallel_data_source(source).batch_iterator(50_000))
    assert not given[0][0].flags.writeable
    np.testing.assert_array_equal(np.concatenate([x for (x,) in given]), np.arange(200_000.0))


def counting(x: np.ndarray, *, count: np.ndarray) -> Any:
    count += 1
    return (x,)


def test_a_map_may_write_to_small_arrays_of_its_own(lone: Any) -> None:
    source = bu.ArrayDataSource([np.arange(8)]).map(partial(counting, count=np.zeros(1)))
    assert len(list(lone.parallel_data_source(source).batch_iterator(4))) == 2


def test_resources_that_ray_sets_for_itself_have_room(nodes: Any) -> None:
    name = f"node:{nodes.head_node.node_ip_address}"
    with bu.WorkerRayPool(num_cpus=0.001, resources={name: 0.25}) as pool:
        assert pool.processes == 4


def test_libraries_use_one_thread_in_an_actor(lone: Any, in_full: bool) -> None:
    with bu.WorkerRayPool(actors=1, num_cpus=2) if in_full else contextlib.nullcontext() as other:
        for pool in filter(None, (lone, other)):
            assert pool.work_stream(iter([(os.getenv, ("OMP_NUM_THREADS",))])).retrieve() == "1"


def test_a_source_in_memory_goes_through_the_store(lone: Any) -> None:
    source = bu.ArrayDataSource([np.arange(1 << 20)]).map(lambda x: (x, x))
    with lone.parallel_data_source(source).batch_iterator(1 << 19) as iterator:
        given = [x for x, _ in iterator]
        assert iterator.stats()["arrays"] == "store"
    np.testing.assert_array_equal(np.concatenate(given), np.arange(1 << 20))


def test_bad_arguments_are_refused_before_anything_is_started() -> None:
    for options in (
        {"actors": 0},
        {"num_cpus": -1},
        {"num_cpus": float("nan")},
        {"num_cpus": "2"},
        {"resources": {"disk": "x"}},
        {"address": "ray://head:10001"},
        {"address": "nonsense"},
        {"processes": 3},
    ):
        with raises((ArgumentError, ArgumentTypeError)):
            bu.WorkerRayPool(**options)  # type: ignore[arg-type]


def test_another_cluster_than_the_one_the_program_is_connected_to_is_refused(nodes: Any) -> None:
    with raises(ArgumentError):
        bu.WorkerRayPool("127.0.0.1:1")
    with bu.WorkerRayPool(nodes.address, actors=1), bu.WorkerRayPool("auto", actors=1):
        pass


def test_a_connection_that_the_user_made_after_that_of_a_pool_stays(nodes: Any) -> None:
    program = f"""
import batchup_ng as bu, ray
forgotten = bu.WorkerRayPool({nodes.address!r}, actors=1)
ray.shutdown()
ray.init({nodes.address!r})
with bu.WorkerRayPool(actors=1):
    forgotten.close()
assert ray.is_initialized()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
@pytest.mark.usefixtures("nodes")
class TestOneActor(PoolContract):
    """The contract, with one actor."""

    def make(self) -> Any:
        return started(bu.WorkerRayPool(actors=1))
