"""Faults on a Ray cluster: actors, nodes and programs that are killed, files and libraries that nodes lack.

In each an epoch is complete, with the bytes of a plain loop, or ends with an error that says what is wrong.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import batchup_ng as bu
from batchup_ng.errors import (
    BatchError,
    ClusterError,
    SampleTimeout,
    SampleWarning,
    SerializationError,
    WorkerDied,
    WorkerWarning,
)
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool.ray import dispatcher
from tests.messages import raises, warns
from tests.work_pool.processes.serialization_helpers import ended, wait_until

from ...extent import thorough
from ..time_limits import only_what_hangs_is_late
from . import faulty, local_cluster
from .conftest import actors

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.in_turn,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray, which leaves files to the collector
]

KILLS = [5, thorough(50)]
ACTORS = 3


PATIENT = "from batchup_ng.work_pool.ray import dispatcher; dispatcher.START_TIMEOUT = dispatcher.ROOM_TIMEOUT = 600.0"
"""A line of a program whose actors may come up as late as a busy machine has them."""


@pytest.fixture(scope="module")
def shared(nodes: Any) -> Iterator[bu.WorkerRayPool]:
    """The pool of the tests that do not end it. It needs little room, so that others find some beside it."""
    with bu.WorkerRayPool(actors=ACTORS, num_cpus=0.25) as made:
        yield local_cluster.started(made)


@pytest.fixture
def pool(shared: bu.WorkerRayPool) -> Iterator[bu.WorkerRayPool]:
    """The shared pool, all of whose actors are there again after the test."""
    yield shared
    wait_until(lambda: len(actors()) >= ACTORS and len(shared.stats()) == shared.processes)


def restarts(pool: Any) -> int:
    """Return how often actors of the pool have died and come back, once all are up: it lists those alone."""
    stats: list[Any] = []

    def all_up() -> bool:
        stats[:] = pool.stats()
        return len(stats) == pool.processes

    wait_until(all_up)
    return int(sum(each["restarts"] for each in stats))


def expected(**options: Any) -> list[Any]:
    """Return the batches of a plain loop."""
    return list(faulty.source().batch_iterator(faulty.SIZE, 5, epoch=1, **options))


def batches(pool: Any, source: Any = None, **options: Any) -> Any:
    """Return the same epoch, made by the pool."""
    made = pool.parallel_data_source(faulty.source() if source is None else source, 6, **options)
    return made.batch_iterator(faulty.SIZE, 5, epoch=1)


def check(given: list[Any]) -> None:
    """Compare an epoch with that of a plain loop."""
    assert_same_batches(given, expected())


# -- actors and nodes that are killed ---------------------------------------------------------------------------


@pytest.mark.parametrize("kills", KILLS)
def test_actors_that_are_killed_at_any_moment_cost_nothing(pool: Any, kills: int) -> None:
    rng, done = random.Random(kills), 0
    while done < kills:
        given = []
        with batches(pool, faulty.source(faulty.slow)) as iterator:
            for batch in iterator:
                given.append(batch)
                if done < kills and rng.random() < 0.15:
                    time.sleep(rng.random() * 0.02)
                    alive = sorted(actors())
                    for pid in rng.sample(alive, min(1, len(alive))):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            done += 1
        check(given)


@pytest.mark.thorough
def test_all_actors_killed_at_once_cost_nothing(pool: Any) -> None:
    before = restarts(pool)
    with batches(pool, faulty.source(faulty.slow)) as iterator:
        given = list(islice(iterator, 5))
        for pid in actors():
            os.kill(pid, signal.SIGKILL)
        check(given + list(iterator))
    assert restarts(pool) > before


def test_actors_that_die_while_they_have_nothing_to_do_cost_nothing(pool: Any) -> None:
    parallel = pool.parallel_data_source(faulty.source(), 6)
    check(list(parallel.batch_iterator(faulty.SIZE, 5, epoch=1)))
    before, killed = restarts(pool), actors()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    while len(actors() - killed) < pool.processes:
        time.sleep(0.05)
    check(list(parallel.batch_iterator(faulty.SIZE, 5, epoch=1)))  # by actors that were never sent the source
    assert restarts(pool) > before


@pytest.mark.thorough
def test_an_actor_that_is_there_although_a_call_of_it_failed_is_made_again(pool: Any) -> None:
    owner, before = pool._dispatcher, restarts(pool)
    for worker in owner._schedule.workers[:1]:
        owner._inbox.put(partial(owner._lost, worker, "the connection to it was lost"))
    while restarts(pool) == before:
        time.sleep(0.05)
    assert len(pool.stats()) == pool.processes
    check(list(batches(pool)))


@pytest.mark.thorough
def test_samples_that_all_kill_their_actors_are_told_of(nodes: Any) -> None:
    with bu.WorkerRayPool(actors=6) as pool:  # of which several die at once, as if their node were lost
        local_cluster.started(pool)
        source = faulty.source(lambda x, y: faulty.die())
        with batches(pool, source) as iterator, raises(BatchError):
            list(iterator)


@pytest.mark.parametrize("act", [faulty.die, thorough(faulty.leave)])
def test_an_actor_that_dies_once_in_its_task_costs_nothing(pool: Any, tmp_path: Path, act: Any) -> None:
    with batches(pool, faulty.source(faulty.Once(tmp_path / "mark", 100, act))) as iterator:
        check(list(iterator))


def test_a_sample_that_kills_its_actor_is_found_and_named(pool: Any) -> None:
    source = faulty.source(faulty.Always("", 100, faulty.die))
    with batches(pool, source, on_error="skip") as iterator:
        with warns(SampleWarning):
            rows = np.concatenate([x for x, _ in iterator])
        assert [(error.row, type(error.error)) for error in iterator.errors] == [(100, WorkerDied)]
    assert sorted(rows) == [row for row in range(faulty.SAMPLES) if row != 100]


def test_a_sample_that_hangs_is_ended_and_named(pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_what_hangs_is_late(monkeypatch, tmp_path / "hangs")
    source = faulty.source(faulty.Always("", 100, partial(faulty.hang, tmp_path / "hangs")))
    with batches(pool, source, timeout=1.0) as iterator, raises(SampleTimeout):
        list(iterator)


def test_a_node_that_is_killed_in_mid_epoch_costs_nothing(nodes: Any) -> None:
    room = {"spare": 2}
    with local_cluster.node(nodes, 2, resources=room) as node, contextlib.ExitStack() as stack:
        pool = stack.enter_context(bu.WorkerRayPool(actors=2, resources={"spare": 0.001}))
        with batches(pool, faulty.source(faulty.slow)) as iterator:
            given = list(islice(iterator, 5))
            local_cluster.remove_node(nodes, node, kill=True)
            other = stack.enter_context(local_cluster.node(nodes, 2, resources=room))  # where its actors go
            check(given + list(iterator))
        assert {each["node"] for each in pool.stats()} == {other.node_ip_address}
        pool.close()


@pytest.mark.thorough
def test_an_epoch_goes_on_with_the_nodes_that_are_left(nodes: Any) -> None:
    with (
        local_cluster.node(nodes, 2) as node,
        bu.WorkerRayPool(num_cpus=2) as pool,
        batches(pool, faulty.source(faulty.slow)) as iterator,
    ):
        given = list(islice(iterator, 8))
        while node.node_ip_address not in {each["node"] for each in pool.stats()}:
            time.sleep(0.02)
        local_cluster.remove_node(nodes, node, kill=True)
        check(given + list(iterator))


def test_actors_that_find_room_later_are_used(nodes: Any) -> None:
    with bu.WorkerRayPool(num_cpus=6) as pool:
        stream = pool.work_stream((faulty.slow, (np.arange(i), np.arange(2))) for i in range(100_000))
        while len(pool.stats()) < 2:
            stream.retrieve()
        with local_cluster.node(nodes, 6) as node:
            while node.node_ip_address not in {each["node"] for each in pool.stats()}:
                stream.retrieve()
            stream.close()
            pool.close()


@pytest.mark.thorough
def test_actors_of_a_node_that_has_left_are_let_go(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with local_cluster.node(nodes, 6) as node, local_cluster.started(bu.WorkerRayPool(num_cpus=6)) as pool:
        while len(pool.stats()) < 3:
            time.sleep(0.05)
        monkeypatch.setattr(dispatcher, "LET_GO", 0.5)
        local_cluster.remove_node(nodes, node, kill=True)
        with batches(pool) as iterator:
            check(list(iterator))
        while pool.processes > 2:
            time.sleep(0.05)


# -- what a cluster lacks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("need", [{"num_cpus": 64}, thorough({"resources": {"gpus_of_old": 1}})])
def test_a_cluster_without_room_says_what_was_asked_for_and_what_is_free(
    nodes: Any, need: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "ROOM_TIMEOUT", 2.0)
    with bu.WorkerRayPool(actors=2, **need) as pool, pytest.raises(ClusterError) as caught:
        list(batches(pool))
    told = str(caught.value)
    assert "none of 2 actors came up" in told
    assert re.search(r"free on all nodes together is \{CPU: \d+", told)
    assert ("gpus_of_old: 1" if "resources" in need else "CPU: 64") in told


@pytest.mark.thorough
def test_room_that_comes_after_an_error_is_used(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with bu.WorkerRayPool(actors=1, resources={"late": 1}) as pool:
        with monkeypatch.context() as patch, raises(ClusterError):
            patch.setattr(dispatcher, "ROOM_TIMEOUT", 2.0)
            list(batches(pool))
        with local_cluster.node(nodes, 1, resources={"late": 1}):
            with batches(pool) as iterator:
                check(list(iterator))
            pool.close()


def test_a_map_that_cannot_be_pickled_is_refused_before_anything_is_sent(pool: Any) -> None:
    import threading

    guard = threading.Lock()
    with raises(SerializationError):
        batches(pool, faulty.source(lambda x, y: (guard, x, y)[1:]))


def test_a_node_without_the_library_is_told_of_and_can_be_sent_it(nodes: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "batchup_ng" and not any("py_modules" in each for each in sys.path):
            raise ModuleNotFoundError("No module named 'batchup_ng'", name=name)

sys.meta_path.insert(0, Missing())
""")
    program = f"""
import sys
sys.path.insert(0, {str(local_cluster.ROOT)!r})
import batchup_ng as bu, numpy as np
{PATIENT}
env = {{"env_vars": {{"PYTHONPATH": {str(tmp_path)!r}}}, **({{"py_modules": [bu]}} if sys.argv[1:] else {{}})}}
with bu.WorkerRayPool({nodes.address!r}, actors=1, runtime_env=env) as pool:
    print(list(pool.parallel_data_source(bu.ArrayDataSource([np.arange(3)])).batch_iterator(2)))
"""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = partial(subprocess.run, cwd=tmp_path, env=env, capture_output=True, text=True)
    told = run([sys.executable, "-c", program]).stderr
    assert "ClusterError: an actor cannot be started: ModuleNotFoundError: No module named 'batchup_ng'" in told
    assert "py_modules" in told
    done = run([sys.executable, "-c", program, "send it"])
    assert "[(array([0, 1]),), (array([2]),)]" in done.stdout, done.stderr


