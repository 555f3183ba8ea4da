"""Nodes that apply a function to the batches of another node.

A map returns a tuple or dict of arrays with one row for each sample of its batch. Any other return value raises
`MapResultError` at once, in a plain loop and in every pool alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

import numpy as np

from .. import batch as nests
from .. import validation
from ..batch import NOTHING_LEFT, as_batch
from ..batch_layout import apart, copied, own_parts, settled
from ..columns import MappedColumns, column_names, form_like, keys_in
from ..error_context import function_name, note_map
from ..errors import ArgumentError, MapCallError, MapResultError
from ..memory.leases import FRESH, Buffers
from ..meters.stopwatch import in_groups, map_name, name_slowest, note
from ..randomness import BatchKey
from ..sampling.companions import Companions
from ..sampling.plans.rows import planned_samples, read_only, take_rows, whole_samples
from .companions import check_count, read_with, rows_node
from .node import Classes, Node, Streaming, Traits, rows_named, stacks
from .wrapped import SameOrderNode
from .wrong_calls import (
    COLLATE,
    OTHERS,
    SAMPLE_MAP,
    check_call,
    check_function,
    check_tensors,
    takes_tensors,
    with_on,
)


def call(fn: Callable[..., Any], batch: Any, keywords: Mapping[str, Any] | None = None, *, kind: str = "map") -> Any:
    """Call a function with the parts of a batch or sample, by name for a dict.

    Args:
        fn: The function.
        batch: A tuple, a dict, or a list that stands for a tuple.
        keywords: Further arguments.
        kind: What the user calls the function, for an error.

    Raises:
        MapCallError: the function does not take these parts.
    """
    by_place = type(batch) is tuple or not isinstance(batch, Mapping)
    try:
        return fn(*batch, **(keywords or {})) if by_place else fn(**batch, **(keywords or {}))
    except TypeError as error:
        if type(error) is TypeError and error.__traceback__ is not None and error.__traceback__.tb_next is None:
            placed, named = (tuple(batch), {}) if by_place else ((), {**batch})
            check_call(fn, placed, named, {**(keywords or {})}, kind)
        raise  # an error inside of `fn`


def for_columns(fn: Any, on: Sequence[Any]) -> Callable[..., Any]:
    """Return a function for a call with the columns `on`, by place. Some find what belongs to them by the names."""
    made: Callable[..., Any] = fn.for_columns(on) if hasattr(type(fn), "for_columns") else fn
    return made


class MapNode(SameOrderNode):
    """A node that applies a function to the batches of another node."""

    name = "MapDataSource"

    _gives_columns = True  # whether the function returns the columns of a batch; they are then checked
    _makes_samples = False  # whether the function returns single samples, which are then stacked
    _kinds_of_rng: tuple[str | None, ...] = (None, "batch", "sample")

    def __init__(
        self,
        source: Node,
        fn: Callable[..., Any],
        *,
        rng: str | None = None,
        resizes: bool = False,
        on: Any = None,
        out: Any = None,
        companions: Companions | None = None,
    ) -> None:
        super().__init__(source)
        check_function(fn)
        self.fn = fn if on is None else for_columns(fn, column_names("on", on))
        self.name_in_meters = map_name(fn)
        self._takes_tensors = takes_tensors(fn)
        self.on = on
        self.out = out
        check_count(self.fn, companions)
        self.companions = companions
        self._columns = MappedColumns.checked(on, out, source.form())
        self._origin()  # raises for columns that do not exist, or are there twice
        self._after_filter = source.traits.filters
        self._writes = hasattr(type(fn), "writing_to")  # whether the function may write to parts that are its own
        self.rng = validation.one_of("rng", rng, self._kinds_of_rng)
        if rng is None and self._gives_columns:
            self.rng = getattr(fn, "default_rng", None)  # operations of batchup_ng.augment have it
        self.resizes = validation.true_or_false("resizes", resizes)
        if resizes and on is not None:
            raise ArgumentError("resizes must be False with on=, because the other columns keep their samples")
        self._packs = hasattr(type(fn), "packs_samples")  # a function of ours, whose arrays have lengths of their own
        self.resizes = self.resizes or self._packs
        if self._packs and on is not None:
            raise ArgumentError(
                f"on must be left out with {function_name(fn)!r}, which takes whole batches; name the columns to it"
            )

    def form(self) -> Any:
        form = self.source.form()
        if form is None or self._columns is None:
            return form_like(self._origin())
        return self._columns.form(form)

    def only(self, names: Sequence[Any]) -> Node | None:
        form = self.form()
        if form is None:
            return None
        keys = keys_in(form, names)
        if self._columns is None:
            origin = self._origin()
            keys = [None] if origin is None else [origin[key] for key in keys]
            return None if None in keys else self.source.only(keys)
        return None if self._columns.changes(self.source.form(), keys) else self.source.only(keys)

    def _origin(self) -> Any:
        """Return the form of the results, with the key of each column in the source's batches, and None for others.

        None if only the results show it. Functions of ours that take a whole batch have a method ``columns_after``.
        """
        form, fn = self.source.form(), self.fn
        if form is None or not self._gives_columns or not hasattr(type(fn), "columns_after"):
            return None
        return fn.columns_after(form)  # type: ignore[attr-defined]

    def stacks_samples(self, key: Any) -> bool:
        form, origin = self.source.form(), self._origin()
        if origin is not None and key is not None:
            return origin[key] is not None and stacks(self.source, origin[key])
        if self._columns is None or (form is not None and key is not None and self._columns.changes(form, [key])):
            return self._makes_samples
        unknown = self._makes_samples and (form is None or key is None)
        return unknown or stacks(self.source, key)

    def classes(self) -> Classes | None:
        found = super().classes()
        if found is None or self._columns is None:
            origin = self._origin()
            return found if found is None or origin is None else found.moved(origin)
        form = self.source.form()
        keys = [found.column]
        changed = found.column in self._columns.named if form is None else self._columns.changes(form, keys)
        return None if changed else found

    def own_traits(self) -> Traits:
        draws = self.rng is not None or self.companions is not None
        return Traits(
            runs_user_code=True,
            uses_shuffle=draws,
            draws=draws,
            draws_by_batch=self.rng == "batch",
            resizes=self.resizes,
        )

    def fingerprint(self) -> list[Any]:
        drawn = [] if self.companions is None else [self.companions.fingerprint()]
        return [self.name, self.rng, *drawn, self.source.fingerprint()]

    def samples_by_indices(self, indices: Any) -> Any:
        if self.companions is not None:
            return self.read(read_only(rows_node(self).sampler.map_indices(indices)), BatchKey(), FRESH)
        batch = as_batch(self.source.samples_by_indices(indices))
        return self._apply(self._mapped, batch, BatchKey(), planned_samples(indices, batch))

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        if self._after_filter:
            return self.read_kept(rows, key, buffers)[0]
        if self.companions is not None:
            batch, others = read_with(self.source, self.companions, rows, key, buffers)
            return self._apply(functools.partial(self._mapped, others=others), batch, key, len(rows))
        if not self._writes:
            batch = as_batch(self.source.read(rows, key.child(0), buffers.scratch))
            return self._apply(self._mapped, batch, key, planned_samples(rows, batch))
        batch, own = own_parts(as_batch(self.source.read(rows, key.child(0), buffers.scratch)))
        return self._apply(functools.partial(self._mapped, own=own), batch, key, planned_samples(rows, batch))

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        if not self._after_filter:
            return self.read(rows, key, buffers), None
        batch, kept, key, planned = self._left(rows, key, buffers)
        return batch if batch is NOTHING_LEFT else self._apply(self._mapped, batch, key, planned), kept

    def _left(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None, BatchKey, int]:
        """Return the samples that lazy filters leave: a batch, their places, their key, how many were planned."""
        batch, kept = self.source.read_kept(rows, key.child(0), buffers.scratch)
        if kept is None:
            return as_batch(batch), None, key, planned_samples(rows, batch)
        return as_batch(batch), kept, key.part(kept), len(kept)

    def _name_slowest(self, rows: Any, kept: np.ndarray | None = None) -> None:
        """Name the sample for which this map took longest. `kept` are the places of the samples that filters left."""

        def names(first: int, end: int, n: int) -> str:
            places = np.arange(whole_samples(rows)[0]) if kept is None else kept
            if len(places) != n:
                return ""  # a map below changed the number of samples
            return rows_named(self.source, take_rows(rows, places[first:end]))

        name_slowest(names)

    def _apply(self, make: Callable[..., Any], batch: Any, key: BatchKey, planned: int) -> Any:
        """Return `make(batch, key, planned)`. Note how long it took. Add the map's name to an exception."""
        began = monotonic()
        try:
            made = make(batch, key, planned)
            note(self.name_in_meters, monotonic() - began)
            return made
        except BaseException as error:
            name = function_name(self.fn)
            note_map(error, name)
            if not isinstance(error, StopIteration):
                raise
            told = RuntimeError(f"a map raised StopIteration({error.value!r}), which would end the loop over batches")
            note_map(told, name)
            raise told from error

    def _mapped(
        self, batch: Any, key: BatchKey, planned: int, own: Collection[Any] = (), others: Sequence[Any] | None = None
    ) -> Any:
        result = self.unchecked(batch, key, planned, own, others)
        if (self._gives_columns or self._columns is not None) and not self._packs:
            result = checked_result(self.fn, as_batch(result), batch, self.resizes)
        return apart(result, batch)

    def unchecked(
        self, batch: Any, key: BatchKey, planned: int, own: Collection[Any] = (), others: Sequence[Any] | None = None
    ) -> Any:
        """Return the batch after this map. With `on`, the function takes and gives only some of its columns."""
        if self._columns is None:
            return self.result_of(batch, key, planned, own, others)
        if others is not None:
            others = [self._columns.taken_from(other) for other in others]
        taken, writable = self._columns.taken_from(batch), self._columns.writable(batch, own)
        if self.out is not None and not self._writes:
            taken = copied(taken)  # the columns stay in the batch, and the function may write to them
        try:
            result = self.result_of(taken, key, planned, writable, others)
        except MapCallError as error:
            raise with_on(error, self.on, batch, (self.fn, *getattr(self.fn, "fns", ()))) from None
        return self._columns.put_into(batch, result, function_name(self.fn))

    def result_of(
        self, batch: Any, key: BatchKey, planned: int, own: Collection[Any] = (), others: Sequence[Any] | None = None
    ) -> Any:
        """Return the unchecked result of the function for a batch of `planned` planned samples.

        `own` names the parts of the batch that nothing else refers to. It is empty unless the function has
        ``writing_to``, as the operations of ``batchup_ng.augment`` do. `others` are the companions of the samples.
        """
        fn: Any = self.fn
        keywords: dict[str, Any] = {} if others is None else {OTHERS: others}
        if keywords and hasattr(type(fn), "with_companions"):
            fn = functools.partial(fn.with_companions, keywords.pop(OTHERS))
        elif own:
            fn = functools.partial(fn.writing_to, own)
        if self.rng == "batch":
            keywords["rng"] = key.generator()
        elif self.rng is not None:
            keywords["rng"] = key.sample_rng(nests.length(batch), planned)
        if self._takes_tensors:
            check_tensors(self.fn, batch)
        result = call(fn, batch, keywords)
        if result is None:
            name = function_name(self.fn)
            raise MapResultError(f"map {name!r} returned None; let it return a tuple of arrays: (x, y)")
        return result

    def stream(self, options: Streaming, path: tuple[int, ...]) -> Iterator[Any]:
        if self.companions is not None:  # a stream of the source has no rows to draw companions for
            yield from super().stream(options, path)
            return
        stream = map(as_batch, self.source.stream(options, (*path, 0)))
        for number, batch in enumerate(stream, options.reached.batches):
            if batch is NOTHING_LEFT:
                yield batch
                continue
            # A stream's batches may have any length, and a map may change it, so each map counts its position.
            start = options.counted.get(path, 0)
            n = nests.length(batch)
            options.counted[path] = start + n
            yield self._apply(self._mapped, batch, BatchKey(options.seed, options.epoch, number, start, path), n)

    def stream_count(self, options: Streaming) -> float | None:
        return self.source.stream_count(options)

    def checkpointable(self) -> Any:
        return self.source.checkpointable()


