"""Runs a ``DataLoader`` of PyTorch on our pools, with its data set, samplers and collate function unchanged.

Ownership. Only the consumer's thread touches the samplers. It draws lists of indices from them, as far ahead as the
buffer goes. The pool sends each worker a :class:`Fetch` once; a task carries a list of indices and the key of its
batch. The :class:`Batches` own the tasks of their epoch. The :class:`PooledDataLoader` owns the pool, unless the user
gave it.
"""

from __future__ import annotations

import contextvars
import itertools
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from .. import validation
from ..data_source.epoch.iterator_views import MappedIterator, broken_off, reason
from ..error_context import described
from ..errors import ArgumentError, ArgumentTypeError, BatchError, PoolBroken, PoolClosed
from ..randomness import BatchKey
from ..warn import warn_consumer
from ..work_pool.base import AbstractWorkerPool
from ..work_pool.loader_pool import POOLS
from ..work_pool.prefetch_buffer import ByteBound, Entry, PrefetchBuffer
from ..work_pool.processes.pool import WorkerProcessPool
from ..work_pool.processes.serialization import SMALLEST_APART, Packed, pack
from ..work_pool.processes.shared_arrays import address_of
from ..work_pool.stream import Stream
from ..work_pool.task import Submission, Task, new_flow_id
from .ahead import AheadIterator

try:
    import torch
    from torch.utils.data import DataLoader, IterableDataset
    from torch.utils.data._utils.pin_memory import pin_memory

    from .torch_choice import TRIED, chosen
    from .torch_fetch import INDEX_ATTRIBUTE, Fetch, in_words, make_batch, received
    from .torch_ranks import SamplerCheck
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"batchup_ng.frameworks.torch_dataloader needs PyTorch ({error}): pip install 'batchup_ng[torch]'"
    ) from error

