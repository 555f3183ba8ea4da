"""Orders that are drawn from a ``RandomState``, as BatchUp drew them.

BatchUp drew one permutation each time a repetition of the rows began, so a batch is drawn after the batches before it.
The plan of such an epoch is a list that grows as batches are requested.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import ArgumentTypeError
from ...randomness import OrderKey
from ...randomness.numpy_rng import seed_draw
from .listed import ListedPlan
from .rows import RowPlan


@dataclasses.dataclass(frozen=True, eq=False)
class DrawnKey(OrderKey):
    """The key of an order that is drawn from the generator `rng`."""

    seed: int = 0
    epoch: int = 0
    rng: Any = None
    _seeded: list[OrderKey] = dataclasses.field(default_factory=list)  # the key of a drawn seed, once there is one

    def child(self, number: int) -> DrawnKey:
        return DrawnKey(rng=self.rng)

    def seeded(self) -> OrderKey:
        """Return the key of a node whose order is a function of a seed. The first call draws the seed."""
        if not self._seeded:
            self._seeded.append(OrderKey(seed_draw(self.rng), 0))
        return self._seeded[0]

    def word(self, *parts: int | str) -> int:
        return self.seeded().word(*parts)

    def random_state(self, *parts: int | str) -> Any:
        return self.rng


ANY_ORDER = OrderKey(0, 0)
"""A key for questions whose answer is the same in every order."""


def listed_epoch(
    row_plan: Callable[..., RowPlan], batch_size: int, key: OrderKey | None, drop_last: bool, n_samples: Any
) -> ListedPlan:
    """Return the rows of an epoch from a plan by ``row_plan``, each batch when it is first requested.

    Nothing is drawn before. If the number of batches depends on the order, they are counted in another such plan, with
    a copy of the generator. A source without `n_samples` is not asked for its rows twice.
    """
    again = DrawnKey(rng=copy.deepcopy(key.rng)) if isinstance(key, DrawnKey) else key
    other = row_plan(batch_size, again, drop_last)

    def listed() -> Iterator[Any]:
        yield from row_plan(batch_size, key, drop_last).walk()

    def count() -> float:
        if other.n_in_any_order is not None:
            return other.n_in_any_order
        if n_samples is None:
            raise ArgumentTypeError("the number of batches of this source is not known, so it has no len()")
        return sum(1 for _ in other.walk())

    return ListedPlan(listed(), other.n_in_any_order, count)
