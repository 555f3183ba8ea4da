"""The steps of a training loop, which a loader counts over all epochs.

A step is one batch on every rank. A loader counts steps for its ledger, and to leave out batches by their steps. It
counts the batches that the loop got, not those made ahead. The state keeps the count, which is the same on all ranks.
Without a count in the state, all epochs before the present one are taken to be whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import validation
from ..data_source.epoch.history import adopted
from ..data_source.epoch.opening import epoch_plan, prepare
from ..data_source.epoch.state import STEPS, SavedSteps, digest, identity
from ..errors import ArgumentError, ArgumentTypeError, StateError
from ..sampling.plans.epoch import BatchPlan
from ..sampling.plans.shortened import Skipped, positions_of

MAX_SKIPPED = 1_000_000
"""The most steps of one call that leaves batches out."""

MAX_EPOCHS = 10_000
"""The most epochs ahead of a step to leave out."""


class Steps:
    """The number of steps that the loop of a loader has taken.

    Attributes:
        ledger: Notes where epochs begin; None if there is none.
        run: A digest of the source and the seed at the begin of the run. States keep it.
        left: The step at which the loop left off before a state was loaded; None if none was.
    """

    ledger: Any = None
    run: str = ""
    left: int | None = None

    def __init__(self) -> None:
        self._step: int | None = None  # when the epoch under way began; None if it is not known yet
        self._inner: Any = None  # the iterator of that epoch, from its batch `_first` on
        self._plan: Any = None

    def now(self, loader: Any) -> int:
        """Return the number of steps taken, which is the number of the next step."""
        if self._step is None:
            self._find(loader)
        assert self._step is not None
        return self._step + self._taken()

    def begins(self, loader: Any, inner: Any) -> None:
        """Note that an epoch begins. Another call may follow before its first batch."""
        if inner is not self._inner:
            self.settle()
            step = self.now(loader)
            self._step, self._inner, self._plan = step, inner, inner.plan
        if self.ledger is not None:
            try:
                self.ledger.begins(loader, inner, self._step)
            except BaseException:  # the epoch begins again
                self._inner = self._plan = None
                raise

    def passes(self, n_batches: int) -> None:
        """Count the batches of an epoch that came by their numbers."""
        self.settle()
        if self._step is not None:
            self._step += n_batches

    def settle(self) -> None:
        """Count the batches of the epoch under way, whose iterator goes."""
        if self._inner is not None:
            if self._inner.plan is not self._plan:  # a state was loaded into the iterator itself
                self._step = None
            elif self._step is not None:
                self._step += self._taken()
            self._inner = self._plan = None

    def closes(self) -> None:
        """Note that the loader closes."""
        self.settle()
        if self.ledger is not None:
            self.ledger.ends(self._step)

    def goes_on(self, saved: SavedSteps | None) -> None:
        """Go on from a loaded state, after :meth:`settle`."""
        self.left = self._step if self.left is None else self.left
        self._step, self.run = (None, "") if saved is None else saved[:2]

    def entry(self, loader: Any) -> dict[str, Any]:
        """Return what the state of the loader keeps."""
        skipped = [list(each) for each in loader._shared.skipped]
        return {"step": self.now(loader), "run": self.named(loader), "skipped": skipped}

    def named(self, loader: Any) -> str:
        """Return the digest that names the run."""
        if not self.run:
            options = loader._options_of(loader.epoch)
            self.run = digest([identity(loader._shared.source.node)[0], options.seed, options.shuffled])
        return self.run

    def _taken(self) -> int:
        """Return how many batches the loop got of the epoch under way."""
        inner = self._inner
        if inner is None:
            return 0
        progress = inner.epoch_progress() if inner.ahead_of is None else inner.ahead_of.at[1]
        return int(progress[0]) - int(self._plan.first)

    def _find(self, loader: Any) -> None:
        """Find the step from the place of the loader, as if all earlier epochs were whole."""
        shared = loader._shared
        inner, (epoch, state) = shared.inner, shared.upcoming()
        under_way = inner is not None and inner.asked and not inner.broken_off_before_first
        if under_way:
            epoch, self._inner, self._plan = inner.epoch, inner, inner.plan
        options, first = loader._options_of(epoch), 0
        if under_way:
            first = self._plan.first
        elif state is not None:
            first = _planned(prepare(loader._with_plan(), options, shared.prepared or state).plan).first
        self._step = first + epoch * (loader._batches_in(epoch, skipped=()) if epoch else 0)


def steps_of(loader: Any) -> Steps:
    """Return the steps of a loader, which counts them from now on.

    Raises:
        ArgumentError: its source only streams, or a ``RandomState`` draws its order.
    """
    shared = loader._shared
    if not shared.source.is_random_access or loader._options_of(loader.epoch).generator is not None:
        raise ArgumentError(
            "the steps of this loader cannot be found again, for its source only streams or its order is drawn from a "
            "RandomState; use a source with random access, and pass shuffle=<int> or True"
        )
    if shared.steps is None:
        shared.steps = Steps()
    steps: Steps = shared.steps
    return steps


def resume_steps(shared: Any, saved: SavedSteps | None) -> None:
    """Count on from a state that was loaded."""
    if shared.steps is None and saved is not None:
        shared.steps = Steps()
    if shared.steps is not None:
        shared.steps.goes_on(saved)


def leaves_out_after(skipped: Iterable[Skipped], epoch: int, position: int) -> bool:
    """Return whether a batch is left out that ends after a position of an epoch."""
    return any((each.epoch, each.end) > (epoch, position) for each in skipped)


def adopted_by(shared: Any, epoch_state: Any, adopt: Any) -> Any:
    """Return the state of an epoch as one of this source: see :func:`.adopted`.

    Raises:
        StateError: batches to come are left out, and would have other samples.
    """
    made = adopted(epoch_state, shared.source.node, adopt)
    if made is not epoch_state and leaves_out_after(shared.skipped, made["epoch"], made["samples"]):
        raise StateError(
            "this state leaves out batches to come by skip(), and adopt= would give them other samples; load a state "
            "from before skip(), and leave out the rows by subset(exclude=...)"
        )
    return made


def state_without(loader: Any, steps: Iterable[int]) -> dict[str, Any]:
    """Return the state of a loader that leaves out the batches of `steps`.

    Raises:
        ArgumentError: a step was taken already, or comes in none of the next epochs.
    """
    steps_of(loader)
    numbers = sorted({validation.not_negative("steps", step) for step in _limited(steps)})
    state: dict[str, Any] = loader.state_dict()
    at = int(state[STEPS]["step"])
    if numbers and numbers[0] < at:
        raise ArgumentError(
            f"steps must not be below {at}, the next step, and has {numbers[0]}; load a state from before that step "
            f"first"
        )
    node, epoch = loader._with_plan(), int(state["epoch"])
    options = loader._options_of(epoch)
    begun = None if state["batches"] is None else prepare(node, options, state["batches"])
    plan = _planned(epoch_plan(node, options) if begun is None else begun.plan)
    skipped, last = list(map(Skipped._make, state[STEPS]["skipped"])), epoch + MAX_EPOCHS
    for number in numbers:
        while number - at >= plan.n_batches - plan.first:
            at += int(plan.n_batches) - plan.first
            epoch += 1
            if plan.n_batches == plan.first and not loader._batches_in(epoch, skipped=()):
                raise ArgumentError(f"steps has {number}, and the epochs of this loader have no batch so late")
            if epoch > last:
                raise ArgumentError(
                    f"steps has {number}, which is more than {MAX_EPOCHS} epochs ahead; load a state from nearer to it "
                    f"first"
                )
            plan = _planned(epoch_plan(node, loader._options_of(epoch)))
        skipped.append(positions_of(plan, plan.first + number - at))
    state[STEPS]["skipped"] = [list(each) for each in _joined(skipped)]
    return state


def _limited(steps: Any) -> Iterable[int]:
    if isinstance(steps, range) and len(steps) > MAX_SKIPPED:
        raise ArgumentError(f"steps must be at most {MAX_SKIPPED} steps, not {len(steps)}; begin a later epoch instead")
    if not isinstance(steps, (int, np.integer)) and (isinstance(steps, (str, bytes)) or not hasattr(steps, "__iter__")):
        raise ArgumentTypeError(f"steps must be numbers of steps, such as [18234, 18235], not {steps!r:.80}")
    return [int(steps)] if isinstance(steps, (int, np.integer)) else steps


def _joined(skipped: list[Skipped]) -> list[Skipped]:
    """Return the same positions, in order, with neighbours joined."""
    made: list[Skipped] = []
    for each in sorted(skipped):
        last = made[-1] if made else None
        if last is not None and last.epoch == each.epoch and each.first <= last.end:
            made[-1] = last._replace(end=max(last.end, each.end))
        else:
            made.append(each)
    return made


def _planned(plan: BatchPlan | None) -> BatchPlan:
    assert plan is not None  # it has random access
    return plan
