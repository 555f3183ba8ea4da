"""Where an epoch is saved and entered again.

What is in batch k of an epoch is a function of the source, the seed, the epoch, the batch size and the world. So a
state needs to say no more than that and how far the epoch is: whoever resumes makes the plan anew and begins in its
middle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ... import randomness
from ...errors import ArgumentTypeError, StateError
from ...sampling.plans.epoch import BatchPlan, SamplesPlan
from ...sampling.plans.sharding import Reached
from ..draws import Draws
from ..epoch_options import EpochOptions
from .accounting import Accounting
from .iterator import Engine, Epoch
from .state import SavedEpoch, as_state, digest, from_state

OF_BATCHES = "a choice of sources, rounds of one, buckets, or a generator's"
"""What kinds of order are of batches, not of samples, in words."""

MAX_TOLD = 250
"""Bytes of a state, as JSON, that tell what the source looked like; a generator's own state leaves 350 of 4 kB."""


class Fingerprinted(Protocol):
    """The part of a source that a state tells of."""

    def fingerprint(self) -> list[Any]: ...


class RunsPlans(Fingerprinted, Protocol):
    """The part of a source by which an epoch with a plan is opened."""

    def plan_of(self, options: EpochOptions) -> BatchPlan: ...

    def start_plan(self, plan: BatchPlan, options: EpochOptions, seam: Any) -> tuple[Engine, Accounting]:
        """Return what makes the batches of a plan, with the accounting that it keeps."""
        ...


def open_epoch(source: RunsPlans, options: EpochOptions, state: Any, seam: Any = None) -> Epoch:
    """Return an epoch that has a plan.

    Args:
        source: Makes the batches.
        options: What was asked for.
        state: From where on; None from the beginning.
        seam: Leads to the next epoch, where one follows.

    Raises:
        StateError: the state is damaged, or is that of another source, order, seed or epoch.
    """
    asked, saved = options, None
    if state is not None:
        options, saved = resumed(source, options, state)
    with _generator_put_back(options, saved):
        options = _watched(options)
        resumable = Resumable(source, options)
        plan = source.plan_of(options)
        if saved is not None and not isinstance(plan, SamplesPlan):
            _check_cut(options, saved)
        runner, accounting = source.start_plan(plan, options, seam)
    if saved is not None:
        accounting.carry(plan.first, saved.counts)

    def reopen(state: Any) -> Callable[[], Epoch]:
        epoch = open_epoch(source, asked, state, seam)
        return lambda: epoch

    def state_now(now: Accounting) -> dict[str, Any]:
        batches, counts = now.counted()
        return resumable.state(plan.reached(batches), counts)

    return Epoch(runner, options.epoch, lambda: plan.n_batches, True, accounting, state_now, reopen)


def _watched(options: EpochOptions) -> EpochOptions:
    """Return the options of an epoch that can tell where its draws from a generator began."""
    return options if options.rng is None else dataclasses.replace(options, draws=Draws(options.rng))


@contextlib.contextmanager
def _generator_put_back(options: EpochOptions, saved: SavedEpoch | None) -> Iterator[None]:
    """Put the generator in the state that was saved, if any; if the epoch then cannot be opened, as it was.

    Raises:
        StateError: the state is of another kind of generator.
    """
    if saved is None or saved.order != "generator":
        yield
        return
    try:
        before = randomness.state_of(options.rng)
    except ArgumentTypeError as error:
        raise StateError(str(error)) from error
    try:
        try:
            randomness.put_state(options.rng, saved.generator)
        except ValueError as error:
            raise StateError(f"this state is of another kind of generator: {error}") from error
        yield
    except BaseException:
        randomness.put_state(options.rng, before)
        raise


class Resumable:
    """Saves how far an epoch is.

    Args:
        source: Makes the batches.
        options: What was asked for.
        order: What the order is by; ``""`` is as the options say.
    """

    def __init__(self, source: Fingerprinted, options: EpochOptions, order: str = "") -> None:
        self._source = source
        self._options = options
        self._order = order or order_of(options)

    def state(self, reached: Reached, counts: dict[str, int], inner: Any = None) -> dict[str, Any]:
        """Return the state after the batches that are in the accounting.

        Args:
            reached: How far that is.
            counts: What the accounting say.
            inner: The state of a stream.

        Raises:
            StateError: the order is drawn from a generator whose state cannot be had.
        """
        options = self._options
        source, told = self._fingerprinted
        return as_state(
            SavedEpoch(
                source=source,
                told=told,
                order=self._order,
                seed=options.seed,
                epoch=options.epoch,
                batch_size=options.batch_size,
                drop_last=options.drop_last,
                world=options.shard.world,
                samples=reached.samples,
                batches=reached.batches,
                counts=counts,
                generator=None if options.draws is None else options.draws.state(),
                inner=inner,
            )
        )

    @functools.cached_property
    def _fingerprinted(self) -> tuple[str, str]:
        """The digest of the fingerprint of the source, and what it looks like; made when a state is first asked for."""
        return _outline_of(self._source)


