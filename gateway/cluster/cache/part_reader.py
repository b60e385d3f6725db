"""Reads stretches of parts, without reading whole parts, and checks each stretch by its CRC."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.parts.manifest import PartitionKey, PartRef, part_key
from seqgate.gateway.cluster.parts.part_object import (
    BLOCK_BYTES,
    PartIndex,
    data_place,
    decode_part,
    decode_part_index,
    index_place,
)
from seqgate.gateway.cluster.wal.persistence import PersistentReads

INDEXES_KEPT: Final = 4096
"""Part indexes kept in memory; the least recently used one is read again when needed."""
WHOLE_BYTES: Final = BLOCK_BYTES
"""A part up to this size is read as a whole, index included, with one request."""


class PartReader:
    """Reads parts from one store. Waits while the store does not answer."""

    def __init__(self, objects: ObjectStore) -> None:
        """Take the store. Call in an event loop, and use the reader in no other."""
        self._objects = objects
        self._reads = PersistentReads(objects, "readers of old data wait for the bucket")
        self._indexes: OrderedDict[str, PartIndex] = OrderedDict()

    async def read(self, partition: PartitionKey, part: PartRef, start: int, stop: int) -> bytes:
        """Return the bytes from position `start` to `stop` of the part's data. Raises Missing, CorruptPart,
        Refused.
        """
        key = part_key(partition, part.name)
        if part.length <= WHOLE_BYTES:
            _, data = decode_part(await self._reads.answered(lambda: self._objects.get(key)), key)
            return bytes(data[start:stop])
        index = await self._index(key, part)
        first, last = index.stretch_at(start), index.stretch_at(stop - 1)
        begin, end = index.stretches[first][0], index.stretches[last][1]
        data_start = data_place(begin)
        found = await self._reads.answered(lambda: self._objects.get(key, data_start, end - begin))
        index.check(memoryview(found), first, last, key)
        return found[start - begin : stop - begin]

    async def _index(self, key: str, part: PartRef) -> PartIndex:
        index = self._indexes.get(key)
        if index is None:
            place, size_bytes = index_place(part.position, part.length)
            content = await self._reads.answered(lambda: self._objects.get(key, place, size_bytes))
            index = decode_part_index(content, part.position, part.length, key)
        self._indexes[key] = index
        self._indexes.move_to_end(key)
        while len(self._indexes) > INDEXES_KEPT:
            self._indexes.popitem(last=False)
        return index


async def read_parts(
    reader: PartReader,
    partition: PartitionKey,
    parts: tuple[PartRef, ...],
    position: int,
    size_bytes: int,
    *,
    one_by_one: bool = False,
) -> bytes:
    """Return bytes of a segment file from its parts, which follow each other from position 0 on and hold all
    of the bytes.

    Reads the parts at the same time, or one after the other.
    """
    end = position + size_bytes
    reads = [
        reader.read(partition, part, max(0, position - part.position), min(part.length, end - part.position))
        for part in parts
        if part.position < end and position < part.position + part.length
    ]
    if one_by_one:
        return b"".join([await read for read in reads])
    return b"".join(await asyncio.gather(*reads))
