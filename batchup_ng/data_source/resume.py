"""Where an epoch is saved and entered again.

What is in batch k of an epoch is a function of the source, the seed, the epoch, the batch size and the world. So a state
needs to say no more than that and how far the epoch is: whoever resumes makes the plan anew and begins in its middle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .. import randomness
from ..errors import ArgumentTypeError, StateError
from ..sampling.plan import BatchPlan, SamplesPlan
from .books import Books
from .iterator import Engine, Epoch
from .node import SourceNode
from .options import EpochOptions
from .state import SavedEpoch, as_state, digest, from_state

MOST_TOLD = 200
"""Characters of a state that tell what the source looked like."""


def open_epoch(
    source: SourceNode,
    options: EpochOptions,
    state: Any,
    plan_of: Callable[[EpochOptions], BatchPlan],
    engine_of: Callable[[BatchPlan, EpochOptions], tuple[Engine, Books | None]],
) -> Epoch:
    """Return an epoch that has a plan.

    Args:
        source: Makes the batches.
        options: What was asked for.
        state: From where on; None from the beginning.
        plan_of: Makes the plan.
        engine_of: Makes the engine, with the books that it keeps, if it keeps any.

    Raises:
        StateError: the state is damaged, or is that of another source, order, seed or epoch.
    """
    asked, saved = options, None
    if state is not None:
        options, saved = resumed(source, options, state)
    resumable = Resumable(source, options)
    plan = plan_of(options)
    if saved is not None and not isinstance(plan, SamplesPlan):
        _check_cut(options, saved)
    engine, books = engine_of(plan, options)
    if saved is not None:
        books = Books() if books is None else books
        books.carry(plan.first, saved.counts)

    def reopen(state: Any) -> Epoch:
        return open_epoch(source, asked, state, plan_of, engine_of)

    return Epoch(engine, lambda: plan.n_batches, True, books, lambda now: resumable.state(plan, now), reopen)


class Resumable:
    """Saves how far an epoch is.

    Args:
        source: Makes the batches.
        options: What was asked for.
    """

    def __init__(self, source: SourceNode, options: EpochOptions) -> None:
        self._source = source
        self._options = options
        # The generator is drawn from as the epoch goes on; what is saved is how it was before.
        self._before = None if options.rng is None else randomness.copy_of(options.rng)

    def state(self, plan: BatchPlan, books: Books) -> dict[str, Any]:
        """Return the state after the batches that are in the books.

        Raises:
            StateError: the order is drawn from a generator whose state cannot be had.
        """
        options, reached = self._options, plan.reached(books.batches)
        outline = self._source.outline()
        return as_state(
            SavedEpoch(
                source=digest(outline),
                told=_told(outline),
                order=order_of(options),
                seed=options.seed,
                epoch=options.epoch,
                batch_size=options.batch_size,
                world=options.shard.world,
                samples=reached.samples,
                batches=reached.batches,
                counts=books.counts(),
                generator=self._generator(),
            )
        )

    def _generator(self) -> Any:
        if self._before is None:
            return None
        try:
            return randomness.state_of(self._before)
        except ArgumentTypeError as error:
            raise StateError(str(error)) from error


def order_of(options: EpochOptions) -> str:
    """Return what the order of an epoch is a function of, in a word."""
    if options.rng is not None:
        return "generator"
    return "seed" if options.shuffled else "in order"


def resumed(source: SourceNode, options: EpochOptions, state: Any) -> tuple[EpochOptions, SavedEpoch]:
    """Return the options of what is left of an epoch, with what the state says; puts the generator back, if any.

    Args:
        source: Makes the batches.
        options: What was asked for; without ``epoch=`` it is the state's.
        state: What ``state_dict`` returned.

    Raises:
        StateError: the state is damaged, or is that of another source, order, seed or epoch.
    """
    saved = from_state(state)
    outline = source.outline()
    if saved.source != digest(outline):
        raise StateError(
            f"this state is of another source: it was saved from {saved.told}, and this is {_told(outline)}; the graph, "
            f"the lengths and the samplers must be the same"
        )
    order = order_of(options)
    if saved.order != order:
        raise StateError(f"this state is of an epoch whose order is by {saved.order!r}, and this one's is by {order!r}")
    if order == "seed" and saved.seed != options.seed:
        raise StateError(f"this state is of shuffle={saved.seed}, and this epoch of shuffle={options.seed}")
    if "epoch" in options.given and saved.epoch != options.epoch:
        raise StateError(
            f"this state is of epoch {saved.epoch}, and epoch={options.epoch} was asked for; leave epoch= out, or pass "
            f"the state to that epoch alone"
        )
    if order == "generator":
        _check_cut(options, saved)
        try:
            randomness.put_state(options.rng, saved.generator)
        except ValueError as error:
            raise StateError(f"this state is of another kind of generator: {error}") from error
    options = dataclasses.replace(options, seed=saved.seed, epoch=saved.epoch, reached=saved.reached)
    return options, saved


def _check_cut(options: EpochOptions, saved: SavedEpoch) -> None:
    """Refuse another batch size, where batches are what is in order."""
    if saved.batch_size != options.batch_size:
        raise StateError(
            f"this state is of batches of {saved.batch_size} samples, and batch_size is {options.batch_size}; the order "
            f"of this source (a choice of sources, rounds of one, or a generator's) is one of batches, which only goes on "
            f"with the same size"
        )


def _told(outline: Any) -> str:
    """Return an outline in a few words."""
    text = _words(outline)
    return text if len(text) <= MOST_TOLD else f"{text[: MOST_TOLD - 1]}…"


def _words(outline: Any) -> str:
    if not isinstance(outline, list):
        return str(outline)
    name, *parts = outline or [""]
    if not isinstance(name, str):
        return "…"
    inner = ", ".join(_words(part) for part in parts if part is not None)
    return f"{name}({inner})" if inner else name
