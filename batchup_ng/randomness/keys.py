"""Keys that name the order of an epoch, or a batch, at a node of the graph of sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from .hashing import digest, generator, pair_words, word
from .sample_rng import SampleRng


@dataclasses.dataclass(frozen=True, slots=True)
class OrderKey:
    """Names the order of one epoch at one node of the graph of sources.

    If the order depends on storage, `blocks` says how for each node with an order, by the node's ``id``, and the
    present batch size of the epoch.
    """

    seed: int
    epoch: int
    path: tuple[int, ...] = ()
    blocks: Mapping[int, Any] | None = None

    def child(self, number: int) -> OrderKey:
        """Return the key of child `number` of this node."""
        return OrderKey(self.seed, self.epoch, (*self.path, number), self.blocks)

    def word(self, *parts: int | str) -> int:
        """Return a 64-bit integer for the use that `parts` name."""
        return word("order", self.seed, self.epoch, len(self.path), *self.path, *parts)

    def random_state(self, *parts: int | str) -> np.random.RandomState:
        """Return a generator of BatchUp's kind for the use that `parts` name."""
        seed = digest("order", self.seed, self.epoch, len(self.path), *self.path, *parts)
        return np.random.RandomState(np.frombuffer(seed, "<u4"))  # one word of 32 bits would soon come again


class BatchKey(NamedTuple):
    """Names the randomness of one batch at one node of the graph of sources.

    The first sample of the batch is at `start` in the epoch. `path` has the child numbers from the root to the node.
    If the node makes only some samples of the batch, `offsets`, ``(n,) int64``, names them.
    """

    seed: int = 0
    epoch: int = 0
    batch: int = 0
    start: int = 0
    path: tuple[int, ...] = ()
    offsets: np.ndarray | None = None

    def child(self, number: int, offsets: np.ndarray | None = None) -> BatchKey:
        """Return the key of child `number` of this node. `offsets` picks the samples of this node for the child."""
        key = self if offsets is None else self.part(offsets)
        return BatchKey(self.seed, self.epoch, self.batch, self.start, (*self.path, number), key.offsets)

    def part(self, offsets: np.ndarray) -> BatchKey:
        """Return the key of the samples at `offsets` in the batch: ``(n,) int64``."""
        return self._replace(offsets=offsets if self.offsets is None else self.offsets[offsets])

    def of_groups(self, size: int) -> BatchKey:
        """Return the key of a batch with a group of `size` samples for each sample of this one, in order."""
        if size == 1:
            return self
        if self.offsets is None:
            return self._replace(start=self.start * size)
        offsets = (self.offsets[:, None] * size + np.arange(size)).reshape(-1)
        return self._replace(start=self.start * size, offsets=offsets)

    def positions(self, n: int) -> np.ndarray:
        """Return the positions in the epoch of the `n` samples of this batch: ``(n,) int64``."""
        if self.offsets is not None:
            return self.start + self.offsets[:n]
        return np.arange(self.start, self.start + n, dtype=np.int64)

    def position(self, place: int) -> int:
        """Return the position in the epoch of the sample at `place` in the batch."""
        return self.start + (place if self.offsets is None else int(self.offsets[place]))

    def first(self) -> int:
        """Return the position in the epoch of the batch's first sample."""
        return self.position(0) if self.offsets is None or len(self.offsets) else self.start

    def generator(self) -> np.random.Generator:
        """Return the batch's generator, a function of (seed, epoch, batch, node).

        The first position is part of the key: an epoch resumed with larger batches has some batch numbers twice.
        """
        return generator("batch", self.seed, self.epoch, self.batch, self.first(), len(self.path), *self.path)

    def sample_rng(self, n: int, planned: int | None = None) -> SampleRng:
        """Return the row-wise generator of the batch's `n` samples.

        If a map made these `n` samples from another number of samples, `planned` is that number.
        """
        key = word("sample", self.seed, self.epoch, len(self.path), *self.path)
        if planned is None or n <= planned:
            return SampleRng(key, self.positions(n))
        if planned == 0:
            raise ArgumentError(f"a batch of no samples was mapped to one of {n}, which have no random numbers")
        places = np.arange(n, dtype=np.int64)
        return SampleRng(key, self.positions(planned)[places % planned], places // planned)

    def companion_rng(self, n: int) -> SampleRng:
        """Return the row-wise generator that draws the companions of the batch's `n` samples."""
        return SampleRng(word("companions", self.seed, self.epoch, len(self.path), *self.path), self.positions(n))

    def with_companions(self, n: int, count: int) -> BatchKey:
        """Return the key of a batch of these `n` samples, then the first companion of each, then the second.

        A companion has a negative position, a hash of the position of its sample. So the nodes below draw for it what
        they draw for no other sample, and the samples keep their own positions.
        """
        own, key = self.positions(n), word("companion", len(self.path), *self.path)
        parts = [own]
        for number in range(count):
            words = pair_words(key, own, np.full(n, number, np.int64))
            parts.append(-1 - (words >> np.uint64(3)).astype(np.int64))
        return self._replace(offsets=np.concatenate(parts) - self.start)
