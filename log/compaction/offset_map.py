"""The newest offset of each key of a dirty section, in memory of a fixed size.

A slot holds 16 bytes of a keyed hash of the key, and 8 bytes of offset + 1, so that zeros mean free; probing is linear.
As in Kafka's `SkimpyOffsetMap` the hash stands for the key. Two keys are confused with a probability below n²/2¹²⁹
(n keys: 10⁻²⁶ for five million), and as the hash is BLAKE2b with a key that is drawn anew for every cleaning, nobody can
choose keys that are: Kafka's MD5 has known collisions.
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
    """Keys and their newest offsets, at most `capacity` of them; `latest_offset` is the last one that is accounted for.

    The memory is taken as it is written to.
    """

    __slots__ = ("_hash", "_memory", "_slots", "capacity", "latest_offset", "size")

    def __init__(self, memory_bytes: int, *, load_factor: float = 0.9, salt: bytes = b"") -> None:
        """Take at most `memory_bytes`, of which `load_factor` are used. Raises ValueError without room for one key."""
        self._slots = memory_bytes // ENTRY_BYTES
        self.capacity = min(int(self._slots * load_factor), self._slots - 1)
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes with a load factor of {load_factor} hold no key")
        self._memory = mmap.mmap(-1, self._slots * ENTRY_BYTES)
        self._hash = blake2b(digest_size=_HASH_BYTES, key=salt)
        self.size = 0
        self.latest_offset = -1

    def put(self, key: bytes, offset: int) -> bool:
        """Note a newer offset of `key`; False, and nothing noted, when it is new and the map is full."""
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
        """The newest offset of `key`, -1 when it is not in the map."""
        _, _, entry = self._find(key)
        return int(_OFFSET.unpack_from(entry, _HASH_BYTES)[0]) - 1

    def account_for(self, offset: int) -> None:
        """Everything up to `offset` (inclusive) has been seen."""
        self.latest_offset = max(self.latest_offset, offset)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()

    def _find(self, key: bytes) -> tuple[bytes, int, bytes]:
        """The hash of `key`, where its slot is or would be, and what is there."""
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
