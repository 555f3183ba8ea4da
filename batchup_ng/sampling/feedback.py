"""A sampler that draws the rows with a large loss more often.

The chances of an epoch are a function of the updates of the epochs up to the last but one. So the order of an epoch is
known when workers begin to make it, while the loop is still in the epoch before.
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError, InOrderNotSupported, StateError
from ..randomness import OrderKey, unit_floats, words_at
from .base import RandomAccessSampler, given_array
from .plans.drawn import DrawnKey
from .plans.even_interleave import latest
from .plans.rows import RowPlan
from .standard import row_numbers
from .weight_table import WeightTable

LAG = 2
"""The updates of an epoch take effect in the epoch so many later."""

KEPT = 3
"""Epochs whose chances are kept."""

VERSION = 1
"""Of the states."""

WHOLE = 0
"""The number of ranks in a state with no report of this rank: the state of each rank is the same."""

Updates = tuple[np.ndarray, np.ndarray]
"""Rows, ``(m,) int64``, and their losses, ``(m,) float64``."""


class FeedbackSampler(RandomAccessSampler):
    """Draws rows at random, with replacement, those with a large loss more often: prioritized sampling.

    The loop reports the losses of each batch: ``sampler.update(batch["index"], losses, epoch=loader.epoch)``, with the
    rows of ``source.with_index()``, the last step before ``sample(sampler)``. The losses of epoch e take effect in
    epoch e + 2, because workers begin epoch e + 1 while epoch e is not done. Epochs 0 and 1 draw all rows equally
    often. For a shorter lag make shorter epochs by `num_samples`. The same updates give the same batches, in every pool
    and on any number of ranks.

    A row with the loss l is drawn in proportion to l to the power of `alpha`; a row without a loss, as if it had the
    largest one. Of all draws, the share `floor` falls on all rows equally. Several losses of a row in one epoch count
    as their largest. The chances are those of Schaul et al., "Prioritized experience replay", arXiv 1511.05952,
    equation 1, with a floor in place of their small constant.

    On several ranks, each reports its own batches. With the first report of an epoch, the ranks exchange all reports of
    the epoch before, by ``torch.distributed.all_gather_object`` if a process group is there, or by `gather`. So all
    ranks must report in each epoch. With neither, ``shard=`` raises an error. A copy of the sampler has no `gather`.

    To resume, save ``sampler.state_dict()`` with the state of the loader, and load both. Memory: 32 bytes a row.

    Args:
        n: Number of rows of the data.
        alpha: How much the loss counts: 0 draws all rows equally often, 1 in proportion to the loss.
        floor: Share of the draws, from 0 to 1, that falls on all rows equally often.
        num_samples: Draws of an epoch. Default: `n`.
        gather: Returns the values of all ranks for the value of this one, such as ``MPI.COMM_WORLD.allgather``. The
            first report calls it once more, for the number of ranks, which states contain.

    Raises:
        ArgumentError: a number is out of range.
        ArgumentTypeError: an argument is of the wrong kind.

    >>> sampler = FeedbackSampler(4, alpha=1, floor=0)
    >>> sampler.update([0, 1, 2, 3], [1.0, 1.0, 2.0, 4.0], epoch=0)
    >>> sampler.update([0], [1.0], epoch=1)     # the first report of epoch 1: epoch 0 is complete
    >>> sampler.chances(epoch=2)
    array([0.125, 0.125, 0.25 , 0.5  ])
    """

    block = 512
    n_rows: int

    @validation.known_names({})
    def __init__(
        self,
        n: int,
        alpha: float,
        *,
        floor: float = 0.05,
        num_samples: int | None = None,
        gather: Callable[[Any], Sequence[Any]] | None = None,
    ) -> None:
        self.length = self.n_rows = validation.positive_int("n", n)
        self.alpha = _from_0("alpha", alpha, 100.0)
        self.floor = _from_0("floor", floor, 1.0)
        self.num_samples = self.n_rows if num_samples is None else validation.positive_int("num_samples", num_samples)
        if gather is not None and not callable(gather):
            raise ArgumentTypeError(f"gather must be a function, not {gather!r:.80}; pass comm.allgather, for example")
        self._gather = gather
        self._place: tuple[int, int] | None = None  # rank and world by `gather`, once there was a report
        self._losses = {-1: np.full(self.n_rows, np.nan)}  # after all updates up to this epoch; the latest few
        self._epoch = 0  # whose updates are collected
        self._reported = False  # whether there was any, also an empty one
        self._updates: list[Updates] = []
        self._tables: dict[int, WeightTable] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A copy in a worker makes no order and gets no report.
        return {**vars(self), "_tables": {}, "_gather": self._gather and _gather_of_copy}

    def fingerprint(self) -> list[Any]:
        return [type(self).__name__, self.n_rows, self.alpha, self.floor, self.num_samples, VERSION]

    def num_indices_generated(self) -> Any:
        return self.num_samples

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        if key is None:
            raise InOrderNotSupported("a FeedbackSampler draws at random and has no order; pass shuffle=, an int seed")
        if isinstance(key, DrawnKey):
            raise ArgumentTypeError("a FeedbackSampler needs the number of the epoch; pass an int as shuffle=")
        self._table(key.epoch)
        return super().row_plan(batch_size, key, drop_last)

    def check_world(self, world: int) -> None:
        if world > 1 and self._gather is None and _group() is None:
            raise ArgumentError(
                f"a FeedbackSampler on {world} ranks needs the losses of all ranks; call "
                f"torch.distributed.init_process_group before the loop, or pass gather=, such as "
                f"MPI.COMM_WORLD.allgather (or lambda own: [own], if update gets the losses of all ranks in each)"
            )

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        if key is None:
            raise InOrderNotSupported("a FeedbackSampler draws at random and has no order; pass shuffle=, an int seed")
        return self._table(key.epoch).rows_at(unit_floats(words_at(key.word("feedback"), positions)))

    # -- the loop ----------------------------------------------------------------------------------------------------

    def update(self, rows: Any, losses: Any, epoch: int) -> None:
        """Report the losses of a batch. The first report of an epoch completes the one before.

        Args:
            rows: The rows of the batch, ``(m,) int``, as ``with_index()`` numbers them.
            losses: The loss of each: ``(m,)``, not negative. Tensors of torch must be on the CPU.
            epoch: The epoch of the batch: ``loader.epoch`` in the loop.

        Raises:
            ArgumentError: a row or a loss is out of range, a later epoch was reported before, the epoch before has no
                report, or `gather` does not return the values of all ranks.
            ArgumentTypeError: rows are not whole numbers, or losses are not numbers.
        """
        number = validation.not_negative("epoch", epoch)
        given = self._given_rows(rows)
        values = _given_losses(losses)
        if len(values) != len(given):
            raise ArgumentError(f"losses must be one for each of the {len(given)} rows, not {len(values)}")
        if not (np.isfinite(values) & (values >= 0)).all():
            place = int(np.argmin(np.isfinite(values) & (values >= 0)))
            raise ArgumentError(
                f"losses must be finite and not negative, and row {given[place]} has {values[place]}; leave "
                f"such rows out"
            )
        if number < self._epoch:
            raise ArgumentError(f"epoch must be at least {self._epoch}, which was reported already, not {number}")
        if number > self._epoch + 1:
            raise ArgumentError(
                f"epoch {self._epoch} must be reported before epoch {number}; call update for each batch, and load the "
                f"sampler's state when you resume"
            )
        if self._gather is not None and self._place is None:
            self._place = _place_by(self._gather)
        if number > self._epoch:
            self._complete()
        self._reported = True
        self._updates.append((given, values))

    def _given_rows(self, rows: Any) -> np.ndarray:
        given = row_numbers("rows", rows) if np.size(rows) else np.zeros(0, np.int64)
        if len(given) and not 0 <= int(given.min()) <= int(given.max()) < self.n_rows:
            raise ArgumentError(
                f"rows must be from 0, below {self.n_rows}, and reach from {given.min()} to {given.max()}; number them "
                f"by with_index() below the sampler"
            )
        return given

    def _complete(self) -> None:
        """Complete the epoch under way with the reports of all ranks."""
        gather = self._gather or _of_all_ranks
        of_ranks = gather((self._reported, *_joined(self._updates)))
        if not any(reported for reported, *_ in of_ranks):
            raise ArgumentError(
                f"epoch {self._epoch} must be reported before the next one, and no rank has; call update for each "
                f"batch, with empty lists if there are no losses, and load the sampler's state when you resume"
            )
        new = np.full(self.n_rows, np.nan)
        for _, rows, losses in of_ranks:
            np.fmax.at(new, rows, losses)  # in any order of the ranks
        before = self._losses[self._epoch - 1]
        self._losses[self._epoch] = np.where(np.isnan(new), before, new)
        self._losses.pop(self._epoch - KEPT, None)
        self._epoch, self._reported, self._updates = self._epoch + 1, False, []

    # -- chances -----------------------------------------------------------------------------------------------------

    def chances(self, epoch: int) -> np.ndarray:
        """Return the chance of each row in each draw of an epoch: ``(n,) float64``, summing to 1.

        Raises:
            StateError: the updates of the last epoch but one are not complete, or the chances are no longer kept.
        """
        return self._table(validation.not_negative("epoch", epoch)).normalised.copy()

    def importance(self, rows: Any, epoch: int, beta: float = 1.0) -> np.ndarray:
        """Return the weights for the losses of rows that correct for their chances, ``(m,) float64``.

        They are (n P)^-`beta` with the chance P of a row. With `beta` 1 the mean of the weighted losses is an estimate
        of the mean loss of all rows without bias.

        Raises:
            ArgumentError: a row is out of range.
            StateError: as for :meth:`chances`.
        """
        given = self._given_rows(rows)
        power = -_from_0("beta", beta, 100.0)
        return np.asarray((self.n_rows * self.chances(epoch)[given]) ** power)

    def _table(self, epoch: int) -> WeightTable:
        return latest(self._tables, epoch, KEPT, lambda: WeightTable("losses", self._weights(epoch)))

    def _weights(self, epoch: int) -> np.ndarray:
        wanted = max(epoch - LAG, -1)
        losses = self._losses.get(wanted)
        if losses is None and wanted >= self._epoch:
            raise StateError(
                f"epoch {epoch} needs the losses of epoch {wanted}, which is not complete: {self._epoch} epochs are; "
                f"call update for each batch, give an epoch more batches than the loader's buffer, and load the "
                f"sampler's state when you resume"
            )
        if losses is None:
            raise StateError(f"the chances of epoch {epoch} are no longer kept; load a state of the sampler of then")
        known = losses[~np.isnan(losses)]
        largest = float(known.max()) if len(known) else 1.0
        if largest == 0.0:
            return np.ones(self.n_rows)
        weights = (np.where(np.isnan(losses), largest, losses) / largest) ** self.alpha
        return np.asarray((1 - self.floor) * weights / weights.sum() + self.floor / self.n_rows)

    # -- states ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this rank: arrays, numbers and strings. Each rank saves its own."""
        rank, world = _rank_and_world() if self._gather is None else self._place or (0, WHOLE)
        rows, losses = _joined(self._updates)
        known = {str(epoch): array.copy() for epoch, array in self._losses.items()}
        return {
            "version": VERSION, "sampler": self.fingerprint(), "epoch": self._epoch, "losses": known, "rank": rank,
            "world": world, "reported": self._reported, "rows": rows, "row_losses": losses,
        }  # fmt: skip

    def load_state_dict(self, state: Any) -> None:
        """Go on from a state; on several ranks, from the list of the states of all ranks, which may be more or fewer.

        Raises:
            StateError: the state is damaged, is of another sampler, or of some of the ranks only.
        """
        states = list(state) if isinstance(state, Sequence) else [state]
        for each in states:
            if not isinstance(each, Mapping) or each.get("sampler") != self.fingerprint():
                theirs = each.get("sampler") if isinstance(each, Mapping) else type(each).__name__
                raise StateError(
                    f"the state is of another sampler, {theirs}, and this one is {self.fingerprint()}; make it with "
                    f"the same arguments"
                )
            if wrong := self._damaged(each):
                raise StateError(f"this state of a FeedbackSampler is damaged: {wrong}; load another one")
        if states and all(each["world"] == WHOLE for each in states):
            states = states[:1]
        first: Mapping[str, Any] = states[0] if states else {"world": 1}
        if first["world"] != WHOLE and sorted(each["rank"] for each in states) != list(range(first["world"])):
            raise StateError(
                f"a list of the states of all {first['world']} ranks is needed, and rank "
                f"{', '.join(str(each['rank']) for each in states) or 'none'} is there; save sampler.state_dict() on "
                f"each"
            )
        if len({each["epoch"] for each in states}) > 1:
            raise StateError("the states of the ranks are of different epochs; save them at the same step")
        self._losses = {int(epoch): np.array(array, np.float64) for epoch, array in first["losses"].items()}
        self._epoch = int(first["epoch"])
        self._reported = any(each["reported"] for each in states)
        self._updates = [(np.array(each["rows"], np.int64), np.array(each["row_losses"])) for each in states]
        self._tables = {}
        self._place = None  # what was loaded is all reports, until there is one of this rank

    def _damaged(self, state: Mapping[str, Any]) -> str:
        """Return what is wrong with the state of one rank; empty if nothing is."""
        missing = [name for name in self.state_dict() if name not in state]
        if missing:
            return f"it lacks {', '.join(map(repr, missing))}"
        for name in ("epoch", "rank", "world"):
            if not isinstance(state[name], (int, np.integer)) or state[name] < 0:
                return f"its {name!r} is {state[name]!r:.80}"
        epoch, losses = state["epoch"], state["losses"]
        wanted = {str(number) for number in range(max(-1, epoch - KEPT), epoch)}
        if not isinstance(losses, Mapping) or set(losses) != wanted:
            return f"its 'losses' are not those of the epochs {', '.join(sorted(wanted))}"
        for name, array in losses.items():
            if np.shape(array) != (self.n_rows,) or not _are_losses(array):
                return f"the losses of epoch {name} are not {self.n_rows} numbers of at least 0, or NaN"
        rows, own = np.asarray(state["rows"]), state["row_losses"]
        are_rows = rows.ndim == 1 and (not rows.size or rows.dtype.kind == "i")
        are_rows = are_rows and bool(((rows >= 0) & (rows < self.n_rows)).all())
        if not are_rows or np.shape(own) != rows.shape or not _are_losses(own):
            return "its 'rows' and 'row_losses' are not rows of the data with a loss each"
        return "" if isinstance(state["reported"], (bool, np.bool_)) else f"its 'reported' is {state['reported']!r:.80}"


