"""Runs a ``DataLoader`` of PyTorch's on our pools: its data set, its samplers, its collate function, as they are.

Who owns what. The consumer's thread alone touches the samplers and draws lists of indices from them, as far ahead as
the buffer goes. Workers have a :class:`Fetch`, which the pool sends each of them once; a task carries a list of indices
and the key of its batch. Of an epoch the :class:`Batches` own what is under way; the pool belongs to the
:class:`PooledDataLoader`, unless the user gave it.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import itertools
import math
import pickle
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import validation
from ..data_source.epoch.iterator_views import MappedIterator
from ..error_context import described
from ..errors import ArgumentError, ArgumentTypeError, BatchError, PoolBroken, PoolClosed
from ..loader import POOLS
from ..memory_pool import FRESH
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept
from ..warn import warn_consumer
from ..work_pool import AbstractWorkerPool, WorkerProcessPool
from ..work_pool.choice import EPOCH, TINY, Choice, copy_to_try, timed
from ..work_pool.epoch_runner import ByteBound
from ..work_pool.prefetch_buffer import Job, PrefetchBuffer
from ..work_pool.processes.serialization import SMALLEST_APART, Packed, dumps, load_result, pack
from ..work_pool.processes.shared_arrays import address_of
from ..work_pool.stream import Stream
from ..work_pool.task import Submission, new_stream_id
from .handover import AheadIterator

try:
    import torch
    from torch.utils.data import DataLoader, IterableDataset
    from torch.utils.data._utils.pin_memory import pin_memory

    from .torch_fetch import INDEX, Fetch, in_words, make_batch, received
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"batchup_ng.frameworks.torch_dataloader needs PyTorch ({error}): pip install 'batchup_ng[torch]'"
    ) from error

TRIED, TRY_SECONDS, SLOW = 10, 0.05, 1.0
"""How many batches are made to choose a pool, at most; after how long no other is begun, the first not counted, nor
after a first that took so long."""

SHORT = 1e-3
"""Seconds below which a batch of a data set's own code is made on the consumer's thread: to send it from a process
takes some 0.4 ms of CPU time in all, so that processes gain little, and lose where CPUs are busy."""

ELSEWHERE = {
    "num_workers": "pass the number of workers as workers=",
    "prefetch_factor": "pass the number of batches that are made ahead as buffer=",
    "batch_buffer_size": "pass it as buffer=",
    "persistent_workers": "workers stay until the loader is closed",
    "multiprocessing_context": "pass a pool: pool=WorkerProcessPool(n, start_method=...)",
    **dict.fromkeys(
        [
            "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn", "pin_memory", "drop_last",
            "worker_init_fn", "generator",
        ],
        "give it to the DataLoader",
    ),
}  # fmt: skip
"""What to do instead of options that belong to the ``DataLoader``, or have another name here."""


@validation.known_names(ELSEWHERE)
def from_dataloader(
    torch_loader: DataLoader[Any],
    *,
    pool: str | AbstractWorkerPool = "auto",
    workers: int | None = None,
    buffer: int = 20,
    timeout: float | None = None,
) -> PooledDataLoader:
    """Return what iterates as `torch_loader` does, with the same batches in the same order, made ahead by a pool.

    Data set, samplers with their generators, collate function, ``drop_last``, ``worker_init_fn`` and ``pin_memory`` are
    those of the ``DataLoader``, which itself is not iterated over. Batches are what its collate function returns,
    tensors as a rule. Each iteration draws a new order from the sampler, as PyTorch does.

    Random numbers: the global generators of ``random``, NumPy and PyTorch are seeded for each batch, by the number that
    PyTorch draws for the epoch and that of the batch, so that what a data set draws from them does not depend on the
    workers. Several threads share these generators, which are not seeded there.

    Args:
        torch_loader: Any ``DataLoader`` over a data set with ``__getitem__``.
        pool: ``"serial"``, ``"threads"``, ``"processes"``, or a pool, which is yours to close. ``"auto"`` makes a few
            batches of a copy of the data set in the first iteration, and chooses; ``repr`` tells what and why. It does
            not run code of yours in several threads at once, for which data sets of PyTorch's need not be made.
        workers: How many; None for ``num_workers`` of the ``DataLoader``, or every CPU if that is 0.
        buffer: The most batches that are under way or done, ahead of the consumer; fewer where they are large (beyond a
            quarter of the free memory, or 1 GB).
        timeout: Seconds that a batch may take in a worker; None for ``timeout`` of the ``DataLoader``.

    Raises:
        ArgumentError: an option has a value that it cannot have.
        ArgumentTypeError: `torch_loader` is no ``DataLoader``, streams (``IterableDataset``), or iterates in a way of
            its own; an option is of a wrong kind or does not exist.

    >>> import torch.utils.data as data
    >>> numbers = data.DataLoader(data.TensorDataset(torch.arange(5)), batch_size=2)
    >>> with from_dataloader(numbers) as loader:
    ...     print(len(loader), [x.tolist() for (x,) in loader])
    3 [[0, 1], [2, 3], [4]]
    """
    _check(torch_loader)
    kind = "" if isinstance(pool, AbstractWorkerPool) else validation.one_of("pool", pool, ("auto", *POOLS))
    if workers is None:
        workers = torch_loader.num_workers or None
    elif kind in ("", "serial"):
        what = "that pool has its own" if not kind else "a SerialPool works on your thread"
        raise ArgumentError(f"workers= is the number of workers of a new pool, and {what}; leave it out")
    else:
        workers = validation.positive_int("workers", workers)
    if timeout is None:
        timeout = torch_loader.timeout or None
    else:
        timeout = validation.number_between("timeout", timeout, 0.0, threading.TIMEOUT_MAX)
    return PooledDataLoader(torch_loader, pool, workers, validation.positive_int("buffer", buffer), timeout)


def _check(torch_loader: Any) -> None:
    """Refuse what cannot be run on a pool."""
    if not isinstance(torch_loader, DataLoader):
        raise ArgumentTypeError(
            f"torch_loader must be a torch.utils.data.DataLoader, not a {type(torch_loader).__name__}; to batch a data "
            f"set, use batchup_ng.Loader(dataset, batch_size)"
        )
    if isinstance(torch_loader.dataset, IterableDataset):
        raise ArgumentTypeError(
            f"the data set of torch_loader must have __getitem__; {type(torch_loader.dataset).__name__} is an "
            f"IterableDataset, which says for itself what each worker reads; keep the DataLoader for it, or give an "
            f"iterator of batches to batchup_ng.IteratorDataSource and that to pool.prefetch"
        )
    if type(torch_loader).__iter__ is not DataLoader.__iter__:
        raise ArgumentTypeError(
            f"torch_loader must iterate as a DataLoader does, and {type(torch_loader).__name__} has an __iter__ of its "
            f"own; pass the DataLoader that it was made of"
        )


class PooledDataLoader:
    """A ``DataLoader`` whose batches a pool makes: see :func:`from_dataloader`, which makes it.

    It may be iterated over again and again, also by several iterators at a time. What it does not define itself, as
    ``dataset``, ``batch_size`` or ``sampler``, is that of the ``DataLoader``.
    """

    def __init__(
        self,
        torch_loader: DataLoader[Any],
        pool: str | AbstractWorkerPool,
        workers: int | None,
        buffer: int,
        timeout: float | None,
    ) -> None:
        self._torch_loader = torch_loader
        self._pool = pool if isinstance(pool, AbstractWorkerPool) else None
        self._kind = pool if isinstance(pool, str) else ""  # "" where the pool is the user's
        self._workers = workers
        self._buffer = buffer
        self._timeout = timeout
        self._why = ""
        self._seeded = True
        self._key: BatchKey | None = None
        self._bound: ByteBound | None = None
        self._shared: Any = None  # stands for the Fetch in the arguments of a task
        self._sent: Sent | None = None  # what was sent of it to processes

    def __iter__(self) -> Any:
        """Begin an epoch and return the iterator of its batches, which has ``len`` and ``close`` as well."""
        loader = self._torch_loader
        # As PyTorch does, in this order: both may draw from the generator.
        drawn: Iterator[Any] = iter(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
        self._key = self._next_key()
        fetch = Fetch(loader.dataset, loader.collate_fn, loader.batch_sampler is not None, loader.worker_init_fn)
        ready: list[Any] = []
        if self._pool is None:
            drawn, ready = self._open_pool(fetch, drawn, self._key)
        pool = self._pool
        assert pool is not None
        pool.check_open()
        if self._bound is None:
            self._bound = ByteBound(self._buffer, None, pool.at_once + 1)
        self._share(fetch, pool)
        context = contextvars.copy_context()
        how = Submission(retryable=True, timeout=self._timeout, stream_id=new_stream_id(), context=context)
        numbered = enumerate(drawn, len(ready))
        jobs = _jobs(self._shared, numbered, self._key, _where(pool, self._seeded), pool.buffers, how)
        batches = Batches(BatchBuffer(pool, jobs, self._bound), self, ready)
        return batches if not loader.pin_memory else _pinned(batches, pool.own_thread)

    def _next_key(self) -> BatchKey:
        """Return the key of the epoch: the seed that PyTorch draws for its workers, and which epoch of theirs it is."""
        if self._key is not None and self._torch_loader.persistent_workers:  # these have one seed for all epochs
            return self._key._replace(epoch=self._key.epoch + 1)
        seed = torch.empty((), dtype=torch.int64).random_(generator=self._torch_loader.generator)
        return BatchKey(int(seed.item()))

    def _open_pool(self, fetch: Fetch, drawn: Iterator[Any], key: BatchKey) -> tuple[Iterator[Any], list[Any]]:
        """Make the pool, chosen by a trial if need be; return the lists that follow, and the batches made before."""
        if self._kind != "auto":
            self._pool = POOLS[self._kind](self._workers)
            return drawn, []
        first = list(itertools.islice(drawn, TRIED))
        try:
            n_batches: float = len(self)
        except TypeError:
            n_batches = len(first) if len(first) < TRIED else math.inf
        (kind, self._why), workers, self._seeded, ready = _chosen(fetch, first, self._workers, key, n_batches)
        self._pool = POOLS[kind](workers)
        return itertools.chain(first[len(ready) :], drawn), ready

    def _share(self, fetch: Fetch, pool: AbstractWorkerPool) -> None:
        """Let the workers have the data set: again for a new epoch, if it has changed and PyTorch would send it."""
        if self._shared is not None and self._torch_loader.persistent_workers:
            return
        if isinstance(pool, WorkerProcessPool):
            sent = Sent.of(pack(fetch))
            if self._sent is not None and sent[:2] == self._sent[:2]:
                return
            self._sent = sent
        elif isinstance(self._shared, Fetch) and self._shared.init is fetch.init:
            fetch.begun = self._shared.begun
        self._shared = pool.shared_constant(fetch)

    def __len__(self) -> int:
        """Return how many batches an epoch has.

        Raises:
            TypeError: the sampler does not know.
        """
        return len(self._torch_loader)

    def set_epoch(self, epoch: int) -> None:
        """Tell the sampler which epoch is next, if it is one that wants to know, as ``DistributedSampler``."""
        loader = self._torch_loader
        samplers: list[Any] = [loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None), loader.sampler]
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
                return

    def close(self) -> None:
        """End the workers unless the pool is yours, hence the epochs under way; may be called again."""
        if self._kind and self._pool is not None:
            self._pool.close()

    def __enter__(self) -> PooledDataLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by copy and pickle before there is anything
            raise AttributeError(name)
        return getattr(self._torch_loader, name)

    def __repr__(self) -> str:
        loader = self._torch_loader
        size = "" if loader.batch_size is None else f", batches of {loader.batch_size}"
        if self._pool is None:
            by = f"pool={self._kind!r}" + ", to be chosen in the first epoch" * (self._kind == "auto")
        else:
            by = f"by {self._pool!r}" + f", chosen because {self._why}" * bool(self._why)
        return f"<{type(self).__name__}: {type(loader.dataset).__name__}{size}, {by}>"


def _where(pool: AbstractWorkerPool, seeded: bool) -> tuple[str, bool]:
    """Return where tasks of a pool run, and whether the global generators are seeded for each."""
    if pool.own_thread:
        return "serial", seeded
    if isinstance(pool, WorkerProcessPool):
        return "processes", pool.threads == 1
    return "threads", False  # which share the generators


# -- an epoch ----------------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A batch of the epoch: its number, and what the sampler yielded for it."""

    number: int
    indices: Any


