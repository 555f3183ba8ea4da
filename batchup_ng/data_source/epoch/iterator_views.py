"""Iterators over the batches of another iterator, for a loader and its views."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ...batch import as_batch
from ...batch_layout import apart, unkept
from ...error_context import function_name, text_of
from ...errors import ArgumentError, ArgumentTypeError, NoEpochLeftWarning, PoolClosed
from ...graph.map import call
from ...graph.wrong_calls import LOADER_MAP
from ...warn import warn_consumer
from .runner import Give

MAX_REASON = 120
"""Maximum number of characters of an exception's text that the error of a later ``next`` repeats."""

OPTIONS_OF_SOURCES = dict.fromkeys(("on", "out", "rng", "resizes"), "call source.map, and give Loader the result")
"""The remedies for options that the method ``map`` of a source has, and that of a loader has not."""

IteratorType = TypeVar("IteratorType", bound="IteratorView")


NO_MORE_BATCHES = object()
"""Marks the end of the batches."""


class IteratorView(Iterator[Any]):
    """An iterator over the batches of another iterator. All other methods pass to that iterator.

    If an exception comes while a batch is on its way from that iterator to the loop, it breaks the epoch off. Otherwise
    the loop could go on without the batch and not notice. The state is the one before this batch.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        target = getattr(iterator, "_target", None)
        marked = iterator if target is None else target()
        self._marked = marked if hasattr(marked, "take_back") else None  # an iterator of the library
        self._broken = ""  # the reason, if the iterator is not the library's

    def __next__(self) -> Any:
        self._begin()
        if self._broken:
            raise broken_off(self._broken)
        marked, batch = self._marked, NO_MORE_BATCHES
        mark = None if marked is None else marked.mark
        try:
            batch = next(self._iterator, NO_MORE_BATCHES)
            if batch is not NO_MORE_BATCHES:
                return self._received(batch)
        except BaseException as error:
            try:
                by = self._taken_back(mark, error, batch)
            except BaseException:  # from a second signal, which may come at any line
                self._taken_back(mark, error, batch)
                raise
            if isinstance(error, StopIteration):
                raise RuntimeError(f"{by}: it raised StopIteration") from error
            raise
        self._failed()
        raise StopIteration

    def _target(self) -> Any:
        """Return the iterator that notes the progress for views of this one, or None."""
        return self._marked

    def _taken_back(self, mark: Any, error: BaseException, batch: Any) -> str:
        """Break the epoch off as it was at `mark`, and return the reason. A second call changes nothing."""
        by = reason(error) if batch is NO_MORE_BATCHES else self._reason(error)
        if getattr(self._iterator, "replaced", False):
            return by  # the epoch is another iterator's now
        if self._marked is None:  # the user's own iterator may have ended too early, or be past a lost batch
            self._broken = by
        else:
            self._marked.take_back(mark, by)
        self._failed()
        return by

    def results_by(self, give: Give) -> None:
        """Hand out what `give` returns for each result of the user's last function."""
        below = getattr(self._iterator, "results_by", None)
        if below is not None:
            below(give)

    def _begin(self) -> None:
        """Note that a batch is requested, or raise an error."""

    def _failed(self) -> None:
        """Note that the request gave no batch."""

    def _received(self, batch: Any) -> Any:
        """Return the batch to hand out for `batch`."""
        return batch

    def _reason(self, error: BaseException) -> str:
        """Return in words the reason why an epoch was broken off."""
        return reason(error)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look these up before there is an iterator
            raise AttributeError(name)
        return getattr(self._iterator, name)

    def __len__(self) -> int:
        return len(self._iterator)

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("batches under way cannot be pickled or copied; send the data and state_dict()")

    def __bool__(self) -> bool:
        return True  # otherwise Python calls len(), which some do not have

    def __enter__(self: IteratorType) -> IteratorType:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._iterator)


