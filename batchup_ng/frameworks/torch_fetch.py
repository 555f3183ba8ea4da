"""How a worker makes a batch of a PyTorch ``DataLoader``: what :mod:`.torch_dataloader` sends to it.

Who owns what. A :class:`Fetch` holds the data set; threads share one, each worker process has a copy. Which of them
have called ``worker_init_fn`` stands in it.
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

from ..error_context import raise_if_of_signal_handler
from ..memory_pool import Buffers
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept, seed_globals
from ..tensors import bytes_of, is_dense, is_tensor
from ..work_pool.processes.shared_constants import WORKER_CONSTANTS

MOST_NAMED = 8
"""Indices of a batch that an error names."""

INDEX = "__batchup_index__"
"""The attribute of an exception that has the index for which it was raised."""


class Begun:
    """Which workers have called the user's function: this thread, if it has a number; this process, likewise."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.thread = threading.local()
        self.process = types.SimpleNamespace()


class Fetch:
    """Makes batches of lists of indices, as workers of PyTorch's do.

    Args:
        dataset: Indexed by each index, or all at once where it has ``__getitems__``.
        collate: Makes a batch of a list of samples; of one sample, where batches are not `batched` here.
        batched: Whether what the sampler yields are lists of indices.
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
        """Return what travels to workers, each by what the user calls it."""
        dataset, collate, _, init = self._made_of
        return {"the data set": dataset, "collate_fn": collate, "worker_init_fn": init}

    def begin(self, kind: str) -> None:
        """Call the user's function for this worker, a process or a thread, if that was not done."""
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
        """Return the batch of a list of indices; what is raised for one of them has that noted on it."""
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
                samples.append(self._dataset[index])  # not by a comprehension: `index` is told where this raises
        except Exception as error:
            with contextlib.suppress(Exception):  # one that takes no attributes
                setattr(error, INDEX, index)
            raise
        return self._collate(samples)


def in_words(indices: Any) -> str:
    """Return what a sampler yielded for a batch, in words: a list of indices, or one."""
    if isinstance(indices, str) or not hasattr(indices, "__len__"):
        return f"index {indices!r:.80}"
    named = [f"{index!r:.80}" for index in itertools.islice(indices, MOST_NAMED)]
    more = len(indices) - len(named)
    return f"indices {', '.join(named)}" + f" and {more} more" * (more > 0)


def make_batch(fetch: Fetch, indices: Any, key: tuple[int, int, int], kind: str, seeded: bool, buffers: Buffers) -> Any:
    """Return a batch, from a process in the form that :func:`received` takes: the task of every batch, in each pool.

    Args:
        fetch: Makes it.
        indices: What the sampler yielded for it.
        key: Seed, number of the epoch, number of the batch.
        kind: Where this runs: ``"serial"``, ``"threads"`` or ``"processes"``.
        seeded: Whether the global generators are seeded for it; on the consumer's own thread they are put back then.
        buffers: Where the memory of large tensors comes from.
    """
    fetch.begin(kind)
    seeded = seeded and fetch.columns is None  # else none of the user's code runs
    if seeded and kind == "serial":
        with globals_kept(BatchKey(*key)):
            return fetch(indices, buffers)
    if seeded:
        seed_globals(BatchKey(*key))
    batch = fetch(indices, buffers)
    return as_arrays(batch) if kind == "processes" else batch


# -- tensors on their way from a process -------------------------------------------------------------------------------

MARKS: dict[Any, str] = {list: "\0list ", tuple: "\0tuple ", dict: "\0dict "}
"""With what the names of arrays begin that stand for a list, tuple or dict of tensors."""


def as_arrays(batch: Any) -> Any:
    """Return a list, tuple or dict of tensors as a dict of arrays, which is sent in a short form; else `batch`."""
    mark = MARKS.get(type(batch))
    if mark is None or not batch:
        return batch
    named = batch if type(batch) is dict else dict(zip(map(str, range(len(batch))), batch, strict=True))
    distinct = len(set(map(id, named.values()))) == len(named)
    if not distinct or not all(type(n) is str and is_tensor(t) and t.is_contiguous() for n, t in named.items()):
        return batch
    try:
        return {mark + name: tensor.numpy() for name, tensor in named.items()}
    except (RuntimeError, TypeError):  # a dtype that NumPy lacks, or a tensor that is conjugated lazily
        return batch


def received(batch: Any) -> Any:
    """Return the batch that :func:`as_arrays` was given."""
    first = next(iter(batch), None) if type(batch) is dict else None
    kind = next((kind for kind, mark in MARKS.items() if isinstance(first, str) and first.startswith(mark)), None)
    if kind is None:
        return batch
    tensors = {name.removeprefix(MARKS[kind]): torch.from_numpy(array) for name, array in batch.items()}
    return tensors if kind is dict else kind(tensors.values())


# -- tensors in memory -------------------------------------------------------------------------------------------------


class Columns(NamedTuple):
    """A ``TensorDataset`` whose batches are rows of its tensors, behind so many ``Subset``, the outermost first."""

    columns: list[Column]
    subsets: list[Sequence[int]]

    def rows(self, indices: Any, buffers: Buffers) -> list[torch.Tensor] | None:
        """Return what PyTorch's default collate function makes of the samples; None if it is to find out itself."""
        try:
            for subset in self.subsets:
                indices = [subset[index] for index in indices]
            rows = np.array(indices)
        except Exception as error:
            raise_if_of_signal_handler(error)
            return None
        if rows.ndim != 1 or rows.dtype.kind != "i" or rows.size == 0:
            return None
        if rows.min() < 0 or rows.max() >= len(self.columns[0].rows):
            return None
        return [column.taken(rows, buffers) for column in self.columns]


class Column(NamedTuple):
    """A tensor as an array; of a dtype that NumPy lacks, which is `dtype` then, its bytes: ``(n, bytes of a row)``."""

    rows: np.ndarray
    dtype: torch.dtype | None
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Column:
        shape = tuple(tensor.shape[1:])
        try:
            return cls(tensor.numpy(), None, shape)
        except TypeError:
            return cls(bytes_of(tensor).reshape(len(tensor), -1), tensor.dtype, shape)

    def taken(self, rows: np.ndarray, buffers: Buffers) -> torch.Tensor:
        """Return the tensor of some rows, in memory from `buffers`.

        By NumPy: PyTorch would share out the work to threads, which have to be woken for each batch.
        """
        out = buffers.empty((len(rows), *self.rows.shape[1:]), self.rows.dtype)
        self.rows.take(rows, 0, out, "clip")  # any other mode makes a copy on the way
        tensor = torch.from_numpy(out)
        return tensor if self.dtype is None else tensor.view(self.dtype).view(len(rows), *self.shape)


def _columns_of(dataset: Any, collate: Any) -> Columns | None:
    """Return the tensors of a data set; None if its batches are not just rows of them."""
    if collate is not default_collate or default_collate_fn_map.get(torch.Tensor) is not collate_tensor_fn:
        return None
    subsets = []
    while type(dataset) is Subset:
        subsets.append(dataset.indices)
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset:
        return None
    tensors: Any = dataset.tensors
    if not all(is_tensor(each) and is_dense(each) and each.is_contiguous() and each.numel() for each in tensors):
        return None
    return Columns([Column.of(each) for each in tensors], subsets)