def _are_losses(array: Any) -> bool:
    """Return whether these are losses, or NaN for none."""
    given = np.asarray(array)
    return given.dtype.kind == "f" and not (np.isinf(given) | (given < 0)).any()


def _given_losses(losses: Any) -> np.ndarray:
    remedy = "pass one number for each row (of tensors: losses.detach().float().cpu())"
    try:
        given = given_array("losses", losses, remedy)
    except (TypeError, RuntimeError) as error:  # of torch: a gradient, another device, a dtype that NumPy lacks
        raise ArgumentTypeError(f"losses must be an array of numbers: {error}; {remedy}") from error
    if given.dtype.kind not in "biuf" and len(given):
        raise ArgumentTypeError(f"losses must be numbers, not {given.dtype}; {remedy}")
    return given.astype(np.float64)


def _from_0(name: str, value: Any, most: float) -> float:
    """Return a number from 0 to `most`."""
    if value != 0 or isinstance(value, bool):
        with contextlib.suppress(ArgumentError):
            return validation.number_between(name, value, 0.0, most)
        raise ArgumentError(f"{name} must be a number between 0 and {most:g}, not {value}")
    return 0.0


def _joined(updates: list[Updates]) -> Updates:
    if not updates:
        return np.zeros(0, np.int64), np.zeros(0)
    return np.concatenate([rows for rows, _ in updates]), np.concatenate([losses for _, losses in updates])


def _place_by(gather: Callable[[Any], Sequence[Any]]) -> tuple[int, int]:
    """Return the rank and the world, which `gather` knows by the order of its values."""
    own = uuid.uuid4().hex
    found = list(gather(own))
    if found.count(own) != 1:
        raise ArgumentError(f"gather must return a list of the values of all ranks, this one's among them, not {found}")
    return found.index(own), len(found)


def _gather_of_copy(own: Any) -> Sequence[Any]:
    raise ArgumentError("a copy of a FeedbackSampler has no gather=; make the sampler anew, and load the state of this")


def _group() -> Any:
    """Return ``torch.distributed`` if this process is in a group, or None."""
    group = sys.modules.get("torch.distributed")
    return group if group is not None and group.is_available() and group.is_initialized() else None


def _rank_and_world() -> tuple[int, int]:
    group = _group()
    return (0, 1) if group is None else (group.get_rank(), group.get_world_size())


def _of_all_ranks(own: Any) -> Sequence[Any]:
    group = _group()
    if group is None:
        return [own]
    found: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(found, own)
    return found
