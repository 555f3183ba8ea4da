"""A queue whose flows take turns: a long flow does not keep a short one waiting."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items of flows. A flow is first in, first out; flows with items take turns. Not locked."""

    def __init__(self) -> None:
        self._first: collections.deque[Item] = collections.deque()
        self._flows: dict[int, collections.deque[Item]] = {}  # in the order of their turns

    def __bool__(self) -> bool:
        return bool(self._first or self._flows)

    def __iter__(self) -> Iterator[Item]:
        yield from self._first
        for queued in self._flows.values():
            yield from queued

    def put(self, item: Item, flow_id: int = 0) -> None:
        """Queue an item at the end of its flow."""
        queued = self._flows.get(flow_id)
        if queued is None:
            self._flows[flow_id] = collections.deque([item])
        else:
            queued.append(item)

    def put_urgent(self, item: Item) -> None:
        """Queue an item before all flows, after other urgent items."""
        self._first.append(item)

    def put_back(self, item: Item) -> None:
        """Queue an item again, as the very first."""
        self._first.appendleft(item)

    def peek(self) -> Item:
        """Return the item that :meth:`take` would take. The queue must not be empty."""
        return self._first[0] if self._first else next(iter(self._flows.values()))[0]

    def take(self) -> Item:
        """Take the first item of the flow whose turn it is. The queue must not be empty."""
        if self._first:
            return self._first.popleft()
        flow_id, queued = next(iter(self._flows.items()))
        item = queued.popleft()
        self._flows.pop(flow_id, None)
        if queued:
            self._flows[flow_id] = queued
        return item

    def clear(self) -> list[Item]:
        """Take all items."""
        items = list(self)
        self._first.clear()
        self._flows.clear()
        return items
