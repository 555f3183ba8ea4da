"""The interface of a peer.

The parent sees only a :class:`Variant`. So a peer's module must import its library inside the functions that ``open``
calls, never at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from benchmarks.workloads.base import Batch, Workload

OURS, BEFORE = "ours", "before"


class Feed(Protocol):
    """A loader of one workload, in the process that measures it.

    Opening it loads the data and imports the library, both untimed. The first :meth:`epoch` starts the pool or the
    workers, timed, and keeps them for later epochs. Between epochs no background work may run.
    """

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the shuffled batches of an epoch: arrays or tensors in memory, each valid until the next."""

    def close(self) -> None:
        """Stop the pool or the workers; the next epoch would start them again."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to use one library.

    Attributes:
        name: Unique name, by convention ``<family>-<how>``.
        family: The library, as ``--peers`` calls it.
        module: ``__name__`` of the module whose ``VARIANTS`` contains it; the peer's process imports that module.
        open: Called in the peer's process with the workload and the number of workers.
        needs: Modules; if one is missing, the variant is absent.
        copies: Approximate number of copies of the workload's ``nbytes`` in all its processes together.
        workloads: Workloads that it can deliver; empty for all.
        usual: Whether it takes part in studies that do not name it.
        checkout: Checkout with the library; empty for this tree.
    """

    name: str
    family: str
    module: str
    open: Callable[[Workload, int], Feed]
    needs: tuple[str, ...] = ()
    copies: int = 1
    workloads: tuple[str, ...] = ()
    usual: bool = True
    checkout: str = ""

    @property
    def original(self) -> str:
        """Name in its module."""
        return self.name.partition("@")[0]

    def taken_from(self, checkout: str) -> Variant:
        """Return the variant with the library of another checkout."""
        return replace(self, name=f"{self.name}@{BEFORE}", family=BEFORE, checkout=checkout)
