"""Blocks to read, and the order in which they are read: those that a reader waits for go before those read ahead."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from log import Place

BLOCK_BYTES: Final = 1 << 20
_WHOLE: Final = -1
BlockKey = tuple[str, int]
"""The path of a file, and the number of a block in it, or `_WHOLE`."""


class Wanted:
    """A reader that waits for blocks. Its callback runs once, when all blocks are cached or could not be read."""

    __slots__ = ("_give_up", "callback", "loads")

    def __init__(self, callback: Callable[[], None], give_up: Callable[[Load, Wanted], None]) -> None:
        """Take the callback, and the function that forgets the reader of a block."""
        self._give_up = give_up
        self.callback: Callable[[], None] | None = callback
        self.loads: dict[Load, None] = {}

    def cancel(self) -> None:
        """Drop the callback; blocks that no other reader waits for are not read unless their read has begun."""
        self.callback = None
        loads, self.loads = self.loads, {}
        for load in loads:
            self._give_up(load, self)


class Load:
    """One block to read, and the readers that wait for it; none when the block is read ahead."""

    __slots__ = ("blocks_ahead", "failed", "key", "lane", "place", "queue", "size_bytes", "waiting")

    def __init__(self, key: BlockKey, place: Place, lane: Lane, *, is_ahead: bool) -> None:
        self.key = key
        self.place = place
        self.lane = lane
        self.waiting: dict[Wanted, None] = {}
        self.queue: OrderedDict[BlockKey, Load] | None = lane.ahead if is_ahead else lane.urgent
        """The queue that the block is in until its read begins; None after that."""
        self.blocks_ahead = 0
        """The number of following blocks to read too, up to the end of the file."""
        self.size_bytes = 0
        self.failed = False
        self.queue[key] = self

    def become_urgent(self) -> None:
        """Move a block from the queue of blocks that are read ahead to the queue of blocks that a reader waits for."""
        if self.queue is self.lane.ahead:
            del self.lane.ahead[self.key]
            self.queue = self.lane.urgent
            self.queue[self.key] = self

    def leave_queue(self) -> None:
        """Take the block out of its queue."""
        if self.queue is not None:
            del self.queue[self.key]
            self.queue = None


class Lane:
    """The blocks that come from one place, the disk or the bucket; at most `limit` are read at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.urgent: OrderedDict[BlockKey, Load] = OrderedDict()
        self.ahead: OrderedDict[BlockKey, Load] = OrderedDict()
        self.running = 0

    @property
    def has_next(self) -> bool:
        """Whether a block waits, and may be read now."""
        return self.running < self.limit and bool(self.urgent or self.ahead)

    def take(self) -> Load:
        """Take the next block out of its queue, and count it as running."""
        load = next(iter((self.urgent or self.ahead).values()))
        load.leave_queue()
        self.running += 1
        return load


def blocks_of(place: Place) -> Iterator[tuple[BlockKey, Place]]:
    """Yield the blocks that hold a place, with their own places; of a whole file, one."""
    path, position, size_bytes = place
    if not size_bytes:
        yield (path, _WHOLE), place
        return
    for number in range(position // BLOCK_BYTES, (position + size_bytes - 1) // BLOCK_BYTES + 1):
        yield block(path, number)


def block(path: str, number: int) -> tuple[BlockKey, Place]:
    """Return a block of a file by its number, with its place."""
    return (path, number), Place(path, number * BLOCK_BYTES, BLOCK_BYTES)
