"""Sources that only stream: batches come from the user's function or iterator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentTypeError
from ..graph.streams import CallableNode, IteratorNode
from .planned import PlannedDataSource


class CallableDataSource(PlannedDataSource, node=CallableNode):
    """A source of batches from a function: ``fn(batch_size, **options)`` returns an iterator over one epoch.

    Args:
        batch_iterator_fn: Called for each epoch with the batch size and the options given to ``batch_iterator``:
            ``shuffle``, any of the function's own, and ``epoch`` if it accepts that.
        num_samples_fn: Number of samples in an epoch: an int, ``numpy.inf``, or a function that returns one of these
            and is called with the same options; None if not known.
    """

    @validation.known_names({})
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
        self._show(CallableNode(batch_iterator_fn, num_samples_fn))


class IteratorDataSource(PlannedDataSource, node=IteratorNode):
    """A source of batches from an iterator. It has one epoch, with batches of its own size, in its own order.

    ``batch_size`` of ``batch_iterator`` does not change the batches, as in BatchUp. ``shuffle`` is refused, unless
    other sources in the graph are shuffled, or maps take their seed from it. For a function that makes an iterator for
    each epoch, with the requested batch size and ``shuffle``, use a :class:`CallableDataSource`.

    Args:
        batch_iter: Iterator of batches, each a tuple of arrays. Epochs can be saved and resumed only if it has
            ``state_dict()``, whose result can be written as JSON, and ``load_state_dict(state)``. The library takes its
            state after each batch, because a batch that fails must be made again. If ``state_dict()`` raises an error,
            a request for the epoch's state raises it as a ``StateError``.
        n_samples: Number of samples: an int, ``numpy.inf``, or None if not known.
    """

    @validation.known_names({})
    def __init__(self, batch_iter: Iterator[Any], n_samples: Any = None) -> None:
        if not hasattr(batch_iter, "__next__") and not hasattr(batch_iter, "__iter__"):
            hint = "; for a function that returns one use CallableDataSource" if callable(batch_iter) else ""
            raise ArgumentTypeError(
                f"batch_iter must be an iterator of batches, not a {type(batch_iter).__name__}{hint}"
            )
        if not _is_count(n_samples):
            raise ArgumentTypeError(f"n_samples should be None, an int from 0 on, or np.inf, not {n_samples!r}")
        self._show(IteratorNode(batch_iter, n_samples))


def _is_count(n: Any) -> bool:
    if isinstance(n, (int, np.integer)) and not isinstance(n, bool):
        return bool(n >= 0)
    return n is None or (isinstance(n, (float, np.floating)) and n == math.inf)
