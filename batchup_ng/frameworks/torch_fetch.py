"""How a worker makes a batch of a PyTorch ``DataLoader``, for :mod:`.torch_dataloader`.

Ownership. A :class:`Fetch` holds the data set; threads share one, each worker process has a copy. It also records the
workers that have called ``worker_init_fn``.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from ..batch_layout import unkept
from ..error_context import raise_if_of_signal_handler
from ..memory.leases import Buffers
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept, seed_globals
from ..tensors import is_tensor
from ..work_pool.processes.shared_constants import WORKER_CONSTANTS

MAX_NAMED_INDICES = 8
"""The most indices of a batch that an error names."""

INDEX_ATTRIBUTE = "__batchup_index__"
"""The attribute of an exception for the index that raised it."""


class Begun:
    """The workers that have called the user's function: threads and processes with a number here."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.thread = threading.local()
        self.process = types.SimpleNamespace()


class Fetch:
    """Makes batches of lists of indices, as PyTorch's workers do.

    Args:
        dataset: Takes each index, or all at once if it has ``__getitems__``.
        collate: Makes a batch of a list of samples; of one sample, if not `batched`.
        batched: Whether the sampler yields lists of indices.
        init: Called once in each worker with its number; None for nothing.
    """

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], batched: bool, init: Callable[[int], object] | None
    ) -> None:
        self._made_of = dataset, collate, batched, init
        self._dataset, self._collate, self._batched, self.init = self._made_of
        self.columns = _columns_of(dataset, collate) if batched else None
        self.begun = Begun()

    def __reduce__(self) -> Any:
        return Fetch, self._made_of

    def named_parts(self) -> dict[str, Any]:
        """Return the parts that go to workers, by the user's names for them."""
        dataset, collate, _, init = self._made_of
        return {"the data set": dataset, "collate_fn": collate, "worker_init_fn": init}

    def begin(self, kind: str) -> None:
        """Call the user's function, if this worker (a process or a thread) has not done so."""
        if self.init is None or kind == "serial":
            return
        begun = self.begun
        with begun.lock:
            worker: Any = begun.thread if kind == "threads" else begun.process
            if not hasattr(worker, "number"):
                number = next(begun.numbers) if kind == "threads" else WORKER_CONSTANTS.worker
                self.init(number)
                worker.number = number

    def __call__(self, indices: Any, buffers: Buffers) -> Any:
        """Return the batch of a list of indices. An exception carries the index that raised it."""
        batch = None if self.columns is None else self.columns.rows(indices, buffers)
        if batch is not None:
            return batch
        if not self._batched:
            return self._collate(self._dataset[indices])
        at_once = getattr(self._dataset, "__getitems__", None)
        if at_once:
            return self._collate(at_once(indices))
        samples = []
        try:
            for index in indices:
                samples.append(self._dataset[index])  # no comprehension: the handler below needs `index`
        except Exception as error:
            with contextlib.suppress(Exception):  # an exception may take no attributes
                setattr(error, INDEX_ATTRIBUTE, index)
            raise
        return self._collate(samples)


def in_words(indices: Any) -> str:
    """Return the index or indices of a batch, as the sampler yielded them, in words."""
    if isinstance(indices, str) or not hasattr(indices, "__len__"):
        return f"index {indices!r:.80}"
    named = [f"{index!r:.80}" for index in itertools.islice(indices, MAX_NAMED_INDICES)]
    more = len(indices) - len(named)
    return f"indices {', '.join(named)}" + f" and {more} more" * (more > 0)


def make_batch(fetch: Fetch, indices: Any, key: tuple[int, int, int], kind: str, seeded: bool, buffers: Buffers) -> Any:
    """Return a batch in the form that :func:`received` takes: the task of every batch, in each pool.

    Threads make batches ahead of the loop, so they copy what the user's code keeps and may fill again.

    Args:
        fetch: Makes the batch.
        indices: The index or indices from the sampler.
        key: Seed, number of the epoch, number of the batch.
        kind: Where this runs: ``"serial"``, ``"threads"`` or ``"processes"``.
        seeded: Whether the global generators are seeded first. On the consumer's thread they are restored afterwards.
        buffers: Source of memory for large tensors.
    """
    fetch.begin(kind)
    seeded = seeded and fetch.columns is None  # with columns, none of the user's code runs
    if seeded and kind == "serial":
        with globals_kept(BatchKey(*key)):
            return as_it_is(fetch(indices, buffers))
    if seeded:
        seed_globals(BatchKey(*key))
    if kind == "threads" and fetch.columns is None:
        return as_it_is(unkept([fetch(indices, buffers)]))
    batch = fetch(indices, buffers)
    return as_arrays(batch) if kind == "processes" else as_it_is(batch)


