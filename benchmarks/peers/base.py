"""The seam that every peer implements.

A :class:`Variant` is a name plus a function that opens a :class:`Feed`. The parent sees variants only, so that a
peer's module must import its library inside the functions that ``open`` reaches, never at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeAlias, runtime_checkable

from benchmarks.workloads import Workload

Batch: TypeAlias = "Sequence[Any]"


class Feed(Protocol):
    """A loader of one workload, in the process that measures it.

    Opening it loads the data and imports the library, both untimed; the first :meth:`epoch` makes the pool or the
    workers, timed, and keeps them for the epochs that follow. Between epochs nothing may be working.
    """

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches ``(x, y)``, or ``(x,)``, of one epoch, shuffled: arrays or tensors in CPU memory."""

    def close(self) -> None:
        """End what the first epoch started."""


@runtime_checkable
class Starter(Feed, Protocol):
    """A feed whose workers can be watched; once closed, it makes new ones with the next epoch."""

    def workers(self) -> Sequence[int]:
        """The process ids of the workers that make the batches."""

    def ready(self) -> Sequence[int]:
        """Make workers without data; return their process ids once each has answered a trivial task."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to use one library.

    Attributes:
        name: Unique; by custom ``<family>-<how>``.
        family: The library, as ``--peers`` calls it.
        module: The ``__name__`` of the module whose ``variants`` has it, for the peer's process to find it by.
        open: Called in the peer's process with the workload and the number of workers.
        needs: Modules without which the variant is absent.
        baseline: Whether all others are compared with it.
        copies: About how many times its processes hold the workload's ``nbytes``, all together.
        same_pixels: Whether pictures must equal Pillow's; False for a peer that brings another decoder.
    """

    name: str
    family: str
    module: str
    open: Callable[[Workload, int], Feed]
    needs: tuple[str, ...] = ()
    baseline: bool = False
    copies: int = 1
    same_pixels: bool = True


def find(module: str, kind: str, name: str) -> Variant:
    """The variant of that name, imported from its module; KeyError if there is none."""
    variants: tuple[Variant, ...] = import_module(module).variants(kind)
    return {variant.name: variant for variant in variants}[name]
