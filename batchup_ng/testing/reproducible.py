"""The check that a source gives the same batches however they are made."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from .. import validation
from ..data_source.base import PlannedDataSource
from ..data_source.hooks import SourceNode
from ..errors import ArgumentError, ArgumentTypeError
from ..randomness import globals_kept
from .comparisons import Asked, Check
from .tracing import take_none

POOLS = ("serial", "threads", "processes")
"""Who may make the batches."""


def assert_reproducible(
    source: PlannedDataSource,
    batch_size: int = 8,
    *,
    shuffle: int | None = 0,
    epochs: Sequence[int] = (0, 1),
    max_batches: int = 8,
    pools: Sequence[str] = POOLS,
    workers: Sequence[int] = (1, 2),
    buffers: Sequence[int] = (1, 7),
    batch_sizes: Sequence[int] | None = None,
    worlds: Sequence[int] = (2, 3),
    resumes: int = 3,
) -> None:
    """Assert that a source gives the same batches, byte for byte, however they are made; one line of a test suite.

    It reads the first batches of an epoch again and again: a second time, from the last to the first, by pools of
    threads and of processes, with other buffers, shared out to several ranks, cut into other batches, resumed from a
    saved state. The error names the first difference, with the map, accessor, source or sampler that it comes from.

    Other batch sizes are left out where a map has ``rng="batch"``, or draws from a global generator: what it draws
    belongs to the batch then.

    Args:
        source: A source with random access; not one that a pool made, but the one that is handed to the pool.
        batch_size: Samples a batch.
        shuffle: A seed; None for the order of the rows.
        epochs: Numbers of the epochs to read.
        max_batches: How many batches of each epoch are looked at, from its beginning.
        pools: Who makes them: of ``"serial"``, ``"threads"``, ``"processes"``. Leave out what you never use.
        workers: How many threads, or processes.
        buffers: How many batches they make ahead.
        batch_sizes: Other batch sizes to compare; None for a smaller and a larger one. ``()`` for none, where what a
            sample becomes may depend on the samples beside it.
        worlds: Numbers of ranks.
        resumes: From how many places to resume.

    Raises:
        NotReproducible: it does not; an ``AssertionError``.
        ArgumentError: an option has a value that it cannot have.
        ArgumentTypeError: `source` is no source with random access, or cannot be sent to processes; an option is of a
            wrong kind.

    >>> import numpy as np
    >>> import batchup_ng as bu
    >>> def augment(x, rng):
    ...     return (x + rng.normal(),)
    >>> source = bu.ArrayDataSource([np.arange(100.0)])
    >>> assert_reproducible(source.map(augment, rng="sample"), pools=("serial", "threads"))
    >>> def old_augment(x):
    ...     return (x + own.normal(size=len(x)),)
    >>> own = np.random.default_rng(1)
    >>> assert_reproducible(source.map(old_augment), pools=("serial", "threads"))
    Traceback (most recent call last):
    batchup_ng.errors.NotReproducible: batch 0 of epoch 0 is not the same when it is read again: ...
    """
    asked = Asked(
        validation.positive_int("batch_size", batch_size),
        _seed(shuffle),
        [_epoch(epoch) for epoch in _listed("epochs", epochs)] or [0],
        validation.positive_int("max_batches", max_batches),
        [validation.one_of("pools", kind, POOLS) for kind in _listed("pools", pools)],
        _numbers("workers", workers),
        _numbers("buffers", buffers),
        None if batch_sizes is None else _numbers("batch_sizes", batch_sizes),
        _numbers("worlds", worlds),
        _not_negative("resumes", resumes),
    )
    _check_source(source)
    with globals_kept(), contextlib.ExitStack() as stack:
        stack.callback(take_none, source)
        Check(source, asked, stack).run()


def _check_source(source: Any) -> None:
    if not isinstance(source, SourceNode):
        raise ArgumentTypeError(
            f"source must be a data source, not a {type(source).__name__}; wrap arrays in ArrayDataSource([...])"
        )
    if not source.is_random_access or not isinstance(source, PlannedDataSource):
        raise ArgumentTypeError(
            f"source must have random access to be read in other orders, and a {type(source).__name__} only streams; "
            f"check the sources that it is made of, or, where a pool made it, the one that was given to the pool"
        )


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise ArgumentTypeError(f"{name} must be a list, not {values!r}; pass ({values!r},) for one")
    return list(values)


def _numbers(name: str, values: Any) -> list[int]:
    return [validation.positive_int(name, value) for value in _listed(name, values)]


def _not_negative(name: str, value: Any) -> int:
    number = validation.integer(name, value)
    if number < 0:
        raise ArgumentError(f"{name} must not be negative, and is {number}; pass 0 for none")
    return number


def _epoch(value: Any) -> int:
    return _not_negative("epochs", value)


def _seed(shuffle: Any) -> int | None:
    if shuffle is None or shuffle is False:
        return None
    if not hasattr(shuffle, "__index__") or isinstance(shuffle, bool):
        raise ArgumentTypeError(
            f"shuffle must be an int seed, or None, not {shuffle!r}; what a generator gives depends on its past"
        )
    return _not_negative("shuffle", shuffle)