def _jobs(
    shared: Any, drawn: Iterable[tuple[int, Any]], key: BatchKey, where: tuple[str, bool], buffers: Any, how: Submission
) -> Iterator[Job]:
    """Yield the jobs of the batches of an epoch, drawing from the sampler as they are asked for."""
    for number, indices in drawn:
        arguments = shared, indices, (key.seed, key.epoch, number), *where, buffers
        yield Job((make_batch, arguments, {}), how, Drawn(number, indices))


class BatchBuffer(PrefetchBuffer):
    """The batches that are ahead of the consumer."""

    def __init__(self, pool: AbstractWorkerPool, jobs: Iterator[Job], bound: ByteBound) -> None:
        super().__init__(pool, jobs)
        self._bound = bound

    def limit(self) -> int:
        return self._bound.limit()

    def describe(self, job: Job) -> str:
        return f"batch {job.about.number} ({in_words(job.about.indices)})"

    def taken(self) -> tuple[Any, str]:
        about = self._entries[0].job.about if self._entries else None
        try:
            batch, transport = super().taken()
        except (PoolBroken, PoolClosed):
            raise
        except Exception as error:
            if about is None:  # of the sampler, or the end
                raise
            failure = error
        else:
            self._bound.saw(batch)
            return received(batch), transport
        try:
            raise _told(failure, about)
        finally:
            del failure  # whose traceback holds this frame


