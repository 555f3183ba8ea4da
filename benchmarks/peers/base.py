"""The seam that every peer implements.

The parent sees a :class:`Variant` only, so that a peer's module must import its library inside the functions that
``open`` reaches, never at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from benchmarks.workloads.base import Batch, Workload

OURS, BEFORE = "ours", "before"


class Feed(Protocol):
    """A loader of one workload, in the process that measures it.

    Opening it loads the data and imports the library, both untimed; the first :meth:`epoch` makes the pool or the
    workers, timed, and keeps them for the epochs that follow. Between epochs nothing may be working.
    """

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch, shuffled: arrays or tensors in memory, each valid until the next."""

    def close(self) -> None:
        """End what the first epoch started; the next epoch would start it once more."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to use one library.

    Attributes:
        name: Unique; by custom ``<family>-<how>``.
        family: The library, as ``--peers`` calls it.
        module: The ``__name__`` of the module whose ``VARIANTS`` has it, for the peer's process to find it by.
        open: Called in the peer's process with the workload and the number of workers.
        needs: Modules without which the variant is absent.
        copies: About how many times its processes hold the workload's ``nbytes``, all together.
        workloads: Those that it can deliver; empty for all.
        usual: Whether it takes part in studies that do not name it.
        checkout: Where the library is taken from; empty for this tree.
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
        """Its name in its module."""
        return self.name.partition("@")[0]

    def taken_from(self, checkout: str) -> Variant:
        """The same variant, with the library of another checkout."""
        return replace(self, name=f"{self.name}@{BEFORE}", family=BEFORE, checkout=checkout)
