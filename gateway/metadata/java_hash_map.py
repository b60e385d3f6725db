"""The order in which Java's HashMap lists its keys. Kafka describes client quotas and SCRAM users in this
order (`client_quotas.describe_client_quotas`, `user_scram_credentials.describe_users`).

A HashMap is a table of buckets, and lists the keys bucket by bucket. The bucket of a key follows from the
key's hash and from the length of the table, which follows from the number of keys. So the names alone
determine the order, except among keys of one bucket: these are listed in the order in which they were put.

Source: OpenJDK's String.hashCode, HashMap.tableSizeFor, putVal, resize. A bucket of nine keys and more,
which Java keeps as a tree, is treated as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeVar

K = TypeVar("K")

HASH_MASK: Final = 0xFFFFFFFF
DEFAULT_CAPACITY: Final = 16
"""The length of the table of `new HashMap<>()`."""


def string_hash(text: str) -> int:
    """Return Java's String.hashCode (UTF-16 units, 32 bits) as an unsigned number."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = 31 * value + unit & HASH_MASK
        return value
    raw = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(raw), 2):
        value = 31 * value + (raw[position] << 8 | raw[position + 1]) & HASH_MASK
    return value


def java_hash_map_length(count: int, capacity: int = DEFAULT_CAPACITY) -> int:
    """Return the length of the table of a `new HashMap<>(capacity)` into which `count` keys were put."""
    length = 1
    while length < capacity or count > length * 3 // 4:
        length *= 2
    return length


def by_java_hash_map_bucket(keys: Iterable[K], hash_of: Callable[[K], int], length: int) -> list[K]:
    """Sort keys by their bucket in a table of this length; keys of one bucket keep their order."""

    def bucket(key: K) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & (length - 1)

    return sorted(keys, key=bucket)


def in_java_hash_map_order(
    keys: Collection[K], hash_of: Callable[[K], int], capacity: int = DEFAULT_CAPACITY
) -> list[K]:
    """Return distinct keys in the order of a `new HashMap<>(capacity)` into which they were put in turn."""
    return by_java_hash_map_bucket(keys, hash_of, java_hash_map_length(len(keys), capacity))