def _told(error: Exception, about: Drawn) -> BatchError:
    """Return the error for what was raised in making a batch, which names the index, or all where it is not known."""
    index = getattr(error, INDEX, None)
    told = {"row": index, "rows": about.indices, "batch": about.number}
    which = in_words(about.indices) if index is None else f"index {index!r:.80}"
    return described(error, which, f"batch {about.number}", told)


class Batches(Stream):
    """The batches of one epoch, of which the first may be `ready`."""

    def __init__(self, buffer: BatchBuffer, loader: PooledDataLoader, ready: list[Any]) -> None:
        self._loader = loader
        self._ready = collections.deque(ready)
        super().__init__(buffer)

    def __next__(self) -> Any:
        return self._ready.popleft() if self._ready else super().__next__()

    def close(self) -> None:
        self._ready.clear()
        super().close()

    def __len__(self) -> int:
        """Return how many batches the epoch has, as iterators of PyTorch's do."""
        return len(self._loader)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._loader!r}>"


def _pinned(batches: Batches, inline: bool) -> Any:
    """Return an iterator of the batches in pinned memory, copied there by a thread of its own unless `inline`."""
    if not torch.cuda.is_available():
        warn_consumer("pin_memory=True has no effect here, for PyTorch finds no CUDA device", UserWarning)
        return batches
    device = torch.cuda.current_device()

    def pin(batch: Any) -> Any:
        with torch.cuda.device(device):  # or a thread would take memory for device 0 as well
            return pin_memory(batch)  # type: ignore[no-untyped-call]  # torch has no types for it

    return MappedIterator(batches, pin, "pinned") if inline else AheadIterator(batches, pin)


