"""The base class of all data sources, and the base class of sources with plans."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from .. import batch as batches
from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.leases import FRESH, BufferPool
from ..randomness import BatchKey
from ..sampling.plans.drawn import ANY_ORDER, DrawnKey, listed_epoch
from ..sampling.plans.epoch import BatchesPlan, BatchPlan, SamplesPlan
from ..sampling.plans.rows import RowPlan
from .blocks import nodes_in_blocks, proposed_blocks
from .epoch.checkpoint import put_back
from .epoch.direct import DirectRunner, StreamRunner, direct_batches, streamed_batches
from .epoch.epochs import MakesEpochs
from .epoch.opening import Epoch, Runner
from .epoch_options import NEWER_OPTIONS, EpochOptions
from .hooks import SourceNode
from .looking import HasSamples
from .reduce import ProgressFunction, batch_map_concat, batch_map_mean


class AbstractDataSource(HasSamples):
    """The base class of every data source.

    A custom source derives from this class and defines ``num_samples`` and ``batch_iterator``. For random access it
    also defines ``is_random_access``, ``batch_indices_iterator`` and ``samples_by_indices_nomapping``.
    """

    def map(self, fn: Callable[..., Any], *, rng: str | None = None, resizes: bool = False) -> EpochSource:
        """Return a source whose batches are ``fn(*batch)``, or ``fn(**batch)`` if they are dicts.

        Args:
            fn: Called with the arrays of a batch. It returns the new batch: a tuple or list of arrays with one row per
                sample, or a dict of such arrays.
            rng: ``"batch"``: `fn` is called with ``rng=``, a ``numpy.random.Generator`` that depends on (seed, epoch,
                batch, node). ``"sample"``: with a :class:`~batchup_ng.randomness.SampleRng`, which gives one row of
                draws per sample. Each row is a function of (seed, epoch, position in the stream, node) and does not
                depend on the batch size. The seed comes from ``shuffle=``.
            resizes: Whether `fn` may return more or fewer samples than it receives, such as several views of each.
                Only maps may follow such a map, because the parts of ``concat``, ``mix``, ``zip`` and composites have
                one sample for each row. Epochs, ranks and saved states count the planned samples.

        Raises:
            ArgumentTypeError: `fn` is not callable.
            MapResultError: when a batch is made: `fn` returned anything but a tuple, list or dict, or arrays that
                differ in length from each other or from its arguments.
        """
        return self._followed_by("map", fn, rng=rng, resizes=resizes)

    def map_samples(self, fn: Callable[..., Any], *, rng: str | None = None) -> EpochSource:
        """Return a source whose samples are ``fn(*sample)``, or ``fn(**sample)`` if they are dicts.

        Results of one shape are stacked to an array. Others stay a list.

        Args:
            fn: Called with the parts of one sample. It returns a sample: a tuple of arrays or numbers, or a dict.
            rng: ``"sample"``: `fn` is called with ``rng=``, a ``numpy.random.Generator`` for that sample alone.
        """
        return self._followed_by("map_samples", fn, rng=rng)

    def collate(self, fn: Callable[[list[Any]], Any]) -> EpochSource:
        """Return a source whose batches are ``fn(samples)``, as with PyTorch's ``collate_fn``.

        This is for existing functions: ``torch.utils.data.default_collate``, the data collators of Hugging Face. They
        need a list of single samples. To pad columns, ``map`` with :class:`~batchup_ng.PadColumns` is enough: it
        takes the batch without that list.

        Args:
            fn: Called with a list of the samples of a batch. A sample of a :class:`~batchup_ng.MapStyle` is the result
                of ``dataset[i]`` (a tuple, a dict, a tensor). After ``map_samples`` it is the result of that function.
                Otherwise it is a tuple with a row of each array, or a dict of these rows. The result of `fn` is the
                batch, unchanged. A map that follows takes a list as a tuple, and a dict by name.
        """
        return self._followed_by("collate", fn)

    # -- composing ---------------------------------------------------------------------------------------------

    _functions: ClassVar[dict[str, Callable[..., Any]]]
    """The functions that implement these methods, by name. The module ``functions`` fills this in, because they return
    classes that derive from this one."""

    def _made(self, name: str, *args: Any, **options: Any) -> PlannedDataSource:
        made: PlannedDataSource = self._functions[name](self, *args, **options)
        return made

    def _followed_by(self, kind: str, fn: Callable[..., Any], **options: Any) -> EpochSource:
        return self._made(kind, fn, **options)

    def take(self, n: int) -> PlannedDataSource:
        """Return the first `n` samples of each epoch: see :func:`batchup_ng.take`."""
        return self._made("take", n)

    def repeat(self, times: int = -1) -> PlannedDataSource:
        """Return several epochs as one, -1 without end: see :func:`batchup_ng.repeat`."""
        return self._made("repeat", times)

    def subset(self, rows: Any = None, *, exclude: Any = None) -> PlannedDataSource:
        """Return the samples at positions `rows` of the unshuffled epoch: see :func:`batchup_ng.subset`."""
        return self._made("subset", rows, exclude=exclude)

    def split(self, fractions: Sequence[float], seed: int, stratify: Any = None) -> list[PlannedDataSource]:
        """Divide the samples at random among several sources: see :func:`batchup_ng.split`."""
        parts: list[PlannedDataSource] = self._functions["split"](self, fractions, seed, stratify)
        return parts

    def concat(self, *others: AbstractDataSource, sampler: Any = None) -> PlannedDataSource:
        """Return this source followed by the others: see :func:`batchup_ng.concat`."""
        return self._made("concat", *others, sampler=sampler)

    def zip(self, *others: AbstractDataSource, flatten: bool = True) -> PlannedDataSource:
        """Return this source and the others side by side, sample by sample: see :func:`batchup_ng.zip`."""
        return self._made("zip", *others, flatten=flatten)

    def with_index(self) -> PlannedDataSource:
        """Return a source whose batches begin with the array of their row numbers, as with `include_indices`.

        The numbers are the rows that ``batch_indices_iterator`` lists: rows of the arrays, or positions in a subset or
        a concatenation. A composite gives an array for each part. A choice gives the number of the source, then the
        rows in it. In a dict the row numbers are the column ``"index"``.

        Raises:
            ArgumentTypeError: the source only streams.
        """
        return self._made("with_index")

    def filter(self, predicate: Callable[..., Any], columns: Any = None) -> PlannedDataSource:
        """Return a source that keeps a sample if ``predicate(*sample)`` is true.

        The call reads all samples once, with their maps, and keeps a list of rows, the same in each epoch. If the
        answer is in an array, ``subset(numpy.flatnonzero(labels == 3))`` reads nothing.

        Args:
            predicate: Called with the parts of one sample, by name if batches are dicts. It returns True or False.
            columns: The columns to call it with: numbers from 0 on, or names. A source of arrays then reads no others.
                Default: all.

        Raises:
            ArgumentTypeError: the source only streams, its samples have no numbers, or the predicate does not return
                True or False.
            ArgumentError: there is no such column, or the epoch never ends.
        """
        return self._made("filter", predicate, columns)

    def cache(self, where: Any = None, limit: int | str = "8GB") -> AbstractDataSource:
        """Return a source that reads each row once. Only :class:`~batchup_ng.ArrayDataSource` supports it.

        Raises:
            ArgumentTypeError: this is not an ``ArrayDataSource``.
        """
        raise ArgumentTypeError(
            f"only an ArrayDataSource can be cached, not a {type(self).__name__}: rows are kept before maps, which may "
            f"be random, and whatever their order; call cache() on the source that holds the accessors, then the rest: "
            f"ArrayDataSource([files, labels]).cache().map(...)"
        )

    # -- over an epoch -----------------------------------------------------------------------------------------

    def batch_map_concat(
        self,
        func: Callable[..., Any],
        batch_size: int,
        progress_iter_func: ProgressFunction | None = None,
        n_batches: int | None = None,
        prepend_args: tuple[Any, ...] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...] | None:
        """Return the results of ``func(*batch)`` joined over an epoch: see :func:`~batchup_ng.batch_map_concat`.

        Args:
            batch_size: Samples per batch.
            **kwargs: Options of ``batch_iterator``.

        Raises:
            ArgumentError: the epoch never ends and `n_batches` is not given.
        """
        epoch = self._shown_epoch(batch_size, progress_iter_func, n_batches, kwargs)
        return batch_map_concat(func, epoch, None, n_batches, prepend_args)

    def batch_map_mean(
        self,
        func: Callable[..., Any],
        batch_size: int,
        progress_iter_func: ProgressFunction | None = None,
        sum_axis: int | None = None,
        n_batches: int | None = None,
        prepend_args: tuple[Any, ...] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...] | None:
        """Return the mean of ``func(*batch)`` over an epoch: see :func:`~batchup_ng.batch_map_mean`.

        Options are as for :meth:`batch_map_concat`.
        """
        epoch = self._shown_epoch(batch_size, progress_iter_func, n_batches, kwargs)
        return batch_map_mean(func, epoch, None, sum_axis, n_batches, prepend_args)

    def _shown_epoch(
        self, batch_size: int, progress: ProgressFunction | None, n_batches: int | None, options: dict[str, Any]
    ) -> Iterable[Any]:
        """Return the batches of an epoch, wrapped in `progress` if it is given."""
        for_counting = {name: value for name, value in options.items() if name not in NEWER_OPTIONS}
        if n_batches is not None:
            n_batches = validation.positive_int("n_batches", n_batches)
        elif self.num_samples(**for_counting) == math.inf:
            raise ArgumentError(
                "Data set has infinite size or sampler will generate infinite samples but no n_batches limit specified"
                "; pass n_batches="
            )
        iterator = self.batch_iterator(batch_size, **options)
        total = n_batches
        if total is None:
            with contextlib.suppress(TypeError):  # the length is not known
                total = len(iterator)  # type: ignore[arg-type]  # a user's own iterator may have none
        return iterator if progress is None else progress(iterator, total=total, leave=False)


class EpochSource(MakesEpochs, AbstractDataSource):
    """A source with the library's own epochs: over arrays, over other sources, or with a pool."""