class MappedIterator(IteratorView):
    """An iterator that applies a function to each batch.

    Args:
        iterator: The iterator of the batches.
        fn: The function.
        name: Its name for messages.
        by_user: Whether `fn` is the user's. It may then keep its results, and write to what it gets.
    """

    _give: Give | None = None

    def __init__(self, iterator: Any, fn: Callable[[Any], Any], name: str = "", by_user: bool = False) -> None:
        super().__init__(iterator)
        self._by_user = by_user
        if by_user:
            super().results_by(for_next_map)
        self._fn = fn
        self._name = name or function_name(fn)
        self._meter = getattr(self._marked, "meter", None)

    def results_by(self, give: Give) -> None:
        """Hand out what `give` returns for each result, if the function is the user's."""
        if self._by_user:
            self._give = give
        else:
            super().results_by(give)

    def _received(self, batch: Any) -> Any:
        began = time.monotonic()
        made = [self._fn(batch)]
        if self._give is not None:
            made.append(self._give(made, batch, ()))
        if self._meter is not None:
            self._meter.add_converted(self._name, time.monotonic() - began)
        return made.pop()

    def _reason(self, error: BaseException) -> str:
        return reason(error) if type(error) is KeyboardInterrupt else f"an error in {self._name}"

    def __repr__(self) -> str:
        return f"<{self._iterator!r}, then {self._name}>"


class LoaderIterator(IteratorView):
    """The result of one call of ``iter``. If no batch of its epoch was requested, the next call takes over the epoch.

    Args:
        iterator: The epoch.
        lock: Held while another call takes over an epoch, and while the first batch is requested.
    """

    _replaced_by = ""

    def __init__(self, iterator: Any, lock: Any) -> None:
        super().__init__(iterator)
        self._lock = lock

    def __next__(self) -> Any:
        iterator = self._iterator
        if self._replaced_by or not iterator.asked:
            self._claim()
        mark = iterator.mark
        try:  # as in the base class, for a signal after the inner next has returned
            return next(iterator)
        except StopIteration:
            raise
        except BaseException as error:
            try:
                iterator.take_back(mark, reason(error))
            except BaseException:  # from a second signal
                iterator.take_back(mark, reason(error))
                raise
            raise

    @property
    def replaced(self) -> bool:
        """Whether another call of ``iter`` has taken over the epoch."""
        return bool(self._replaced_by)

    def _claim(self) -> None:
        """Claim the epoch before its first batch. Raise if another call has taken it over."""
        with self._lock:
            if not self._replaced_by:
                self._iterator.asked = True
        if self._replaced_by:
            raise PoolClosed(f"this epoch was broken off by {self._replaced_by}; make one iterator, and use that")

    def close(self) -> None:
        """End the epoch, unless another call of ``iter`` has taken it over."""
        if not self._replaced_by:
            self._iterator.close()

    def break_off(self, by: str) -> None:
        """End this iterator. If no batch was requested, the next call of ``iter`` takes over its epoch."""
        if self._iterator.asked:
            self._iterator.break_off(by)
        else:
            self._replaced_by = by


class NoBatches(Iterator[Any]):
    """An iterator without batches."""

    def __next__(self) -> Any:
        raise StopIteration

    def __len__(self) -> int:
        return 0

    def close(self) -> None:
        """Do nothing: there is no epoch."""


