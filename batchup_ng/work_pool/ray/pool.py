"""The pool of actors on a Ray cluster.

Ownership. The pool is the user's handle. Its dispatcher owns the actors. When the handle is dropped, or the program
ends, the dispatcher is closed.
"""

from __future__ import annotations

import atexit
import math
import re
import weakref
from typing import Any

from ... import validation
from ...errors import ArgumentError, ArgumentTypeError, WorkerWarning
from ...graph.node import Node
from ...warn import warn_consumer
from ..base import ADVICE_ON_POOL_OPTIONS, AbstractWorkerPool
from ..processes.execution import WorkerBuffers
from ..processes.future import ProcessFuture, future_of
from ..processes.reloads import Reloads
from ..processes.serialization import can_travel
from ..task import ONCE, Call, Submission
from ..threads import WorkerThreadPool
from .cluster import Cluster
from .constants import RayConstant
from .dispatcher import RayDispatcher


class WorkerRayPool(AbstractWorkerPool):
    """Actors of a Ray cluster that run tasks: on other machines, or on this one.

    The same program gives the same batches as with :class:`~batchup_ng.WorkerProcessPool`. A batch comes through Ray's
    object store and is copied into reused memory of this process. The source is sent once to each node, and its arrays
    are read-only there. Files that it reads must have the same paths on each node. The same version of this library
    must be installed on each node.

    Args:
        address: Address of the cluster, as for ``ray.init``: ``"auto"`` or ``"host:port"``; ``"local"`` starts one on
            this machine, which ends with the last pool that uses it. None: the cluster that the program is connected
            to, else the one that ``RAY_ADDRESS`` names or that runs on this machine, else a new one as with
            ``"local"``.
        actors: Number of actors. None: as many as the nodes have room for, including nodes that join later.
        num_cpus: CPUs that Ray reserves for each actor; may be a fraction.
        resources: Other resources that Ray reserves for each actor: amounts by name.
        runtime_env: Ray's description of the actors' environment: ``{"env_vars": {...}}``, ``{"pip": [...]}``,
            ``{"py_modules": [...]}``. Ray accepts modules and folders of this machine only when the program connects:
            from the first pool, or from ``ray.init`` if the program calls that.
        copy: Whether batches are copied out of the object store. If not, their arrays are read-only, and occupy the
            store for as long as they live.

    Raises:
        ArgumentError: a number is out of range, or the program is connected to another cluster.
        ArgumentTypeError: an argument is of a wrong type.
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at `address`.
    """

    @validation.known_names({**ADVICE_ON_POOL_OPTIONS, "processes": "pass their number as actors="})
    def __init__(
        self,
        address: str | None = None,
        *,
        actors: int | None = None,
        num_cpus: float = 1,
        resources: dict[str, float] | None = None,
        runtime_env: dict[str, Any] | None = None,
        copy: bool = True,
    ) -> None:
        super().__init__()
        if address is not None and (not isinstance(address, str) or address.startswith("ray://")):
            raise ArgumentTypeError(
                f"address must be None, 'auto' or 'host:port' of a cluster's head, not {address!r}; run the program on "
                f"a machine of the cluster, as Ray's client (ray://) has no object store"
            )
        if address not in (None, "auto", "local") and not re.fullmatch(r".+:\d+", address):
            raise ArgumentError(f"address must be None, 'auto', 'local' or 'host:port', not {address!r}")
        if actors is not None:
            validation.positive_int("actors", actors)
        need = _checked_need(num_cpus, resources)
        self.buffers = WorkerBuffers()
        self._warned = False
        self._reloads = Reloads()
        self._options: dict[str, Any] = {"resources": resources, "runtime_env": runtime_env, "copy": copy}
        self._options["num_cpus"] = num_cpus
        self._cluster = Cluster(address, runtime_env)
        try:
            self._dispatcher = RayDispatcher(self._cluster, actors, need, bool(runtime_env), copy)
        except BaseException:
            self._cluster.leave()
            raise
        self._finalizer = weakref.finalize(self, self._dispatcher.abandon)
        self._finalizer.atexit = False
        _open.add(self._dispatcher)

    @property
    def processes(self) -> int:
        """Number of actors that there are, or are to be."""
        return self._dispatcher.size

    def submit(self, call: Call, how: Submission = ONCE) -> ProcessFuture:
        if self._dispatcher.lacking and not self._warned:
            self._warned = True
            warn_consumer(self._dispatcher.lacking, WorkerWarning)
        if how.flow_id > self._reloads.newest:
            self._reloads.look(how.flow_id)
        future = future_of(call, how)
        self._dispatcher.submit(future)
        return future

    def shared_constant(self, x: Any) -> RayConstant:
        """Return a stand-in for `x`. `x` reaches each node once and must not change afterwards.

        Args:
            x: Any object that can be pickled.

        Raises:
            SerializationError: `x` cannot be pickled.
        """
        self.check_open()
        if isinstance(x, RayConstant):
            return x
        self._cluster.check()
        constant = RayConstant(x, self._cluster.ray)
        weakref.finalize(constant, self._dispatcher.forget, constant.number).atexit = False
        return constant

    def stats(self) -> list[dict[str, Any]]:
        """Return statistics of each actor, in the order of creation.

        Returns:
            A dict for each actor that is up: ``node``, the address of its node; ``pid`` of its process there; ``tasks``
            that it finished; ``running``, the tasks that it has; ``restarts``, how often it died and came back.
        """
        return self._dispatcher.stats()

    def _own_pool(self, source: Node, stays: bool) -> AbstractWorkerPool:
        """Return a pool of one actor, or of one thread if the source holds a live iterator, which cannot move."""
        if stays or not can_travel(source):
            return WorkerThreadPool(1)
        return WorkerRayPool(actors=1, **self._options)

    def abandon(self) -> None:
        self._dispatcher.abandon()

    def check_open(self) -> None:
        self._dispatcher.check_open()

    def close(self) -> None:
        super().close()
        _open.discard(self._dispatcher)
        self._dispatcher.close()


def _checked_need(num_cpus: Any, resources: Any) -> dict[str, float]:
    """Return the resources that an actor needs, by Ray's names."""
    need = {"CPU": num_cpus, **({} if resources is None else resources)}
    for name, amount in need.items():
        shown = "num_cpus" if name == "CPU" else f"resources[{name!r}]"
        if isinstance(amount, bool) or not isinstance(amount, (int, float)):
            raise ArgumentTypeError(f"{shown} must be a number, not {amount!r}; pass 1, or 0.5")
        if not 0 <= amount < math.inf or not name:
            raise ArgumentError(f"{shown} must not be below 0, and finite, which {amount!r} is not; pass 1, or 0.5")
    return {name: float(amount) for name, amount in need.items() if amount} or {"CPU": 0.001}


_open: weakref.WeakSet[RayDispatcher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for dispatcher in list(_open):
        dispatcher.close()