class PlannedDataSource(EpochSource):
    """A node of a graph of sources. It has a plan if all nodes below it have random access; otherwise it streams."""

    def plan_of(self, options: EpochOptions) -> BatchPlan:
        if not self.is_random_access:
            raise self._no_random_access("plan")
        options = options.opened()
        size, drop_last = options.batch_size, options.drop_last
        blocks = None
        if options.blocks:
            pairs = nodes_in_blocks(self, options.chosen or proposed_blocks(self))
            blocks = {id(node): pair for node, pair in pairs}
        key = options.order_key(blocks)
        if isinstance(key, DrawnKey):
            rows: RowPlan = listed_epoch(self.row_plan, size, key, drop_last, self.num_samples())
        else:
            rows = self.row_plan(size, key, drop_last)
        kind = BatchesPlan if rows.n_samples is None else SamplesPlan
        return kind(rows, size, options.seed, options.epoch, drop_last, options.shard, options.reached)

    def start(self, epoch: Epoch, before: weakref.ref[Any] | None = None, path: tuple[int, ...] = ()) -> Runner:
        if epoch.plan is not None:
            return DirectRunner(direct_batches(self, epoch, self._buffers()))
        owner = self.checkpointable()
        if epoch.saved is not None:
            put_back(owner, epoch.saved)
        stream = whole_stream(self, epoch.options)
        buffers = None if self.traits.of_pool else self._buffers()
        return StreamRunner(streamed_batches(stream, epoch.accounting, buffers), owner, epoch)

    def _buffers(self) -> BufferPool:
        """Return the buffers for batches made on the consumer's thread. They are kept from epoch to epoch."""
        own: BufferPool = vars(self).setdefault("_own_buffers", BufferPool(max_free=4))
        return own

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Iterator[Any]:
        """Return an iterator of the rows of each batch: ``(n,) int``, or a nest for sources that combine others.

        The arguments are as for ``plan``.
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
        for planned in self.plan_of(options):  # never a shard: only graphs with random access everywhere have shards
            yield self.read(planned.rows, planned.key._replace(path=path), buffers)

    def stream_count(self, options: EpochOptions) -> float | None:
        if not self.is_random_access:
            return None
        return self.row_plan(options.batch_size, ANY_ORDER, options.drop_last).n_in_any_order


def whole_stream(source: SourceNode, options: EpochOptions, path: tuple[int, ...] = ()) -> Iterator[Any]:
    """Return an iterator of the batches for `options`, made on the calling thread."""
    stream = source.stream(options, path)
    return _without_short_last(stream, options.batch_size) if options.drop_last else stream


def _without_short_last(stream: Iterator[Any], batch_size: int) -> Iterator[Any]:
    held = None
    for batch in stream:
        if held is not None:
            yield held
        held = batch
    if held is not None and batches.length(held) >= batch_size:
        yield held
