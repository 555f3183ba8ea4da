"""The runners that make each batch on request, on the consumer's own thread. Every pool must give their batches."""

from __future__ import annotations

import functools
import threading
from collections.abc import Generator, Iterator
from typing import Any

from ...batch import NOTHING_LEFT
from ...batch_layout import finished
from ...errors import PoolClosed, ReentrantIteration
from ...faults.isolation import PartialBatch
from ...faults.policy import RAISE
from ...graph.node import Node
from ...interpreter import alone, close_alone
from ...memory.leases import Buffers
from ...sampling.plans.rows import planned_samples
from .accounting import Accounting, count_of
from .checkpoint import inner_state
from .failures import Failures, check_replaced
from .prepared import Epoch
from .reading import MakeBatch
from .runner import CLOSED_WHILE_WAITING, Runner

Batches = Generator[Any, None, None]


class DirectRunner(Runner):
    """A runner that takes each batch from an iterator on request. One thread at a time runs or closes this iterator."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._turn = threading.RLock()

    @alone("_turn")
    def __next__(self) -> Any:
        try:
            return next(self._batches)
        except StopIteration:
            if self.closed and not self.at_end:
                raise PoolClosed(CLOSED_WHILE_WAITING) from None
            self.at_end = True
            raise
        except BaseException:
            self.closed = True  # the generator has now ended, but the epoch has not
            raise

    def check_caller(self) -> None:
        if getattr(self._batches, "gi_running", False):
            raise ReentrantIteration(
                "the next batch of this iterator was asked for while one is being made: by its map or generator, which "
                "should iterate over a second batch_iterator there, or by another thread, for which a pool has room"
            )

    def close(self) -> None:
        self.closed = True
        close_alone(self._batches.close, self._turn)


def direct_batches(node: Node, epoch: Epoch, buffers: Buffers) -> Batches:
    """Yield the batches of an epoch that has a plan, in memory from `buffers`."""
    options, plan, accounting, policy = epoch.options, epoch.plan, epoch.accounting, epoch.options.policy or RAISE
    assert plan is not None
    if policy.action == "replace":
        check_replaced(node)
    failures = Failures(node, epoch, policy)
    # With an int seed, all draws are a function of it. Otherwise the user's generators continue, as in BatchUp.
    seeded = options.shuffled and node.traits.runs_user_code
    make = MakeBatch(policy.action, policy.retries, options.shard.pad_mask, True, seeded, policy.types)
    for planned in plan:
        _, rows, key = planned
        batch = make(node, rows, key, buffers)
        remade = functools.partial(make.__call__, node, key=key, buffers=buffers)
        if type(batch) is not PartialBatch:
            n = planned_samples(rows, batch)
            if batch is NOTHING_LEFT:
                batch = failures.filled(planned, remade)
            accounting.record(planned.number, n, n, 0, "" if batch is NOTHING_LEFT else "memory")
        else:
            partial = failures.resolved(planned, batch, remade)
            if partial.batch is NOTHING_LEFT:
                partial.batch = failures.filled(planned, remade)
            failures.record(planned, partial, "memory")
            batch = partial.batch if partial.is_handed_out else NOTHING_LEFT
            del partial
        if batch is not NOTHING_LEFT:
            yield batch
        del batch
    failures.check_some_delivered()


def streamed_batches(batches: Iterator[Any], accounting: Accounting, buffers: Buffers | None) -> Batches:
    """Yield the batches of a stream, each after it is in the accounting. If `buffers` is None, yield them unchanged."""
    end = object()
    while True:
        batch = next(batches, end) if buffers is None else finished(next(batches, end), buffers)
        if batch is end:
            return
        n = count_of(batch)
        accounting.record(accounting.batches, n, n, 0, "memory" if batch is not NOTHING_LEFT else "")
        if batch is not NOTHING_LEFT:
            yield batch
        del batch


class StreamRunner(DirectRunner):
    """A runner for streams. It keeps the state of the stream after the last delivered batch.

    If `owner` can save the user's iterator, the runner takes its state after each batch. It cannot wait: if a map fails
    or an interrupt comes, the iterator is already past a batch that was not handed out.
    """

    def __init__(self, batches: Batches, owner: Any, epoch: Epoch) -> None:
        super().__init__(batches)
        self._now = functools.partial(inner_state, owner, epoch.options)
        self.latest = self._now()

    def __next__(self) -> Any:
        batch = super().__next__()
        self.latest = self._now()
        return batch
