"""Data sources: the base class of all, the one of those with a plan, the maps over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from .. import batch as batches
from .. import validation
from ..batch import as_batch
from ..error_context import function_name, note_map
from ..errors import ArgumentTypeError, MapResultError
from ..faults.policy import RAISE
from ..memory_pool import FRESH, BufferPool, Buffers
from ..randomness import BatchKey, OrderKey
from ..sampling.plans.epoch import BatchesPlan, BatchPlan, DrawnPlan, PartPlan, SamplesPlan
from ..sampling.plans.rows import RowPlan, planned_samples
from ..sampling.plans.sharding import START
from .draws import Draws
from .epoch.accounting import Accounting
from .epoch.checkpoint import open_epoch
from .epoch.epochs import MakesEpochs, Seam
from .epoch.failures import Failures
from .epoch.iterator import Engine, Epoch, StreamRunner, entered, finished_stream, walk
from .epoch.stream_checkpoint import open_stream
from .epoch_options import EpochOptions, known_count
from .hooks import SourceNode
from .looking import HasSamples
from .map_results import checked_result


class Functions(NamedTuple):
    """The functions behind the methods that compose sources.

    They make classes that derive from the one with the methods, so they lie in modules above this one, the last of
    which, ``compose``, hands them over.
    """

    take: Callable[..., PlannedDataSource]
    repeat: Callable[..., AbstractDataSource]
    subset: Callable[..., PlannedDataSource]
    split: Callable[..., Any]
    concat: Callable[..., PlannedDataSource]
    zip: Callable[..., PlannedDataSource]
    with_index: Callable[..., PlannedDataSource]
    filter: Callable[..., PlannedDataSource]


class AbstractDataSource(HasSamples):
    """Makes batches: the base class of every data source.

    A source of one's own derives from this class and defines ``num_samples`` and ``batch_iterator``, and for random
    access ``is_random_access``, ``batch_indices_iterator`` and ``samples_by_indices_nomapping`` too.
    """

    def map(self, fn: Callable[..., Any], *, rng: str | None = None, resizes: bool = False) -> EpochSource:
        """Return a source whose batches are ``fn(*batch)``; where they are dicts, ``fn(**batch)``.

        Args:
            fn: Called with the arrays of a batch; returns the batch to hand out: a tuple or list of arrays, each with
                one row a sample, or a dict of such.
            rng: ``"batch"``: `fn` is called with ``rng=``, a ``numpy.random.Generator`` that depends on (seed, epoch,
                batch, node). ``"sample"``: with a :class:`~batchup_ng.randomness.SampleRng`, which gives one row of
                draws a sample, each a function of (seed, epoch, position in the stream, node), whatever the batch
                size. The seed is that of ``shuffle=``.
            resizes: Whether `fn` may return another number of samples than it was called with, as several views of
                each. Such a map stands last, or before maps alone: the parts of ``concat``, ``mix``, ``zip`` and
                composites have one sample for each row. Epochs, ranks and saved states count the samples that were
                planned.

        Raises:
            ArgumentTypeError: `fn` is no function.
            MapResultError: when a batch is made: `fn` returned anything but a tuple, list or dict; or arrays that
                differ in length, or have another length than those that it was called with.
        """
        return MapDataSource(self, fn, rng=rng, resizes=resizes)

    def map_samples(self, fn: Callable[..., Any], *, rng: str | None = None) -> EpochSource:
        """Return a source whose samples are ``fn(*sample)``, stacked to batches; of dicts ``fn(**sample)``.

        Results of one shape become an array, others stay a list.

        Args:
            fn: Called with the parts of one sample; returns a sample, a tuple of arrays or numbers, or a dict.
            rng: ``"sample"``: `fn` is called with ``rng=``, a ``numpy.random.Generator`` of the sample's own.
        """
        return SampleMapDataSource(self, fn, rng=rng)

    def collate(self, fn: Callable[[list[Any]], Any]) -> EpochSource:
        """Return a source whose batches are ``fn(samples)``, as those of PyTorch's ``collate_fn``.

        For functions that exist: ``torch.utils.data.default_collate``, the data collators of Hugging Face. They are
        called with the samples one by one; where columns only have to be padded, ``map`` with
        :class:`~batchup_ng.PadColumns` takes a batch as it is.

        Args:
            fn: Called with a list of the samples of a batch. A sample is what the data set returned: that of a
                :class:`~batchup_ng.MapStyle`, what ``dataset[i]`` gave (a tuple, a dict, a tensor); behind
                ``map_samples``, what its function returned; else a tuple of the rows of the arrays, or a dict of them
                by name. What `fn` returns is handed out as it is. A map behind it takes a list for a tuple, a dict by
                name.
        """
        return CollateDataSource(self, fn)

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        return [batches.marked(sample) for sample in super().read_samples(rows, key, buffers)]

    # -- composing ---------------------------------------------------------------------------------------------

    _functions: ClassVar[Functions]

    def take(self, n: int) -> PlannedDataSource:
        """Return the first `n` samples of each epoch: see :func:`batchup_ng.take`."""
        return self._functions.take(self, n)

    def repeat(self, times: int = -1) -> AbstractDataSource:
        """Return several epochs as one, -1 for ever: see :func:`batchup_ng.repeat`."""
        return self._functions.repeat(self, times)

    def subset(self, rows: Any) -> PlannedDataSource:
        """Return the samples at the positions `rows` of the epoch in order: see :func:`batchup_ng.subset`."""
        return self._functions.subset(self, rows)

    def split(self, fractions: Sequence[float], seed: int, stratify: Any = None) -> list[PlannedDataSource]:
        """Return sources that share out the samples at random: see :func:`batchup_ng.split`."""
        parts: list[PlannedDataSource] = self._functions.split(self, fractions, seed, stratify)
        return parts

    def concat(self, *others: AbstractDataSource, sampler: Any = None) -> PlannedDataSource:
        """Return this source and then the others: see :func:`batchup_ng.concat`."""
        return self._functions.concat(self, *others, sampler=sampler)

    def zip(self, *others: AbstractDataSource, flatten: bool = True) -> PlannedDataSource:
        """Return this source and the others side by side, sample by sample: see :func:`batchup_ng.zip`."""
        return self._functions.zip(self, *others, flatten=flatten)

    def with_index(self) -> PlannedDataSource:
        """Return a source whose batches begin with the array of their row numbers, as `include_indices` gives them.

        They are the rows that ``batch_indices_iterator`` lists: for arrays those of the arrays, for a subset or a
        concatenation positions in it. A composite has an array for each part; a choice the number of the source, then
        the rows in it. In a batch by name they are the column ``"index"``.

        Raises:
            ArgumentTypeError: the source only streams.
        """
        return self._functions.with_index(self)

    def filter(self, predicate: Callable[..., Any], columns: Any = None) -> PlannedDataSource:
        """Return a source with the samples for which ``predicate(*sample)`` is true.

        All samples are read once, now, with their maps; what is kept is a list of rows, the same in each epoch. Where
        the answer is in an array, ``subset(numpy.flatnonzero(labels == 3))`` reads nothing.

        Args:
            predicate: Called with the parts of one sample, by name where batches are dicts; returns True or False.
            columns: The columns that it is called with, which arrays then read alone: numbers from 0 on, or names; all
                where it is None.

        Raises:
            ArgumentTypeError: the source only streams, its samples have no numbers, or the predicate returns something
                else.
            ArgumentError: there is no such column, or the epoch never ends.
        """
        return self._functions.filter(self, predicate, columns)


class EpochSource(MakesEpochs, AbstractDataSource):
    """A source that hands out epochs in the library's own way: of arrays, of other sources, made by a pool."""


