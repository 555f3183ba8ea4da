"""The interface of a peer.

The parent sees only a :class:`Variant`. So a peer's module must import its library inside the functions that ``open``
calls, never at the top.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from benchmarks.workloads.base import Batch, Rows, Workload

OURS, BEFORE = "ours", "before"
AHEAD = 16
"""Batches that the hand-written loops have in flight."""
T = TypeVar("T")


class Feed(Protocol):
    """A loader of one workload, in the process that measures it.

    Opening it loads the data and imports the library, both untimed. The first :meth:`epoch` starts the pool or the
    workers, timed, and keeps them for later epochs. Between epochs no background work may run.
    """

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the shuffled batches of an epoch: arrays or tensors in memory, each valid until the next."""

    def close(self) -> None:
        """Stop the pool or the workers, if there are any; the next epoch would start them again."""


class Loaded(Feed):
    """A loader that draws its own orders: the first epoch makes it.

    Args:
        make: Function that makes the loader, an iterable.
        each: Function that is applied to each batch; None for no function.
    """

    def __init__(self, make: Callable[[], Any], each: Callable[[Any], Batch] | None = None) -> None:
        self.make, self.each = make, each
        self.loader: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        if self.loader is None:
            self.loader = self.make()
        return iter(self.loader) if self.each is None else map(self.each, self.loader)

    def close(self) -> None:
        """Close the loader, or drop it: workers of PyTorch's loaders end with the last reference."""
        if hasattr(self.loader, "close"):
            self.loader.close()
        self.loader = None


def in_flight(
    batches: Iterable[Rows], start: Callable[[int, Rows], T], finish: Callable[[T], Batch]
) -> Iterator[Batch]:
    """Yield batches in order, with `AHEAD` of them in flight.

    Args:
        batches: The rows of each batch.
        start: Called with the number of a batch and its rows; begins the work and returns an object that stands for it.
        finish: Called with that object; waits for the batch and returns it.
    """
    running: deque[T] = deque()
    for number, rows in enumerate(batches):
        if len(running) == AHEAD:
            yield finish(running.popleft())
        running.append(start(number, rows))
    while running:
        yield finish(running.popleft())


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to use one library.

    ``open`` is called in the peer's process with the workload and the number of workers. It is sent there as a pickle:
    a class, a function, or a ``partial`` of one.
    """

    name: str  # unique, by convention <family>-<how>
    family: str  # the library, as --peers calls it
    open: Callable[[Workload, int], Feed]
    needs: tuple[str, ...] = ()  # modules; if one is missing, the variant is absent
    copies: int = 1  # about how often the workload's bytes are in all its processes together
    workloads: tuple[str, ...] = ()  # that it can deliver; empty for all
    usual: bool = True  # whether it takes part in studies that do not name it
    checkout: str = ""  # with the library; empty for this tree

    @property
    def original(self) -> str:
        """Name in its module."""
        return self.name.partition("@")[0]

    def taken_from(self, checkout: str) -> Variant:
        """Return the variant with the library of another checkout."""
        return replace(self, name=f"{self.name}@{BEFORE}", family=BEFORE, checkout=checkout)