ADVICE_ON_DATALOADER_OPTIONS = {
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
"""Remedies for options that belong to the ``DataLoader``, or have another name here."""


@validation.known_names(ADVICE_ON_DATALOADER_OPTIONS)
def from_dataloader(
    torch_loader: DataLoader[Any],
    *,
    pool: str | AbstractWorkerPool = "auto",
    workers: int | None = None,
    buffer: int = 20,
    timeout: float | None = None,
    shard: Any = validation.NOT_GIVEN,
) -> PooledDataLoader:
    """Return a loader of the batches of `torch_loader`, in the same order, which a pool makes ahead.

    The pool uses the data set, the samplers with their generators, the collate function, ``drop_last``,
    ``worker_init_fn`` and ``pin_memory`` of the ``DataLoader``, but never iterates over the ``DataLoader`` itself.
    Batches are the results of its collate function, usually tensors. Each iteration draws a new order from the sampler,
    as PyTorch does.

    Random numbers: for each batch, the global generators of ``random``, NumPy and PyTorch are seeded with the number
    that PyTorch draws for the epoch and the number of the batch. So the draws of a data set do not depend on the
    workers. Several threads of one process share these generators, and do not seed them.

    Memory: the data set or the collate function may return one tensor, array, list or dict that it fills anew for each
    batch. Threads copy it, because they make batches ahead of the loop. They do not copy tensors of a subclass or on a
    GPU, nor the contents of objects of other classes: there, return a new object each time.

    Args:
        torch_loader: Any ``DataLoader`` over a data set with ``__getitem__``, or a map-style loader prepared by
            Accelerate. Batches of the latter stay where the data set makes them, without a transfer to a device.
        pool: ``"serial"``, ``"threads"``, ``"processes"``, or a pool, which is yours to close. ``"auto"`` makes a few
            batches with a copy of the data set in the first iteration, then chooses; ``repr`` shows the choice and the
            reason. It never runs your code in several threads at once, because PyTorch data sets may not be
            thread-safe.
        workers: Number of workers. Default: ``num_workers`` of the ``DataLoader``, or every CPU if that is 0.
        buffer: The most batches that are under way or done, ahead of the consumer; fewer if they are large (beyond a
            quarter of the free memory, or 1 GB).
        timeout: Seconds that a batch may take in a worker. Default: ``timeout`` of the ``DataLoader``.
        shard: None: each of several processes takes all batches of the sampler, with a warning if the sampler does not
            share them out. There is no other value: to give each process its part, use a sampler such as
            ``DistributedSampler``.

    Raises:
        ArgumentError: an option has an invalid value. When an epoch begins: ``torch.distributed`` has several
            processes, and the sampler gives all of them the same batches.
        ArgumentTypeError: `torch_loader` is no ``DataLoader``, streams (``IterableDataset``), or has its own way to
            iterate; an option is of a wrong kind or does not exist.

    >>> import torch.utils.data as data
    >>> numbers = data.DataLoader(data.TensorDataset(torch.arange(5)), batch_size=2)
    >>> with from_dataloader(numbers) as loader:
    ...     print(len(loader), [x.tolist() for (x,) in loader])
    3 [[0, 1], [2, 3], [4]]
    """
    prepared, torch_loader = _checked(torch_loader)
    if shard is not None and shard is not validation.NOT_GIVEN:
        raise ArgumentError(
            f"shard must be None or left out, not {shard!r:.80}; a sampler shares out the data: make the DataLoader "
            f"with sampler=DistributedSampler(dataset)"
        )
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
    made = PooledDataLoader(torch_loader, pool, workers, validation.positive_int("buffer", buffer), timeout)
    made._prepared, made._shard = prepared, shard
    return made


def _checked(torch_loader: Any) -> tuple[Any, DataLoader[Any]]:
    """Return the loader of Accelerate, if any, and its ``DataLoader``. Refuse a loader that no pool can run."""
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
    if type(torch_loader).__iter__ is DataLoader.__iter__:
        return None, torch_loader
    accelerate, prepared = sys.modules.get("accelerate.data_loader"), cast(Any, torch_loader)
    if accelerate is not None and type(prepared) is accelerate.DataLoaderShard and not prepared.skip_batches:
        return prepared, prepared.base_dataloader
    raise ArgumentTypeError(
        f"torch_loader must iterate as a DataLoader does, and {type(torch_loader).__name__} has an __iter__ of its "
        f"own; pass the DataLoader that it was made of"
    )


class PooledDataLoader:
    """A ``DataLoader`` whose batches a pool makes: the result of :func:`from_dataloader`.

    It may be iterated over again and again, also by several iterators at a time. Other attributes, such as ``dataset``,
    ``batch_size`` or ``sampler``, come from the ``DataLoader``.
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
        self._kind = pool if isinstance(pool, str) else ""  # "" if the user gave the pool
        self._workers = workers
        self._buffer = buffer
        self._timeout = timeout
        self._prepared: Any = None  # Accelerate's loader around this DataLoader
        self._shard: Any = validation.NOT_GIVEN
        self._ranks = SamplerCheck()
        self._why = ""
        self._key: BatchKey | None = None
        self._bound: ByteBound | None = None
        self._shared: Any = None  # represents the Fetch in the arguments of a task
        self._sent: Sent | None = None  # the Fetch as it was sent to processes

    def __iter__(self) -> Any:
        """Begin an epoch. Return the iterator of its batches, which also has ``len`` and ``close``."""
        loader = self._torch_loader
        self._ranks.check(loader, self._prepared, self._shard)
        if self._prepared is not None:
            self._begin_prepared()
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
        how = Submission(retryable=True, timeout=self._timeout, flow_id=new_flow_id(), context=context)
        shared, key, where, buffers = self._shared, self._key, _where(pool), pool.buffers

        def task(number: int, indices: Any) -> Task:
            arguments = shared, indices, (key.seed, key.epoch, number), *where, buffers
            return Task((make_batch, arguments, {}), how, Drawn(number, indices))

        batches = Batches(pool, Tasks(task, drawn, len(ready)), self._bound, self, ready)
        return batches if not loader.pin_memory else _pinned(batches, pool.own_thread)

    def _begin_prepared(self) -> None:
        """Begin an epoch as Accelerate's loader does: all processes use the sampler's generator of process 0."""
        prepared = self._prepared
        if prepared.rng_types is not None:
            sys.modules["accelerate.data_loader"].synchronize_rng_states(
                prepared.rng_types, prepared.synchronized_generator
            )
        prepared.set_epoch(prepared.iteration)
        prepared.iteration += 1

    def _next_key(self) -> BatchKey:
        """Return the key of the epoch: the seed that PyTorch draws for its workers, and the number of their epoch."""
        if self._key is not None and self._torch_loader.persistent_workers:  # they keep one seed for all epochs
            return self._key._replace(epoch=self._key.epoch + 1)
        seed = torch.empty((), dtype=torch.int64).random_(generator=self._torch_loader.generator)
        return BatchKey(int(seed.item()))

    def _open_pool(self, fetch: Fetch, drawn: Iterator[Any], key: BatchKey) -> tuple[Iterator[Any], list[Any]]:
        """Make the pool, after a trial for ``"auto"``. Return the lists that follow, and the batches already made."""
        if self._kind != "auto":
            self._pool = POOLS[self._kind](self._workers)
            return drawn, []
        first = list(itertools.islice(drawn, TRIED))
        try:
            n_batches: float = len(self)
        except TypeError:
            n_batches = len(first) if len(first) < TRIED else math.inf
        (kind, self._why), workers, ready = chosen(fetch, first, self._workers, key, n_batches)
        self._pool = POOLS[kind](workers)
        return itertools.chain(first[len(ready) :], drawn), ready

    def _share(self, fetch: Fetch, pool: AbstractWorkerPool) -> None:
        """Give the workers the data set. Repeat it in a new epoch, if it changed and PyTorch would send it again."""
        if self._shared is not None and self._torch_loader.persistent_workers:
            return
        sent = None
        if isinstance(pool, WorkerProcessPool):
            sent = Sent.of(pack(fetch))
            if self._sent is not None and sent[:2] == self._sent[:2]:
                return
        elif isinstance(self._shared, Fetch) and self._shared.init is fetch.init:
            fetch.begun = self._shared.begun
        self._shared = pool.shared_constant(fetch)
        self._sent = sent  # last, or after an interrupt workers would lack it

    def __len__(self) -> int:
        """Return how many batches an epoch has.

        Raises:
            TypeError: the sampler does not know.
        """
        return len(self._torch_loader)

    def set_epoch(self, epoch: int) -> None:
        """Call ``set_epoch`` of the sampler, if it has that method, as ``DistributedSampler`` does."""
        loader = self._torch_loader
        if self._prepared is not None:
            self._prepared.set_epoch(epoch)
            return
        samplers: list[Any] = [loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None), loader.sampler]
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
                return

    def close(self) -> None:
        """End the workers, and thus the epochs under way, unless the pool is yours. May be called again."""
        if self._kind and self._pool is not None:
            self._pool.close()

    def __enter__(self) -> PooledDataLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask before any attribute exists
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


def _where(pool: AbstractWorkerPool) -> tuple[str, bool]:
    """Return where a pool runs its tasks, and whether each task seeds the global generators."""
    if pool.own_thread:
        return "serial", True
    if isinstance(pool, WorkerProcessPool):
        return "processes", pool.threads == 1
    return "threads", False  # threads share the generators


# -- an epoch ----------------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A batch of the epoch: its number, and the index or indices from the sampler."""

    number: int
    indices: Any


class Tasks(Iterator[Task]):
    """The tasks of the batches of an epoch. Each request for a task draws from the sampler.

    Attributes:
        drawn: The number of batches drawn so far, including those made before.
    """

    def __init__(self, make: Callable[[int, Any], Task], drawn: Iterable[Any], made_before: int) -> None:
        self._make = make
        self._numbered = enumerate(drawn, made_before + 1)
        self.drawn = made_before

    def __next__(self) -> Task:
        for self.drawn, indices in self._numbered:  # noqa: B020  # counted at once, or an interrupt would hide it
            return self._make(self.drawn - 1, indices)
        raise StopIteration


def _described(task: Task) -> str:
    return f"batch {task.about.number} ({in_words(task.about.indices)})"


def _told(error: Exception, about: Drawn) -> BatchError:
    """Return the error of a batch. It names the index that failed, or all indices if that one is unknown."""
    index = getattr(error, INDEX_ATTRIBUTE, None)
    attributes = {"row": index, "rows": about.indices, "batch": about.number}
    which = in_words(about.indices) if index is None else f"index {index!r:.80}"
    return described(error, which, f"batch {about.number}", attributes)


class Batches(Stream):
    """The batches of one epoch. The first ones may be `ready`.

    ``StopIteration`` means the end of the epoch, or ``close``. Any other exception counts for the batch that it names,
    or leaves the epoch as it was. If a batch is lost, ``next`` raises ``PoolClosed`` from then on.
    """

    def __init__(
        self, pool: AbstractWorkerPool, tasks: Tasks, bound: ByteBound, loader: PooledDataLoader, ready: list[Any]
    ) -> None:
        self._loader = loader
        self._tasks = tasks
        self._bound = bound
        self._ready = dict(enumerate(ready))
        self._number = 0  # number of the batch that is due
        self._lost = ""  # the exception that lost a batch
        self._turn = threading.RLock()  # held by the consumer whose turn it is
        super().__init__(PrefetchBuffer(pool, tasks, bound, _described))

    def _received(self, entry: Entry) -> Any:
        try:
            batch = entry.future.result()
        except (PoolBroken, PoolClosed):
            raise
        except Exception as error:
            if not entry.future.raised(error):  # from a signal handler
                raise
            failure = error
        else:
            self._bound.saw(batch)
            return received(batch)
        try:
            raise _told(failure, entry.task.about)
        finally:
            del failure, entry  # the traceback holds this frame

    def _coming(self) -> int:
        """Return the number of the next batch from the pool; if there is none, one more than the last."""
        task = self._buffer.coming()
        return self._tasks.drawn if task is None else int(task.about.number)

    def __next__(self) -> Any:
        number = -1
        try:
            with self._turn:
                if self._lost:
                    raise broken_off(self._lost)
                self._ready.pop(self._number - 1, None)
                number = self._number
                batch = self._ready[number] if number in self._ready else super().__next__()
                self._number = number + 1
                return batch
        except BaseException as error:
            if number >= 0:
                self._take_back(number, error)
            raise

    def _take_back(self, number: int, error: BaseException) -> None:
        """Undo a call of ``next`` for batch `number` that `error` ended; break the epoch off if a batch is lost."""
        told = isinstance(error, BatchError) and error.batch == number
        due = number + told
        if self._number <= number + 1:  # else another thread has the next batch already
            self._number = due
        following = number if number in self._ready else self._coming()
        whole = following == due == self._number
        if isinstance(error, PoolClosed) or (isinstance(error, StopIteration) and (whole or self._buffer.closed)):
            return
        if whole and (told or number in self._ready or self._buffer.ahead()):
            return  # else nothing follows: the sampler failed, and ended with that
        self._lost = reason(error)
        self.close()
        if isinstance(error, StopIteration):
            raise broken_off("an interrupt, which lost a batch") from error

    def close(self) -> None:
        self._ready.clear()
        super().close()

    def __len__(self) -> int:
        """Return the number of batches in the epoch, as PyTorch's iterators do."""
        return len(self._loader)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._loader!r}>"


def _pinned(batches: Batches, inline: bool) -> Any:
    """Return an iterator of the batches in pinned memory. A separate thread copies them, unless `inline`."""
    if not torch.cuda.is_available():
        warn_consumer("pin_memory=True has no effect here, for PyTorch finds no CUDA device", UserWarning)
        return batches
    device = torch.cuda.current_device()

    def pin(batch: Any) -> Any:
        with torch.cuda.device(device):  # otherwise a thread would also allocate for device 0
            return pin_memory(batch)

    return MappedIterator(batches, pin, "pinned") if inline else AheadIterator(batches, pin, copies=torch.is_tensor)


class Sent(NamedTuple):
    """The data sent to workers, kept to detect changes. Changes of the contents of large arrays do not count."""

    pickled: bytes
    arrays: list[Any]  # the bytes of small arrays; the address and size of large ones
    packed: Packed  # keeps large arrays alive: no other array can get their address

    @classmethod
    def of(cls, packed: Packed) -> Sent:
        arrays = [np.frombuffer(raw, np.uint8) for raw in packed.buffers]
        seen = [a.tobytes() if a.nbytes < SMALLEST_APART else (address_of(a), a.nbytes) for a in arrays]
        return cls(packed.pickled, seen, packed)
