"""What a sampler is whose batches, not samples, are what is in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import validation
from ..randomness import OrderKey, seed_draw
from .base import AbstractSampler
from .plans.rows import RowPlan


class BatchSampler(AbstractSampler):
    """A sampler that decides which rows share a batch, by a plan of its own.

    One of one's own defines :meth:`row_plan`, :meth:`count` and ``num_indices_generated``, and has an ``fingerprint``
    that tells its options. Its plan derives from :class:`~batchup_ng.sampling.plans.rows.OfBatches`: an epoch is shared
    out among ranks, and resumed, batch by batch, with the same batch size.
    """

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        """Return the rows of each batch of the epoch that `key` names; None is in order.

        Args:
            batch_size: The most samples that a batch may have.
            key: Names seed and epoch.
            drop_last: Whether to leave out a last batch that is not whole.
        """
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def count(self, batch_size: int, drop_last: bool) -> float | None:
        """Return the number of batches of an epoch in whatever order; None where it depends on the order."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def drawn_rows(self, batch_size: int, rng: Any, drop_last: bool) -> Iterator[np.ndarray]:
        """Yield the rows of each batch of an epoch whose seed is drawn once from `rng`; None is in order."""
        key = None if rng is None else OrderKey(seed_draw(rng), 0)
        plan = self.row_plan(batch_size, key, drop_last)
        number = 0
        while number < plan.n_batches:
            yield plan.rows(number)
            number += 1

    def in_order_indices_batch_iterator(self, batch_size: int) -> Iterator[np.ndarray]:
        return self.drawn_rows(validation.positive_int("batch_size", batch_size), None, False)

    def shuffled_indices_batch_iterator(self, batch_size: int, shuffle_rng: Any) -> Iterator[np.ndarray]:
        return self.drawn_rows(validation.positive_int("batch_size", batch_size), shuffle_rng, False)
