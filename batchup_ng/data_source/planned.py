"""The sources of the library: each shows a node, and opens epochs of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .. import validation
from ..faults.policy import ErrorPolicy
from ..graph.node import Node
from ..graph.user import UserNode
from ..memory.leases import FRESH
from ..randomness import BatchKey
from ..sampling.plans.epoch import BatchPlan
from .epoch.epochs import Epochs, one_epoch, series_of_epochs
from .epoch.iterator import BatchIterator
from .epoch.opening import epoch_plan
from .epoch_options import ADVICE_ON_EPOCH_OPTIONS, ADVICE_ON_EPOCHS_OPTIONS, EPOCH_0, epoch_options
from .faces import FACES
from .source import AbstractDataSource


class PlannedDataSource(AbstractDataSource):
    """A source of the library: over arrays, over other sources, or with a pool. It opens epochs.

    It has a plan if all nodes of its graph have random access; otherwise it streams.
    """

    _node: Any  # of the kind that the class names
    _asks_fingerprint = False

    def __init_subclass__(cls, node: type[Node] | None = None, **options: Any) -> None:
        """Note which class shows this kind of node."""
        super().__init_subclass__(**options)
        if node is not None:
            FACES[node] = cls

    def _show(self, node: Any) -> None:
        """Become the source that shows `node`."""
        node.name = type(self).__name__
        self._node = node

    @property
    def node(self) -> Node:
        """The node of this source in a graph."""
        made: Node | None = vars(self).get("_node")
        return self._users_node() if made is None else made

    def _users_node(self) -> Node:
        return UserNode(self)

    def fingerprint(self) -> list[Any]:
        """Return everything that the order of an epoch depends on, except the seed, in strings, numbers and lists."""
        return self.node.fingerprint()

    @property
    def is_random_access(self) -> bool:
        """Whether batches can be made from row indices, in any order."""
        return self.node.is_random_access

    def num_samples(self, **kwargs: Any) -> Any:
        """Return the number of samples in an epoch: an int, ``numpy.inf``, or None if it is not known."""
        return self.node.num_samples(**kwargs)

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Iterator[Any]:
        """Return an iterator of the rows of each batch: ``(n,) int``, or a nest for sources that combine others.

        The arguments are as for ``plan``.
        """
        if not self.is_random_access:
            raise self.node.no_random_access("batch_indices_iterator")
        return (planned.rows for planned in self.plan(batch_size, shuffle, **options))

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        """Return the batch of the rows `indices`, as the plan has them."""
        if not self.is_random_access:
            raise self.node.no_random_access("samples_by_indices_nomapping")
        return self.node.read(indices, BatchKey(), FRESH)

    def samples_by_indices(self, indices: Any) -> Any:
        """Return the batch of `indices`, which number the rows that the samplers draw from."""
        return self.node.samples_by_indices(indices)

    @validation.known_names(ADVICE_ON_EPOCH_OPTIONS)
    def plan(self, batch_size: int, shuffle: Any = None, *, epoch: int = EPOCH_0, drop_last: bool = False) -> BatchPlan:
        """Return the plan of an epoch: ``len(plan)``, ``plan[k]`` -> number, rows and key of batch k.

        The arguments are as for :meth:`batch_iterator`.

        Raises:
            TypeError: the source has no random access.
        """
        return epoch_plan(self.node, epoch_options(batch_size, shuffle, epoch=epoch, drop_last=drop_last).opened())

    @validation.known_names(ADVICE_ON_EPOCH_OPTIONS, unless=lambda source: source.node.traits.takes_options)
    def batch_iterator(
        self,
        batch_size: int,
        shuffle: Any = None,
        *,
        epoch: int = EPOCH_0,
        drop_last: bool = False,
        shard: Any = None,
        uneven: str = "pad",
        pad_mask: bool = False,
        on_error: str | ErrorPolicy | None = None,
        state: Any = None,
        **own: Any,
    ) -> BatchIterator:
        """Return an iterator of the batches of one epoch. A pool begins to make them now.

        Args:
            batch_size: Samples per batch. The last batch may have fewer.
            shuffle: None: in order. An int: a seed; the order is a function of it and of `epoch`. True: the seed is
                drawn from NumPy's global state when the epoch opens; a ``numpy.random.Generator``: from that. A
                ``RandomState``: the order is drawn from it, exactly as in BatchUp. ``("blocks", seed)``: a function of
                the seed, with a :class:`~batchup_ng.BlockShuffleSampler`. The accessors choose its blocks, which are
                cheap to read together, and how many to mix at a time. With `shard` each rank reads blocks of its own,
                and the order depends on the number of ranks, unless ``("blocks", seed, groups)`` gives a number of
                groups. ``"blocks"`` draws its seed as True does.
            epoch: Number of the epoch. With a seed, each number has its own order; :meth:`epochs` counts the numbers.
                If only `state` is given, its number applies.
            drop_last: Whether to leave out a last batch that is not whole.
            shard: ``(rank, world)`` or ``"auto"``: the part of one of several processes. All have the same number of
                batches, and batch k of rank r is batch k·world + r of all. ``"auto"`` reads the environment that
                torchrun, JAX, MPI or SLURM set.
            uneven: ``"pad"``, ``"drop"`` or ``"error"``: what to do if the samples at the end cannot be divided evenly;
                see :class:`~batchup_ng.sampling.plans.epoch.Shard`.
            pad_mask: Whether each batch ends with an array, ``(n,) bool``, that is False where a sample only pads; in a
                dict it is the column ``"pad_mask"``. The n samples are the planned ones, even if maps return more or
                fewer, without those that ``on_error="skip"`` left out.
            on_error: Action on samples that cannot be made: ``"raise"`` an error that names the sample, the default;
                ``"skip"`` it; ``"replace"`` it by another; or an :class:`~batchup_ng.ErrorPolicy`. The default of a
                pool's source is the policy given to ``parallel_data_source``.
            state: Resume from this result of ``state_dict`` of an iterator of this epoch, here or elsewhere.
            **own: Options for the user's function in a :class:`~batchup_ng.CallableDataSource`, if there is one.

        Raises:
            ArgumentError: the batch size is below 1, or an option has a value that is not allowed.
            ArgumentTypeError: an option is misspelt, or of a wrong kind.
            StateError: the state is damaged, or belongs to another source, order, seed or epoch.
        """
        began = time.perf_counter()
        options = epoch_options(batch_size, shuffle, epoch, drop_last, shard, uneven, pad_mask, on_error, own)
        iterator = one_epoch(self.node, options, state)
        iterator.start_seconds = time.perf_counter() - began
        return iterator

    @validation.known_names(
        ADVICE_ON_EPOCHS_OPTIONS, lambda source: source.node.traits.takes_options, renamed={"start": "start_epoch"}
    )
    def epochs(
        self,
        n: int | None,
        batch_size: int,
        shuffle: Any = None,
        *,
        start_epoch: int = 0,
        drop_last: bool = False,
        shard: Any = None,
        uneven: str = "pad",
        pad_mask: bool = False,
        on_error: str | ErrorPolicy | None = None,
        state: Any = None,
        **own: Any,
    ) -> Epochs:
        """Return an iterator of epochs. Each is an iterator of its batches, and its ``epoch`` is its number.

        A pool keeps its buffer full from one epoch to the next: when all batches of an epoch are under way, it makes
        the first batches of the next, within the same ``buffer`` and ``buffer_bytes``. (With a
        ``RandomState``, or with ``pool.prefetch``, an epoch begins only when it is requested.) A request for the next
        epoch closes an unfinished iterator, whose ``next()`` then raises ``PoolClosed``. So do not collect these
        iterators in a list; loop over one after the other.

        Args:
            n: Number of epochs; None for no end.
            batch_size: This and the other arguments not listed here are as for :meth:`batch_iterator`.
            start_epoch: Number of the first epoch.
            state: Resume from this result of ``state_dict`` of one of the iterators, in the middle of its epoch, and
                continue with the epochs that follow. `n` counts from `start_epoch`, so a restarted program makes the
                same call.

        Raises:
            StateError: the state is damaged, or belongs to an epoch that is not in this range.

        >>> import numpy as np, batchup_ng as bu
        >>> for batches in bu.ArrayDataSource([np.arange(3)]).epochs(2, batch_size=2):
        ...     print(batches.epoch, [x.tolist() for (x,) in batches])
        0 [[0, 1], [2]]
        1 [[0, 1], [2]]
        """
        first = validation.not_negative("start_epoch", start_epoch)
        options = epoch_options(batch_size, shuffle, first, drop_last, shard, uneven, pad_mask, on_error, own)
        return series_of_epochs(self.node, options, n, state)
