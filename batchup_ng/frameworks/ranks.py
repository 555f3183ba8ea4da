"""Checks that the processes of a program do not all train on the same data without a word.

The adapters of all frameworks share them. A loader is checked when an epoch begins, because a group of processes may
begin after the adapter was made: Lightning starts it in ``fit``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..data_source.distributed import known_group
from ..data_source.epoch.iterator import BatchIterator
from ..errors import ArgumentError
from ..loader import Loader
from ..warn import warn_consumer

WARNED_OF_RANKS = "ranks"
"""The warning of an epoch that each process takes whole."""


class RankCheck:
    """Checks batches against the group of processes that a framework knows; else, that ``shard="auto"`` finds.

    Args:
        group: The name of the framework's group, for messages.
        rank_and_world: Returns the rank of this process and the number of processes, or None without a group.
    """

    def __init__(self, group: str, rank_and_world: Callable[[], tuple[int, int] | None]) -> None:
        self._group = group
        self._rank_and_world = rank_and_world

    def found(self) -> tuple[str, int]:
        """Return the name of the group, and the number of its processes; 1 without a group."""
        own = self._rank_and_world()
        return known_group() if own is None else (self._group, own[1])

    def of_loader(self, loader: Loader) -> None:
        """Check that the epoch of `loader` that begins now is this process's part, or is meant to be all of the data.

        With ``shard=None``, given by the user, warn once.

        Raises:
            ArgumentError: the loader has no ``shard=``.
        """
        group, world = self.found()
        if world == 1 or loader.shard_world() > 1:
            return
        if not loader.shard_given:
            raise ArgumentError(
                f"this loader has no shard=, so that each of the {world} processes of {group} would train on "
                f"all of the data in the same order; make it with shard='auto', or with shard=None if that is meant"
            )
        _warn_once(loader._shared.warned, group, world)

    def of_iterator(self, iterator: Any) -> None:
        """Warn, once per source, if each process takes all batches of this iterator of the library.

        An iterator does not know whether ``shard=None`` was given. Nothing is known of iterators of other kinds.
        """
        marked = iterator if isinstance(iterator, BatchIterator) else getattr(iterator, "_marked", None)
        if not isinstance(marked, BatchIterator) or marked.shard_world != 1:
            return
        group, world = self.found()
        if world > 1:
            remedy = "pass shard='auto' to batch_iterator or epochs, unless that is meant"
            _warn_once(marked.warned, group, world, remedy)


def _warn_once(warned: set[str], group: str, world: int, remedy: str = "") -> None:
    if WARNED_OF_RANKS not in warned:
        warned.add(WARNED_OF_RANKS)
        warn_of_all(group, world, remedy=remedy)


def warn_of_all(group: str, world: int, unless: str = "", remedy: str = "") -> None:
    """Warn that each process gets all of the data."""
    message = f"{unless}each of the {world} processes of {group} trains on all of the data"
    warn_consumer(f"{message}; {remedy}" if remedy else message, UserWarning)