class Sent(NamedTuple):
    """What workers were sent, to see whether it has changed, but for what large arrays hold."""

    pickled: bytes
    arrays: list[Any]  # the bytes of small ones; of large ones, where they lie
    packed: Packed  # holds these, so that no other comes to lie there

    @classmethod
    def of(cls, packed: Packed) -> Sent:
        arrays = [np.frombuffer(raw, np.uint8) for raw in packed.buffers]
        seen = [a.tobytes() if a.nbytes < SMALLEST_APART else (address_of(a), a.nbytes) for a in arrays]
        return cls(packed.pickled, seen, packed)


# -- the choice of a pool ----------------------------------------------------------------------------------------------


class Chosen(NamedTuple):
    """The pool that suits, how many workers it has, whether the generators are seeded for each batch; first batches."""

    choice: Choice
    workers: int | None
    seeded: bool
    ready: list[Any]


def _chosen(fetch: Fetch, lists: Sequence[Any], workers: int | None, key: BatchKey, n_batches: float) -> Chosen:
    """Return what suits an epoch of `n_batches`, by making batches of some lists of indices with a copy of what does.

    If processes suit, the batches are handed out, so that the loop has some while these start.
    """
    if fetch.init is not None:
        return Chosen(Choice("processes", "worker_init_fn is made for processes"), workers, True, [])
    try:
        if fetch.columns is None:
            fetch = copy_to_try(fetch)
    except Exception as error:
        why = f"the data set cannot be pickled, which processes need: {type(error).__name__}"
        return Chosen(Choice("threads", f"{why}; one, for it may not bear to be read by several"), 1, False, [])
    trial = _trial(fetch, lists, key)
    if not trial.seconds:
        return Chosen(Choice("serial", "no batch could be made to see how long it takes"), None, trial.drew, [])
    # The first imports, opens files, fills caches; the quickest of the others was held up least.
    each = min(trial.seconds[1:] or trial.seconds)
    why = f"a batch takes {1e3 * each:.3g} ms"
    if each < (SHORT if fetch.columns is None else TINY):
        return Chosen(Choice("serial", f"{why}, not worth handing it over"), None, trial.drew, [])
    if fetch.columns is not None:
        return Chosen(Choice("threads", f"{why}, of copying tensors"), workers, False, [])
    if each * n_batches < EPOCH:
        why = f"{why}, an epoch {1e3 * each * n_batches:.3g} ms, too short for a start of processes"
        return Chosen(Choice("serial", why), None, trial.drew, [])
    ready: list[Any] = []
    with contextlib.suppress(Exception):  # what cannot be pickled is an error when its turn comes
        ready = [load_result(dumps(batch)) for batch in trial.batches]  # on memory of their own, as from a process
    return Chosen(Choice("processes", f"{why}, of the data set's own code"), workers, True, ready)


class Trial(NamedTuple):
    """The first batches of an epoch, the seconds that each took but for those in which other programs had the CPU,
    whether making them drew from a global generator.
    """

    batches: list[Any]
    seconds: list[float]
    drew: bool


def _trial(fetch: Fetch, lists: Sequence[Any], key: BatchKey) -> Trial:
    """Return as many of the first batches as it takes to know, up to one that fails."""
    batches: list[Any] = []
    seconds: list[float] = []
    drew = False

    def make(indices: Any) -> None:
        batches.append(fetch(indices, FRESH))

    with contextlib.suppress(Exception):  # it is raised when its turn comes
        for number, indices in enumerate(lists):
            with globals_kept(key._replace(batch=number)):
                before = _states()
                took = timed(functools.partial(make, indices))
                drew = drew or _states() != before
            seconds.append(took.seconds - took.queued)
            if sum(seconds[1:]) > TRY_SECONDS or seconds[0] > SLOW:
                break
    return Trial(batches, seconds, drew)


def _states() -> bytes:
    """Return the states of the global generators."""
    return pickle.dumps((random.getstate(), np.random.get_state(), torch.default_generator.get_state().numpy()))
