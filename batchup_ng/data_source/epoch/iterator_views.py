"""Iterators over the batches of another iterator: what a loader and its views hand out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ...error_context import function_name, text_of
from ...errors import ArgumentTypeError, PoolClosed
from .state_file import read_state, write_state

NOTHING: Any = object()
"""No batch."""

IteratorType = TypeVar("IteratorType", bound="IteratorView")


class IteratorView(Iterator[Any]):
    """Hands out the batches of an iterator, which has the other methods, too."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __next__(self) -> Any:
        for batch in self._iterator:  # next() is a call, and an interrupt after it would lose the batch
            return batch
        raise StopIteration

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
    """Applies a function to each batch.

    If the function or a signal handler raises after the batch was taken, the epoch is broken off: ``next`` raises
    ``PoolClosed``, and the state is the one before that batch.
    """

    def __init__(self, iterator: Any, fn: Callable[[Any], Any], name: str = "") -> None:
        super().__init__(iterator)
        self._fn = fn
        self._name = name or function_name(fn)
        self._failure = ""  # the iterator's last exception, if no batch came after it
        self._lost: tuple[str, Any] | None = None  # the cause, and the place before the lost batch

    def __next__(self) -> Any:
        if self._lost is not None:
            raise broken_off(self._lost[0])
        place, batch = place_of(self._iterator), NOTHING
        try:
            for batch in self._iterator:  # next() is a call, and an interrupt after it would lose the batch
                made = self._fn(batch)
                self._failure = ""
                return made
        except BaseException as error:
            if batch is NOTHING and place_of(self._iterator) == place:
                self._failure = f"{type(error).__name__}: {text_of(error)}"
                raise
            self._lost = f"an error in {self._name}", place  # or a loop that goes on would lack this batch
            if hasattr(self._iterator, "break_off"):
                self._iterator.break_off(self._lost[0])
            if isinstance(error, StopIteration):  # which would pass for the end of the epoch
                raise RuntimeError(f"{self._name} raised StopIteration") from error
            raise
        if self._failure and not getattr(self._iterator, "at_end", False):
            raise broken_off(self._failure)
        raise StopIteration

    def place(self) -> Any:
        """Return how far the epoch is: see ``BatchIterator.place``."""
        return place_of(self._iterator) if self._lost is None else self._lost[1]

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is: see ``BatchIterator.state_dict``."""
        iterator = self._iterator
        state: dict[str, Any] = iterator.state_dict() if self._lost is None else iterator.state_at(self._lost[1])
        return state

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`state_dict` to a file as JSON: see ``BatchIterator.save_state``."""
        write_state(path, self.state_dict())

    def load_state_dict(self, state: Any) -> None:
        """Go on from where `state` was taken: see ``BatchIterator.load_state_dict``."""
        self._iterator.load_state_dict(state)
        self._lost, self._failure = None, ""

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Go on from the state that a file holds: see ``BatchIterator.load_state``."""
        self.load_state_dict(read_state(path))

    def __repr__(self) -> str:
        return f"<{self._iterator!r}, then {self._name}>"


class LoaderIterator(IteratorView):
    """What one call of ``iter`` gives: an epoch of which no batch was asked for is given to the next call."""

    _replaced_by = ""

    def __next__(self) -> Any:
        if self._replaced_by:
            raise PoolClosed(f"this epoch was broken off by {self._replaced_by}; make one iterator, and use that")
        for batch in self._iterator:  # next() is a call, and an interrupt after it would lose the batch
            return batch
        raise StopIteration

    def close(self) -> None:
        """End the epoch, unless it went to another call of ``iter``."""
        if not self._replaced_by:
            self._iterator.close()

    def break_off(self, by: str) -> None:
        """End it; its epoch goes to the next call of ``iter`` if no batch was asked for."""
        if self._iterator.untouched:
            self._replaced_by = by
        else:
            self._iterator.break_off(by)


def called_with(fn: Callable[..., Any], batch: Any) -> Any:
    """Return what `fn` makes of the parts of a batch, by name where they have names."""
    if isinstance(batch, dict):
        return fn(**batch)
    return fn(*batch) if isinstance(batch, tuple) else fn(batch)


def place_of(iterator: Any) -> Any:
    """Return how far an iterator is; None where it has no states."""
    place = getattr(iterator, "place", None)
    return None if place is None else place()


def broken_off(by: str) -> PoolClosed:
    """Return the error that ``next`` raises after an epoch was broken off."""
    return PoolClosed(f"this epoch was broken off by {by}; its iterator is closed, make a new one")