class LoaderEpochs(IteratorView):
    """The batches of several epochs of a loader, one after the other. It asks the loader for an iterator of each.

    Args:
        loader: The loader.
        first: The number of the first epoch.
        n: The number of epochs.
    """

    def __init__(self, loader: Any, first: int, n: float) -> None:
        super().__init__(NoBatches())
        self._loader = loader
        self._first, self._n = first, n
        self._end = first + n
        self._asked = False
        if not self._next_epoch() and n > 0:
            warn_consumer(
                f"epochs({n}) yields nothing, because the loader has begun epoch {self._end - 1}, the last one, "
                f"already; pass the number of all epochs, counted from {first}, or call set_epoch({first}) first",
                NoEpochLeftWarning,
            )

    def __next__(self) -> Any:
        while True:
            self._asked = True
            marked = self._marked
            mark = None if marked is None else marked.mark
            try:  # as in the base class, for a signal after the inner next has returned
                return super().__next__()
            except StopIteration:
                self._check_end()
                if not self._next_epoch():
                    raise
            except BaseException as error:
                try:
                    self._taken_back(mark, error, NO_MORE_BATCHES)
                except BaseException:  # from a second signal
                    self._taken_back(mark, error, NO_MORE_BATCHES)
                    raise
                raise

    def _next_epoch(self) -> bool:
        """Begin the next epoch, if there is one. A second call begins the same one again, before its first batch."""
        if self._loader.upcoming_epoch >= self._end:
            return False
        super().__init__(self._loader._begin(self._end))
        return True

    def _check_end(self) -> None:
        """Raise if epochs without end have no batch."""
        if self._end == math.inf and not self._iterator.stats()["batches"]:
            raise ArgumentError(
                "an epoch of this loader has no batch, and so epochs(None) would wait for one without end; pass more "
                "samples, a smaller batch size or drop_last=False"
            )

    def results_by(self, give: Give) -> None:
        """Hand out what `give` returns for each result, in the later epochs, too."""
        self._loader = self._loader.view(lambda iterator: results_given(iterator, give))
        super().results_by(give)

    def viewed(self, view: Callable[[Any], Any], check: Callable[[Any], None] | None = None) -> LoaderEpochs:
        """Return these epochs with `view` applied to the iterator of each. No batch may have been requested.

        `check` is as in ``view`` of a loader.
        """
        if self._asked:
            raise ArgumentError("these epochs have begun; convert the loader instead: to_torch(loader).epochs(n)")
        return type(self)(self._loader.view(view, check), self._first, self._n)

    def __len__(self) -> int:
        """Return the number of batches left in these epochs."""
        if self._end == math.inf:
            raise ArgumentTypeError("these epochs have no end, so they have no len(); pass their number")
        left, number = len(self._iterator), self._loader.upcoming_epoch
        not_begun = left > 0 and number == self._loader.epoch  # `left` is all of the next epoch
        begins = number + not_begun
        if self._loader._shared.skipped:  # the epochs differ
            return int(left + sum(map(self._loader._batches_in, range(begins, int(self._end)))))
        return int(left + max(0, self._end - begins) * self._loader.batches_per_epoch)

    def close(self) -> None:
        """End the epoch under way. ``next()`` then ends the loop."""
        self._end = 0
        self._iterator.close()


def of_loader(iterator: Any) -> bool:
    """Return whether an iterator is one of a loader, or a view of one."""
    while isinstance(iterator, IteratorView):
        if isinstance(iterator, (LoaderIterator, LoaderEpochs)):
            return True
        iterator = iterator._iterator
    return False


def mapped(fn: Callable[..., Any]) -> Callable[[Any], MappedIterator]:
    """Return what makes an iterator whose batches are ``fn(*batch)``, ``fn(**batch)`` of a dict, ``fn(batch)`` of an
    object of another type.

    ``next`` raises a :class:`~batchup_ng.errors.MapCallError` if `fn` does not take these parts.
    """
    name = function_name(fn)

    def called(batch: Any) -> Any:
        return call(fn, batch if isinstance(batch, (tuple, dict)) else (batch,), kind=LOADER_MAP)

    return lambda iterator: MappedIterator(iterator, called, name, by_user=True)


def for_next_map(made: list[Any], before: Any, first: Any = ()) -> Any:
    """Take the result of a map out of `made`. Return it as columns for the next map, which may write to them."""
    columns = as_batch(made.pop())
    if not isinstance(columns, (tuple, dict)):
        columns = (columns,)
    return apart(columns, before, first)


def results_given(iterator: Any, give: Give = unkept) -> Any:
    """Return `iterator`, which hands out what `give` returns for each result of a user's function.

    By default these are results to hold while the function runs again: something reads ahead of the loop.
    """
    if hasattr(iterator, "results_by"):
        iterator.results_by(give)
    return iterator


def reason(error: BaseException) -> str:
    """Return in words the exception that broke an epoch off."""
    if type(error) is KeyboardInterrupt:
        return "an interrupt"
    text = text_of(error)
    text = text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"
    return f"an exception ({type(error).__name__}: {text})"


def progress_of(iterator: Any) -> Any:
    """Return the progress of an iterator, or None if it has no states."""
    progress = getattr(iterator, "epoch_progress", None)  # an iterator of the user's may have a `progress` of its own
    return None if progress is None else progress()


def broken_off(by: str) -> PoolClosed:
    """Return the error that ``next`` raises after `by` broke an epoch off."""
    return PoolClosed(f"this epoch was broken off by {by}; its iterator is closed, make a new one")
