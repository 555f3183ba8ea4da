"""Who makes an order of rows, or draws rows by their weights: the row numbers alone, no data.

``ours-rows`` asks for the rows of each batch, ``ours-batches`` runs the whole of ``batch_iterator`` on a source whose
data are its row numbers. The others make the order of all rows, then cut it, as everybody does who has an array of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.base import Batch, Feed, Variant
from benchmarks.workloads import Workload

SEED = 7


def variants(kind: str) -> tuple[Variant, ...]:
    """Those that shuffle, or those that draw."""
    make = partial(Variant, module=__name__)
    ours, plain, torch = (
        partial(make, family="ours", needs=("batchup_ng",)),
        partial(make, family="plain"),
        partial(make, family="torch", needs=("torch",)),
    )
    if kind == "weights":
        return (
            plain(name="numpy-searchsorted", open=SearchedDraws, baseline=True),
            plain(name="numpy-choice", open=ChosenDraws),
            torch(name="torch-multinomial", open=TorchDraws),
            ours(name="ours", open=OurDraws),
        )
    shared = (ours(name="ours-rows", open=OurRows), ours(name="ours-batches", open=OurBatches))
    if kind == "long-order":
        return shared
    return (
        plain(name="numpy-permutation", open=partial(Cut, order=by_random_state), baseline=True),
        plain(name="numpy-generator", open=partial(Cut, order=by_generator)),
        torch(name="torch-randperm", open=partial(Cut, order=by_torch)),
        *shared,
    )


def by_random_state(n: int, seed: int) -> NDArray[np.int64]:
    """``numpy.random.permutation``, by a generator of its own."""
    return np.random.RandomState(seed).permutation(n)


def by_generator(n: int, seed: int) -> NDArray[np.int64]:
    """The same of NumPy's newer generators."""
    return np.random.default_rng(seed).permutation(n)


def by_torch(n: int, seed: int) -> Any:
    """What PyTorch's ``RandomSampler`` draws."""
    import torch

    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


class Cut(Feed):
    """An array of all rows in order, cut into batches.

    Args:
        workload: How many rows.
        workers: Not used.
        order: Makes the array.
    """

    def __init__(self, workload: Workload, workers: int, order: Callable[[int, int], Any]) -> None:
        self._workload = workload
        self._order = order
        order(1, 0)  # a library that is imported on use is imported now

    def epoch(self, number: int) -> Iterator[Batch]:
        n, size = self._workload.samples, self._workload.batch_size
        order = self._order(n, number)
        for start in range(0, n, size):
            yield (order[start : start + size],)

    def close(self) -> None:
        """There is nothing to end."""


class RowNumbers:
    """Data that are computed: row k is k.

    Args:
        n: How many rows.
    """

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: Any) -> Any:
        return np.array(rows)


class OurRows(Feed):
    """The rows of each batch."""

    def __init__(self, workload: Workload, workers: int) -> None:
        import batchup_ng as bu

        self.source = bu.ArrayDataSource([RowNumbers(workload.samples)])
        self.size = workload.batch_size

    def epoch(self, number: int) -> Iterator[Batch]:
        for rows in self.source.batch_indices_iterator(self.size, shuffle=SEED, epoch=number):
            yield (rows,)

    def close(self) -> None:
        """There is nothing to end."""


class OurBatches(OurRows):
    """The batches themselves, whose iterator can be saved and resumed."""

    def epoch(self, number: int) -> Iterator[Batch]:
        return self.source.batch_iterator(self.size, shuffle=SEED, epoch=number)

    def resumed(self, state: Any) -> Iterator[Batch]:
        """The epoch from a state on."""
        return self.source.batch_iterator(self.size, shuffle=SEED, state=state)


def weights_of(workload: Workload) -> NDArray[np.float64]:
    """One weight a row, every tenth of them 0: ``(samples,) float64``."""
    weights = np.random.default_rng(3).random(workload.samples)
    weights[::10] = 0.0
    return weights


class Draws(Feed):
    """Draws in proportion to weights, without end; set up at the begin of an epoch.

    Attributes:
        weights: The weights.
    """

    def __init__(self, workload: Workload, workers: int) -> None:
        self.weights = weights_of(workload)
        self.size = workload.batch_size

    def close(self) -> None:
        """There is nothing to end."""


class OurDraws(Draws):
    """A weighted sampler in a data source."""

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        import batchup_ng  # noqa: F401  # imported before the clock starts

        self._n = workload.samples

    def epoch(self, number: int) -> Iterator[Batch]:
        import batchup_ng as bu

        source = bu.ArrayDataSource([RowNumbers(self._n)], sampler=bu.WeightedSampler(self.weights))
        for rows in source.batch_indices_iterator(self.size, shuffle=SEED, epoch=number):
            yield (rows,)


class SearchedDraws(Draws):
    """The loop that one would write: weights summed up once, each draw a search in the sums."""

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng(number)
        sums = np.cumsum(self.weights)
        while True:
            yield (sums.searchsorted(rng.random(self.size) * sums[-1], side="right"),)


class ChosenDraws(Draws):
    """NumPy's own draws by probabilities, which sums them up for each call."""

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng(number)
        probabilities = self.weights / self.weights.sum()
        while True:
            yield (rng.choice(len(probabilities), self.size, p=probabilities),)


class TorchDraws(Draws):
    """What PyTorch's ``WeightedRandomSampler`` draws, which takes at most 2**24 weights."""

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        import torch  # noqa: F401  # imported before the clock starts

    def epoch(self, number: int) -> Iterator[Sequence[Any]]:
        import torch

        generator = torch.Generator().manual_seed(number)
        weights = torch.from_numpy(self.weights)
        while True:
            yield (torch.multinomial(weights, self.size, replacement=True, generator=generator),)
