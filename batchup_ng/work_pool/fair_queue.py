"""A queue in which streams take turns, so that a long one does not keep a short one waiting."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items in stream_ids: within a stream_id first in, first out; the stream_ids that have some take turns. Not
    locked."""

    def __init__(self) -> None:
        self._first: collections.deque[Item] = collections.deque()
        self._lanes: dict[int, collections.deque[Item]] = {}  # in the order of their turns

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._lanes.values()))

    def __bool__(self) -> bool:
        return bool(self._first or self._lanes)

    def __iter__(self) -> Iterator[Item]:
        yield from self._first
        for stream_id in self._lanes.values():
            yield from stream_id

    def put(self, item: Item, stream_id: int = 0) -> None:
        """Queue an item at the end of its stream_id."""
        queued = self._lanes.get(stream_id)
        if queued is None:
            queued = self._lanes[stream_id] = collections.deque()
        queued.append(item)

    def put_urgent(self, item: Item) -> None:
        """Queue an item before all stream_ids, behind other urgent ones."""
        self._first.append(item)

    def put_back(self, item: Item) -> None:
        """Queue an item that was taken before, as the very first."""
        self._first.appendleft(item)

    def peek(self) -> Item:
        """Return what :meth:`take` would; there must be something."""
        return self._first[0] if self._first else next(iter(self._lanes.values()))[0]

    def take(self) -> Item:
        """Take the first item of the stream_id whose turn it is; there must be something."""
        if self._first:
            return self._first.popleft()
        stream_id, queued = next(iter(self._lanes.items()))
        item = queued.popleft()
        self._lanes.pop(stream_id, None)
        if queued:
            self._lanes[stream_id] = queued
        return item

    def clear(self) -> list[Item]:
        """Take everything."""
        items = list(self)
        self._first.clear()
        self._lanes.clear()
        return items
