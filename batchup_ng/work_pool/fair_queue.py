"""A queue whose streams take turns: a long stream does not keep a short one waiting."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items of streams. A stream is first in, first out; streams with items take turns. Not locked."""

    def __init__(self) -> None:
        self._first: collections.deque[Item] = collections.deque()
        self._streams: dict[int, collections.deque[Item]] = {}  # in the order of their turns

    def __bool__(self) -> bool:
        return bool(self._first or self._streams)

    def __iter__(self) -> Iterator[Item]:
        yield from self._first
        for queued in self._streams.values():
            yield from queued

    def put(self, item: Item, stream_id: int = 0) -> None:
        """Queue an item at the end of its stream."""
        queued = self._streams.get(stream_id)
        if queued is None:
            self._streams[stream_id] = collections.deque([item])
        else:
            queued.append(item)

    def put_urgent(self, item: Item) -> None:
        """Queue an item before all streams, after other urgent items."""
        self._first.append(item)

    def put_back(self, item: Item) -> None:
        """Queue an item again, as the very first."""
        self._first.appendleft(item)

    def peek(self) -> Item:
        """Return the item that :meth:`take` would take. The queue must not be empty."""
        return self._first[0] if self._first else next(iter(self._streams.values()))[0]

    def take(self) -> Item:
        """Take the first item of the stream whose turn it is. The queue must not be empty."""
        if self._first:
            return self._first.popleft()
        stream_id, queued = next(iter(self._streams.items()))
        item = queued.popleft()
        self._streams.pop(stream_id, None)
        if queued:
            self._streams[stream_id] = queued
        return item

    def clear(self) -> list[Item]:
        """Take all items."""
        items = list(self)
        self._first.clear()
        self._streams.clear()
        return items
