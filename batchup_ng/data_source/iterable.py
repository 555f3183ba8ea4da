"""Sources that only stream: batches come from a function or an iterator of the user's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..batch import as_batch
from ..batch_layout import of_its_own
from ..errors import ArgumentError, ArgumentTypeError
from ..sampling.plans.rows import count_batches
from .base import PlannedDataSource
from .epoch_options import EpochOptions, taken_by


class CallableDataSource(PlannedDataSource):
    """Batches from a function: ``fn(batch_size, **options)`` returns an iterator of them for one epoch.

    Args:
        batch_iterator_fn: Called for each epoch with the batch size, with the options that ``batch_iterator`` was
            given (``shuffle``, any of the function's own; ``epoch`` if it takes that).
        num_samples_fn: The samples of an epoch: an int, ``numpy.inf``, or a function that returns one of these
            and is called with the same options; None if not known.
    """

    takes_options = True

    def __init__(self, batch_iterator_fn: Callable[..., Iterator[Any]], num_samples_fn: Any = None) -> None:
        if not callable(batch_iterator_fn):
            raise ArgumentTypeError(
                f"batch_iterator_fn must be a function that returns an iterator, not a "
                f"{type(batch_iterator_fn).__name__}; for an iterator use IteratorDataSource"
            )
        if not callable(num_samples_fn) and not _is_count(num_samples_fn):
            raise ArgumentTypeError(
                f"num_samples_fn should be None, a callable, an int from 0 on, or np.inf, not {num_samples_fn!r}"
            )
        self.batch_iterator_fn = batch_iterator_fn
        self.num_samples_fn = num_samples_fn

    def num_samples(self, **kwargs: Any) -> Any:
        counts = self.num_samples_fn
        return counts(**taken_by(counts, kwargs)) if callable(counts) else counts

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        return _Taken(self.batch_iterator_fn(options.batch_size, **options.keywords_for(self.batch_iterator_fn)))

    def stream_count(self, options: EpochOptions) -> float | None:
        n = self.num_samples(**options.keywords_for(self.num_samples))
        return None if n is None else count_batches(n, options.batch_size, options.drop_last)


class IteratorDataSource(PlannedDataSource):
    """Batches from an iterator, which has one epoch, with batches of its own size, in its own order.

    ``batch_size`` of ``batch_iterator`` does not change the batches, as in BatchUp, and ``shuffle`` is refused, unless
    other sources beside it are shuffled, or maps take their seed from it. A function that makes an iterator for each
    epoch, with the batch size and ``shuffle`` that were asked for, goes into a :class:`CallableDataSource`.

    Args:
        batch_iter: Iterator of batches, each a tuple of arrays. If it has ``state_dict()``, which returns what JSON can
            hold, and ``load_state_dict(state)``, epochs can be saved and resumed; else they cannot. It is asked for its
            state after each batch, so that a batch that fails can be made again. If it raises an error instead, that
            comes as a ``StateError`` when a state is asked for.
        n_samples: How many samples it has: an int, ``numpy.inf``, or None if not known.
    """

    heeds_shuffle = False

    def __init__(self, batch_iter: Iterator[Any], n_samples: Any = None) -> None:
        if not hasattr(batch_iter, "__next__") and not hasattr(batch_iter, "__iter__"):
            hint = "; for a function that returns one use CallableDataSource" if callable(batch_iter) else ""
            raise ArgumentTypeError(
                f"batch_iter must be an iterator of batches, not a {type(batch_iter).__name__}{hint}"
            )
        if not _is_count(n_samples):
            raise ArgumentTypeError(f"n_samples should be None, an int from 0 on, or np.inf, not {n_samples!r}")
        self.batch_iter: Any = batch_iter
        self.n_samples = n_samples
        self._used_up = False

    def num_samples(self, **kwargs: Any) -> Any:
        return self.n_samples

    def checkpointable(self) -> Any:
        names = ("state_dict", "load_state_dict")
        return self if all(callable(getattr(self.batch_iter, name, None)) for name in names) else None

    def state_dict(self) -> Any:
        """Return the state of the iterator, where it has one."""
        return self.batch_iter.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Put the iterator back, where it can be."""
        self.batch_iter.load_state_dict(state)
        self._used_up = False

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        if self._used_up:
            raise ArgumentError(
                "the iterator of this IteratorDataSource is used up, for it has one epoch; use CallableDataSource with "
                "a function that returns an iterator of each epoch"
            )
        yield from _Taken(self.batch_iter)
        self._used_up = hasattr(self.batch_iter, "__next__")


class _Taken:
    """The batches of a user's iterator, copied where the user holds them too: a map may write to them."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iter(iterator)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return as_batch(of_its_own(next(self._iterator)))


def _is_count(n: Any) -> bool:
    if isinstance(n, (int, np.integer)) and not isinstance(n, bool):
        return bool(n >= 0)
    return n is None or (isinstance(n, (float, np.floating)) and n == math.inf)
