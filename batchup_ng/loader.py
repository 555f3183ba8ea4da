"""One object for a training loop to iterate over: a data set, its batches, and the pool that makes them.

A loader owns the epoch under way, and its pool unless the pool is the user's. The loaders from ``map`` and from the
frameworks are views: all share its :class:`SharedByViews`, so any of them may be asked for a state or closed.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import batchup_ng.work_pool as work_pool  # from the package it would be a name that loads on first use

from . import validation
from .data_source.batch_sizes import checked_batch_size
from .data_source.distributed import warn_of_ranks
from .data_source.epoch.iterator_views import OPTIONS_OF_SOURCES, LoaderEpochs, mapped
from .data_source.epoch.opening import prepare, whole_epoch
from .data_source.epoch.state import STEPS, loader_state, saved_steps
from .data_source.epoch.state_file import read_state, write_state
from .data_source.epoch_options import ADVICE_ON_TORCH_OPTIONS, EpochOptions, draws_seed, epoch_options, with_seed
from .data_source.of_data import source_of
from .errors import ArgumentError, StateError
from .faults.policy import ErrorPolicy
from .graph.node import Node
from .graph.user import UserNode
from .meters.batch_times import metrics
from .private_apis import GLOBAL_RNG
from .randomness.numpy_rng import seed_draw
from .sampling.plans.epoch import SamplesPlan
from .work_pool.by_number import by_number
from .work_pool.loader_pool import (
    NO_ORDERS,
    SharedByViews,
    begin,
    checked_kind,
    checked_options,
    close,
    end,
    joined_settings,
    orders_of_state,
    pool_node,
    settings,
)
from .work_pool.loader_weights import set_weights
from .work_pool.parallel import ParallelNode, PoolNode, WithConsumerMaps
from .work_pool.steps import adopted_by, resume_steps, state_without, steps_of

if TYPE_CHECKING:
    from .explanation import Explanation

LoaderType = TypeVar("LoaderType", bound="Loader")


class Loader:
    """Batches of a data set, made ahead by workers, epoch after epoch: each iteration over it is one epoch.

    The buffer stays full from one epoch to the next. If a loop is left early, its epoch ends when the next begins.

    Args:
        data: A data source; an array or accessor, or a list, tuple or dict of them, of one length; or a data set with
            ``__len__`` and ``__getitem__(int)``, for example from torch or Hugging Face, or a list with a tuple or dict
            for each sample.
        batch_size: Samples in a batch; the last may have fewer. Default: that of a sampler of whole batches.
        shuffle: None or False: in order. An int: a seed; the order of an epoch is a function of the seed and of the
            epoch's number. True: a seed drawn now from NumPy's global state; saved states contain it. A generator: the
            order is drawn from it, and no state can be saved. ``"blocks"`` or ``("blocks", seed)``: shuffled in blocks
            that storage keeps together, to read each once, as described in ``batch_iterator`` of a source.
        pool: ``"serial"``, ``"threads"``, ``"processes"``, or a pool, which is yours to close; or another loader, whose
            workers are shared until that one is closed: ``Loader(validation, 256, pool=train)``. ``"auto"`` makes the
            first batches with a copy of the data at the first iteration, and chooses; ``repr`` shows the choice and the
            reason. These batches are handed out too. The batches do not depend on the pool.
        workers: Number of workers of a pool of its own. Default: the loaders of a program that give no number share one
            pool of threads, and one of processes. Each has one worker fewer than this process may use CPUs, so that
            your loop has one; with 1 or 2 CPUs, a worker for each. ``"auto"``: a pool of its own that the loader
            resizes while it runs, by its measurements: at most `buffer` workers, and a reserve of CPU for your loop. It
            means nothing if ``pool="auto"`` chooses ``"serial"``.
        collate: Makes a batch of a list of samples: see ``source.collate``.
        drop_last: Whether to leave out a last batch that is not whole. A warning says if no batch is left.
        shard: ``(rank, world)`` or ``"auto"``: the part of one of several processes; None: all of the data in each.
            Default: None, with a warning in one of several processes. ``batch_iterator`` explains the three options.
        buffer: The most batches ahead of the consumer, as `buffer_bytes` allows.
        buffer_bytes: The most bytes of these batches, such as ``"2GB"``. None: a quarter of the free memory, at most 1
            GB; a warning says once if fewer batches fit.
        on_error: What happens to bad samples: ``"raise"``, ``"skip"``, ``"replace"``, or an `ErrorPolicy`.
        timeout: Seconds that a sample may take; None for any time.
        start_epoch: Number of the first epoch.
        measure: Whether to measure how each batch is made, for :meth:`metrics`.
        settings: Result of :meth:`settings`, in place of `pool`, `workers`, `buffer` and `buffer_bytes`.

    Raises:
        ArgumentError: an option has an invalid value.
        ArgumentTypeError: `data` is none of these, or an option is of the wrong kind or does not exist.

    >>> import numpy as np, batchup_ng as bu
    >>> with bu.Loader([np.arange(5)], 2, shuffle=1) as loader:
    ...     for epoch in range(2):
    ...         print(len(loader), [x.tolist() for (x,) in loader])
    3 [[4, 2], [0, 3], [1]]
    3 [[2, 4], [1, 0], [3]]
    """

    @validation.known_names(ADVICE_ON_TORCH_OPTIONS)
    def __init__(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        shuffle: Any = None,
        pool: str | work_pool.AbstractWorkerPool | Loader = "auto",
        workers: int | str | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        shard: Any = validation.NOT_GIVEN,
        uneven: str = "pad",
        pad_mask: bool = False,
        buffer: int = 20,
        buffer_bytes: int | str | None = None,
        on_error: str | ErrorPolicy = "raise",
        timeout: float | None = None,
        start_epoch: int = 0,
        measure: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if settings is not None:
            given = {"pool": pool, "workers": workers, "buffer": buffer, "buffer_bytes": buffer_bytes}
            pool, workers, buffer, buffer_bytes = joined_settings(settings, given).values()
        lender, own_pool = (pool, None) if isinstance(pool, Loader) else (None, pool)
        kind = checked_kind(own_pool, workers, None if lender is None else lender._shared.source.is_random_access)
        source = source_of(data, (WithConsumerMaps, Loader))
        batch_size = checked_batch_size(source.node, batch_size)
        self.shard_given = shard is not validation.NOT_GIVEN
        shard = shard if self.shard_given else None
        own = isinstance(shuffle, np.random.Generator)
        self._seed_drawn = draws_seed(shuffle) and (source.is_random_access or not own)  # a stream gets the generator
        if self._seed_drawn:
            if shard is not None and not own:
                seeds = "pass the same int to all, or ('blocks', int)"
                raise ArgumentError(f"shuffle={shuffle!r} draws a seed in each process; {seeds}")
            seed = seed_draw(shuffle if own else GLOBAL_RNG)
            shuffle = with_seed(shuffle, seed)
        options = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last}
        options |= {"shard": shard, "uneven": uneven, "pad_mask": pad_mask}
        # Refuses bad options. "auto" is resolved later: Lightning starts its process group in fit.
        later = isinstance(shard, str) and shard == "auto"
        checked = epoch_options(**{**options, "shard": None if later else shard})
        warn_of_ranks(self.shard_given or not source.is_random_access)
        self._pool_options = checked_options(source, workers, buffer, buffer_bytes, on_error, timeout, measure)
        self._views: tuple[Callable[[Any], Any], ...] = ()  # each makes one iterator of batches from another
        self._checks: tuple[Callable[[Any], None], ...] = ()  # called with this loader when an epoch begins
        self._shared = SharedByViews(
            source if collate is None else source.collate(collate),
            options,
            None if later or checked.generator is not None else checked,
            None if kind else own_pool,
            kind,
            validation.not_negative("start_epoch", start_epoch),
            start_epoch,
            lender,
        )

    # -- iterating ---------------------------------------------------------------------------------------------

    def __iter__(self) -> Any:
        """Begin the next epoch and return the iterator of its batches. If the current epoch was left early, end it.

        This call starts the workers and the first batches. An epoch counts as begun with the request for its first
        batch, as some frameworks call ``iter`` more often than they loop; if an exception follows, it begins again.
        """
        return self._begin(math.inf)

    def _begin(self, end: float) -> Any:
        """Begin the next epoch as ``iter`` does. Make no batch ahead of epoch `end` or a later one."""
        return begin(self, end)

    def epochs(self, n: int | None) -> LoaderEpochs:
        """Return an iterator of the batches of the first `n` epochs, one epoch after the other.

        :attr:`epoch` is the number of the epoch under way. `n` counts from ``start_epoch``, also after
        ``load_state_dict``: a restarted program makes the same call and gets the rest. A loop that ends inside an epoch
        leaves the rest of it out. A second call goes on, too; a :class:`NoEpochLeftWarning` says if nothing is left.
        The workers make no batch of a later epoch, unless the loader is iterated over again.

        Args:
            n: Number of epochs; None for no end.

        >>> import numpy as np, batchup_ng as bu
        >>> with bu.Loader([np.arange(4)], 4, shuffle=1) as loader:
        ...     for (x,) in loader.epochs(2):
        ...         print(loader.epoch, x.tolist())
        0 [2, 0, 3, 1]
        1 [2, 1, 0, 3]
        """
        first = self._shared.first
        return LoaderEpochs(self, first, math.inf if n is None else validation.not_negative("n", n))

    def __len__(self) -> int:
        """Return the number of batches of the next iteration: of an epoch, or of the rest of a resumed epoch.

        Raises:
            TypeError: the epoch never ends, or its length is known only at its end.
        """
        number, state = self._shared.upcoming()
        if state is not None:
            return prepare(self._with_plan(), self._options_of(number), self._shared.prepared or state).n_left()
        return self._batches_in(number)

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches of the next epoch, if it were whole; raises the same errors as ``len``."""
        return self._batches_in(self._shared.upcoming()[0])

    def _batches_in(self, epoch: int, **changes: Any) -> int:
        """Return the number of batches of an epoch, by its options with `changes`."""
        options = dataclasses.replace(self._options_of(epoch), **changes)
        return whole_epoch(self._shared.source.node, self._with_plan, options)

    def __bool__(self) -> bool:
        return True  # otherwise Python would ask for the length, which some loaders do not have

    @validation.known_names(OPTIONS_OF_SOURCES)
    def map(self: LoaderType, fn: Callable[..., Any]) -> LoaderType:
        """Return a view of this loader that hands out ``fn(*batch)``, or ``fn(**batch)`` of a dict.

        ``next`` calls `fn` on your thread and hands out its result unchanged, for example to a framework. A further map
        gets copies of what `fn` keeps. For slow work or some columns map the source: ``source.map(fn, on="x")``.
        If `fn` does not take the columns of a batch, that is a :class:`~batchup_ng.MapCallError`.
        """
        return self.view(mapped(fn))

    def view(self: LoaderType, make: Callable[[Any], Any], check: Callable[[Any], None] | None = None) -> LoaderType:
        """Return a loader that shares everything with this one; `make` converts each of its iterators.

        `check` is called with that loader before each epoch, and may raise an exception.
        """
        copied = copy.copy(self)
        copied._views = (*self._views, make)
        copied._checks = (*self._checks, check) if check is not None else self._checks
        return copied

    @validation.known_names({})
    def batch(self, number: int, epoch: int | None = None) -> Any:
        """Return batch `number` of an epoch, by default of the one under way: see :meth:`batches`."""
        return next(self.batches([number], epoch))

    @validation.known_names({})
    def batches(self, numbers: Iterable[int], epoch: int | None = None) -> Any:
        """Return an iterator of the batches with these numbers in an epoch, in this order, made ahead.

        It has no states, and the epoch under way continues independently. Views, such as from ``map``, are applied.

        Raises:
            ArgumentTypeError: the source only streams, or its order is drawn from a ``RandomState``.
            IndexError: there is no such batch; raised when the batch is about to be made.
        """
        return self._viewed(by_number(self, self._options_of(self.epoch if epoch is None else epoch), numbers))

    @validation.known_names({})
    def replay(self, step: int, rank: int | None = None, attempt: int | None = None) -> Any:
        """Return the batch that the loop got at `step`, by the loader's ledger: see :func:`~batchup_ng.ledger`.

        Args:
            step: The number of the step, counted from 0 over all epochs.
            rank: The rank that got the batch; None for the one of this process.
            attempt: Which attempt, if the run was resumed from before `step`; None for the latest.

        Raises:
            LedgerError: no attempt got so far, or the source is not the one of the ledger.
        """
        ledger = steps_of(self).ledger
        if ledger is None:
            raise ArgumentError("this loader has no ledger; call batchup_ng.ledger(loader, path) with the run's file")
        return next(self._viewed(by_number(self, *ledger.found(self, step, rank, attempt))))

    @validation.known_names({})
    def skip(self, steps: Iterable[int]) -> None:
        """Leave out the batches that would come at these steps, on all ranks; states keep that.

        A step is one batch on every rank, counted from 0 over all epochs. The batches that follow take the numbers of
        the ones left out. All ranks must make this call alike, between two iterations: a loop under way ends, and the
        next iteration goes on at its place. After a resume with another world or batch size, each batch that has a
        sample of the ones left out is left out as a whole.

        Raises:
            ArgumentError: a step was taken already, or is more than 10,000 epochs ahead, or the steps of the loader
                cannot be found again.
            ArgumentTypeError: a step is no whole number.
        """
        self.load_state_dict(state_without(self, steps))

    @property
    def epoch(self) -> int:
        """The number of the epoch under way, or of the next epoch if there is none."""
        iterator = self._under_way()
        return self._shared.upcoming()[0] if iterator is None else int(iterator.epoch)

    @property
    def upcoming_epoch(self) -> int:
        """The number of the next iteration's epoch."""
        return self._shared.upcoming()[0]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, like samplers of PyTorch; does nothing if it is that epoch already."""
        if validation.not_negative("epoch", epoch) != self.upcoming_epoch:
            end(self._shared.move_to(epoch, None, self._shared.order_blocks), "set_epoch()")

    def shard_world(self) -> int:
        """Return the number of processes that share the data."""
        return self._options_of(self._shared.next).shard.world

    def state_dict(self) -> dict[str, Any]:
        """Return the progress: the epoch, and how much of it was handed out; JSON can hold it.

        Raises:
            StateError: in the middle of an epoch: the source only streams, or a ``RandomState`` draws its order.
                Between epochs: the source streams from an iterator with a state of its own.
        """
        shared, iterator = self._shared, self._under_way()
        epoch_state = shared.upcoming()[1] if iterator is None else iterator.state_dict()
        options = self._options_of(self.epoch)
        if epoch_state is None and not isinstance(shared.source.node, UserNode) and options.generator is None:
            epoch_state = prepare(shared.source.node, options).first_state()
        steps = {STEPS: steps_of(self).entry(self)} if shared.steps is not None or shared.skipped else {}
        seed = options.seed if self._seed_drawn else None
        return {"epoch": options.epoch, "seed": seed, "batches": epoch_state, **steps}

    def load_state_dict(self, state: Any, *, adopt: Sequence[str] = ()) -> None:
        """Continue from the place of `state` in the next iteration, or with the next epoch if it is from an end.

        `adopt` names what may differ from the state: see :meth:`~batchup_ng.BatchIterator.load_state_dict`.

        Raises:
            StateError: the state is damaged, or belongs to another source, order or seed, or `adopt` would change
                batches that :meth:`skip` leaves out; nothing has changed.
        """
        number, drawn, epoch_state = loader_state(state, self._seed_drawn)
        steps, shared = saved_steps(state), self._shared
        before = shared.options, shared.checked, shared.skipped
        if not self._seed_drawn and drawn not in (None, self._options_of(number).seed):
            raise StateError(f"this state is of the seed {drawn}, which was drawn; pass shuffle={drawn}, or True")
        begun, order_blocks, history = None, NO_ORDERS, None
        try:
            shared.skipped = () if steps is None else steps.skipped
            if self._seed_drawn:
                shared.options = {**shared.options, "shuffle": with_seed(shared.options["shuffle"], drawn)}
                shared.checked = None if shared.checked is None else epoch_options(**shared.options)
            epoch_state = adopted_by(shared, epoch_state, adopt) if adopt else epoch_state
            if epoch_state is not None:
                options = dataclasses.replace(self._options_of(number), history=None)
                prepared = prepare(self._with_plan(), options, epoch_state)
                at_end, history = prepared.at_its_end, prepared.options.history
                if at_end or prepared.at_its_start:
                    number, epoch_state = number + at_end, None
                elif isinstance(prepared.plan, SamplesPlan):  # a pure function, which may be used again
                    begun = prepared
                if prepared.options.order_blocks:
                    order_blocks = orders_of_state(prepared, number if epoch_state else None)
            left = shared.move_to(number, epoch_state, order_blocks, begun)
            shared.history = history
        except BaseException:
            shared.options, shared.checked, shared.skipped = before
            raise
        if steps is not None or shared.steps is not None:
            resume_steps(shared, steps)
        end(left, "load_state_dict()")

    @validation.known_names({})
    def set_weights(self, weights: Any, *, after: int | None = None) -> None:
        """Set other weights of the mixture, from sample `after` of the epoch under way on, and for all epochs after it.

        The epoch under way keeps its length. The weights are kept in the state: a loader that resumes goes on with
        them. A change that was set for a later sample goes. Call this on the thread that iterates; with several ranks,
        make the same call on each.

        Args:
            weights: As for :func:`~batchup_ng.mix`; one number a part, or weights that change.
            after: Samples that all ranks together hand out before. Default, on a single rank: the first sample of which
                no batch is in the making.

        Raises:
            ArgumentError: the source is no mixture, or none with `length`; a batch with that sample is in the making
                or was handed out; :meth:`skip` leaves out a batch after it; the weights are invalid; or `after` is
                missing with several ranks.
        """
        set_weights(self._shared, weights, after, self._options_of, self._with_plan)

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`state_dict` to a file as JSON: see :meth:`~batchup_ng.BatchIterator.save_state`."""
        write_state(path, self.state_dict())

    def load_state(self, path: str | os.PathLike[str], *, adopt: Sequence[str] = ()) -> None:
        """Continue from the state in a file: see :meth:`load_state_dict`."""
        self.load_state_dict(read_state(path), adopt=adopt)

    def stats(self) -> dict[str, Any]:
        """Return the statistics of the epoch under way, or of the last: see :meth:`~batchup_ng.BatchIterator.stats`."""
        iterator = self._shared.iterator
        return dict(self._shared.closed_report[0] if iterator is None else iterator.stats())

    def metrics(self) -> dict[str, float]:
        """Return measurements of the latest 1,024 batches, by name, for a log: see `docs/metrics.md`.

        It is empty before the first epoch, with ``measure=False``, and for a source that only streams.
        """
        node = self._shared.pool_node
        return metrics(node.meter, node.pool.at_once) if isinstance(node, ParallelNode) and node.meter else {}

    def settings(self) -> dict[str, Any]:
        """Return the pool, workers, buffer and buffer_bytes that are used now, for ``Loader(data, 64, settings=...)``.

        This fixes what ``pool="auto"`` and ``workers="auto"`` have found. Before the first epoch, and for a pool of
        yours, it is what was given. ``"workers"`` is None for the pool that loaders share.
        """
        return settings(self._shared, self._pool_options)

    @validation.known_names({})
    def explain(
        self, *, trial: bool = True, try_it: bool = False, ranks: Any = False, timeout: float = 60.0
    ) -> Explanation:
        """Explain what the loop waits for and what would help: print the result, an :class:`~batchup_ng.Explanation`.

        With `trial`, this thread makes some batches of a copy of the source, for half a second or one batch. That tells
        Python code in the maps of threads from waiting. With `try_it`, it runs the first advice with a copy for up to 5
        seconds, and a loop that sleeps. Fewer than 8 measured batches are an ``ArgumentError``.

        With ``ranks=True``, the ranks of ``torch.distributed`` exchange their figures, and the explanation names the
        straggler. Call it on all ranks: each waits for the others, for up to `timeout` seconds, and raises
        :class:`~batchup_ng.RankTimeout` if one is missing. It is no collective operation, so the group still works
        after that. For other launchers, `ranks` is a function that takes a list of numbers and texts, the figures of
        this rank, and returns those of all ranks: ``MPI.COMM_WORLD.allgather``.
        """
        node, options = self._shared.pool_node, self._options_of(self.epoch)
        return work_pool.explained(node, options, trial, try_it, ranks, timeout)

    @property
    def errors(self) -> list[Any]:
        """The samples that the error policy let pass in the epoch under way, or in the last one."""
        iterator = self._shared.iterator
        return list(self._shared.closed_report[1] if iterator is None else iterator.errors)

    def close(self) -> None:
        """End the epoch under way, and the workers unless the pool is yours; may be called again.

        The state still describes the epoch under way. With a pool of yours, an iteration would continue from there.
        """
        close(self)

    def __enter__(self: LoaderType) -> LoaderType:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self._shared.in_words(self.epoch))}>"

    # -- inside ------------------------------------------------------------------------------------------------

    def _options_of(self, epoch: int) -> EpochOptions:
        shared = self._shared
        options = shared.checked or epoch_options(**shared.options)
        orders: Any = shared.order_blocks[1 if epoch == shared.order_blocks[0] else 2]
        settings = {"order_blocks": orders, "skipped": shared.skipped, "history": shared.history}
        return dataclasses.replace(options, epoch=epoch, numbered=True, **settings)

    def _with_plan(self) -> Node:
        """Return the node that plans epochs and checks states: the source's if it can, without starting anything."""
        node: Node = self._shared.source.node
        return self._pool_node() if isinstance(node, UserNode) else node

    @property
    def in_mid_epoch(self) -> bool:
        """Whether a part of an epoch was handed out, by this loader or before the loaded state."""
        return bool((iterator := self._under_way()) is not None and iterator.asked) or self.begins_in_mid_epoch

    @property
    def begins_in_mid_epoch(self) -> bool:
        """Whether the next iteration goes on inside an epoch, from a state."""
        return self._shared.upcoming()[1] is not None

    def _under_way(self) -> Any:
        """Return the iterator of the epoch under way; None if it is at its end or there is none."""
        iterator = self._shared.iterator
        return None if iterator is None or iterator.at_end else iterator

    def _pool_node(self) -> PoolNode:
        """Return the node whose batches the pool makes; the first call chooses and starts the pool."""
        started: PoolNode | None = self._shared.pool_node if self._shared.lender is None else None
        return started or pool_node(self._shared, self._pool_options, self._options_of)

    def _viewed(self, iterator: Any) -> Any:
        for view in self._views:
            iterator = view(iterator)
        return iterator
