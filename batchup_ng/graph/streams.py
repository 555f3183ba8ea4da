"""Nodes that only stream: batches come from the user's function or iterator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..batch import as_batch
from ..batch_layout import of_its_own
from ..errors import ArgumentError
from ..sampling.plans.rows import count_batches
from .node import Node, Streaming, Traits
from .user import taken_by
from .whole_batches import whole_batches


class CallableNode(Node):
    """A node over a function that returns an iterator of the batches of one epoch."""

    name = "CallableDataSource"

    is_random_access = False

    def __init__(self, batch_iterator_fn: Callable[..., Iterator[Any]], num_samples_fn: Any = None) -> None:
        super().__init__()
        self.batch_iterator_fn = batch_iterator_fn
        self.num_samples_fn = num_samples_fn

    def own_traits(self) -> Traits:
        return Traits(runs_user_code=True, uses_shuffle=True, takes_options=True)

    def fingerprint(self) -> list[Any]:
        return [self.name, str(self.num_samples())]

    def num_samples(self, **options: Any) -> Any:
        counts = self.num_samples_fn
        return counts(**taken_by(counts, options)) if callable(counts) else counts

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        batches = self.batch_iterator_fn(options.batch_size, **options.keywords_for(self.batch_iterator_fn))
        return whole_batches(_Taken(batches), options)

    def stream_count(self, options: Streaming) -> float | None:
        n = self.num_samples(**options.keywords_for(self.num_samples))
        return None if n is None else count_batches(n, options.batch_size, options.drop_last)


class IteratorNode(Node):
    """A node over an iterator of batches. It has one epoch."""

    name = "IteratorDataSource"

    is_random_access = False

    def __init__(self, batch_iter: Iterator[Any], n_samples: Any = None) -> None:
        super().__init__()
        self.batch_iter: Any = batch_iter
        self.n_samples = n_samples
        self._begun = self._used_up = False

    def own_traits(self) -> Traits:
        return Traits(runs_user_code=True)

    def fingerprint(self) -> list[Any]:
        return [self.name, str(self.n_samples)]

    def num_samples(self, **options: Any) -> Any:
        return self.n_samples

    def checkpointable(self) -> Any:
        names = ("state_dict", "load_state_dict")
        return self if all(callable(getattr(self.batch_iter, name, None)) for name in names) else None

    def state_dict(self) -> Any:
        """Return the state of the iterator, if it supports that."""
        return self.batch_iter.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Load a state into the iterator, if it supports that."""
        self.batch_iter.load_state_dict(state)
        self._begun = self._used_up = False

    def is_moved(self) -> None:
        """Note that a copy of the iterator, in another process, gives the one epoch."""
        self._used_up = hasattr(self.batch_iter, "__next__")

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        taken, again = _Taken(self.batch_iter), self._begun
        if not self._used_up:
            self._begun = hasattr(self.batch_iter, "__next__")
            yield from whole_batches(taken, options)
        if self._used_up or (again and not taken.any):  # an epoch that was left at its last batch did not meet the end
            raise ArgumentError(
                "the iterator of this IteratorDataSource is used up, for it has one epoch; use CallableDataSource with "
                "a function that returns an iterator of each epoch"
            )
        self._used_up = self._begun


class _Taken:
    """The batches of a user's iterator. They are copied if the user also has them, because a map may write to them.

    `any` says whether there was one.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iter(iterator)
        self.any = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = as_batch(of_its_own(next(self._iterator)))
        self.any = True
        return batch
