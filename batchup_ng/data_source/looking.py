"""Single samples of a source, for inspection: ``len(source)``, ``source[i]``, ``source[i:j]``."""

from __future__ import annotations

import contextlib
import math
from typing import Any, NoReturn

import numpy as np

from .. import batch as batches
from ..accessors.base import chosen_rows
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.leases import FRESH
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept
from .epoch.reading import MakeBatch
from .hooks import SourceNode


class HasSamples(SourceNode):
    """A source as a sequence of the samples of its unshuffled epoch."""

    def __len__(self) -> int:
        """Return the number of samples in an epoch.

        Raises:
            TypeError: the epoch never ends, or the number is not known.
        """
        n = self.num_samples()
        if n is None or n == math.inf:
            why = "is not known" if n is None else "has no end; bound it with take(n)"
            raise ArgumentTypeError(f"the number of samples of this {type(self).__name__} {why}, so it has no len()")
        return int(n)

    def __bool__(self) -> bool:
        return True  # otherwise Python calls len(), which some do not have

    def __getitem__(self, which: Any) -> Any:
        """Return samples of epoch 0 without ``shuffle=``, with all maps applied.

        This is for inspection. Training reads whole batches with ``batch_iterator``.

        Args:
            which: A whole number gives one sample, nested like the batch, without the batch's axis. A slice, an array
                or list of whole numbers, or a boolean mask gives a batch.

        Raises:
            IndexError: there is no such sample.
            ArgumentTypeError: the source only streams, or its samples have no order (a choice, a draw by weight).
            ArgumentError: the epoch never ends.
        """
        chosen = chosen_rows(which, self._numbered_length())
        if not isinstance(chosen, int):
            return self._in_order(chosen)
        batch = batches.as_batch(self._in_order(np.array([chosen])))
        try:
            samples = list(batches.samples_of(batch))
        except (ArgumentError, TypeError):  # arrays of different lengths, or no arrays
            samples = []
        if len(samples) != 1:
            raise ArgumentError(
                f"sample {chosen} is not one row of each array of its batch, for a map resizes it or parts of the "
                f"source have a batch_size of their own; look at a batch: source[i : i + 1]"
            )
        return samples[0]

    def _numbered_length(self) -> int:
        return numbered_length("source", self)

    def _in_order(self, positions: np.ndarray) -> Any:
        return read_in_order(self, positions)

    def __iter__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{type(self).__name__} is not iterated over itself; iterate over source.batch_iterator(batch_size), or "
            f"look at single samples with source[i]"
        )


def read_in_order(source: SourceNode, positions: np.ndarray, path: tuple[int, ...] = ()) -> Any:
    """Return the batch of the samples at `positions` of the unshuffled epoch 0.

    `path` is the source's place in the graph.
    """
    key = key_in_order(positions)._replace(path=path)
    with globals_kept(key) if source.traits.runs_user_code else contextlib.nullcontext():
        return MakeBatch().read(source, source.rows_at(positions), key, FRESH)


def key_in_order(positions: np.ndarray) -> BatchKey:
    """Return the key of a batch of the samples at `positions` of the unshuffled epoch."""
    start = int(positions[0]) if len(positions) else 0
    return BatchKey(start=start, offsets=positions - start)


def numbered_length(name: str, source: SourceNode) -> int:
    """Return the length of the unshuffled epoch of `source`. Refuse an endless epoch, or one without such an order."""
    source.rows_at(np.arange(0))
    n = source.num_samples()
    if n is None or n == math.inf:
        raise ArgumentError(f"{name} has an epoch that never ends, so its samples cannot be numbered; give it an end")
    return int(n)
