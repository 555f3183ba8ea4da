"""The node that leaves samples out of each batch as the batch is made: a lazy filter.

The plan of an epoch does not know which samples the predicate keeps. So a batch has at most as many samples as planned,
and lengths, ranks and saved states count the planned samples. The places of the samples that are left go up the graph
with the batch (:meth:`~.node.Node.read_kept`), so the random numbers that a map above draws for a sample do not depend
on the other samples.

If a batch has no sample left, :data:`~batchup_ng.batch.NOTHING_LEFT` stands for the batch. Maps are not called for
it, because many functions cannot take arrays of no rows. The runner of the epoch leaves the batch out. If it may not
be left out, the runner hands out a batch of other rows (``Failures.filled``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from .. import batch as nests
from ..accessors.base import gather
from ..batch import NOTHING_LEFT, as_batch
from ..batch_layout import copied
from ..columns import column_names, keys_in, with_places
from ..error_context import function_name
from ..errors import ArgumentError, ArgumentTypeError, MapCallError, MapResultError
from ..memory.leases import FRESH, Buffers
from ..meters.stopwatch import in_groups
from ..randomness import BatchKey
from ..sampling.plans.rows import planned_samples
from .map import MapNode, call
from .node import NEEDS_NUMBERS, Node, Streaming, Traits, stacks
from .wrong_calls import with_on


class FilterNode(MapNode):
    """A node that leaves out the samples that a predicate refuses.

    Args:
        source: The node to filter.
        predicate: Called with the parts of one sample, by name if batches are dicts. It returns True or False.
        on: The columns to call it with, by place: names or places. Default: all.
    """

    name = "FilterDataSource"

    _gives_columns = False

    def __init__(self, source: Node, predicate: Callable[..., Any], on: Any = None) -> None:
        super().__init__(source, checked_predicate(predicate), resizes=True)
        self.predicate = predicate
        self.on = on
        form = source.form()
        self._names = None if on is None else with_places(form, column_names("on", on))
        if self._names is not None and form is not None:
            keys_in(form, self._names)  # raises for columns that do not exist

    def form(self) -> Any:
        return self.source.form()

    def stacks_samples(self, key: Any) -> bool:
        return stacks(self.source, key)

    def own_traits(self) -> Traits:
        return super().own_traits()._replace(filters=True)

    def fingerprint(self) -> list[Any]:
        return [self.name, self.source.fingerprint()]

    def rows_at(self, positions: Any) -> NoReturn:
        raise ArgumentTypeError(
            f"a lazy filter leaves samples out as batches are made, so its samples have no numbers: it "
            f"{NEEDS_NUMBERS}; use those before it, or filter without lazy=True"
        )

    def permutes_rows(self) -> bool:
        return False  # the samples have no numbers

    def stream_count(self, options: Streaming) -> None:
        return None  # a batch with no sample left is not handed out

    def samples_by_indices(self, indices: Any) -> Any:
        batch = super().samples_by_indices(indices)
        if batch is NOTHING_LEFT:
            raise ArgumentError(f"filter by {function_name(self.fn)!r} keeps none of these samples; ask for others")
        return batch

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return self.read_kept(rows, key, buffers)[0]

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        batch, before = self.source.read_kept(rows, key.child(0), buffers.scratch)
        if batch is NOTHING_LEFT:
            return batch, before
        batch = as_batch(batch)
        planned = planned_samples(rows, batch) if before is None else len(before)
        decided = self._apply(lambda batch, *_: self._decided(batch), batch, key, planned)
        self._name_slowest(rows, before)
        kept = np.flatnonzero(decided)
        left = _left(batch, kept, len(decided), buffers)
        if len(kept) == len(decided) or len(decided) != planned:  # a map below changed their number
            return left, before if len(decided) == planned else None
        return left, kept if before is None else before[kept]

    def result_of(
        self, batch: Any, key: BatchKey, planned: int, own: Collection[Any] = (), others: Sequence[Any] | None = None
    ) -> Any:
        decided = self._decided(batch)
        return _left(batch, np.flatnonzero(decided), len(decided), FRESH)

    def _decided(self, batch: Any) -> np.ndarray:
        """Return whether each sample of the batch is kept: ``(n,) bool``."""
        shown = copied(batch if self._names is None else in_places(batch, self._names))  # the predicate may write to it
        decided = np.array(decisions(self.fn, shown, self.on, batch, self.name_in_meters), bool)
        if nests.lengths(batch) - {len(decided)}:
            raise MapResultError(
                f"filter by {function_name(self.fn)!r} needs batches with one row for each sample in each array, and "
                f"one has arrays of {sorted(nests.lengths(batch))} rows; filter its parts"
            )
        return decided

    def _facts(self) -> list[str]:
        samples, *others = super()._facts()
        return [f"at most {samples}" if samples[:1].isdigit() else samples, *others]


def checked_predicate(predicate: Any) -> Any:
    """Return `predicate`. Raise if it cannot be called."""
    if not callable(predicate):
        raise ArgumentTypeError(f"predicate must be a function of a sample, not a {type(predicate).__name__}")
    return predicate


def in_places(batch: Any, names: Iterable[Any]) -> tuple[Any, ...]:
    """Return some columns of a batch as a tuple, to call a function by place."""
    return tuple([batch[key] for key in keys_in(batch, names)])


def decisions(predicate: Callable[..., Any], shown: Any, on: Any, batch: Any, step: str = "") -> list[bool]:
    """Return whether `predicate` keeps each sample of `batch`. It gets the columns `shown`, chosen by ``on=``.

    `step` is its name among measurements.
    """
    try:
        groups = in_groups(nests.samples_of(shown), nests.length(shown), step)
        return [_decision(predicate, sample) for group in groups for sample in group]
    except MapCallError as error:
        raise error if on is None else with_on(error, on, batch, (predicate,)) from None


def _decision(predicate: Callable[..., Any], sample: Any) -> bool:
    """Return whether `predicate` keeps a sample."""
    answer = call(predicate, sample, kind="predicate")
    if isinstance(answer, (bool, np.bool_)) or (getattr(answer, "ndim", -1) == 0 and "bool" in str(answer.dtype)):
        return bool(answer)
    raise MapResultError(
        f"predicate {function_name(predicate)!r} must return True or False for one sample, not a "
        f"{type(answer).__name__}; it is called with the parts of a sample, as map_samples calls its function"
    )


def _left(batch: Any, kept: np.ndarray, n: int, buffers: Buffers) -> Any:
    """Return the samples at places `kept` of a batch of `n` samples; parts without an axis stay as they are."""
    if len(kept) == n:
        return batch
    if not len(kept):
        return NOTHING_LEFT

    def cut(leaf: Any) -> Any:
        if type(leaf) is list:
            return [leaf[place] for place in kept.tolist()]
        return gather(leaf, kept, buffers) if getattr(leaf, "ndim", 0) else leaf

    return nests.map_leaves(cut, batch, classes=True)