def test_a_module_that_a_node_lacks_is_no_fault_of_a_sample(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def unchanged(x, y):\n    return x, y\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    parallel = pool.parallel_data_source(faulty.source(only_here.unchanged), on_error="skip")
    with raises(ClusterError):
        list(parallel.batch_iterator(8))


@pytest.mark.thorough
def test_actors_that_find_no_room_are_told_of_while_others_work(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "LET_GO", 0.5)
    one = local_cluster.node(nodes, 1, resources={"seats": 1})
    with one, bu.WorkerRayPool(actors=2, resources={"seats": 1}) as pool, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")  # Ray's own, of files that it leaves to the collector
        warnings.simplefilter("always", WorkerWarning)
        endless = batches(pool, faulty.source(faulty.slow).repeat())
        while not told:
            next(endless)
        endless.close()
    assert str(told[0].message).startswith("1 of 2 actors are up; the cluster has had no room")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "auto", thorough(None)])
def test_an_address_at_which_nothing_answers_is_told_at_once(address: str | None) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # names of sockets have 107 bytes at most
    (folder / "ray").mkdir()
    (folder / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    program = f"import batchup_ng as bu; bu.WorkerRayPool({address!r}, actors=1).close(); print('a new one')"
    env = {**os.environ, **local_cluster.settings(), "RAY_TMPDIR": str(folder)}
    env.pop("RAY_ADDRESS", None)
    try:
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if address is None:
        assert "a new one" in done.stdout, done.stderr
    else:
        assert "ConnectionError: no Ray cluster answers at 127.0.0.1:1" in done.stderr


def test_a_file_that_a_node_lacks_or_has_another_of_is_named(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, np.arange(100_000.0))
    source = bu.ArrayDataSource([np.load(path, mmap_mode="r")])
    parallel = pool.parallel_data_source(source)
    with parallel.batch_iterator(50_000) as iterator:
        assert_same_batches(list(iterator), list(source.batch_iterator(50_000)))
        assert iterator.stats()["arrays"] == "mapped"
    parallel = pool.parallel_data_source(bu.ArrayDataSource([np.load(path, mmap_mode="r")]))
    path.rename(tmp_path / "away.npy")
    with raises(ClusterError):
        list(parallel.batch_iterator(50_000))
    shutil.copyfile(tmp_path / "away.npy", path)
    os.utime(path, (1, 1))
    with raises(ClusterError):
        list(parallel.batch_iterator(50_000))
    shutil.copystat(tmp_path / "away.npy", path)
    assert len(list(parallel.batch_iterator(50_000))) == 2  # once it is there


@pytest.mark.thorough
def test_pictures_that_a_node_lacks_are_named(pool: Any, tmp_path: Path) -> None:
    from PIL import Image

    paths = [tmp_path / f"{k}.png" for k in range(20)]
    for path in paths:
        Image.new("RGB", (8, 8)).save(path)
    parallel = pool.parallel_data_source(bu.ArrayDataSource([bu.ImageFiles(paths, 4)]))
    paths[7].unlink()
    with raises(ClusterError):
        list(parallel.batch_iterator(5))


def test_a_store_that_is_full_is_no_end(nodes: Any) -> None:
    big = bu.ArrayDataSource([np.arange(12)]).map(lambda x: (np.full((1, 40 << 20), x, np.uint8),))
    with bu.WorkerRayPool(actors=2, copy=False) as pool:  # 40 MB a sample, all held: more than there is room for
        held = list(pool.parallel_data_source(big, 4).batch_iterator(1))
        assert [int(batch[0][0, -1]) for batch in held] == list(range(12))


@pytest.mark.thorough
def test_a_store_that_is_full_as_is_the_disk_is_told_of() -> None:
    program = """
import ray
from ray.cluster_utils import Cluster
import batchup_ng as bu, numpy as np
from tests.work_pool.ray import local_cluster
made = Cluster()
full = {"local_fs_capacity_threshold": 0.0, "local_fs_monitor_interval_ms": 50}
head = local_cluster.add_node(made, 2, _system_config=full)
ray.init(address=made.address, _node_ip_address=head.node_ip_address)
big = bu.ArrayDataSource([np.arange(12)]).map(lambda x: (np.full((1, 40 << 20), x, np.uint8),))
try:
    with bu.WorkerRayPool(actors=2, copy=False) as pool:
        held = list(pool.parallel_data_source(big, 4).batch_iterator(1))
finally:
    ray.shutdown()
    made.shutdown()
"""
    env = {**os.environ, **local_cluster.settings(), "BATCHUP_NG_NODE": "100"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=local_cluster.ROOT, env=env, capture_output=True, text=True)
    assert re.search(r"ClusterError: node 127\.0\.0\.\d+ cannot store a result: .*full.* fewer batches", done.stderr)


# -- the end ----------------------------------------------------------------------------------------------------


ENDED = "ray.shutdown()"
ENDED_WITH_A_RESULT = """
    answered = pool._dispatcher._answered
    def ending(*what):
        ray.shutdown()
        answered(*what)
    pool._dispatcher._answered = ending
"""


@pytest.mark.parametrize("ends", [ENDED_WITH_A_RESULT, thorough(ENDED)], ids=["with a result", "between results"])
def test_a_connection_that_is_ended_in_mid_epoch_is_told_of(nodes: Any, ends: str) -> None:
    program = f"""
import batchup_ng as bu, ray
from tests.work_pool.ray import faulty
{PATIENT}
with bu.WorkerRayPool({nodes.address!r}, actors=1) as pool:
    iterator = pool.parallel_data_source(faulty.source(faulty.slow), 6).batch_iterator(8)
    next(iterator)
    {ends.strip()}
    list(iterator)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=local_cluster.ROOT, capture_output=True, text=True, timeout=600
    )
    assert "batchup_ng.errors.ClusterError: the program's connection to Ray was ended (ray.shutdown)" in done.stderr, (
        done.stderr
    )


def at_a_batch(program: str) -> subprocess.Popen[bytes]:
    """Return a program that runs, and has had a batch."""
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, cwd=local_cluster.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"batch\n"
    return process


@pytest.mark.parametrize("ends", [signal.SIGKILL, thorough(signal.SIGINT)])
def test_a_program_that_is_killed_leaves_no_actor(nodes: Any, ends: signal.Signals) -> None:
    program = f"""
import batchup_ng as bu
from tests.work_pool.ray import faulty
{PATIENT}
with bu.WorkerRayPool({nodes.address!r}, actors=3) as pool:
    for _ in pool.parallel_data_source(faulty.source(faulty.slow).repeat(1000)).batch_iterator(8):
        if len(pool.stats()) == 3:
            print("batch", flush=True)
"""
    before = actors()
    process = at_a_batch(program)
    wait_until(lambda: len(actors() - before) == 3)
    process.send_signal(ends)
    process.communicate()
    assert process.returncode != 0
    wait_until(lambda: not actors() - before)


@pytest.mark.thorough
def test_a_program_that_is_killed_ends_the_cluster_that_it_started(nodes: Any, tmp_path: Path) -> None:
    program = """
import batchup_ng as bu
from tests.work_pool.ray import faulty
with bu.WorkerRayPool("local", actors=1) as pool, bu.WorkerRayPool("local", actors=1):
    for _ in pool.parallel_data_source(faulty.source(faulty.slow).repeat(1000)).batch_iterator(8):
        print("batch", flush=True)
"""
    process = at_a_batch(PATIENT + program)
    # But Ray's two agents of a node, which look for its raylet when they have the time, once they have started.
    started = [each for each in psutil.Process(process.pid).children(recursive=True) if "Agent" not in each.name()]
    assert any("raylet" in " ".join(each.cmdline()) for each in started)
    process.kill()
    process.communicate()
    wait_until(lambda: all(ended(each.pid) for each in started))


def test_a_pool_that_is_forgotten_before_it_was_used_ends_the_cluster_that_it_started(tmp_path: Path) -> None:
    program = """
import batchup_ng as bu, ray, time
pool = bu.WorkerRayPool("local", actors=1)
del pool
while ray.is_initialized():
    time.sleep(0.05)
print("ended")
"""
    env = {**os.environ, **local_cluster.settings()}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
    )
    assert "ended" in done.stdout, done.stderr