# -- tensors on their way from a process -------------------------------------------------------------------------------

NEST_PREFIXES: dict[Any, str] = {list: "\0list ", tuple: "\0tuple ", dict: "\0dict "}
"""Prefixes of the names of arrays that represent a list, tuple or dict of tensors."""

AS_IT_IS = "\0"
"""The name of a dict of the user's whose first name begins with it, as the prefixes do."""


def as_arrays(batch: Any) -> Any:
    """Return a list, tuple or dict of tensors as a dict of arrays, which has a short form; else as it is."""
    mark = NEST_PREFIXES.get(type(batch))
    if mark is None or not batch:
        return as_it_is(batch)
    named = batch if type(batch) is dict else dict(zip(map(str, range(len(batch))), batch, strict=True))
    distinct = len(set(map(id, named.values()))) == len(named)
    if not distinct or not all(type(n) is str and is_tensor(t) and t.is_contiguous() for n, t in named.items()):
        return as_it_is(batch)
    try:
        return {mark + name: tensor.numpy() for name, tensor in named.items()}
    except (RuntimeError, TypeError):  # a dtype that NumPy lacks, or a lazily conjugated tensor
        return as_it_is(batch)


def as_it_is(batch: Any) -> Any:
    """Return `batch`, in a dict of its own if :func:`received` would take it for the result of :func:`as_arrays`."""
    return {AS_IT_IS: batch} if _first_name(batch).startswith(AS_IT_IS) else batch


def received(batch: Any) -> Any:
    """Return `batch` as it was before :func:`as_arrays` or :func:`as_it_is`."""
    first = _first_name(batch)
    if first == AS_IT_IS:
        return batch[AS_IT_IS]
    kind = next((kind for kind, mark in NEST_PREFIXES.items() if first.startswith(mark)), None)
    if kind is None:
        return batch
    tensors = {name.removeprefix(NEST_PREFIXES[kind]): torch.from_numpy(array) for name, array in batch.items()}
    return tensors if kind is dict else kind(tensors.values())


def _first_name(batch: Any) -> str:
    first = next(iter(batch), "") if type(batch) is dict else ""
    return first if isinstance(first, str) else ""


# -- tensors in memory -------------------------------------------------------------------------------------------------


class Columns(NamedTuple):
    """A ``TensorDataset`` whose batches are rows of its tensors, and each ``Subset`` around it, the outermost first."""

    columns: list[np.ndarray]
    subsets: list[Sequence[int]]

    def rows(self, indices: Any, buffers: Buffers) -> list[torch.Tensor] | None:
        """Return the batch of PyTorch's default collate function; None if that function itself has to make it."""
        try:
            for subset in self.subsets:
                indices = [subset[index] for index in indices]
            if isinstance(indices, (list, tuple)) and len(set(map(type, indices))) > 1:
                return None  # NumPy would read True as 1
            rows = np.array(indices)
        except Exception as error:
            raise_if_of_signal_handler(error)
            return None
        if rows.ndim != 1 or rows.dtype.kind != "i" or rows.size == 0:
            return None
        if rows.min() < 0 or rows.max() >= len(self.columns[0]):
            return None
        return [_taken(column, rows, buffers) for column in self.columns]


def _taken(column: np.ndarray, rows: np.ndarray, buffers: Buffers) -> torch.Tensor:
    """Return some rows of a column as a tensor, in memory from `buffers`.

    NumPy does it: PyTorch would share the work out to threads, and wake these for each batch.
    """
    out = buffers.empty((len(rows), *column.shape[1:]), column.dtype)
    column.take(rows, 0, out, "clip")  # other modes make an extra copy
    return torch.from_numpy(out)


def _columns_of(dataset: Any, collate: Any) -> Columns | None:
    """Return the tensors of a data set, or None if its batches are not just rows of its tensors."""
    if collate is not default_collate or default_collate_fn_map.get(torch.Tensor) is not collate_tensor_fn:
        return None
    subsets = []
    while type(dataset) is Subset:
        subsets.append(dataset.indices)
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset:
        return None
    tensors: Any = dataset.tensors
    if not all(is_tensor(each) and each.is_contiguous() and each.numel() for each in tensors):
        return None
    try:
        return Columns([each.numpy() for each in tensors], subsets)
    except (RuntimeError, TypeError):  # a dtype that NumPy lacks, or a lazily conjugated tensor
        return None
