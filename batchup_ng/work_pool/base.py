"""What every pool offers.

A new pool defines ``submit`` and ``_own_pool``, has ``buffers`` and ``processes`` (or ``at_once``), and extends
``close`` and ``abandon`` if its workers have to be ended; one in other processes has a ``shared_constant`` as well.
``submit`` heeds every field of a :class:`~.task.Submission`; the ``transport`` of the :class:`~.task.TaskFuture` is one
of those that ``stats`` counts. While a task runs on a thread of this process ``task.current.future`` is its future, so
that a map that asks its own iterator for a batch is noticed.

Who owns what. A pool owns its workers, which live until ``close``. It does not own the streams that use it: closing
the pool fails what they still wait for with :class:`~batchup_ng.errors.PoolClosed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from .. import validation
from ..data_source.base import AbstractDataSource
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentTypeError, PoolClosed
from ..faults.policy import ErrorPolicy
from .parallel import ParallelDataSource
from .prefetch import PrefetchDataSource
from .stream import WorkStream
from .task import Pool

WORKERS = ("num_workers", "max_workers", "workers", "n_jobs")

ELSEWHERE = {
    **validation.ELSEWHERE,
    **dict.fromkeys(WORKERS, "pass their number as processes="),
    **dict.fromkeys(["multiprocessing_context", "mp_context"], "pass the way to start workers as start_method="),
}
"""What to do instead of options of the constructors of other pools."""

OF_POOL = {
    **validation.ELSEWHERE,
    **dict.fromkeys([*WORKERS, "processes"], "the pool has the workers: WorkerProcessPool(n)"),
}
"""What to do instead of options of the methods of a pool that others have."""

HOOKS = {"abandon", "at_once", "buffers", "check_open", "lends_threads", "own_thread", "producer"}
"""What the library calls, and users do not."""

Self = TypeVar("Self", bound="AbstractWorkerPool")


class AbstractWorkerPool(Pool):
    """Workers that run tasks in the background.

    A pool may serve several streams at once, from several threads. Close it at the end, best by ``with``; one that is
    forgotten ends when it is collected.
    """

    def work_stream(self, task_generator: Iterator[Any], task_buffer_size: int = 20) -> WorkStream:
        """Return a stream of the results of tasks, in order, which starts to fill its buffer now.

        Args:
            task_generator: Iterator of ``(fn,)``, ``(fn, args)`` or ``(fn, args, kwargs)``.
                The arguments must not change before the result is there.
            task_buffer_size: How many tasks to keep under way or done, ahead of the consumer.
        """
        return WorkStream(self, task_generator, task_buffer_size)

    @validation.known_names(OF_POOL)
    def parallel_data_source(
        self,
        ds: AbstractDataSource,
        batch_buffer_size: int = 20,
        *,
        buffer_bytes: int | None = None,
        on_error: str | ErrorPolicy = "raise",
        timeout: float | None = None,
    ) -> ParallelDataSource:
        """Return a source with the batches of `ds`, in the same order, made ahead by the workers.

        Args:
            ds: A random-access source.
            batch_buffer_size: The most batches that are under way or done, ahead of the consumer.
            buffer_bytes: How many bytes these may take; fewer are then made ahead where they are large, one at least.
                None: a quarter of the memory that is free now, 1 GB at most, but two batches where one fits. Until the
                first batch has been handed out, no more are made than the workers run, and one.
            on_error: What to do about samples that cannot be made: ``"raise"`` an error that names the sample,
                ``"skip"`` it, ``"replace"`` it by another, or an :class:`~batchup_ng.ErrorPolicy`.
            timeout: Seconds that a sample may take, beyond which it fails with
                :class:`~batchup_ng.errors.SampleTimeout`. None: any time, with a warning after half a minute.

        Raises:
            ArgumentError: an option has a value that it cannot have.
            ArgumentTypeError: `ds` is no source, is not random access, or cannot travel to a worker; an option is of a
                wrong kind.
        """
        self.check_open()
        return ParallelDataSource(
            ds, batch_buffer_size, self, buffer_bytes=buffer_bytes, on_error=on_error, timeout=timeout
        )

    @validation.known_names(OF_POOL)
    def prefetch(
        self, source: AbstractDataSource, batch_buffer_size: int = 20, *, buffer_bytes: int | None = None
    ) -> PrefetchDataSource:
        """Return a source with the batches of `source`, in the same order, made ahead by one worker of its own.

        This is the way for sources that only stream; those with random access go faster by ``parallel_data_source``.

        Args:
            source: Any source.
            batch_buffer_size: The most batches to keep done, ahead of the consumer.
            buffer_bytes: How many bytes these may take: as for :meth:`parallel_data_source`.

        Raises:
            ArgumentError: `batch_buffer_size` or `buffer_bytes` is below 1.
            ArgumentTypeError: `source` is no source.
        """
        self.check_open()
        return PrefetchDataSource(source, batch_buffer_size, self, buffer_bytes=buffer_bytes)

    def __dir__(self) -> list[str]:
        """Return the names that complete with Tab: the user's methods, without the hooks."""
        return [name for name in super().__dir__() if name not in HOOKS]

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
    """Return the number of workers for `processes`; None is every CPU that this process may use.

    The limits of containers and of CPU affinity count, as joblib reads them.
    """
    if processes is None:
        import joblib  # takes longer to import than the rest of the package

        return max(1, int(joblib.cpu_count()))
    return validation.positive_int("processes", processes)
