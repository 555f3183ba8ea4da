"""A queue whose flows take turns: a long flow does not keep a short one waiting."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


URGENT = -1
"""Number of the flow of urgent items, which is always the first."""


class FairQueue(Generic[Item]):
    """Items of flows. A flow is first in, first out; flows with items take turns. Not locked.

    Attributes:
        flows: The items of each flow that has any, in the order of their turns.
    """

    def __init__(self) -> None:
        self.flows: dict[int, collections.deque[Item]] = {}

    def __bool__(self) -> bool:
        return bool(self.flows)

    def __iter__(self) -> Iterator[Item]:
        for queued in self.flows.values():
            yield from queued

    def put(self, item: Item, flow_id: int = 0) -> None:
        """Queue an item at the end of its flow."""
        queued = self.flows.get(flow_id)
        if queued is None:
            self.flows[flow_id] = collections.deque([item])
        else:
            queued.append(item)

    def put_urgent(self, item: Item) -> None:
        """Queue an item before all flows, after other urgent items."""
        urgent = self.flows.get(URGENT)
        if urgent is None:
            self.flows = {URGENT: collections.deque([item]), **self.flows}
        else:
            urgent.append(item)

    def put_back(self, item: Item) -> None:
        """Queue an item again, as the very first."""
        if URGENT in self.flows:
            self.flows[URGENT].appendleft(item)
        else:
            self.put_urgent(item)

    def peek(self) -> Item:
        """Return the item that :meth:`take` would take. The queue must not be empty."""
        return next(iter(self.flows.values()))[0]

    def take(self) -> Item:
        """Take the first item of the flow whose turn it is. The queue must not be empty."""
        flow_id, queued = next(iter(self.flows.items()))
        item = queued.popleft()
        if flow_id != URGENT or not queued:
            self.flows.pop(flow_id, None)
            if queued:
                self.flows[flow_id] = queued
        return item

    def clear(self) -> list[Item]:
        """Take all items."""
        items = list(self)
        self.flows.clear()
        return items
