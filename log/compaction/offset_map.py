"""Maps each key of a dirty section to its newest offset, in memory of a fixed size.

A slot holds 16 bytes of a keyed hash of the key, and 8 bytes of offset + 1, so that zeros mean free; probing is linear.
As in Kafka's `SkimpyOffsetMap` the hash stands for the key. The probability that two of n keys collide is below n²/2¹²⁹
(10⁻²⁶ for five million keys). The hash is BLAKE2b with a new random key for every cleaning, so nobody can choose colliding keys:
Kafka's MD5 has known collisions.
"""

from __future__ import annotations

import mmap
import struct
from hashlib import blake2b
from typing import Final

_HASH_BYTES: Final = 16
ENTRY_BYTES: Final = _HASH_BYTES + 8
_OFFSET: Final = struct.Struct(">Q")
NOT_FOUND: Final = -1
_FREE: Final = bytes(8)


class OffsetMap:
    """At most `capacity` keys with their newest offsets. `latest_offset` is the last offset that the map accounts for.

    The kernel allocates the memory as it is written to.
    """

    __slots__ = ("_hash", "_memory", "_slots", "capacity", "latest_offset", "size")

    def __init__(self, memory_bytes: int, *, load_factor: float = 0.9, salt: bytes = b"") -> None:
        """Reserve at most `memory_bytes`, and use the share `load_factor` of the slots. Raises ValueError without room for a key."""
        self._slots = memory_bytes // ENTRY_BYTES
        self.capacity = min(int(self._slots * load_factor), self._slots - 1)
        if self.capacity < 1:
            raise ValueError(
                f"{memory_bytes} bytes with a load factor of {load_factor} hold no key; give the offset map more memory"
            )
        self._memory = mmap.mmap(-1, self._slots * ENTRY_BYTES)
        self._hash = blake2b(digest_size=_HASH_BYTES, key=salt)
        self.size = 0
        self.latest_offset = -1

    def put(self, key: bytes, offset: int) -> bool:
        """Store a newer offset of `key`. Return False, without storing, for a new key when the map is full."""
        digest, position, entry = self._find(key)
        memory = self._memory
        if entry[_HASH_BYTES:] == _FREE:
            if self.size >= self.capacity:
                return False
            self.size += 1
            memory[position : position + _HASH_BYTES] = digest
        memory[position + _HASH_BYTES : position + ENTRY_BYTES] = _OFFSET.pack(offset + 1)
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the newest offset of `key`, -1 when the key is not in the map."""
        _, _, entry = self._find(key)
        return int(_OFFSET.unpack_from(entry, _HASH_BYTES)[0]) - 1

    def account_for(self, offset: int) -> None:
        """Record that the map accounts for all records up to `offset` (inclusive)."""
        self.latest_offset = max(self.latest_offset, offset)

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()

    def _find(self, key: bytes) -> tuple[bytes, int, bytes]:
        """Return the hash of `key`, the position of its slot (or of the free slot for it), and the slot's content."""
        hasher = self._hash.copy()
        hasher.update(key)
        digest = hasher.digest()
        memory, slots = self._memory, self._slots
        slot = int.from_bytes(digest[:8], "big") % slots
        while True:
            position = slot * ENTRY_BYTES
            entry = memory[position : position + ENTRY_BYTES]
            if entry[:_HASH_BYTES] == digest or entry[_HASH_BYTES:] == _FREE:
                return digest, position, entry
            slot = slot + 1 if slot + 1 < slots else 0
