"""The offset map of a cleaning: the newest offset of each key of a dirty section, in memory of a fixed size.

A slot holds 16 bytes of a keyed hash of the key, and 8 bytes of offset + 1, so that zeros mean free; probing
is linear. As in Kafka's `SkimpyOffsetMap` the hash stands for the key. The probability that two of n keys
collide is below n²/2¹²⁹ (10⁻²⁶ for five million keys). The hash is BLAKE2b with a new random key for every
cleaning, so nobody can choose colliding keys: Kafka's MD5 has known collisions.

Each record that compaction reads is looked up here. So this module runs compiled (`offset_map.pxd` has the
types) or interpreted, from the same text.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from mmap import mmap
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqgate.log.format.record_walk import PlainRecord

ENTRY_BYTES = 24
NOT_FOUND = -1
_WORDS = 3
"""The 8-byte words of a slot: two of the hash, one of the offset + 1."""
_words_of = Struct("QQ").unpack
_NO_WORDS = memoryview(bytearray(ENTRY_BYTES)).cast("Q")


class OffsetMap:
    """At most `capacity` keys with their newest offsets. It accounts for offsets up to `latest_offset`. The
    kernel allocates the memory as it is written to.
    """

    __slots__ = ("_end", "_hash", "_memory", "_words", "capacity", "latest_offset", "size")

    def __init__(self, memory_bytes: int, *, load_factor: float = 0.9, salt: bytes = b"") -> None:
        """Reserve `memory_bytes` at most; use `load_factor` of the slots. Raises ValueError without any."""
        slots = memory_bytes // ENTRY_BYTES
        self.capacity = min(int(slots * load_factor), slots - 1)
        if self.capacity < 1:
            raise ValueError(
                f"{memory_bytes} bytes with a load factor of {load_factor} hold no key; give the offset map "
                "more memory"
            )
        self._memory = mmap(-1, slots * ENTRY_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self._end = slots * _WORDS
        self._hash = blake2b(digest_size=16, key=salt)
        self.size = 0
        self.latest_offset = -1

    def put_all(self, records: Iterable[PlainRecord], first_offset: int) -> bool:
        """Store the newest offsets of the keys of `records`, of those from `first_offset` on. Return False
        when the map is full; it then accounts for the records before the first that found no room.
        """
        for record in records:
            offset, key = record.offset, record.key
            if key is not None and offset >= first_offset and not self.put(key, offset):
                self.account_for(offset - 1)
                return False
        return True

    def put(self, key: bytes, offset: int) -> bool:
        """Store a newer offset of `key`. Return False, without storing, for a new key in a full map."""
        first, second = _words_of(self._digest(key))
        position = self._find(first, second)
        if not self._words[position + 2]:
            if self.size >= self.capacity:
                return False
            self.size += 1
            self._words[position] = first
            self._words[position + 1] = second
        self._words[position + 2] = offset + 1
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the newest offset of `key`, -1 when the key is not in the map."""
        first, second = _words_of(self._digest(key))
        newest = self._words[self._find(first, second) + 2]
        return newest - 1

    def account_for(self, offset: int) -> None:
        """Record that the map accounts for all records up to `offset` (inclusive)."""
        self.latest_offset = max(self.latest_offset, offset)

    def close(self) -> None:
        """Give the memory back. The map must not be used any more."""
        self._words = _NO_WORDS
        self._memory.close()

    def _digest(self, key: bytes) -> bytes:
        hasher = self._hash.copy()
        hasher.update(key)
        return hasher.digest()

    def _find(self, first: int, second: int) -> int:
        """Return the position of the slot with this hash, or of a free one for it, in words."""
        position = first % (self._end // _WORDS) * _WORDS
        while self._words[position + 2] and (
            self._words[position] != first or self._words[position + 1] != second
        ):
            position += _WORDS
            if position == self._end:
                position = 0
        return position
