"""A queue whose first item has the least load. Items of equal load come in the order of Kafka's queue.

Kafka's assignor takes processes and members from a binary heap, in which the positions of the items decide
between equal loads. Seqgate keeps the same heap, so that the same group gets the same assignment from both.

Source: Java's `PriorityQueue`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class LeastLoaded(Generic[T]):
    """A binary heap of items by their load. An item that is taken out may be put back with another load."""

    def __init__(self, items: Iterable[tuple[float, T]]) -> None:
        self._heap: list[tuple[float, T]] = []
        for load, item in items:
            self.put(load, item)

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, load: float, item: T) -> None:
        """Add an item; it moves up past items of a greater load only."""
        heap = self._heap
        place = len(heap)
        heap.append((load, item))
        while place > 0 and load < heap[parent := (place - 1) // 2][0]:
            heap[place], heap[parent] = heap[parent], heap[place]
            place = parent

    def take(self) -> T:
        """Remove and return the first item; the last one fills its place and moves down past items of a smaller load only."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            heap[0] = last
            self._move_down()
        return first[1]

    def _move_down(self) -> None:
        heap = self._heap
        place, load = 0, heap[0][0]
        while (child := 2 * place + 1) < len(heap):
            if child + 1 < len(heap) and heap[child + 1][0] < heap[child][0]:
                child += 1
            if load <= heap[child][0]:
                return
            heap[place], heap[child] = heap[child], heap[place]
            place = child
