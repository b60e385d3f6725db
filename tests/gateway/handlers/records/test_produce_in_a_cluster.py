"""A Produce where records are durable in a bucket: it waits for the object, whatever acks and the flush
settings say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.handlers.records import produce_append
from seqgate.gateway.handlers.records.produce_order import Refusals
from seqgate.gateway.runtime.partitions.object_flusher import ObjectFlusher
from seqgate.gateway.runtime.partitions.partition import STRICT_MS
from tests.gateway.handlers.records.test_produce import Client
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import FixedClock, Node, open_node
from tests.gateway.runtime.backlog.test_backlog import TOPIC, answer, batch, configure, open_topic, produce
from tests.gateway.runtime.partitions.object_scene import HeldWal

SETTINGS = (
    "offsets.topic.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
    "seqgate.cluster.puts.per.second=1000",
)
RETRY, TIMED_OUT = 19, 7
OTHER_TOPIC = "orders"


@asynccontextmanager
async def node_with_bucket(path: Path, *settings: str) -> AsyncIterator[tuple[Node, HeldWal]]:
    wal = HeldWal(asyncio.get_running_loop(), latency_s=0.0)
    async with open_node(path, *SETTINGS, *settings, wal=wal) as node:
        await open_topic(node)
        yield node, wal
        let_go(wal)


def let_go(wal: HeldWal) -> None:
    """Confirm everything, now and from now on."""
    wal.latency_s = 0.0
    wal.confirm(wal.in_flight)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("configs", [{}, {"flush_messages": "1000000", "flush_ms": "1"}])
async def test_the_answer_waits_for_the_object(tmp_path: Path, acks: int, configs: dict[str, str]) -> None:
    async with node_with_bucket(tmp_path) as (node, wal):
        await configure(node, **configs)
        partition = node.services.partitions.registry.get(TOPIC, 0)
        assert partition is not None
        wal.latency_s = None
        begun = produce(node, batch(), acks=acks)
        await until(lambda: wal.in_flight == 1)
        assert isinstance(begun, Deferred)
        assert begun.answer is None
        assert partition.log.log_end_offset == 1
        assert partition.log.high_watermark == 0, "consumers see what the bucket has"
        wal.confirm()
        assert (await answer(begun))["error_code"] == 0
        assert partition.log.high_watermark == 1


@pytest.mark.parametrize("partition_count", [1, 2])
@pytest.mark.parametrize("acks", [1, -1])
async def test_the_wait_for_the_object_ends_with_the_time_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int, partition_count: int
) -> None:
    monkeypatch.setattr(produce_append, "CHECK_S", 0.0)
    async with node_with_bucket(tmp_path) as (node, wal):
        await create(node, OTHER_TOPIC, partition_count)
        client = Client(node, partition_count)
        for number in range(3):  # the prefix cache recognizes the second request for a partition
            wal.latency_s = None
            patient = client.produce(acks)
            hasty = client.again(acks, timeout_ms=0)
            await until(lambda hasty=hasty: hasty.answer is not None)  # type: ignore[misc]
            assert client.error_codes(hasty) == [TIMED_OUT] * partition_count
            assert patient.answer is None
            let_go(wal)
            await until(lambda patient=patient: patient.answer is not None)  # type: ignore[misc]
            assert client.error_codes(patient) == [0] * partition_count
            repeated = client.again(acks)
            assert client.error_codes(repeated) == [0] * partition_count
            assert client.base_offsets(repeated) == [number] * partition_count, "the records were stored once"


async def test_while_the_bucket_is_behind_producers_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_with_bucket(tmp_path, f"seqgate.cluster.unwritten.max.bytes={1 << 20}") as (node, wal):
        wal.latency_s = None
        flusher = node.services.partitions.flusher
        assert isinstance(flusher, ObjectFlusher)
        first, second, third = (batch(600_000, producer_id=7, sequence=number) for number in range(3))
        begun: list[Any] = [produce(node, sent) for sent in (first, second)]
        assert flusher.unwritten.is_too_much
        row = await answer(produce(node, third))
        assert row["error_code"] == RETRY
        assert "seqgate.cluster.unwritten.max.bytes" in row["error_message"]
        assert row["base_offset"] == -1
        repeated = produce(node, second)
        let_go(wal)
        assert [(await answer(each))["error_code"] for each in [*begun, repeated]] == [0, 0, 0]
        assert not flusher.unwritten.is_too_much
        assert (await answer(produce(node, third)))["error_code"] == 0
        assert node.services.upkeep.disk_room.refused_batches == 1
        assert not node.services.upkeep.disk_room.is_disk_short
    messages = [record.getMessage() for record in caplog.records if record.name.endswith("unwritten")]
    assert len(messages) == 1, "the end is no warning"
    assert "producers are refused" in messages[0]


async def test_a_later_batch_is_not_taken_for_the_first_of_a_producer(tmp_path: Path) -> None:
    """The gateway has refused the first batches, before it knew that it leads the partition; a later one was
    under way.
    """
    async with node_with_bucket(tmp_path) as (node, _):
        registry, clock = node.services.partitions.registry, node.services.node.clock
        assert isinstance(clock, FixedClock)
        registry.release(TOPIC, 0)
        registry.strict_until = lambda: clock.now_ms() + STRICT_MS
        sent = [batch(producer_id=7, sequence=number) for number in range(3)]
        rows = [await answer(produce(node, sent[number])) for number in (2, 0, 1, 2, 1)]
        assert [row["error_code"] for row in rows] == [RETRY, 0, 0, 0, 0]
        assert [row["base_offset"] for row in rows[1:]] == [0, 1, 2, 1]
        partition = registry.get(TOPIC, 0)
        assert partition is not None
        assert partition.strict_until_ms
        clock.time_ms += STRICT_MS
        assert (await answer(produce(node, batch(producer_id=8, sequence=5))))["error_code"] == 0
        assert not partition.strict_until_ms


async def test_a_batch_that_is_refused_here_and_stored_elsewhere_holds_up_nobody(tmp_path: Path) -> None:
    """The leader before has stored a batch, and its answer was lost. The new one refused it while the records
    had not come yet.
    """
    async with node_with_bucket(tmp_path) as (node, _):
        registry = node.services.partitions.registry
        sent = [batch(producer_id=7, sequence=number) for number in range(3)]
        for each in sent[:2]:
            assert (await answer(produce(node, each)))["error_code"] == 0
        registry.release(TOPIC, 0)
        refusals = Refusals(node.services.partitions.refusals, node.peer)
        refusals.note(TOPIC, 0, memoryview(sent[1]), int(ErrorCode.not_leader_or_follower))
        assert (await answer(produce(node, sent[2])))["error_code"] == 0
        assert node.peer.refused is None
