"""A Ray cluster of several nodes on this machine, each with a loopback address of its own.

A node that has the address of the machine itself is taken for the one that the program runs on, and one at 127.0.0.1 is
looked for at the outer address, which takes minutes to fail.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
STORE = 160 << 20
"""Bytes of the object store of a node."""
PATIENCE = 300.0
"""Seconds in which a node must have come up, on a machine that may be busy."""

_addresses = itertools.count(int(os.environ.get("BATCHUP_NG_NODE", "2")))


def settings() -> dict[str, str]:
    """Return the variables under which Ray is to run: nothing is reported to anybody, workers find these tests."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3",
        # A busy machine is no fault: nodes answer, and workers come up, when they get to it.
        "RAY_health_check_timeout_ms": "30000", "RAY_worker_register_timeout_seconds": "240",
        "RAY_gcs_server_port_wait_time_s": "300",
        "RAY_timeout_ms_task_wait_for_death_info": "50",  # a second, which each death costs otherwise
    }  # fmt: skip


def add_node(cluster: Any, cpus: int = 6, **options: Any) -> Any:
    """Add a node with so many CPUs."""
    address = f"127.0.0.{next(_addresses)}"
    options = {"object_store_memory": STORE, "include_dashboard": False, **options}
    with _patient():
        made = cluster.add_node(wait=False, num_cpus=cpus, node_ip_address=address, **options)
        cluster._wait_for_node(made, timeout=PATIENCE)
    return made


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """Have Ray look for a node that it has started for longer than its 30 seconds."""
    from ray._private import services

    get_node = services.get_node

    def patiently(*which: Any, **more: Any) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return get_node(*which, **more)
            except RuntimeError:  # it has not registered yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    services.get_node = patiently
    try:
        yield
    finally:
        services.get_node = get_node


def remove_node(cluster: Any, node: Any, kill: bool = False) -> None:
    """Remove a node, and wait until its processes are gone."""
    processes = [each.process for group in node.all_processes.values() for each in group]
    cluster.remove_node(node, allow_graceful=not kill)
    for process in processes:
        process.wait()


@contextlib.contextmanager
def node(cluster: Any, cpus: int, **options: Any) -> Iterator[Any]:
    """Give one more node, which is removed at the end if it is still there."""
    made = add_node(cluster, cpus, **options)
    try:
        yield made
    finally:
        if made in cluster.worker_nodes:
            remove_node(cluster, made)


def started(pool: Any) -> Any:
    """Return a pool whose actors have all come up."""
    pool.work_stream(iter([(len, ("",))])).retrieve()
    while len(pool.stats()) < pool.processes:
        time.sleep(0.01)
    return pool


@contextlib.contextmanager
def cluster(nodes: int = 2, cpus: int = 8) -> Iterator[Any]:
    """Give a cluster with so many nodes beside its head, which has no CPU to give; the program is connected to it."""
    import ray
    from ray.cluster_utils import Cluster

    kept = dict(os.environ)
    os.environ.update(settings())
    made = Cluster()
    try:
        head = add_node(made, 0)
        for _ in range(nodes):
            add_node(made, cpus)
        ray.init(address=made.address, log_to_driver=False, _node_ip_address=head.node_ip_address)
        yield made
    finally:
        ray.shutdown()
        for node in list(made.worker_nodes):
            remove_node(made, node)
        remove_node(made, made.head_node)
        del made
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()  # now: Ray leaves files and processes to the collector
        os.environ.clear()
        os.environ.update(kept)