class PlannedDataSource(EpochSource):
    """A source that is a node of a graph: has a plan where all below it is random access, else a stream."""


    def plan_of(self, options: EpochOptions) -> BatchPlan:
        if not self.is_random_access:
            raise self._no_random_access("plan")
        size, drop_last, rng = options.batch_size, options.drop_last, options.rng
        if rng is None:
            rows = self.row_plan(size, options.order_key(), drop_last)
            which = options.seed, options.epoch
            if rows.n_samples is not None:
                return SamplesPlan(rows, size, *which, drop_last, options.shard, options.reached)
            return part_of(BatchesPlan(rows, size, *which), options)

        draws = options.draws or Draws(rng)

        def count() -> int:
            return sum(1 for _ in self.drawn_rows(size, draws.copy(), drop_last))

        drawn = draws.of(lambda: self.drawn_rows(size, rng, drop_last))
        whole = DrawnPlan(drawn, size, options.seed, options.epoch, self.count(size, drop_last), count)
        return part_of(whole, options)

    def begin_epoch(self, options: EpochOptions, state: Any, seam: Seam | None = None) -> Epoch:
        return open_epoch(self, options, state, seam) if self.is_random_access else open_stream(self, options, state)

    def _streamed(self, options: EpochOptions) -> Iterator[Any]:
        stream = whole_stream(self, options)
        return stream if behind_pool(self) else finished_stream(stream, self._buffers())

    def start_plan(self, plan: BatchPlan, options: EpochOptions, seam: Seam | None) -> tuple[Engine, Accounting]:
        # With an int seed all is a function of it. Without, the user's own draws go on where they were, as in BatchUp.
        seeded, accounting, n = options.shuffled and self.uses_global_rng(), Accounting(), self.num_samples()
        n_samples = -(-int(n) // options.shard.world) if known_count(n) else None
        failures = Failures(self, options.policy or RAISE, accounting, n_samples, options.shard.world)
        return StreamRunner(walk(self, plan, self._buffers(), failures, options.shard.pad_mask, seeded)), accounting

    def start_stream(self, options: EpochOptions, accounting: Accounting) -> Engine:
        return StreamRunner(entered(self._streamed(options), accounting))

    def stream_owner(self) -> Any:
        return self.checkpointable()

    def _buffers(self) -> BufferPool:
        """Return the memory of the batches that are made on the consumer's thread, which outlives an epoch."""
        own: BufferPool = vars(self).setdefault("_own_buffers", BufferPool(max_free=4))
        return own

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Iterator[Any]:
        """Return an iterator of the rows of each batch: ``(n,) int``, or a nest for sources made of others.

        The arguments are those of ``plan``.
        """
        if not self.is_random_access:
            raise self._no_random_access("batch_indices_iterator")
        return (planned.rows for planned in self.plan(batch_size, shuffle, **options))

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        if not self.is_random_access:
            raise self._no_random_access("samples_by_indices_nomapping")
        return self.read(indices, BatchKey(), FRESH)

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        buffers = self._buffers()
        for planned in self.plan_of(options):  # never shared out: only graphs that are all random access are
            yield self.read(planned.rows, planned.key._replace(path=path), buffers)

    def stream_count(self, options: EpochOptions) -> float | None:
        return self.count(options.batch_size, options.drop_last) if self.is_random_access else None


def behind_pool(source: SourceNode) -> bool:
    """Return whether a pool makes the batches of a source, or of one below it.

    Those are handed out as they are, and so is what maps behind the pool make of them.
    """
    values = getattr(source, "__dict__", {}).values()
    parts = [part for value in values for part in (value if isinstance(value, (list, tuple)) else [value])]
    return source.of_pool or any(behind_pool(part) for part in parts if isinstance(part, SourceNode))


def part_of(whole: BatchPlan, options: EpochOptions) -> BatchPlan:
    """Return the part of a plan of batches that the options ask for."""
    if options.shard.world == 1 and options.reached == START:
        return whole
    if isinstance(whole, DrawnPlan):
        whole.draw_to(options.reached.batches)  # before anybody else draws from the generator that was put back
    return PartPlan(whole, options.shard, options.reached, options.drop_last and options.shard.world > 1)


def whole_stream(source: SourceNode, options: EpochOptions, path: tuple[int, ...] = ()) -> Iterator[Any]:
    """Return an iterator of the batches that the options ask for, made on the calling thread."""
    stream = source.stream(options, path)
    return _without_short_last(stream, options.batch_size) if options.drop_last else stream


def call(fn: Callable[..., Any], batch: Any, **keywords: Any) -> Any:
    """Call a function of a batch, or sample, with its parts; those of a dict by name."""
    if type(batch) is tuple or not isinstance(batch, Mapping):
        return fn(*batch, **keywords)
    return fn(**batch, **keywords)


def _without_short_last(stream: Iterator[Any], batch_size: int) -> Iterator[Any]:
    held = None
    for batch in stream:
        if held is not None:
            yield held
        held = batch
    if held is not None and batches.length(held) >= batch_size:
        yield held


class MapDataSource(PlannedDataSource):
    """A source whose batches are those of another with a function applied: see :meth:`AbstractDataSource.map`."""

    _kinds_of_rng: tuple[str | None, ...] = (None, "batch", "sample")

    def __init__(
        self, source: AbstractDataSource, fn: Callable[..., Any], *, rng: str | None = None, resizes: bool = False
    ) -> None:
        if not isinstance(source, AbstractDataSource):
            raise ArgumentTypeError(f"source must be a data source, not a {type(source).__name__}")
        if not callable(fn):
            raise ArgumentTypeError(f"fn must be callable, not a {type(fn).__name__}; pass a function of a batch")
        self.source = source
        self.fn = fn
        self.rng = validation.one_of("rng", rng, self._kinds_of_rng)
        self.resizes = validation.true_or_false("resizes", resizes)

    @property
    def is_random_access(self) -> bool:
        return self.source.is_random_access

    def fingerprint(self) -> list[Any]:
        return [type(self).__name__, self.rng, self.source.fingerprint()]

    def num_samples(self, **kwargs: Any) -> Any:
        return self.source.num_samples(**kwargs)

    def samples_by_indices(self, indices: Any) -> Any:
        if not self.is_random_access:
            raise self._no_random_access("samples_by_indices")
        batch = as_batch(self.source.samples_by_indices(indices))
        return self._apply(batch, BatchKey(), planned_samples(indices, batch))

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        batch = as_batch(self.source.read(rows, key.child(0), buffers.scratch))
        return self._apply(batch, key, planned_samples(rows, batch))

    def sample_name(self, rows: Any) -> str | None:
        return self.source.sample_name(rows)

    def _apply(self, batch: Any, key: BatchKey, planned: int) -> Any:
        """Return the batch, of so many planned samples, after the map, whose name an exception carries along."""
        try:
            return self._mapped(batch, key, planned)
        except BaseException as error:
            self._note(error)
            raise

    def _note(self, error: BaseException) -> None:
        """Note on what the map raised the name of the map.

        Raises:
            RuntimeError: it raised ``StopIteration``, which would end the loop over batches.
        """
        name = function_name(self.fn)
        note_map(error, name)
        if isinstance(error, StopIteration):
            told = RuntimeError(f"a map raised StopIteration({error.value!r}), which would end the loop over batches")
            note_map(told, name)
            raise told from error

    def _mapped(self, batch: Any, key: BatchKey, planned: int) -> Any:
        return checked_result(self.fn, as_batch(self.result_of(batch, key, planned)), batch, self.resizes)

    def result_of(self, batch: Any, key: BatchKey, planned: int) -> Any:
        """Return what the function returns for a batch of so many planned samples, as it is."""
        if self.rng is None:
            result = call(self.fn, batch)
        elif self.rng == "batch":
            result = call(self.fn, batch, rng=key.generator())
        else:
            result = call(self.fn, batch, rng=key.sample_rng(batches.length(batch), planned))
        if result is None:
            name = function_name(self.fn)
            raise MapResultError(f"map {name!r} returned None; let it return a tuple of arrays: (x, y)")
        return result

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        return self.source.row_plan(batch_size, key, drop_last)  # a map does not change the order

    def drawn_rows(self, batch_size: int, rng: Any, drop_last: bool) -> Iterator[Any]:
        return self.source.drawn_rows(batch_size, rng, drop_last)

    def count(self, batch_size: int, drop_last: bool) -> float | None:
        return self.source.count(batch_size, drop_last)

    def rows_at(self, positions: Any) -> Any:
        return self.source.rows_at(positions)

    def permutes_rows(self) -> bool:
        return self.source.permutes_rows()

    def stream(self, options: EpochOptions, path: tuple[int, ...]) -> Iterator[Any]:
        stream = map(as_batch, self.source.stream(options, (*path, 0)))
        for number, batch in enumerate(stream, options.reached.batches):
            # Batches may be of any length here, and another after the map, so the position is counted.
            start = options.counted.get(path, 0)
            n = batches.length(batch)
            options.counted[path] = start + n
            yield self._apply(batch, BatchKey(options.seed, options.epoch, number, start, path), n)

    def stream_count(self, options: EpochOptions) -> float | None:
        return self.source.stream_count(options)

    def heeds_shuffle(self) -> bool:
        return self.rng is not None or self.source.heeds_shuffle()

    def calls_user_functions(self) -> bool:
        return self.source.calls_user_functions()

    def has_random_maps(self) -> bool:
        return self.rng is not None or self.source.has_random_maps()

    # uses_global_rng() is true whatever `rng` is, for a function that takes one may call others that do not.

    def checkpointable(self) -> Any:
        return self.source.checkpointable()


class SampleMapDataSource(MapDataSource):
    """A source whose samples are those of another with a function applied.

    See :meth:`AbstractDataSource.map_samples`.
    """

    _kinds_of_rng = (None, "sample")

    def read_samples(self, rows: Any, key: BatchKey, buffers: Buffers) -> list[Any]:
        batch = as_batch(self.source.read(rows, key.child(0), buffers.scratch))
        try:
            return self._samples(batch, key, planned_samples(rows, batch))
        except BaseException as error:
            self._note(error)
            raise

    def _mapped(self, batch: Any, key: BatchKey, planned: int) -> Any:
        return self.result_of(batch, key, planned)

    def result_of(self, batch: Any, key: BatchKey, planned: int) -> Any:
        samples = self._samples(batch, key, planned)
        try:
            return batches.batch_of(samples)
        except (TypeError, RuntimeError) as error:
            raise MapResultError(
                f"map {function_name(self.fn)!r} returned samples that NumPy cannot stack ({error}); let it return "
                f"arrays of one kind, or tensors that are dense (x.to_dense()), without gradients (x.detach()), in "
                f"main memory and of a dtype that NumPy has"
            ) from error

    def _samples(self, batch: Any, key: BatchKey, planned: int) -> list[Any]:
        if self.rng is None:
            samples = [call(self.fn, sample) for sample in batches.samples_of(batch)]
        else:
            rngs = key.sample_rng(batches.length(batch), planned).generators()
            pairs = zip(batches.samples_of(batch), rngs, strict=True)
            samples = [call(self.fn, sample, rng=generator) for sample, generator in pairs]
        if any(sample is None for sample in samples):
            name = function_name(self.fn)
            raise MapResultError(f"map {name!r} returned None for a sample; let it return a tuple: (x, y)")
        return samples


class CollateDataSource(MapDataSource):
    """A source whose batches are made from lists of samples: see :meth:`AbstractDataSource.collate`."""

    _kinds_of_rng = (None,)

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return self._apply(self.source.read_samples(rows, key.child(0), buffers.scratch), key, 0)

    def _mapped(self, batch: Any, key: BatchKey, planned: int) -> Any:
        return self.result_of(batch, key, planned)

    def result_of(self, batch: Any, key: BatchKey, planned: int) -> Any:
        samples = batch if type(batch) is list else map(batches.marked, batches.samples_of(batch))
        result = self.fn([batches.as_given(sample) for sample in samples])
        if result is None:
            name = function_name(self.fn)
            raise MapResultError(f"collate function {name!r} returned None; let it return a batch: (x, y)")
        return result
