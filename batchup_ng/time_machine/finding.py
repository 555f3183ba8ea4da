"""From a step to its epoch, its batch and the plan of the epoch: arithmetic on the segments of a ledger."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

from ..data_source.epoch.opening import epoch_plan
from ..data_source.epoch_options import SHUFFLE_BLOCKS, EpochOptions, epoch_options
from ..errors import LedgerError
from ..graph.node import Node
from ..sampling.block_shuffle import OrderBlocks
from ..sampling.plans.epoch import START, BatchPlan, Reached
from ..sampling.plans.shortened import Skipped
from .ledger_file import Content, Segment, content_of, read_text


class Taken(NamedTuple):
    """A step of an attempt: its batch is batch `number` of `epoch`. `sure` says whether the attempt got that far."""

    segment: Segment
    epoch: int
    number: int
    sure: bool


def read_ledger(path: str | os.PathLike[str]) -> Content:
    """Return the content of the ledger in a file.

    Raises:
        LedgerError: there is no ledger, or it is damaged.
        OSError: the file cannot be read.
    """
    text = read_text(path)
    if text is None:
        raise LedgerError(f"there is no ledger {os.fspath(path)!r}; batchup_ng.ledger(loader, path) keeps one")
    return content_of(text, path)


def attempts_at(content: Content, step: int, attempt: int | None = None) -> list[Taken]:
    """Return the attempts that may have taken a step, the latest first; only `attempt` if it is given.

    An attempt without a known end may not have got so far. The number may be after the last batch of its epoch.

    Raises:
        LedgerError: there is no such attempt.
    """
    numbers = range(len(content.attempts), 0, -1)
    if attempt is not None and attempt not in numbers:
        raise LedgerError(f"attempt must be a number from 1 to {len(content.attempts)}, not {attempt!r}")
    found = []
    for number in numbers if attempt is None else [attempt]:
        own = [each for each in content.segments if each.attempt == number]
        at = max((place for place, each in enumerate(own) if each.step <= step), default=None)
        if at is None:
            continue
        segment, follows = own[at], at + 1 < len(own)
        if follows or segment.end is None or step < segment.end:
            offset = step - segment.step
            extra, place = divmod(offset, segment.per_epoch) if segment.per_epoch else (0, segment.batch + offset)
            found.append(Taken(segment, segment.epoch + extra, place, follows or segment.end is not None))
    return found


def options_of(taken: Taken, rank: int) -> EpochOptions:
    """Return the options of the epoch of a step."""
    segment = taken.segment
    shuffle = tuple(segment.shuffle) if isinstance(segment.shuffle, list) else segment.shuffle
    blocks = segment.order_blocks
    return dataclasses.replace(
        epoch_options(
            segment.batch_size, shuffle, taken.epoch, segment.drop_last, (rank, segment.world), segment.uneven,
            segment.pad_mask,
        ),
        numbered=True,
        reached=Reached(segment.samples, segment.batches) if taken.epoch == segment.epoch else START,
        order_blocks=None if blocks is None else tuple([OrderBlocks(*each) for each in blocks]),
        skipped=tuple([Skipped(*each) for each in segment.skipped]),
    )  # fmt: skip


def segment_of(options: EpochOptions, plan: BatchPlan, step: int, source: int, attempt: int, whole: bool) -> Segment:
    """Return the segment that begins with the epoch of `options` at `step`.

    `whole` says whether the epochs that follow have as many batches.
    """
    groups = () if options.groups is None else (options.groups,)
    seed = [SHUFFLE_BLOCKS, options.seed, *groups] if options.by_blocks else options.seed
    blocks, shard = options.order_blocks, options.shard
    return Segment(
        attempt=attempt,
        step=step,
        end=None,
        epoch=options.epoch,
        batch=plan.first,
        samples=options.reached.samples,
        batches=options.reached.batches,
        per_epoch=int(plan.n_batches) if whole else None,
        source=source,
        world=shard.world,
        batch_size=options.batch_size,
        shuffle=seed if options.shuffled else None,
        drop_last=options.drop_last,
        uneven=shard.uneven,
        pad_mask=shard.pad_mask,
        order_blocks=None if blocks is None else [list(map(int, each)) for each in blocks],
        skipped=[list(each) for each in options.skipped],
    )


def checked_rank(segment: Segment, rank: int | None, own: int | None, words: str) -> int:
    """Return the rank whose batch is wanted: `rank`, or `own` if it is None. `words` say how to choose one."""
    world = segment.world
    chosen = (own if own is not None and own < world else None) if rank is None else rank
    chosen = 0 if chosen is None and world == 1 else chosen
    if not isinstance(chosen, int) or not 0 <= chosen < world:
        raise LedgerError(
            f"this step was taken by a world of {world}, so {words} must be from 0 to {world - 1}, not {rank!r}"
        )
    return chosen


def plan_at(node: Node, taken: Taken, rank: int) -> BatchPlan | None:
    """Return the plan of the epoch of a step, or None if the epoch has no such batch."""
    plan = epoch_plan(node, options_of(taken, rank))
    return plan if taken.number < plan.n_batches else None


def never_taken(path: Any, content: Content, step: int) -> LedgerError:
    """Return the error of a step that no attempt took."""
    if not content.segments:
        return LedgerError(f"step {step} was never taken: {os.fspath(path)!r} has no steps yet")
    return LedgerError(
        f"step {step} was never taken, as far as {os.fspath(path)!r} knows: the run begins with step "
        f"{min(each.step for each in content.segments)}" + _until(content)
    )


def _until(content: Content) -> str:
    ends = [each.end for each in content.segments if each.end is not None]
    return f" and had ended before step {max(ends)}" if ends and content.segments[-1].end is not None else ""