class SampleMapNode(MapNode):
    """A node that applies a function to the samples of another node."""

    name = "SampleMapDataSource"

    _gives_columns = False
    _makes_samples = True
    _kinds_of_rng = (None, "sample")

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        made = super().read(rows, key, buffers)
        self._name_slowest(rows)
        return made

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        made, kept = super().read_kept(rows, key, buffers)
        self._name_slowest(rows, kept)
        return made, kept

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        if self._after_filter:
            left, kept, key, planned = self._left(rows, key, buffers)
            samples = [] if left is NOTHING_LEFT else list(self._apply(self._samples, left, key, planned))
        elif self.companions is not None:
            kept, (batch, others) = None, read_with(self.source, self.companions, rows, key, buffers)
            samples = self._apply(functools.partial(self._samples, others=others), batch, key, len(rows))
        else:
            kept, batch = None, as_batch(self.source.read(rows, key.child(0), buffers.scratch))
            samples = self._apply(self._samples, batch, key, planned_samples(rows, batch))
        self._name_slowest(rows, kept)
        return samples

    def result_of(
        self, batch: Any, key: BatchKey, planned: int, own: Collection[Any] = (), others: Sequence[Any] | None = None
    ) -> Any:
        return nests.batch_of(self._samples(batch, key, planned, others))

    def _samples(self, batch: Any, key: BatchKey, planned: int, others: Sequence[Any] | None = None) -> list[Any]:
        n = nests.length(batch)
        if self.rng is None and others is None:
            groups = in_groups(nests.samples_of(batch), n, self.name_in_meters)
            samples = [settled(call(self.fn, one, kind=SAMPLE_MAP), one) for group in groups for one in group]
        else:
            given: dict[str, Any] = {}
            if self.rng is not None:
                given["rng"] = key.sample_rng(n, planned).generators()
            if others is not None:
                given[OTHERS] = map(list, zip(*map(nests.samples_of, others), strict=True))
            keywords = (dict(zip(given, each, strict=True)) for each in zip(*given.values(), strict=True))
            pairs = in_groups(zip(nests.samples_of(batch), keywords, strict=True), n, self.name_in_meters)
            every = (pair for group in pairs for pair in group)
            samples = [settled(call(self.fn, one, more, kind=SAMPLE_MAP), one) for one, more in every]
        if any(sample is None for sample in samples):
            name = function_name(self.fn)
            raise MapResultError(f"map {name!r} returned None for a sample; let it return a tuple: (x, y)")
        return samples


