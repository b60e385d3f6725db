"""Share groups read a topic with delayed records, on real logs: when records arrive, and what a restart
changes.
"""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.handlers.records import produce
from seqgate.gateway.metadata.image import GROUP_RESOURCE as GROUP_CONFIGS
from seqgate.gateway.metadata.image import TOPIC_RESOURCE
from seqgate.gateway.protocol.produce_codec import PartitionRecords, ProduceRequest, TopicRecords
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.upkeep.background_jobs import DelayedDelivery
from seqgate.log.format.records import NewRecord, build_batch
from tests.gateway.handlers.requests import alter, create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.runtime.backlog.test_backlog import answer
from tests.gateway.runtime.share_requests import (
    GROUP,
    SETTINGS,
    TOPIC,
    acknowledge,
    acquired,
    append,
    begin,
    fetch,
)

DELAYING: dict[str, str | None] = {"delivery.delay.header": "due"}


def batch(*delays_ms: int | None, producer_id: int = -1, sequence: int = -1) -> bytes:
    records = [
        NewRecord(b"v", headers=() if delay_ms is None else [("due", b"%d" % (NOW_MS + delay_ms))])
        for delay_ms in delays_ms
    ]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=producer_id >= 0,
    )


def partition_of(node: Node) -> Partition:
    found = node.services.partitions.registry.get(TOPIC, 0)
    assert found is not None
    return found


class Reader:
    """A member that accepts every record that it gets."""

    def __init__(self, node: Node, topic_id: uuid.UUID) -> None:
        self.node = node
        self.topic_id = topic_id
        self.epoch = 0

    async def read(self, **fields: Any) -> list[int]:
        """Acquire records; return their offsets."""
        response = await fetch(self.node, self.topic_id, session_epoch=self.epoch, **fields)
        self.epoch += 1
        return [offset for first, last in acquired(response) for offset in range(first, last + 1)]

    async def accept(self, first: int, last: int) -> None:
        answer = await acknowledge(self.node, self.topic_id, first, last, 1, session_epoch=self.epoch)
        self.epoch += 1
        assert answer.responses[0].partitions[0].error_code is ErrorCode.none


