"""The base class of all pools.

A new pool defines ``submit`` and ``_own_pool``, and has ``buffers`` and ``processes`` (or ``at_once``). It extends
``close`` and ``abandon`` if its workers have to be ended. A pool in other processes also has a ``shared_constant``.
``submit`` obeys every field of a :class:`~.task.Submission`. ``stats`` counts the ``transport`` of the
:class:`~.task.TaskFuture`. While a task runs on a thread of this process, ``task.current.future`` is its future. By it,
the iterator notices a map that asks its own iterator for a batch.

Ownership. A pool owns its workers, which live until ``close``. It does not own the iterators and work streams that use
it, but ``close`` drops the results that wait in their buffers. A later request fails with
:class:`~batchup_ng.errors.PoolClosed`, in every pool alike: which results were ready would depend on the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from .. import validation
from ..data_source.source import AbstractDataSource
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, ArgumentTypeError, PoolClosed
from ..faults.policy import ErrorPolicy
from .parallel import ParallelDataSource
from .prefetch import PrefetchDataSource
from .stream import WorkStream
from .task import Pool

DEFAULT_BUFFER = 20
"""The most batches ahead of the consumer, if the user does not say."""

OPTIONS_FOR_WORKERS = ("num_workers", "max_workers", "workers", "n_jobs")

ADVICE_ON_POOL_OPTIONS = {
    **validation.ELSEWHERE,
    **dict.fromkeys(OPTIONS_FOR_WORKERS, "pass their number as processes="),
    **dict.fromkeys(["multiprocessing_context", "mp_context"], "pass the way to start workers as start_method="),
}
"""The remedy for each constructor option that other pools have."""

ADVICE_ON_METHOD_OPTIONS = {
    **validation.ELSEWHERE,
    **dict.fromkeys([*OPTIONS_FOR_WORKERS, "processes"], "the pool has the workers: WorkerProcessPool(n)"),
}
"""The remedy for each option that methods of other pools have."""

HIDDEN_NAMES = {
    "abandon", "at_once", "buffers", "check_open", "lends_threads", "own_thread", "producer",
    "room_for_more", "served", "takes_loaders", "works_here",
}  # fmt: skip
"""Methods and attributes for the library, not for users."""

Self = TypeVar("Self", bound="AbstractWorkerPool")


class AbstractWorkerPool(Pool):
    """Workers that run tasks in the background.

    A pool may serve several iterators and work streams at once, from several threads. Close it at the end, best by
    ``with``. If the program drops a pool without closing it, the pool ends when the garbage collector finds it.
    """

    @validation.known_names({})
    def work_stream(self, task_generator: Iterator[Any], task_buffer_size: int = 20) -> WorkStream:
        """Return a stream of the results of tasks, in order. It starts to fill its buffer now.

        A pool of threads hands out the objects that the functions return, and is ahead of your loop. So a function must
        return new arrays: one that fills the same array again changes results that wait.

        Args:
            task_generator: Iterator of ``(fn,)``, ``(fn, args)`` or ``(fn, args, kwargs)``.
                The arguments must not change before the result is there.
            task_buffer_size: Number of tasks to keep under way or done, ahead of the consumer.
        """
        return WorkStream(self, task_generator, task_buffer_size)

    def resize(self, processes: int) -> None:
        """Change the number of workers. Pools of threads and of processes can.

        Raises:
            ArgumentTypeError: this is another pool.
        """
        raise ArgumentTypeError(
            f"a {type(self).__name__} cannot change its number of workers; make a WorkerThreadPool or a "
            f"WorkerProcessPool, whose resize() does"
        )

    @validation.known_names(ADVICE_ON_METHOD_OPTIONS)
    def parallel_data_source(
        self,
        ds: AbstractDataSource,
        batch_buffer_size: int = DEFAULT_BUFFER,
        *,
        buffer: int | None = None,
        buffer_bytes: int | str | None = None,
        on_error: str | ErrorPolicy = "raise",
        timeout: float | None = None,
    ) -> ParallelDataSource:
        """Return a source with the batches of `ds`, in the same order, made ahead by the workers.

        Args:
            ds: A random-access source.
            batch_buffer_size: BatchUp's name of `buffer`. Give one of the two.
            buffer: Largest number of batches under way or done, ahead of the consumer. Default: 20.
            buffer_bytes: Bytes that these may take. If batches are large, fewer are made ahead, but at least one.
                None: a quarter of the memory that is free now, at most 1 GB, but two batches if one fits. Before the
                first batch is delivered, at most as many as the workers run at once, plus one, are in flight.
            on_error: For samples that cannot be made: ``"raise"`` an error that names the sample,
                ``"skip"`` it, ``"replace"`` it by another, or an :class:`~batchup_ng.ErrorPolicy`.
            timeout: Seconds that a sample may take. If it takes longer, it fails with
                :class:`~batchup_ng.errors.SampleTimeout`. None: no limit, with a warning after half a minute.

        Raises:
            ArgumentError: an option has a value that is not allowed.
            ArgumentTypeError: `ds` is no source, is not random access, or cannot be sent to a worker; an option is of
                a wrong type.
        """
        if buffer is not None:
            if batch_buffer_size != DEFAULT_BUFFER:
                raise ArgumentError(
                    f"buffer and batch_buffer_size are two names of one option, and are {buffer!r} and "
                    f"{batch_buffer_size!r}; pass buffer= alone"
                )
            batch_buffer_size = validation.positive_int("buffer", buffer)
        return ParallelDataSource(
            ds, batch_buffer_size, self, buffer_bytes=buffer_bytes, on_error=on_error, timeout=timeout
        )

    @validation.known_names({**ADVICE_ON_METHOD_OPTIONS, "batch_buffer_size": "pass it as buffer="})
    def prefetch(
        self, source: AbstractDataSource, buffer: int = DEFAULT_BUFFER, *, buffer_bytes: int | str | None = None
    ) -> PrefetchDataSource:
        """Return a source with the batches of `source`, in the same order, made ahead by one worker of its own.

        Use this for sources that only stream. ``parallel_data_source`` is faster for sources with random access.

        Args:
            source: Any source.
            buffer: Largest number of batches to keep done, ahead of the consumer.
            buffer_bytes: Bytes that these may take, as for :meth:`parallel_data_source`.

        Raises:
            ArgumentError: `buffer` or `buffer_bytes` is below 1.
            ArgumentTypeError: `source` is no source.
        """
        return PrefetchDataSource(source, buffer, self, buffer_bytes=buffer_bytes)

    def __dir__(self) -> list[str]:
        """Return the names for completion with Tab: the methods for users, without the hooks."""
        return [name for name in super().__dir__() if name not in HIDDEN_NAMES]

    def __repr__(self) -> str:
        try:
            self.check_open()
            state = "open"
        except Exception as error:
            raise_if_of_signal_handler(error)
            state = "closed" if isinstance(error, PoolClosed) else "broken"
        n, threads = getattr(self, "processes", None), getattr(self, "threads", 1)
        workers = "" if n is None else f"{n} workers{f' of {threads} threads' * (threads > 1)}, "
        return f"<{type(self).__name__}: {workers}{state}>"

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            f"a {type(self).__name__} cannot be pickled or copied, for its workers belong to this process; make a pool "
            f"where it is needed, and send the source instead"
        )

    def __enter__(self: Self) -> Self:
        self.check_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def worker_count(processes: int | None) -> int:
    """Return the number of workers for `processes`. None is the number of CPUs available to this process.

    joblib reads the limits of containers and of CPU affinity.
    """
    if processes is None:
        import joblib  # takes longer to import than the rest of the package

        return max(1, int(joblib.cpu_count()))
    return validation.positive_int("processes", processes)


def workers_beside_a_loop() -> int:
    """Return the number of workers that leave a training loop a CPU: from 3 CPUs on, one fewer than there are.

    With 2 CPUs it is 2. One worker alone would halve the rate of a loop that waits for data. Measured with a map in
    NumPy and a loop in Python that computes all the time: a batch takes 10.5 ms with 2 threads and 14.2 ms with one,
    though a step takes 7.6 instead of 6.1 ms.
    """
    n = worker_count(None)
    return n - 1 if n >= 3 else n
