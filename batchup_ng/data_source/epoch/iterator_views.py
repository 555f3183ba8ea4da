"""Iterators over the batches of another iterator: what a loader and its views hand out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ...error_context import function_name, text_of
from ...errors import ArgumentTypeError, PoolClosed

MAX_REASON = 120
"""Characters of an exception's text that the error of a later ``next`` repeats."""

IteratorType = TypeVar("IteratorType", bound="IteratorView")


END = object()
"""Stands for the batch behind the last."""


class IteratorView(Iterator[Any]):
    """Hands out the batches of an iterator, which has the other methods, too.

    An exception while a batch is on its way from that iterator to the loop breaks the epoch off: a loop that goes on
    would lack the batch without noticing. The state is the one before this batch.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        target = getattr(iterator, "_target", None)
        marked = iterator if target is None else target()
        self._marked = marked if hasattr(marked, "mark") else None  # which notes how far it is, if it is the library's
        self._broken = ""  # by what, if the iterator is not one of the library's

    def __next__(self) -> Any:
        self._begin()
        if self._broken:
            raise broken_off(self._broken)
        marked, batch = self._marked, END
        mark = None if marked is None else marked.mark
        try:
            batch = next(self._iterator, END)
            if batch is not END:
                return self._received(batch)
        except BaseException as error:
            try:
                by = self._taken_back(mark, error, batch)
            except BaseException:  # of a second signal, which may have come in any line of that
                self._taken_back(mark, error, batch)
                raise
            if isinstance(error, StopIteration):
                raise RuntimeError(f"{by}: it raised StopIteration") from error
            raise
        self._failed()
        raise StopIteration

    def _target(self) -> Any:
        """Return what notes how far the batches are that a view of this one gets."""
        return self._marked

    def _taken_back(self, mark: Any, error: BaseException, batch: Any) -> str:
        """Break the epoch off as it was at `mark`, and return by what; a second call changes nothing."""
        by = reason(error) if batch is END else self._reason(error)
        if self._marked is None:  # an iterator of the user's, which may be at an end that is none, or past a lost batch
            self._broken = by
        else:
            self._marked.take_back(mark, by)
        self._failed()
        return by

    def _begin(self) -> None:
        """Note that a batch is asked for, or raise an error."""

    def _failed(self) -> None:
        """Note that there was none."""

    def _received(self, batch: Any) -> Any:
        """Return what is handed out of `batch`."""
        return batch

    def _reason(self, error: BaseException) -> str:
        """Return in words by what an epoch was broken off."""
        return reason(error)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by copy and pickle before there is anything
            raise AttributeError(name)
        return getattr(self._iterator, name)

    def __len__(self) -> int:
        return len(self._iterator)

    def __reduce__(self) -> Any:
        raise ArgumentTypeError("batches under way cannot be pickled or copied; send the data and state_dict()")

    def __bool__(self) -> bool:
        return True  # or Python would ask for the length, which some have not

    def __enter__(self: IteratorType) -> IteratorType:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._iterator)


class MappedIterator(IteratorView):
    """Applies a function to each batch."""

    def __init__(self, iterator: Any, fn: Callable[[Any], Any], name: str = "") -> None:
        super().__init__(iterator)
        self._fn = fn
        self._name = name or function_name(fn)

    def _received(self, batch: Any) -> Any:
        return self._fn(batch)

    def _reason(self, error: BaseException) -> str:
        return reason(error) if type(error) is KeyboardInterrupt else f"an error in {self._name}"

    def __repr__(self) -> str:
        return f"<{self._iterator!r}, then {self._name}>"


class LoaderIterator(IteratorView):
    """What one call of ``iter`` gives: an epoch of which no batch was asked for is given to the next call.

    Args:
        iterator: The epoch.
        lock: Held while an epoch goes to another call, and while its first batch is asked for.
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
        try:
            return next(iterator)
        except StopIteration:
            raise
        except BaseException as error:
            try:
                iterator.take_back(mark, reason(error))
            except BaseException:  # of a second signal
                iterator.take_back(mark, reason(error))
                raise
            raise

    def _claim(self) -> None:
        """Ask for the first batch of the epoch, unless it went to another call."""
        with self._lock:
            if not self._replaced_by:
                self._iterator.asked = True
        if self._replaced_by:
            raise PoolClosed(f"this epoch was broken off by {self._replaced_by}; make one iterator, and use that")

    def close(self) -> None:
        """End the epoch, unless it went to another call of ``iter``."""
        if not self._replaced_by:
            self._iterator.close()

    def break_off(self, by: str) -> None:
        """End it; its epoch goes to the next call of ``iter`` if no batch was asked for."""
        if self._iterator.asked:
            self._iterator.break_off(by)
        else:
            self._replaced_by = by


def called_with(fn: Callable[..., Any], batch: Any) -> Any:
    """Return what `fn` makes of the parts of a batch, by name where they have names."""
    if isinstance(batch, dict):
        return fn(**batch)
    return fn(*batch) if isinstance(batch, tuple) else fn(batch)


def reason(error: BaseException) -> str:
    """Return in words by what exception an epoch was broken off."""
    if type(error) is KeyboardInterrupt:
        return "an interrupt"
    text = text_of(error)
    text = text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"
    return f"an exception ({type(error).__name__}: {text})"


def place_of(iterator: Any) -> Any:
    """Return how far an iterator is; None where it has no states."""
    place = getattr(iterator, "place", None)
    return None if place is None else place()


def broken_off(by: str) -> PoolClosed:
    """Return the error that ``next`` raises after an epoch was broken off."""
    return PoolClosed(f"this epoch was broken off by {by}; its iterator is closed, make a new one")
