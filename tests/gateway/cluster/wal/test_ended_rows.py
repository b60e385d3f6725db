"""The rows of ended logs come in order, and the ends of many objects are read at once."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from seqgate.gateway.cluster.objects.objects import Missing
from seqgate.gateway.cluster.wal.ended import (
    INDEXES_AT_ONCE,
    READ_AT_ONCE,
    Collected,
    EndedRows,
    EndedSession,
)
from seqgate.gateway.cluster.wal.sessions import encode_boundary
from seqgate.gateway.cluster.wal.wal_object import (
    CorruptWalObject,
    DataRow,
    WalObject,
    WalRow,
    boundary_key,
    encode,
    object_key,
)

NODE, SESSION, NONCE = 1, 7, b"n" * 16
TOPIC = UUID(int=5)
LARGE = 100_000
"""More bytes than are read of an object's end."""


class Store:
    """A store that answers when all callers that come at once have called; it counts them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.under_way = {"end": 0, "rows": 0}
        self.most = {"end": 0, "rows": 0}

    def put(self, seq: int, size_bytes: int = 10) -> None:
        row = DataRow(TOPIC, seq % 2, 0, seq, seq + 1, 0, 0, size_bytes)
        made = WalObject(NODE, SESSION, seq, NONCE, [row], [bytes([seq % 256]) * size_bytes])
        self.objects[object_key(NODE, SESSION, seq)] = b"".join(encode(made))

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        return (await self._read("end", key))[-size_bytes:]

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        found = await self._read("rows", key)
        return found[first : None if size_bytes is None else first + size_bytes]

    async def _read(self, what: str, key: str) -> bytes:
        self.under_way[what] += 1
        self.most[what] = max(self.most[what], self.under_way[what])
        for _ in range(3):
            await asyncio.sleep(0)
        self.under_way[what] -= 1
        try:
            return self.objects[key]
        except KeyError:
            raise Missing(key) from None

    async def read(self, key: str) -> tuple[bytes, str]:
        if key not in self.objects:
            raise Missing(key)
        return self.objects[key], "1"


async def offsets(store: Any, count: int, wants: Any = lambda _: True, first: int = 0) -> list[int]:
    rows = EndedRows(store, "a test waits")
    found: list[int] = []
    async for each in rows.read([EndedSession(NODE, SESSION, NONCE, count, first)], wants):
        for at, data in each:
            assert isinstance(data, memoryview)
            assert isinstance(at.row, DataRow)
            assert bytes(data) == bytes([at.row.first_offset % 256]) * at.row.length
            found.append(at.row.first_offset)
    return found


@pytest.mark.parametrize("count", [0, 1, INDEXES_AT_ONCE, 200])
async def test_rows_come_in_order_and_many_ends_are_read_at_once(count: int) -> None:
    store = Store()
    for seq in range(count):
        store.put(seq)
    assert await offsets(store, count) == list(range(count))
    assert store.most["end"] == min(count, INDEXES_AT_ONCE)
    assert store.most["rows"] == 0, "a small object is read with its end"


async def test_few_large_objects_are_in_memory_at_once() -> None:
    store = Store()
    for seq in range(100):
        store.put(seq, LARGE)
    assert await offsets(store, 100) == list(range(100))
    assert store.most["rows"] == READ_AT_ONCE


async def test_rows_that_nobody_wants_are_not_read() -> None:
    def wants(row: WalRow) -> bool:
        return row.partition == 1

    store = Store()
    for seq in range(20):
        store.put(seq, LARGE)
    assert await offsets(store, 20, wants) == list(range(1, 20, 2))


async def test_an_object_that_is_missing_ends_the_reading_and_leaves_no_call_behind() -> None:
    store = Store()
    for seq in range(100):
        store.put(seq)
    del store.objects[object_key(NODE, SESSION, 50)]
    with pytest.raises(CorruptWalObject, match="is missing"):
        await offsets(store, 100)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    store.objects[boundary_key(NODE, SESSION)] = encode_boundary(60)
    with pytest.raises(Collected):
        await offsets(store, 100)


async def test_a_reader_that_stops_early_leaves_no_call_behind() -> None:
    store: Any = Store()
    for seq in range(100):
        store.put(seq)
    reading = EndedRows(store, "a test waits").read([EndedSession(NODE, SESSION, NONCE, 100)], lambda _: True)
    assert len(await anext(reading)) == 1
    await reading.aclose()  # type: ignore[attr-defined] # it is a generator
    assert asyncio.all_tasks() == {asyncio.current_task()}
