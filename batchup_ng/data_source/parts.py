"""What sources that are made of others have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError
from .base import AbstractDataSource
from .hooks import SourceNode


class MadeOfSources(SourceNode):
    """A source whose batches come from others, which `made_of` lists: it is random access, say, if all of them are."""

    @property
    def made_of(self) -> Sequence[AbstractDataSource]:
        """The sources that this one is made of."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    @property
    def is_random_access(self) -> bool:
        return all(part.is_random_access for part in self.made_of)

    def uses_global_rng(self) -> bool:
        return any(part.uses_global_rng() for part in self.made_of)

    def has_random_maps(self) -> bool:
        return any(part.has_random_maps() for part in self.made_of)

    def calls_user_functions(self) -> bool:
        return any(part.calls_user_functions() for part in self.made_of)


def checked_sources(name: str, sources: Any) -> list[AbstractDataSource]:
    """Return `sources` as a list.

    Raises:
        ArgumentError: it is empty.
        ArgumentTypeError: one of them is no data source.
    """
    if isinstance(sources, AbstractDataSource) or not isinstance(sources, Iterable):
        raise ArgumentTypeError(f"{name} must be a list of data sources, not a {type(sources).__name__}; pass [a, b]")
    listed: list[AbstractDataSource] = list(sources)
    if not listed:
        raise ArgumentError(f"{name} must hold at least one data source, and is empty")
    for i, source in enumerate(listed):
        if not isinstance(source, AbstractDataSource):
            raise ArgumentTypeError(
                f"{name}[{i}] must be a data source, not a {type(source).__name__}; wrap arrays in ArrayDataSource"
            )
    return listed
