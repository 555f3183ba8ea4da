"""Reads batches with a note of what each node of the graph gave.

A :class:`Traced` source gives the batches of another, each with its events: the digests of what every node below gave,
in the order in which they had it. Children come before their parents, so the first event that differs between two
readings of one batch is that of the node to blame. It goes through pools as its source does; where the batch is made,
``read`` of each node is replaced, on the instance, by one that takes notes.
"""

from __future__ import annotations

import functools
import io
import itertools
import pickle
import random
import threading
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from ..data_source.base import AbstractDataSource, PlannedDataSource
from ..data_source.epoch_options import EpochOptions
from ..memory_pool import FRESH, Buffers
from ..randomness import BatchKey, torch_generator
from ..sampling.plans.epoch import BatchPlan, PlannedBatch
from .digests import form_digest, named_leaves, sample_digests

SHARED_BYTES = 1 << 16
"""Bytes of an array from which on copies of a source share it."""


class Event(NamedTuple):
    """What a node gave for one batch.

    Attributes:
        node: Its number among the nodes of the graph.
        path: Its place in the graph, as the keys of batches name it.
        form: Digest of the form of its batch.
        samples: Digests of the samples: ``(n,) uint64``.
        drew: Name of the global generator that was drawn from meanwhile, or ``""``.
    """

    node: int
    path: tuple[int, ...]
    form: int
    samples: np.ndarray
    drew: str


class _Here(threading.local):
    """The notes of the batch that a thread is making."""

    events: list[Any] | None = None
    kept: list[tuple[int, Any]] | None = None
    globals: dict[str, int] | None = None


_here = _Here()
_installing = threading.Lock()


class Traced(PlannedDataSource):
    """A source whose batches are ``(batch, events)`` of another.

    Args:
        source: The other.
        watch: Whether to note who draws from global generators, which only means something on one thread.
    """

    def __init__(self, source: PlannedDataSource, watch: bool = False) -> None:
        self.source = source
        self.watch = watch
        self.runs_user_code = False  # its own

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        take_notes(self.source)
        _here.events, _here.globals = [], _global_states() if self.watch else None
        try:
            batch = self.source.read(rows, key, buffers)
            return batch, _here.events
        finally:
            _here.events = None

    @property
    def is_random_access(self) -> bool:
        return self.source.is_random_access

    def fingerprint(self) -> list[Any]:
        return self.source.fingerprint()

    def num_samples(self, **kwargs: Any) -> Any:
        return self.source.num_samples(**kwargs)

    def plan_of(self, options: EpochOptions) -> BatchPlan:
        return self.source.plan_of(options)

    def sample_name(self, rows: Any) -> str | None:
        return self.source.sample_name(rows)


def nodes_of(root: AbstractDataSource) -> list[AbstractDataSource]:
    """Return the nodes of a graph of sources, each once, children before their parents."""
    found: dict[int, AbstractDataSource] = {}

    def visit(node: AbstractDataSource) -> None:
        if id(node) in found:
            return
        for value in list(getattr(node, "__dict__", {}).values()):
            for part in _parts(value):
                if isinstance(part, AbstractDataSource):
                    visit(part)
        found[id(node)] = node

    visit(root)
    return list(found.values())


def _parts(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else [value]


def take_notes(root: AbstractDataSource) -> None:
    """Make each node of a graph note what it reads, unless they do."""
    with _installing:
        if "read" in getattr(root, "__dict__", {}):
            return
        for number, node in enumerate(nodes_of(root)):
            if hasattr(node, "__dict__"):
                vars(node)["read"] = functools.partial(_noted, node.read, number)


def take_none(root: AbstractDataSource) -> None:
    """Undo :func:`take_notes`."""
    with _installing:
        for node in nodes_of(root):
            if isinstance(getattr(node, "__dict__", {}).get("read"), functools.partial):
                del vars(node)["read"]


def reusing_node(traced: Traced, planned: Sequence[PlannedBatch]) -> int | None:
    """Return the number of the first node that gives memory of an earlier batch again; None if none does."""
    given: dict[int, list[Any]] = {}
    for one in planned:
        _here.kept = []
        try:
            traced.read(one.rows, one.key, FRESH)
            for number, batch in _here.kept:
                arrays = [leaf for _, leaf in named_leaves(batch) if isinstance(leaf, np.ndarray)]
                if any(np.may_share_memory(*pair) for pair in itertools.product(arrays, given.get(number, []))):
                    return number
                given.setdefault(number, []).extend(arrays)
        finally:
            _here.kept = None
    return None


def _noted(read: Any, number: int, rows: Any, key: BatchKey, *rest: Any) -> Any:
    batch = read(rows, key, *rest)
    if _here.kept is not None:
        _here.kept.append((number, batch))
    if _here.events is not None:
        _here.events.append((number, tuple(key.path), form_digest(batch), sample_digests(batch), _drawn_from()))
    return batch


def _drawn_from() -> str:
    """Return the name of the global generator that was drawn from since this was asked last."""
    if _here.globals is None:
        return ""
    before, _here.globals = _here.globals, _global_states()
    return next((name for name, state in _here.globals.items() if before[name] != state), "")


def _global_states() -> dict[str, int]:
    name, keys, *rest = np.random.get_state()
    torch = torch_generator()
    return {
        "numpy.random": hash((name, np.asarray(keys).tobytes(), *rest)),
        "random": hash(random.getstate()),
        "torch": 0 if torch is None else hash(torch.get_state().numpy().tobytes()),
    }


def snapshot(source: PlannedDataSource) -> Any:
    """Return a function that returns a copy of a source as it is now; None if there can be no copies.

    Functions are copied with what they close over, if they are no part of a module that can be imported. Large arrays
    are shared, and so are classes and modules.
    """
    kept: list[Any] = []
    stream = io.BytesIO()
    try:
        _Snapshot(stream, kept).dump(source)
        data = stream.getvalue()
        _Restored(io.BytesIO(data), kept).load()
    except Exception:
        return None
    return lambda: _Restored(io.BytesIO(data), kept).load()


class _Snapshot(cloudpickle.Pickler):  # type: ignore[misc]  # a class without annotations
    """Pickles all but large arrays, classes and modules, which are kept aside.

    A class that was made in a function would else be changed itself when it is loaded where it comes from.
    """

    def __init__(self, stream: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(stream, protocol=5)
        self._kept = kept

    def persistent_id(self, value: Any) -> int | None:
        large = isinstance(value, np.ndarray) and value.nbytes >= SHARED_BYTES
        if not large and not isinstance(value, (type, types.ModuleType)):
            return None
        self._kept.append(value)
        return len(self._kept) - 1


class _Restored(pickle.Unpickler):
    """Loads what :class:`_Snapshot` pickled; only ever bytes that this process made."""

    def __init__(self, stream: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(stream)
        self._kept = kept

    def persistent_load(self, number: Any) -> Any:
        return self._kept[number]
