"""The background job for producer names finishes replays and writes snapshots of changed names in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.upkeep import name_keeping
from seqgate.gateway.runtime.upkeep.name_keeping import NameKeeping
from seqgate.log import StorageFailed
from seqgate.log.errors import NamesNotReady
from seqgate.log.state.record_states import RecordStates
from tests.gateway.handlers.requests import alter, create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.named_batches import DEDUPLICATED, named

TOPIC_RESOURCE = 2
INTERVAL_MS = 1_000
SETTINGS = (
    f"seqgate.deduplication.snapshot.interval.ms={INTERVAL_MS}",
    "seqgate.deduplication.snapshot.records=5",
)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, *SETTINGS) as opened:
        yield opened


@pytest.fixture
def keeping(node: Node) -> NameKeeping:
    services = node.services
    return NameKeeping(
        services.node.config, node.clock, services.partitions.registry, services.partitions.log_directory
    )


async def partition_with(node: Node, topic: str, *sequence_ids: int, **configs: str) -> Partition:
    await create(node, topic, configs=dict(configs))
    partition = node.services.partitions.registry.get(topic, 0)
    assert partition is not None
    for sequence_id in sequence_ids:
        append(partition, sequence_id)
    await settle(node, partition)
    return partition


def append(partition: Partition, *sequence_ids: int) -> None:
    partition.append(replace(named("a", *sequence_ids), base_timestamp=NOW_MS).encode(), NOW_MS)


async def settle(node: Node, partition: Partition) -> None:
    """Flush everything, so that captured names are written."""
    await node.services.partitions.flusher.flushed(partition.log, partition)
    await node.services.partitions.flusher.idle()


async def behind(node: Node, topic: str = "late", batches: int = 8) -> Partition:
    """Return a partition whose log must be replayed before its names are known."""
    partition = await partition_with(node, topic, *range(batches))
    configs: dict[str, str | None] = {**DEDUPLICATED, "message.deduplication.start": "earliest"}
    await alter(node, TOPIC_RESOURCE, topic, configs)
    assert not partition.log.record_states.names_ready
    return partition


def snapshots(partition: Partition) -> list[int]:
    """Return the offsets of the snapshots of names."""
    return sorted(int(path.stem) for path in Path(partition.log.directory).glob("*.names"))


async def test_a_log_that_is_behind_is_replayed_at_once(
    node: Node, keeping: NameKeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_keeping, "REPLAY_BYTES", 1)
    partitions = [await behind(node), await behind(node, "later")]
    await keeping.run()
    for partition in partitions:
        assert partition.log.record_states.names_ready
        state = partition.log.record_states.name_state(b"a")
        assert state is not None
        assert state.persisted_sequence == 7


async def test_others_have_their_turn_during_a_long_replay(
    node: Node, keeping: NameKeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_keeping, "REPLAY_BYTES", 1)
    monkeypatch.setattr(name_keeping, "READ_FOR_S", 0.0)
    partition = await behind(node)
    await keeping.run()
    assert not partition.log.record_states.names_ready


async def test_an_unreadable_log_is_tried_again_after_an_interval(
    node: Node, keeping: NameKeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await behind(node)
    tried = []

    def fail(_: RecordStates, max_bytes: int, now_ms: int) -> bool:
        tried.append(now_ms)
        raise StorageFailed("a read failed")

    with monkeypatch.context() as patch:
        patch.setattr(RecordStates, "replay_names", fail)
        for _ in range(3):
            await keeping.run()
        assert len(tried) == 1
    node.clock.time_ms += INTERVAL_MS
    await keeping.run()
    assert partition.log.record_states.names_ready


async def test_changed_names_are_written_once_in_an_interval(node: Node, keeping: NameKeeping) -> None:
    partition = await partition_with(node, "ledger", 1, 2, **DEDUPLICATED)
    await keeping.run()
    await settle(node, partition)
    assert snapshots(partition) == []
    node.clock.time_ms += INTERVAL_MS
    await keeping.run()
    await settle(node, partition)
    assert snapshots(partition) == [2]
    node.clock.time_ms += INTERVAL_MS
    await keeping.run()
    await settle(node, partition)
    assert snapshots(partition) == [2]


async def test_many_records_are_written_before_the_interval_ends(node: Node, keeping: NameKeeping) -> None:
    partition = await partition_with(node, "ledger", **DEDUPLICATED)
    append(partition, 1, 2, 3, 4, 5)
    await keeping.run()
    await settle(node, partition)
    assert snapshots(partition) == [5]


async def test_a_topic_that_is_deleted_is_left_alone(node: Node, keeping: NameKeeping) -> None:
    await partition_with(node, "ledger", 1, **DEDUPLICATED)
    await delete(node, "ledger")
    node.clock.time_ms += INTERVAL_MS
    await keeping.run()
    assert node.services.partitions.log_directory.environment.name_budget.in_all == 0


async def test_a_name_expires_when_it_is_idle_in_all_partitions(tmp_path: Path) -> None:
    expiration_ms = 10_000
    configs = {**DEDUPLICATED, "message.deduplication.expiration.ms": str(expiration_ms)}
    async with open_node(tmp_path, *SETTINGS) as node:
        await create(node, "ledger", 2, configs=dict(configs))
        for index, sent_ms in enumerate((NOW_MS, NOW_MS + 5_000)):
            partition = node.services.partitions.registry.get("ledger", index)
            assert partition is not None
            partition.append(replace(named("a", 1), base_timestamp=NOW_MS).encode(), sent_ms)
            await settle(node, partition)
    async with open_node(tmp_path, *SETTINGS) as node:
        services = node.services
        keeping = NameKeeping(
            services.node.config, node.clock, services.partitions.registry, services.partitions.log_directory
        )
        topic = services.partitions.registry.by_name["ledger"]
        first = topic.get(0)
        assert first is not None
        assert topic.peek(1) is None
        node.clock.time_ms = NOW_MS + expiration_ms
        await keeping.expire()
        assert first.log.record_states.name_state(b"a") is not None
        second = topic.peek(1)
        assert second is not None
        node.clock.time_ms += 5_000
        await keeping.expire()
        assert [len(partition.log.record_states.name_states()) for partition in (first, second)] == [0, 0]


async def test_names_of_a_topic_with_unread_partitions_do_not_expire(
    node: Node, keeping: NameKeeping
) -> None:
    configs: dict[str, str | None] = {**DEDUPLICATED, "message.deduplication.expiration.ms": "1"}
    await create(node, "ledger", 2, configs=configs)
    first, second = node.services.partitions.registry.by_name["ledger"].all()
    for partition in (first, second):
        append(partition, 1)
        await settle(node, partition)
    await alter(node, TOPIC_RESOURCE, "ledger", {"message.deduplication.enable": "false"})
    append(second, 2)
    await alter(node, TOPIC_RESOURCE, "ledger", configs)
    assert [partition.log.record_states.names_ready for partition in (first, second)] == [True, False]
    node.clock.time_ms += 1
    await keeping.expire()
    assert first.log.record_states.name_state(b"a") is not None
    await keeping.run()
    node.clock.time_ms += 1
    await keeping.expire()
    assert first.log.record_states.name_state(b"a") is None


async def test_partitions_opened_while_delays_are_altered_know_their_names(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        await create(node, "ledger", 3, configs=dict(DEDUPLICATED))
        for partition in node.services.partitions.registry.by_name["ledger"].all():
            append(partition, 1)
            await settle(node, partition)
    async with open_node(tmp_path, *SETTINGS) as node:
        topic = node.services.partitions.registry.by_name["ledger"]
        assert not list(topic.opened())
        altering = asyncio.create_task(
            alter(node, TOPIC_RESOURCE, "ledger", {"delivery.delay.header": "due"})
        )
        while not altering.done():
            await asyncio.sleep(0)
            assert all(partition.log.record_states.names is not None for partition in topic.opened())
        assert len(list(topic.opened())) == 3
        assert all(partition.log.config.delivery_delay_header for partition in topic.opened())


async def test_no_name_is_evicted_that_was_active_in_an_unopened_partition(tmp_path: Path) -> None:
    configs = {**DEDUPLICATED, "message.deduplication.names.max": "2"}
    settings = (*SETTINGS, "seqgate.deduplication.min.idle.ms=1000")
    async with open_node(tmp_path, *settings) as node:
        await create(node, "ledger", 2, configs=dict(configs))
        first, second = node.services.partitions.registry.by_name["ledger"].all()
        first.append(of("a", 1), NOW_MS)
        second.append(of("a", 1), NOW_MS + 5_000)
        first.append(of("idle", 1), NOW_MS + 1)
        for partition in (first, second):
            await settle(node, partition)
    async with open_node(tmp_path, *settings) as node:
        services = node.services
        keeping = NameKeeping(
            services.node.config, node.clock, services.partitions.registry, services.partitions.log_directory
        )
        topic = services.partitions.registry.by_name["ledger"]
        opened = topic.get(0)
        assert opened is not None
        now_ms = node.clock.time_ms = NOW_MS + 5_100
        with pytest.raises(NamesNotReady, match="other partitions"):
            opened.append(of("new", 1), now_ms)
        assert topic.peek(1) is None
        await keeping.run()
        assert topic.peek(1) is not None
        opened.append(of("new", 1), now_ms)
        assert {state.name for state in opened.log.record_states.name_states()} == {b"a", b"new"}


def of(name: str, sequence_id: int) -> bytes:
    return replace(named(name, sequence_id), base_timestamp=NOW_MS).encode()
