"""Statistics of the columns of a source, in one pass."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from .. import validation
from ..columns import Places, column_names
from ..data_source.answer_file import AnswerFile
from ..data_source.contents import contents_digest
from ..data_source.of_data import source_of
from ..data_source.reduce import shown_epoch
from ..data_source.source import AbstractDataSource
from ..display import progress_of
from ..errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from ..graph.choice import ChoiceNode
from ..graph.composite import CompositeNode
from ..graph.node import Node, nodes_of
from ..work_pool import AbstractWorkerPool
from ..work_pool.loader_pool import POOLS, pool_of_loader
from ..work_pool.parallel import WithConsumerMaps
from .column import column_statistics
from .partial import PartialStatistics
from .result import HEAD, Statistics

LENDS = "_pool_node"
"""The method of a loader that returns the node with its pool, and starts the pool."""

MOST_FILE_BYTES = 2**31
"""The largest file of statistics that is read."""


class StatisticsFile(AnswerFile):
    """The file that remembers statistics."""

    head = HEAD
    of = "statistics"
    noun = "the result of statistics"
    task = "the result"

    def read(self, digest: str) -> Statistics | None:
        """Return the statistics of the data of `digest`; None if the file holds others, or none."""
        content = self.content(MOST_FILE_BYTES)
        if not content:
            return None
        if Statistics.from_bytes(content, None) is None:
            self.warn_of_damage()
            return None
        found = Statistics.from_bytes(content, digest)
        if found is None:
            self.log_of_others()
        return found


@validation.known_names({"on": "pass them as columns="})
def statistics(
    data: Any,
    columns: Any = None,
    *,
    axis: str | None = None,
    pool: Any = None,
    batch_size: int = 256,
    progress: bool | Callable[..., Any] = True,
    cache: Any = None,
) -> Statistics:
    """Return the statistics of the columns of a source, in one pass over an epoch in order.

    Means and standard deviations are computed from exact sums and rounded once. The result has the same bits for any
    `batch_size` and pool, also for data such as 10⁸ ± 10⁻³. NaN is left out and counted, as in ``numpy.nanmean``; so is
    a sample that is None.

    Quantiles are exact if a column has at most 262,144 distinct values; a column with f elements or channels may have
    262,144 / f in each, but at least 4,096. If there are more, the lowest bits of all values are left out, as few as
    possible: ``quantile_error`` says how far off a quantile may be. The values kept take 16 bytes each.

    Random maps in the source draw the numbers of epoch 0.

    Args:
        data: A source, or any data that a :class:`~batchup_ng.Loader` takes. Give it the training part only.
        columns: Names or places of columns; others are not read where this is possible. Default: all columns of numbers
            and strings.
        axis: The groups with statistics of their own: ``"channels"``, each place along the last axis; ``"elements"``,
            each element of a sample; ``"all"``, no groups. Default, by the axes of a sample: 1 axis ``"elements"``, or
            ``"all"`` if samples are a list of arrays; 2 axes ``"all"``; 3 and more, as images, ``"channels"``.
        pool: Whose workers read and count: a pool; a loader, which lends its workers; ``"threads"`` or
            ``"processes"``, the pool that loaders share. None or ``"serial"``: this thread.
        batch_size: Samples that are read together.
        progress: Whether to show progress in a terminal if tqdm is installed; or a function like ``tqdm.tqdm``.
        cache: A file, such as ``"photos/statistics.json"``, that keeps the result for the next program. It counts as
            long as the data, the maps before, `columns` and `axis` are the same, recognised as described in ``filter``
            of a source. A file that is damaged or for other data is replaced.

    Raises:
        ArgumentError: the epoch has no end, or its samples depend on the batch size, as in a
            :class:`~batchup_ng.ChoiceDataSource` of parts of different lengths, or are drawn by weight; there is no
            such column, a column holds values of different kinds or shapes, or of a kind that has no statistics among
            others, or `cache` is another file.
        ArgumentTypeError: a column in `columns` holds neither real numbers nor strings, or an argument is of the wrong
            kind.

    Warns:
        CacheWarning: the file is damaged, or cannot be written.

    >>> import numpy as np, batchup_ng as bu
    >>> stats = bu.statistics({"age": np.array([20.0, 40.0, np.nan]), "label": np.array([0, 1, 1])})
    >>> stats
    column  dtype    count  missing  mean    std     min  median  max  classes
    age     float64  2      1        30      10      20   30      40
    label   int64    3      0        0.6667  0.4714  0    1       1    2
    >>> stats["age"].std, stats["label"].class_counts.tolist()
    (10.0, [1, 2])
    """
    if hasattr(data, LENDS):
        raise ArgumentTypeError("data must be a source, and is a loader; pass its source, and the loader as pool=")
    source = source_of(data, (WithConsumerMaps,))
    if axis is not None:
        validation.one_of("axis", axis, ("channels", "elements", "all"))
    pool = checked_pool(pool)
    batch_size = validation.positive_int("batch_size", batch_size)
    shown = progress_of(progress, "statistics", " batches")
    names = None
    if columns is not None:
        names = [each if isinstance(each, str) else int(each) for each in column_names("columns", columns)]
    if names is not None:
        source = source.select(*names)
    if source.node.num_samples() == math.inf:
        raise ArgumentError("data must have an end to have statistics, and its epoch has none; pass data.take(n)")
    _refuse_samples_that_depend_on_batches(source.node)
    file = None if cache is None else StatisticsFile(cache)
    if file is not None:
        digest = contents_digest(source.node, names, axis)
        known = file.read(digest)
        if known is not None:
            return known
    partial = PartialStatistics(names or _names(source.node), names is not None, axis)
    try:
        parts = merged_parts(source, partial, pool, batch_size, shown)
    except InOrderNotSupported:
        raise ArgumentError(
            "data must have the same samples in each epoch to have statistics, and these are drawn; pass the source as "
            "it was before sample(...)"
        ) from None
    whole = {name: found.result(name) for name, found in parts.items()}
    merged = {name: found for name, found in whole.items() if found is not None}
    if not merged:
        raise ArgumentError("data must have samples with columns of numbers or strings to have statistics")
    result = Statistics({name: column_statistics(name, found) for name, found in merged.items()})
    if file is not None:
        file.replace(result.as_text(digest))
    return result


def _refuse_samples_that_depend_on_batches(root: Node) -> None:
    """Raise if the batch size decides which samples an epoch has: then it would decide the statistics, too."""
    for node in nodes_of(root):
        if not isinstance(node, (ChoiceNode, CompositeNode)):
            continue
        lengths = [part.num_samples() for part in node.datasets]
        if len(set(lengths)) < 2:
            continue
        why = ""
        if isinstance(node, ChoiceNode) and not (node.stratified and not {None, math.inf}.intersection(lengths)):
            why = "ends when its turn comes to a part without a batch left; pass bu.concat of the parts"
        elif isinstance(node, CompositeNode) and not node.trim:
            why = "ends with batches of different sizes, for trim is False; pass one with trim=True, or a part"
        if why:
            raise ArgumentError(
                f"data must have the same samples for any batch_size to have statistics, and an epoch of this "
                f"{node.name}, of parts of {', '.join(map(str, lengths))} samples, {why}"
            )


def _names(node: Node) -> list[Any] | None:
    """Return the names of the columns of tuples, and the places of those without; None if they are not known."""
    form = node.form()
    if form is None or isinstance(form, Mapping):
        return None
    names = {place: name for name, place in form.names.items()} if isinstance(form, Places) else {}
    return [names.get(place, place) for place in range(len(form))]


class Mergeable(Protocol):
    """The part of a column that the samples of one batch make."""

    def merge(self, name: Any, other: Any, /) -> None:
        """Add the part of other samples of the column `name`."""

    def check(self, name: Any, /) -> None:
        """Raise an error if no further samples can join these."""


def merged_parts(
    source: AbstractDataSource, make: Callable[..., Any], pool: Any, batch_size: int, shown: Any,
    **options: Any,
) -> dict[Any, Any]:  # fmt: skip
    """Return the parts of all batches of epoch 0, merged, by the name of their column.

    Args:
        source: The source.
        make: A map that returns one column: a dict of a :class:`Mergeable` for each column in its first row.
        pool: Whose workers call `make`, from :func:`checked_pool`; None: this thread.
        batch_size: Samples that are read together.
        shown: Shows the progress: see :func:`~batchup_ng.display.progress_of`.
        **options: Options of the epoch.
    """
    made: AbstractDataSource = source.map(make)
    merged: dict[Any, Mergeable] = {}
    with _lent(pool) as workers:
        if workers is not None:
            made = workers.parallel_data_source(made) if made.is_random_access else workers.prefetch(made)
        for (column,) in shown_epoch(made, batch_size, shown, None, {"epoch": 0, **options}):
            for name, found in column[0].items():
                if name in merged:
                    merged[name].merge(name, found)
                else:
                    merged[name] = found
                merged[name].check(name)
    return merged


def checked_pool(pool: Any) -> Any:
    """Return the user's argument `pool`; raise if it is neither None, a pool, its name nor a loader."""
    if not (pool is None or isinstance(pool, (str, AbstractWorkerPool)) or hasattr(pool, LENDS)):
        raise ArgumentTypeError(f"pool must be None, a pool, its name or a loader, not {pool!r:.80}; pass 'threads'")
    return validation.one_of("pool", pool, tuple(POOLS)) if isinstance(pool, str) else pool


@contextlib.contextmanager
def _lent(pool: Any) -> Iterator[AbstractWorkerPool | None]:
    """Return the pool for the user's `pool`; None for this thread."""
    if not isinstance(pool, str):
        yield getattr(pool, LENDS)().pool if hasattr(pool, LENDS) else pool
        return
    with pool_of_loader(pool, None) as made:
        yield made