class CollateNode(MapNode):
    """A node whose batches are made from lists of samples."""

    name = "CollateDataSource"

    _gives_columns = False
    _kinds_of_rng = (None,)

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        samples = self.source.read_samples(rows, key.child(0), buffers.scratch)
        if self._after_filter and not samples:
            return NOTHING_LEFT
        return self._apply(self._mapped, samples, key, 0)

    def read_kept(self, rows: Any, key: BatchKey, buffers: Buffers) -> tuple[Any, np.ndarray | None]:
        return self.read(rows, key, buffers), None  # the function may return anything

    def result_of(
        self, batch: Any, key: BatchKey, planned: int, own: Collection[Any] = (), others: Sequence[Any] | None = None
    ) -> Any:
        result = call(self.fn, (batch if type(batch) is list else nests.given_samples(batch),), kind=COLLATE)
        if result is None:
            name = function_name(self.fn)
            raise MapResultError(f"collate function {name!r} returned None; let it return a batch: (x, y)")
        return result


def checked_result(fn: Callable[..., Any], result: Any, batch: Any, resizes: bool) -> Any:
    """Return the `result` of the map `fn`. Raise unless it is a batch as long as `batch`, or of any one length if
    `resizes`.
    """
    if _all_of_one_length(result, batch):
        return result
    name = function_name(fn)
    if not isinstance(result, (tuple, Mapping)):
        what = f"an array of shape {result.shape}" if isinstance(result, np.ndarray) else f"a {type(result).__name__}"
        raise MapResultError(
            f"map {name!r} returned {what}; let it return a tuple of arrays: return x, y, or return (x,) for one"
        )
    made, given = nests.lengths(result), nests.lengths(batch)
    if given and (not made or any(isinstance(part, Iterator) for part in nests.leaves(result))):
        raise MapResultError(
            f"map {name!r} returned no array, or a generator beside it; let it return arrays with one row for each "
            f"sample: return x, y"
        )
    if made <= given or not given or (resizes and (len(made) == 1 or len(given) > 1)):
        return result
    if len(made) > 1:
        raise MapResultError(
            f"map {name!r} returned arrays of different lengths, {_columns(result)}; let each have one row for each "
            f"sample"
        )
    raise MapResultError(
        f"map {name!r} returned {min(made)} samples for a batch of {max(given)}; let it return one for each, or pass "
        f"map(fn, resizes=True) if it is to make more or fewer"
    )


def _all_of_one_length(result: Any, batch: Any) -> bool:
    """Return whether `result` is a tuple of arrays as long as `batch`: a shortcut for nearly all batches."""
    if type(result) is not tuple or type(batch) is not tuple or not batch or type(batch[0]) is not np.ndarray:
        return False
    length = batch[0].shape[:1]
    for part in result:
        if type(part) is not np.ndarray or part.shape[:1] != length:
            return False
    return bool(length and result)


def _columns(batch: Any) -> str:
    """Return in words the number of rows in each part of a batch: ``8 in [0], 5 in [1]``."""
    parts = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
    found = [(name, sorted(nests.lengths((part,)))) for name, part in parts]
    return ", ".join(f"{' and '.join(map(str, rows))} in [{name!r}]" for name, rows in found if rows)