async def test_records_come_when_they_are_due(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        reader = Reader(node, await begin(node, DELAYING))
        await append(node, batch(300, None, 100))
        await append(node, batch(200, 100, -5))
        assert await reader.read() == [1, 5]
        node.clock.time_ms += 99
        assert await reader.read() == []
        node.clock.time_ms += 1
        assert await reader.read() == [2, 4]
        node.clock.time_ms += 100
        assert await reader.read() == [3]
        node.clock.time_ms += 100
        assert await reader.read() == [0]


async def test_a_waiting_fetch_returns_when_a_record_is_due(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        reader = Reader(node, await begin(node, DELAYING))
        await append(node, batch(40))
        waiting = asyncio.create_task(reader.read(max_wait=timedelta(seconds=30)))
        while not node.services.coordinators.shares.waiters:
            await asyncio.sleep(0)
        node.clock.time_ms += 40
        assert await asyncio.wait_for(waiting, 60) == [0]


async def test_an_earlier_record_wakes_a_waiting_fetch_earlier(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        reader = Reader(node, await begin(node, DELAYING))
        await append(node, batch(86_400_000))
        waiting = asyncio.create_task(reader.read(max_wait=timedelta(seconds=30)))
        while not node.services.coordinators.shares.waiters:
            await asyncio.sleep(0)
        await append(node, batch(30))
        while not node.services.coordinators.shares.waiters:
            await asyncio.sleep(0)
        node.clock.time_ms += 30
        assert await asyncio.wait_for(waiting, 60) == [1]


async def test_waiting_records_in_front_do_not_fill_the_window(tmp_path: Path) -> None:
    limits = {"share.partition.max.record.locks": "100"}
    async with open_node(tmp_path, *SETTINGS, "group.share.min.partition.max.record.locks=100") as node:
        reader = Reader(node, await begin(node, DELAYING))
        await alter(node, GROUP_CONFIGS, GROUP, {**limits, "share.auto.offset.reset": "earliest"})
        await append(node, batch(*[500] * 300))
        for number in range(5):
            await append(node, batch(*[None] * 50))
            first = 300 + 50 * number
            assert await reader.read() == list(range(first, first + 50))
            await reader.accept(first, first + 49)
        node.clock.time_ms += 500
        assert await reader.read() == list(range(100))
        await reader.accept(0, 99)
        assert await reader.read() == list(range(100, 200))


@pytest.mark.parametrize("committed_only", [True, False])
async def test_delayed_records_in_transactions_follow_the_isolation_level(
    tmp_path: Path, committed_only: bool
) -> None:
    isolation = "read_committed" if committed_only else "read_uncommitted"
    async with open_node(tmp_path, *SETTINGS) as node:
        reader = Reader(node, await begin(node, DELAYING))
        configs = {"share.isolation.level": isolation, "share.auto.offset.reset": "earliest"}
        await alter(node, GROUP_CONFIGS, GROUP, configs)
        partition = partition_of(node)
        await append(node, batch(50, 500, producer_id=7, sequence=0))  # offsets 0 and 1
        await append(node, batch(500, producer_id=8, sequence=0))  # offset 2
        node.clock.time_ms += 50
        assert await reader.read() == ([] if committed_only else [0])
        for producer_id, commit in ((7, True), (8, False)):  # offsets 3 and 4
            info = partition.append_end_marker(
                producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS
            )
            assert await partition.persisted(info.last_offset)
        assert await reader.read() == ([0, 3, 4] if committed_only else [2, 3, 4])
        node.clock.time_ms += 450
        assert await reader.read() == [1]


@pytest.mark.parametrize("is_noted", [True, False])
async def test_a_restart_delivers_nothing_early_and_nothing_twice(tmp_path: Path, is_noted: bool) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        topic_id = await begin(node, DELAYING)
        reader = Reader(node, topic_id)
        await append(node, batch(100, None, 200, None))
        assert await reader.read() == [1, 3]
        await reader.accept(1, 1)
        await reader.accept(3, 3)
        if is_noted:
            DelayedDelivery(
                node.clock, node.services.partitions.log_directory, node.services.partitions.registry, 0
            ).run()
    async with open_node(tmp_path, *SETTINGS) as node:
        reader = Reader(node, topic_id)
        found = node.services.coordinators.shares.find(SharePartitionKey(GROUP, topic_id, 0))
        assert found is not None
        assert found.start_offset == 0
        assert await reader.read() == []
        node.clock.time_ms += 100
        assert await reader.read() == [0]
        await reader.accept(0, 0)
        assert found.start_offset == 2
        node.clock.time_ms += 100
        assert await reader.read() == [2]


async def test_delays_can_be_turned_on_and_off(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        reader = Reader(node, await begin(node))
        await append(node, batch(100))
        await alter(node, TOPIC_RESOURCE, TOPIC, {"delivery.delay.header": "due"})
        assert await reader.read() == [0], (
            "a new delay header must not delay records that are in the log already"
        )
        await append(node, batch(100, 100))
        assert await reader.read() == []
        await alter(node, TOPIC_RESOURCE, TOPIC, {"delivery.delay.header": ""})
        assert await reader.read() == [1, 2]


async def test_delays_are_refused_for_compacted_topics(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        configs: dict[str, str | None] = {**DELAYING, "cleanup.policy": "delete,compact"}
        refused = await create(node, "both", configs=configs)
        assert refused.error_code is ErrorCode.invalid_config
        assert "can't have both delivery.delay.header and the cleanup policy compact" in refused.error_message


async def test_due_records_no_longer_hold_the_log(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        await begin(node, {**DELAYING, "delivery.delay.hold.ms": "0"})
        log = partition_of(node).log
        await append(node, batch(None, 100))
        delivery = DelayedDelivery(
            node.clock, node.services.partitions.log_directory, node.services.partitions.registry, 1_000
        )
        delivery.run()
        assert log.held_from == 1
        node.clock.time_ms += 1_000
        delivery.run()
        assert log.held_from > log.log_end_offset


async def test_a_changed_delay_header_applies_to_closed_partitions(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        topic_id = await begin(node)
        await append(node, batch(100))
    async with open_node(tmp_path, *SETTINGS) as node:
        await alter(node, TOPIC_RESOURCE, TOPIC, {"delivery.delay.header": "due"})
    async with open_node(tmp_path, *SETTINGS) as node:
        assert await Reader(node, topic_id).read() == [0], (
            "the record was in the log before the header was set"
        )
        await append(node, batch(200, 300))
    async with open_node(tmp_path, *SETTINGS) as node:
        assert await Reader(node, topic_id).read() == [0], (
            "the acquired record was not acknowledged, so it must come again"
        )
    async with open_node(tmp_path, *SETTINGS) as node:
        await alter(node, TOPIC_RESOURCE, TOPIC, {"delivery.delay.header": ""})
        await alter(node, TOPIC_RESOURCE, TOPIC, {"delivery.delay.header": "due"})
        assert await Reader(node, topic_id).read() == [0, 1, 2], (
            "no record may wait after the header was removed once"
        )


async def test_a_producer_must_retry_when_too_many_records_wait(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        await begin(node, DELAYING)
        node.services.partitions.log_directory.environment.delayed_limit.change(1, 10)

        async def send(records: bytes) -> int:
            """Produce a batch; return its error, 0 for none."""
            entries = [PartitionRecords(0, memoryview(records))]
            request = ProduceRequest(None, -1, 30_000, [TopicRecords(partition_of(node).topic, entries)])
            row = await answer(produce.begin(node.context(produce.API, 9), request))
            return int(row["error_code"])

        def of_producer(sequence: int, due_ms: int | None) -> bytes:
            headers = () if due_ms is None else [("due", b"%d" % due_ms)]
            record = NewRecord(b"v", headers=headers)
            return build_batch([record], producer_id=5, producer_epoch=0, base_sequence=sequence)

        full = int(ErrorCode.not_enough_replicas)
        assert await send(batch(100)) == 0
        assert await send(batch(200)) == full
        assert await send(batch(None, 0)) == 0
        assert await send(of_producer(0, NOW_MS + 200)) == full
        assert await send(of_producer(1, None)) == full, (
            "a batch must be refused after an earlier batch of its producer"
        )
        node.clock.time_ms += 100
        assert await send(of_producer(1, None)) == full
        assert [
            await send(of_producer(sequence, None if sequence else NOW_MS + 200)) for sequence in (0, 1, 2)
        ] == [0] * 3