def order_of(options: EpochOptions) -> str:
    """Return what the order of an epoch is a function of, in a word."""
    if options.rng is not None:
        return "generator"
    return "seed" if options.shuffled else "in order"


def resumed(
    source: Fingerprinted, options: EpochOptions, state: Any, order: str = ""
) -> tuple[EpochOptions, SavedEpoch]:
    """Return the options of what is left of an epoch, with what the state says.

    Args:
        source: Makes the batches.
        options: What was asked for; without ``epoch=`` it is the state's.
        state: What ``state_dict`` returned.
        order: What the order is by; ``""`` is as the options say.

    Raises:
        StateError: the state is damaged, or is that of another source, order, seed or epoch.
    """
    saved = from_state(state)
    own, told = _outline_of(source)
    if saved.source != own:
        raise StateError(
            f"this state is of another source: it was saved from {saved.told}, and this is {told}; the "
            f"graph, the lengths and the samplers must be the same"
        )
    order = order or order_of(options)
    if saved.order != order:
        hint = f"; pass shuffle={saved.seed}" if saved.order == "seed" else ""
        raise StateError(
            f"this state is of an epoch whose order is by {saved.order!r}, and this one's is by {order!r}{hint}"
        )
    if (order == "seed" or (order == "stream" and options.rng is None)) and saved.seed != options.seed:
        raise StateError(f"this state is of shuffle={saved.seed}, and this epoch of shuffle={options.seed}")
    if options.numbered and saved.epoch != options.epoch:
        raise StateError(
            f"this state is of epoch {saved.epoch}, and epoch={options.epoch} was asked for; leave epoch= out, or pass "
            f"the state to that epoch alone"
        )
    if order == "generator":
        _check_cut(options, saved)
    options = dataclasses.replace(options, seed=saved.seed, epoch=saved.epoch, reached=saved.reached)
    return options, saved


def _check_cut(options: EpochOptions, saved: SavedEpoch) -> None:
    """Refuse another batch size, or other last batches, where batches are what is in order."""
    if saved.batch_size != options.batch_size:
        raise StateError(
            f"this state is of batches of {saved.batch_size} samples, and batch_size is {options.batch_size}; the "
            f"order of this source ({OF_BATCHES}) is one of batches, which only goes on with the same size"
        )
    if saved.drop_last != options.drop_last:
        raise StateError(
            f"this state is of an epoch with drop_last={saved.drop_last}, and drop_last is {options.drop_last}; the "
            f"order of this source ({OF_BATCHES}) is one of batches, which only goes on with the same ones"
        )


def _outline_of(source: Fingerprinted) -> tuple[str, str]:
    """Return the digest of the fingerprint of a source, and what the source looks like.

    Raises:
        StateError: JSON cannot hold what a class of the user's tells there.
    """
    fingerprint = source.fingerprint()
    try:
        return digest(fingerprint), _told(fingerprint)
    except (TypeError, ValueError) as error:
        raise StateError(
            f"fingerprint() of a source or sampler must return strings, numbers and lists, so that states can be "
            f"told from those of others: {error}"
        ) from error


def _told(fingerprint: Any) -> str:
    """Return an fingerprint in a few words; where they are cut off, a digest of all of it tells it from others."""
    text = _words(fingerprint)
    if _json_bytes(text) <= MAX_TOLD:
        return text
    end = f"... #{digest(fingerprint)[:6]}"
    ends = itertools.accumulate(map(_json_bytes, text))
    kept = sum(1 for _ in itertools.takewhile(lambda n: n <= MAX_TOLD - len(end), ends))
    return text[:kept] + end


def _json_bytes(text: str) -> int:
    """Return how many bytes JSON takes for what stands between the quotes: up to 12 for one character."""
    return len(json.dumps(text)) - 2


def _words(fingerprint: Any) -> str:
    if not isinstance(fingerprint, list):
        return str(fingerprint)
    name, *parts = fingerprint or [""]
    if not isinstance(name, str):
        return f"#{digest(fingerprint)[:6]}"  # of an array or a list: enough to tell that it is another
    inner = ", ".join(_words(part) for part in parts if part is not None)
    return f"{name}({inner})" if inner else name
