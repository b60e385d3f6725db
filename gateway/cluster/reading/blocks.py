"""Blocks of parts in memory, for readers of the event loop. The least recently used ones are dropped first."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from gateway.cluster.cache.part_reader import PartReader
from gateway.cluster.parts.manifest import PartitionKey, PartRef
from gateway.cluster.parts.part_object import BLOCK_BYTES


class BlockKey(NamedTuple):
    """A block: the name of a part, which no other part of any partition has, and the number of the block in the segment file."""

    part: str
    number: int


class Stretch(NamedTuple):
    """Bytes of a part from a position on, as far as they are in memory, and the first block that is not."""

    data: bytes
    missing: BlockKey | None


class Blocks:
    """The blocks of all partitions, of at most `max_bytes` together."""

    def __init__(self, reader: PartReader, max_bytes: int) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[BlockKey, bytes] = OrderedDict()
        self.size_bytes = 0
        self.bytes_fetched = 0
        """The bytes fetched since the start."""

    def has(self, key: BlockKey) -> bool:
        """Return whether a block is in memory."""
        return key in self._blocks

    def stretch(self, part: PartRef, start: int, stop: int) -> Stretch:
        """Return the bytes of a part from `start` to `stop`, as far as its blocks are in memory without a gap."""
        pieces: list[bytes] = []
        stop = min(stop, part.length)
        while start < stop:
            key = block_at(part, start)
            block = self._blocks.get(key)
            if block is None:
                return Stretch(b"".join(pieces), key)
            self._blocks.move_to_end(key)
            first, last = place_of(part, key.number)
            pieces.append(block[start - first : min(stop, last) - first])
            start = last
        return Stretch(b"".join(pieces), None)

    async def load(self, partition: PartitionKey, part: PartRef, key: BlockKey) -> None:
        """Fetch a block. Waits while the store does not answer. Raises Missing, CorruptPart, IncompatibleFormat, Refused."""
        if key in self._blocks:
            return
        data = await self._reader.read(partition, part, *place_of(part, key.number))
        self._blocks[key] = data
        self.size_bytes += len(data)
        self.bytes_fetched += len(data)
        while self.size_bytes > self._max_bytes and len(self._blocks) > 1:
            self.size_bytes -= len(self._blocks.popitem(last=False)[1])


def block_at(part: PartRef, place: int) -> BlockKey:
    """Return the block that holds a byte of the part's data."""
    return BlockKey(part.name, (part.position + place) // BLOCK_BYTES)


def place_of(part: PartRef, number: int) -> tuple[int, int]:
    """Return where in the part's data a block begins and ends."""
    start = number * BLOCK_BYTES - part.position
    return max(0, start), min(part.length, start + BLOCK_BYTES)


def blocks_from(part: PartRef, place: int) -> range:
    """Return the numbers of the blocks from a byte of the part's data to its end."""
    last = (part.position + part.length - 1) // BLOCK_BYTES
    return range((part.position + place) // BLOCK_BYTES, last + 1)
