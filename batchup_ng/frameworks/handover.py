"""Applies the converter of a framework to what users pass: a loader, a source of a pool, or an iterator of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..data_source.epoch.epochs import Epochs
from ..data_source.epoch.iterator_views import LoaderEpochs, MappedIterator, of_loader
from ..errors import ArgumentTypeError
from ..loader import Loader
from ..work_pool.parallel import WithConsumerMaps
from .ahead import Convert
from .ranks import RankCheck


def handed_over(batches: Any, view: Callable[[Any], Any], ranks: RankCheck | None = None) -> Any:
    """Return `batches` with `view` applied to each iterator of batches.

    A loader gives a view of it, and its ``epochs(n)`` those of that view. A source that a pool works for gives a source
    of such iterators. An iterator gives another iterator, unless it is one of a loader: the loader's state would count
    the batches that an adapter takes ahead of the loop.

    `ranks` checks that each of several processes gets its part of the data.
    """
    if isinstance(batches, Loader):
        return batches.view(view, None if ranks is None else ranks.of_loader)
    if isinstance(batches, WithConsumerMaps):
        return HandedOverSource(batches, lambda iterator: _checked(iterator, view, ranks))
    if isinstance(batches, LoaderEpochs):
        return batches.viewed(view, None if ranks is None else ranks.of_loader)
    if of_loader(batches):
        raise ArgumentTypeError(
            "batches must be the loader, not an iterator of it, because its state would count batches ahead of your "
            "loop; pass to_torch(loader), or to_torch(loader).epochs(n)"
        )
    if isinstance(batches, Iterator) and not isinstance(batches, Epochs):
        return _checked(batches, view, ranks)
    remedy = "pass each of them" if isinstance(batches, Epochs) else "make a loader of data: Loader(data, batch_size)"
    raise ArgumentTypeError(
        f"batches must be a Loader, a source that a pool works for or an iterator of batches, not {type(batches)}; "
        f"{remedy}"
    )


def _checked(iterator: Any, view: Callable[[Any], Any], ranks: RankCheck | None) -> Any:
    """Return the view of an iterator, after the check."""
    if ranks is not None:
        ranks.of_iterator(iterator)
    return view(iterator)


def is_batch(batches: Any) -> bool:
    """Return whether `batches` is one batch, an array or a nest of arrays, rather than something that gives batches."""
    return isinstance(batches, (tuple, list, Mapping, np.ndarray))


def converted(batches: Any, convert: Convert) -> Any:
    """Return `batches` with each batch converted in ``next``."""
    return handed_over(batches, lambda iterator: MappedIterator(iterator, convert))


class HandedOverSource:
    """A source that a pool works for. Its ``batch_iterator`` and ``epochs`` give converted batches."""

    def __init__(self, source: WithConsumerMaps, view: Callable[[Any], Any]) -> None:
        self._source = source
        self._view = view

    def batch_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """Return an iterator of one epoch: see :meth:`~batchup_ng.AbstractDataSource.batch_iterator`."""
        return self._view(self._source.batch_iterator(*args, **kwargs))

    def epochs(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Return the iterators of epochs, one after the other."""
        return MappedIterator(self._source.epochs(*args, **kwargs), self._view)  # a generator would end by an exception

    def __iter__(self) -> Iterator[Any]:
        raise ArgumentTypeError("a source is no loader; loop over its .batch_iterator(batch_size), or .epochs(n, ...)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._source!r}>"
