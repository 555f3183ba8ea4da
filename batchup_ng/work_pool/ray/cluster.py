"""The connection of this program to a Ray cluster, which its pools share, and the options for actors there.

If the program is already connected, it stays connected. Otherwise the first pool connects it, or starts a cluster on
this machine, and the close of the last pool ends that.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

from ...errors import ArgumentError
from ...extras import library
from ..processes.process import same_bits

CONNECT_TIMEOUT = 5.0
"""Seconds for the head of a cluster to accept a connection."""

_lock = threading.Lock()


class _Connection:
    """A connection that a pool made: its identity, the requested `address`, and the number of pools that use it."""

    def __init__(self, ray: Any, address: str | None) -> None:
        self.identity = _identity(ray)
        self.address = address
        self.users = 0


_made: _Connection | None = None  # the last one


def _identity(ray: Any) -> tuple[str, str]:
    """Return the unique identity of a connection: jobs are numbered per cluster, nodes have random names."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def ray_module() -> Any:
    """Return the module ``ray``.

    Raises:
        ImportError: it is not installed.
    """
    return library("ray", "WorkerRayPool needs Ray", "ray")


class Cluster:
    """A connection, for one pool. The first pool passes its `runtime_env` to the connection.

    Attributes:
        runtime_env: The `runtime_env` for the actors, None if the connection has it. Ray accepts modules of this
            machine only for a connection.

    Raises:
        ArgumentError: the program is connected to a cluster that is not at `address`.
        ConnectionError: there is no cluster there.
    """

    def __init__(self, address: str | None, runtime_env: dict[str, Any] | None) -> None:
        global _made
        ray = self.ray = ray_module()
        self.runtime_env = runtime_env
        with _lock:
            if not ray.is_initialized():
                address = _answering(address)
                ray.init(address=address, runtime_env=runtime_env)
                self.runtime_env, _made = None, _Connection(ray, address)
            self._identity = _identity(ray)
            self._made = _made if _made is not None and _made.identity == self._identity else None
            here = ray.get_runtime_context().gcs_address
            if address not in (None, "auto", here, self._made and self._made.address):
                raise ArgumentError(
                    f"address must be that of the cluster which this program is connected to already, {here!r}, not "
                    f"{address!r}; leave it out, or call ray.shutdown() first"
                )
            if self._made is not None:
                self._made.users += 1

    def connected(self) -> bool:
        """Return whether the program still has this connection."""
        return bool(self.ray.is_initialized() and _identity(self.ray) == self._identity)

    def check(self) -> None:
        """Raise a ``ConnectionError`` if the connection was ended. Else a call of Ray would start a new cluster."""
        if not self.ray.is_initialized():
            raise ConnectionError("the program is not connected to Ray")

    def leave(self) -> None:
        """End the connection if a pool made it and no other pool uses it."""
        with _lock:
            if self._made is not None:
                self._made.users -= 1
                if not self._made.users and self.connected():
                    self.ray.shutdown()
                self._made = None

    def room_for(self, need: dict[str, float]) -> int:
        """Return how many actors that need `need` would fit now, if all nodes shared their resources."""
        self.check()
        free = self.ray.available_resources()
        return min([int(free.get(name, 0.0) / amount + 1e-9) for name, amount in need.items()])

    def free(self) -> dict[str, float]:
        """Return how much of each resource is free now on all nodes together, without Ray's own resources."""
        self.check()
        found = self.ray.available_resources()
        return {name: amount for name, amount in found.items() if not name.startswith(("node:", "memory", "object_"))}


def _answering(address: str | None) -> str | None:
    """Return the address of a cluster that answers. If none answers, Ray itself would try for minutes.

    Like Ray, look for the address in ``RAY_ADDRESS``, then in the file that the last cluster of this machine left.
    """
    if address == "local":
        return address
    found, left = address, None
    if address in (None, "auto"):
        folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # as Ray chooses it
        with contextlib.suppress(OSError), open(os.path.join(folder, "ray", "ray_current_cluster")) as file:
            left = file.read().strip()
        found = os.environ.get("RAY_ADDRESS") or left
    host, _, port = (found or "").rpartition(":")
    if not host or not port.isdecimal():
        return address  # Ray handles it
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
    except OSError as error:
        if address is None and found == left:
            return "local"
        raise ConnectionError(
            f"no Ray cluster answers at {found} ({error}); start one there by `ray start --head`, or pass the address "
            f"that it told, or 'local' for one on this machine"
        ) from error
    return address


def actor_options(need: dict[str, float], runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """Return Ray's options for making actors."""
    runtime_env = runtime_env or {}
    return {
        "num_cpus": need.get("CPU", 0.0),
        "resources": {name: amount for name, amount in need.items() if name != "CPU"},
        "runtime_env": {**runtime_env, "env_vars": {**same_bits(1), **runtime_env.get("env_vars", {})}},
        "scheduling_strategy": "SPREAD",
        "max_restarts": -1,
        "max_task_retries": 0,
    }


def last_line(error: BaseException) -> str:
    """Return Ray's message after its traceback."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()


def cause_of_death(error: BaseException) -> str:
    """Return why an actor is lost. If Ray does not know, its own text would say that the actor may come back."""
    known = type(error).__name__ != "ActorUnavailableError"
    return last_line(error) if known else "its process ended, or its machine is out of reach"
