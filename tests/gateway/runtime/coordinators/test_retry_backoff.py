"""Share groups with a retry backoff: a released record comes again after the delay of its delivery count."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.image import GROUP_RESOURCE
from seqgate.gateway.runtime.loop.clock import Deadlines
from tests.gateway.handlers.requests import alter, create
from tests.gateway.handlers.support import Node, open_node
from tests.gateway.runtime.share_requests import (
    GROUP,
    SETTINGS,
    acknowledge,
    acquired,
    begin,
    fetch,
    key_of,
    write,
)
from tests.support.held_disk import HeldDisk

ACCEPT, RELEASE = 1, 2
BACKOFF = "seqgate.share.retry.backoff.ms"
LIMIT = "group.share.delivery.count.limit=3"


async def begin_with_backoff(node: Node, delays: str) -> uuid.UUID:
    topic_id = await begin(node)
    await alter(node, GROUP_RESOURCE, GROUP, {BACKOFF: delays, "share.auto.offset.reset": "earliest"})
    return topic_id


async def waiting_fetch(node: Node, topic_id: uuid.UUID, session_epoch: int) -> asyncio.Task[Any]:
    """Begin a fetch that waits for records."""
    wait = timedelta(seconds=60)
    task = asyncio.create_task(fetch(node, topic_id, session_epoch=session_epoch, max_wait=wait))
    while not node.services.coordinators.shares.waiters:
        await asyncio.sleep(0)
    return task


async def looked_for_due(node: Node) -> None:
    """Wait until the timer has looked for records that are due at the present time."""
    deadlines = node.services.coordinators.shares._deadlines
    times_ms = []

    def noted(now_ms: int) -> None:
        times_ms.append(now_ms)
        Deadlines.release_due(deadlines, now_ms)

    deadlines.release_due = noted  # type: ignore[method-assign]
    try:
        async with asyncio.timeout(60):
            while node.clock.time_ms not in times_ms:
                await asyncio.sleep(0)
    finally:
        del deadlines.release_due


async def test_a_released_record_comes_after_its_delay_and_holds_up_no_other(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS, LIMIT) as node:
        topic_id = await begin_with_backoff(node, "50,200")
        await write(node, 3)
        assert acquired(await fetch(node, topic_id)) == [(0, 2)]
        await acknowledge(node, topic_id, 1, 1, RELEASE)
        await write(node, 1)
        assert acquired(await fetch(node, topic_id, session_epoch=2)) == [(3, 3)]
        for session_epoch, delay_ms in ((3, 50), (5, 200)):
            task = await waiting_fetch(node, topic_id, session_epoch)
            node.clock.time_ms += delay_ms - 1
            await looked_for_due(node)
            assert not task.done()
            node.clock.time_ms += 1
            assert acquired(await task) == [(1, 1)]
            await acknowledge(node, topic_id, 1, 1, RELEASE, session_epoch=session_epoch + 1)
        found = node.services.coordinators.shares.find(key_of(node))
        assert found is not None
        assert not found.waits, "after the third delivery the record is archived"


async def test_a_record_that_waits_does_not_use_up_the_locks_of_others(tmp_path: Path) -> None:
    """The limit of locks counts the records that are not done, not those done behind one that waits."""
    async with open_node(tmp_path, *SETTINGS) as node:
        topic_id = await begin_with_backoff(node, "60000")
        locks = {"share.partition.max.record.locks": "100"}
        await alter(node, GROUP_RESOURCE, GROUP, {BACKOFF: "60000", **locks})
        await write(node, 1)
        assert acquired(await fetch(node, topic_id)) == [(0, 0)]
        await acknowledge(node, topic_id, 0, 0, RELEASE)
        for number in range(5):
            await write(node, 90)
            first, session_epoch = 1 + 90 * number, 2 + 2 * number
            batch = first, first + 89
            assert acquired(await fetch(node, topic_id, session_epoch=session_epoch)) == [batch]
            await acknowledge(node, topic_id, *batch, ACCEPT, session_epoch=session_epoch + 1)


async def test_a_delay_begins_with_the_release_although_the_disk_is_busy(tmp_path: Path) -> None:
    """The second release waits for the flush of the first one, during which its delay passes."""
    disk = HeldDisk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        topic_id = await begin_with_backoff(node, "1000")
        await write(node, 2)
        assert acquired(await fetch(node, topic_id)) == [(0, 1)]
        with disk.held("__share_group_state"):
            first = asyncio.create_task(acknowledge(node, topic_id, 0, 0, ACCEPT))
            async with asyncio.timeout(60):
                while not disk.waiting:
                    await asyncio.sleep(0)
            second = asyncio.create_task(acknowledge(node, topic_id, 1, 1, RELEASE, session_epoch=2))
            for _ in range(10):
                await asyncio.sleep(0)
            node.clock.time_ms += 1_000
        await asyncio.gather(first, second)
        await looked_for_due(node)
        assert acquired(await fetch(node, topic_id, session_epoch=3)) == [(1, 1)]


async def test_a_record_that_is_due_comes_although_the_disk_is_busy(tmp_path: Path) -> None:
    """The state is being flushed for the acknowledgement of another record: the delivery waits for no flush."""
    disk = HeldDisk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        topic_id = await begin_with_backoff(node, "1000")
        await write(node, 2)
        assert acquired(await fetch(node, topic_id)) == [(0, 1)]
        await acknowledge(node, topic_id, 0, 0, RELEASE)
        waiting = await waiting_fetch(node, topic_id, 2)
        with disk.held("__share_group_state"):
            accepting = asyncio.create_task(acknowledge(node, topic_id, 1, 1, ACCEPT, session_epoch=3))
            async with asyncio.timeout(60):
                while not disk.waiting:
                    await asyncio.sleep(0)
                node.clock.time_ms += 1_000
                assert acquired(await waiting) == [(0, 0)]
            assert not accepting.done()
        await accepting


async def test_a_delay_outlives_a_restart(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        topic_id = await begin_with_backoff(node, "50")
        await write(node, 2)
        await fetch(node, topic_id)
        await acknowledge(node, topic_id, 0, 1, RELEASE)
    async with open_node(tmp_path, *SETTINGS) as node:
        assert acquired(await fetch(node, topic_id)) == []
        task = await waiting_fetch(node, topic_id, 1)
        node.clock.time_ms += 50
        assert acquired(await task) == [(0, 1)]


async def test_the_last_delivery_leads_to_the_dead_letter_topic(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS, "group.share.delivery.count.limit=2") as node:
        topic_id = await begin_with_backoff(node, "50")
        await create(node, "dlq.t", configs={"errors.deadletterqueue.group.enable": "true"})
        await alter(
            node, GROUP_RESOURCE, GROUP, {BACKOFF: "50", "errors.deadletterqueue.topic.name": "dlq.t"}
        )
        await write(node, 1)
        await fetch(node, topic_id)
        await acknowledge(node, topic_id, 0, 0, RELEASE)
        task = await waiting_fetch(node, topic_id, 2)
        node.clock.time_ms += 50
        assert acquired(await task) == [(0, 0)]
        await acknowledge(node, topic_id, 0, 0, RELEASE, session_epoch=3)
        async with asyncio.timeout(60):
            while node.services.coordinators.letters.written != {GROUP: 1}:
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("value", ["a", "-1", "1.5", "2147483648", ",".join(["1"] * 26), "9" * 5000])
async def test_what_are_no_delays_is_refused(tmp_path: Path, value: str) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        answer = await alter(node, GROUP_RESOURCE, GROUP, {BACKOFF: value})
        assert answer.error_code is ErrorCode.invalid_config
        assert BACKOFF in (answer.error_message or "")
