"""Lists longer than a page come whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gateway.commands.block_access import RunningBlocks
from gateway.control.client import producer_pages
from gateway.control.messages import PAGE_ROWS
from gateway.control.server import ControlServer
from tests.gateway.control.fakes import NOW_MS, Batch, FakeServices, FakeStore, fake_allocator, fake_source

MANY = 2 * PAGE_ROWS + 500


async def test_blocks_of_a_running_gateway(tmp_path: Path) -> None:
    store = FakeStore()
    for _ in range(MANY):
        await store.claim(10, "node-0", NOW_MS)
    services: Any = FakeServices(fake_allocator(store), {})
    control = ControlServer(services, tmp_path, source=fake_source(store))
    await control.start()
    blocks = RunningBlocks(tmp_path)
    everything = await asyncio.to_thread(blocks.list, None)
    assert [row.first_producer_id for row in everything.blocks] == list(range(0, 10 * MANY, 10))
    assert everything.total == MANY
    latest = await asyncio.to_thread(blocks.list, 3)
    assert latest.blocks == everything.blocks[-3:]
    more_than_there_are = await asyncio.to_thread(blocks.list, 10 * MANY)
    assert len(more_than_there_are.blocks) == MANY
    await control.stop()


async def test_producers_of_a_running_gateway(tmp_path: Path) -> None:
    store = FakeStore()
    services: Any = FakeServices(fake_allocator(store), {"a": 1, "b": 1})
    for topic in ("a", "b"):
        for producer_id in range(MANY):
            services.partitions.get(topic, 0).log.append(Batch(producer_id, 0, 0))
    control = ControlServer(services, tmp_path, source=fake_source(store))
    await control.start()
    pages = await asyncio.to_thread(lambda: list(producer_pages(tmp_path, None, None)))
    rows = [(row.topic, row.producer_id) for page in pages for row in page.producers]
    assert rows == [(topic, producer_id) for topic in ("a", "b") for producer_id in range(MANY)]
    assert [page.complete for page in pages] == [False] * (len(pages) - 1) + [True]
    await control.stop()
