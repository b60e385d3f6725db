"""Backlog quotas and message TTL on real logs and coordinators, with a clock that only the test moves."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.admin.backlog import BacklogRequest
from seqgate.gateway.admin.groups.reset import ResetOffsetsRequest
from seqgate.gateway.coordinator.change import Pending
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.handlers.groups.offset_commit import commit_offsets
from seqgate.gateway.handlers.records.produce import API, begin
from seqgate.gateway.handlers.sharing.share_group_offsets import begin_group
from seqgate.gateway.metadata.image import TOPIC_RESOURCE
from seqgate.gateway.protocol.produce_codec import PartitionRecords, ProduceRequest, TopicRecords
from seqgate.gateway.quota.backlog import Limit
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import PartitionLog, Storage
from seqgate.log.format.records import NewRecord, build_batch
from tests.gateway.admin.answers import answer as answer_command
from tests.gateway.backends.test_uploads import running
from tests.gateway.handlers.requests import alter, create, delete
from tests.gateway.handlers.support import NOW_MS, FakePeer, FixedClock, Node, open_node
from tests.gateway.runtime.absent_segments import Bucket
from tests.log.deduplicated import batch as named_batch
from tests.log.support import delete_old_segments
from tests.support.gateway_process import REPOSITORY
from tests.support.wire import decode

TOPIC = "flights"
SETTINGS = (
    "share.coordinator.state.topic.num.partitions=1",
    "offsets.topic.num.partitions=1",
    "seqgate.backlog.check.interval.ms=2147483647",
)
RETRY = 19
UNKNOWN_TOPIC = 3
HOLD, REFUSE, EVICT = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"


def batch(size: int = 100, *, timestamp: int = NOW_MS, producer_id: int = -1, sequence: int = -1) -> bytes:
    """Return a batch with one record of this size; the batch itself adds about 70 bytes."""
    return build_batch(
        [NewRecord(b"x" * size, timestamp=timestamp)],
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        base_sequence=sequence,
    )


BATCH_BYTES = len(batch())


async def open_topic(node: Node, **configs: str) -> Partition:
    await node.services.coordinators.groups.ensure_topic()
    await node.services.coordinators.shares.ensure_topic()
    node.services.upkeep.backlog.start()
    await create(node, TOPIC)
    await configure(node, **configs)
    partition = node.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    return partition


async def configure(node: Node, **configs: str) -> None:
    await alter(
        node, TOPIC_RESOURCE, TOPIC, {name.replace("_", "."): value for name, value in configs.items()}
    )


async def write(node: Node, partition: Partition, count: int, timestamp: int = NOW_MS) -> None:
    last_offset = -1
    for _ in range(count):
        last_offset = partition.append(batch(timestamp=timestamp), NOW_MS).last_offset
    assert await partition.persisted(last_offset)


async def commit(node: Node, group: str, offset: int, metadata: str = "") -> None:
    value = CommittedOffset(offset, -1, metadata, node.clock.now_ms())
    record = OffsetCommitRecord(group, TOPIC, 0, value)
    await commit_offsets(node.services.coordinators.groups, Committer(group), [record])


async def read_with_share_group(node: Node, group: str, offset: int) -> None:
    topic_id = node.services.partitions.registry.by_name[TOPIC].topic_id
    await begin_group(node.services.coordinators, SharePartitionKey(group, topic_id, 0), TOPIC, offset)


def committed(node: Node, group: str) -> int:
    (shard,) = node.services.coordinators.groups.loaded_shards()
    return shard.offsets.of(group)[TOPIC, 0].offset


def start_offset(node: Node, group: str) -> int:
    (found,) = node.services.coordinators.shares.known(group).values()
    return found.start_offset


def produce(node: Node, *batches: bytes, acks: int = -1, timeout_ms: int = 30_000, peer: Any = None) -> Any:
    entries = [PartitionRecords(index, memoryview(data)) for index, data in enumerate(batches)]
    request = ProduceRequest(None, acks, timeout_ms, [TopicRecords(TOPIC, entries)])
    context = node.context(API, 9, peer)
    return begin(context, request)


async def answer(begun: Any) -> dict[str, Any]:
    """Return the row of the first partition."""
    if isinstance(begun, Deferred):
        if begun.answer is None:
            done = asyncio.Event()
            begun.on_resolved = done.set
            await asyncio.wait_for(done.wait(), 60)
        begun = begun.answer
    fields = decode("produce", 9, bytes(begun)[4:], correlation_id=7).fields
    row: dict[str, Any] = fields["responses"][0]["partition_responses"][0]
    return row


class TestRefusing:
    async def test_a_producer_is_refused_until_the_group_catches_up(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            quota = str(3 * BATCH_BYTES)
            partition = await open_topic(node, backlog_quota_bytes=quota, backlog_quota_policy=REFUSE)
            await write(node, partition, 4)
            await commit(node, "slow", 0)
            await commit(node, "fast", 4)
            await node.services.upkeep.backlog.measure_all()
            refused = await answer(produce(node, batch(producer_id=7, sequence=0)))
            assert refused["error_code"] == RETRY
            assert "slow" in refused["error_message"]
            assert partition.log.log_end_offset == 4
            await commit(node, "slow", 3)
            await node.services.upkeep.backlog.measure_all()
            taken = await answer(produce(node, batch(producer_id=7, sequence=0)))
            assert (taken["error_code"], taken["base_offset"]) == (0, 4)

    async def test_a_quota_by_time_goes_by_the_first_unread_record(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_ms="5000", backlog_quota_policy=REFUSE)
            await write(node, partition, 1, NOW_MS - 6_000)
            await write(node, partition, 1, NOW_MS - 4_000)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(produce(node, batch())))["error_code"] == RETRY
            await commit(node, "slow", 1)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(produce(node, batch())))["error_code"] == 0
            node.clock.time_ms += 2_000
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(produce(node, batch())))["error_code"] == RETRY

    async def test_duplicates_are_acknowledged_all_the_same(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await open_topic(node, backlog_quota_bytes="1", backlog_quota_policy=REFUSE)
            first = batch(producer_id=7, sequence=0)
            assert (await answer(produce(node, first)))["error_code"] == 0
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(produce(node, first)))["base_offset"] == 0
            later = await answer(produce(node, batch(producer_id=7, sequence=1)))
            assert later["error_code"] == RETRY

    async def test_only_the_bytes_that_are_written_count(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            first, again = named_batch(*range(20)), named_batch(*range(1, 21))
            partition = await open_topic(
                node,
                backlog_quota_bytes=str(2 * len(first)),
                backlog_quota_policy=REFUSE,
                message_deduplication_enable="true",
            )
            assert (await answer(produce(node, first)))["error_code"] == 0
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            assert partition.gate is not None
            room_bytes = partition.gate.room_bytes
            size_bytes = partition.log.size_bytes
            assert (await answer(produce(node, again)))["error_code"] == 0
            written = partition.log.size_bytes - size_bytes
            assert 0 < written < len(again)
            assert room_bytes - partition.gate.room_bytes == written

    async def test_only_the_full_partition_refuses(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await node.services.coordinators.groups.ensure_topic()
            node.services.upkeep.backlog.start()
            await create(node, TOPIC, 2)
            await configure(node, backlog_quota_bytes="1", backlog_quota_policy=REFUSE)
            partition = node.services.partitions.registry.get(TOPIC, 0)
            assert partition is not None
            await write(node, partition, 1)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            begun = produce(node, batch(), batch())
            assert (await answer(begun))["error_code"] == RETRY
            other = node.services.partitions.registry.get(TOPIC, 1)
            assert other is not None
            assert other.log.log_end_offset == 1

    async def test_without_a_group_nothing_is_refused(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes="1", backlog_quota_policy=REFUSE)
            await write(node, partition, 5)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(produce(node, batch())))["error_code"] == 0

    async def test_removing_the_setting_opens_the_topic_at_once(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes="1", backlog_quota_policy=REFUSE)
            await write(node, partition, 5)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(produce(node, batch())))["error_code"] == RETRY
            await configure(node, backlog_quota_bytes="-1")
            assert partition.gate is None
            assert (await answer(produce(node, batch())))["error_code"] == 0
            assert node.services.partitions.counters.backlog_refusals == 1, "also of gates that are gone"


class TestHolding:
    async def test_a_request_waits_for_the_group(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes=str(3 * BATCH_BYTES))
            await write(node, partition, 4)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            buffer = bytearray(batch(producer_id=7, sequence=0))
            begun = produce(node, buffer)
            buffer[:] = bytes(len(buffer))  # the connection keeps receiving into this buffer
            assert begun.holds_back
            assert begun.answer is None
            assert partition.log.log_end_offset == 4
            assert node.services.upkeep.backlog.held.held_bytes == BATCH_BYTES
            await commit(node, "slow", 4)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(begun))["base_offset"] == 4
            assert node.services.upkeep.backlog.held.held_bytes == 0

    async def test_when_its_time_is_up_it_is_refused_with_the_requests_behind_it(
        self, tmp_path: Path
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes="1")
            await write(node, partition, 1)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            begun = produce(node, batch(producer_id=7, sequence=0), timeout_ms=20)
            assert (await answer(begun))["error_code"] == RETRY
            behind = produce(node, batch(producer_id=7, sequence=1))
            assert (await answer(behind))["error_code"] == RETRY
            assert node.services.upkeep.backlog.held.timed_out == 1
            assert node.services.partitions.counters.backlog_refusals == 2
            assert partition.log.log_end_offset == 1

    async def test_as_many_continue_as_there_is_room_for(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes=str(2 * BATCH_BYTES))
            await write(node, partition, 3)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            waiting = [produce(node, batch(), peer=FakePeer()) for _ in range(3)]
            await commit(node, "slow", 2)
            await node.services.upkeep.backlog.measure_all()
            assert waiting[2].answer is None
            assert [(await answer(begun))["base_offset"] for begun in waiting[:2]] == [3, 4]
            assert len(node.services.upkeep.backlog.held) == 1
            node.services.upkeep.backlog.held.end_all()
            assert (await answer(waiting[2]))["error_code"] == RETRY

    async def test_a_client_that_hangs_up_has_written_nothing(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes="1")
            await write(node, partition, 1)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            begun = produce(node, batch())
            begun.abandon()
            assert len(node.services.upkeep.backlog.held) == 0
            await commit(node, "slow", 1)
            await node.services.upkeep.backlog.measure_all()
            assert partition.log.log_end_offset == 1

    async def test_duplicates_do_not_wait(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await open_topic(node, backlog_quota_bytes="1")
            first = batch(producer_id=7, sequence=0)
            assert (await answer(produce(node, first)))["error_code"] == 0
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(produce(node, first)))["base_offset"] == 0
            assert (await answer(produce(node, b"short")))["error_code"] != 0
            assert len(node.services.upkeep.backlog.held) == 0

    async def test_no_more_waits_than_requests_may_take_of_memory(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes="1")
            held = node.services.upkeep.backlog.held
            held.room = memory = RequestMemory(BATCH_BYTES)
            await write(node, partition, 1)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            waiting = produce(node, batch(), peer=FakePeer())
            assert memory.used_bytes == BATCH_BYTES
            assert (await answer(produce(node, batch(), peer=FakePeer())))["error_code"] == RETRY
            held.end_all()
            assert (await answer(waiting))["error_code"] == RETRY
            assert memory.used_bytes == 0

    @pytest.mark.parametrize("limit", ["max.requests=0", f"max.bytes={BATCH_BYTES - 1}"])
    async def test_beyond_the_limits_it_is_refused_at_once(self, tmp_path: Path, limit: str) -> None:
        async with open_node(tmp_path, *SETTINGS, f"seqgate.backlog.hold.{limit}") as node:
            partition = await open_topic(node, backlog_quota_bytes="1")
            await write(node, partition, 1)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(produce(node, batch())))["error_code"] == RETRY

    async def test_acks_0_waits_and_is_answered_with_nothing(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes="1")
            await write(node, partition, 1)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            first, second = produce(node, batch(), acks=0), produce(node, batch(), acks=0, timeout_ms=20)
            done = asyncio.Event()
            second.on_resolved = done.set
            await asyncio.wait_for(done.wait(), 60)
            assert second.failed, "a refused batch with acks=0 must close the connection"
            await commit(node, "slow", 1)
            await node.services.upkeep.backlog.measure_all()
            assert first.answer == b""
            assert partition.log.log_end_offset == 2

    async def test_requests_for_a_deleted_topic_stop_waiting(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_bytes="1")
            await write(node, partition, 1)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            begun = produce(node, batch())
            assert begun.answer is None
            await delete(node, TOPIC)
            await node.services.upkeep.backlog.measure_all()
            assert (await answer(begun))["error_code"] == UNKNOWN_TOPIC
            assert node.services.upkeep.backlog._gated == {}
            assert not node.services.upkeep.backlog.holds


class TestSkipping:
    async def test_ttl_moves_groups_of_every_kind(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, message_ttl_ms="5000")
            await write(node, partition, 3, NOW_MS - 6_000)
            await write(node, partition, 2)
            await commit(node, "slow", 1, metadata="kept")
            await commit(node, "fast", 4)
            await read_with_share_group(node, "sharers", 0)
            committed_ms = node.clock.time_ms
            node.clock.time_ms += 1_000
            await node.services.upkeep.backlog.measure_all()
            assert (committed(node, "slow"), committed(node, "fast")) == (3, 4)
            assert start_offset(node, "sharers") == 3
            (shard,) = node.services.coordinators.groups.loaded_shards()
            value = shard.offsets.of("slow")[TOPIC, 0]
            assert (value.metadata, value.commit_timestamp_ms) == ("kept", committed_ms)
            skipped = node.services.upkeep.backlog.skipped
            assert skipped.of("slow", (TOPIC, 0)).records == {Limit.TTL: 2}
            assert skipped.of("sharers", (TOPIC, 0)).total == 3
            assert skipped.of("fast", (TOPIC, 0)).total == 0
            assert partition.log.log_start_offset == 0

    async def test_the_moves_survive_a_restart(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, message_ttl_ms="5000")
            await write(node, partition, 3, NOW_MS - 6_000)
            await commit(node, "slow", 0)
            await read_with_share_group(node, "sharers", 0)
            await node.services.upkeep.backlog.measure_all()
            node.services.partitions.log_directory.close(clean=False)
        async with open_node(tmp_path, *SETTINGS) as node:
            assert (committed(node, "slow"), start_offset(node, "sharers")) == (3, 3)

    async def test_eviction_keeps_a_quota_by_size(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            quota = str(10 * BATCH_BYTES)
            partition = await open_topic(node, backlog_quota_bytes=quota, backlog_quota_policy=EVICT)
            await write(node, partition, 30)
            await commit(node, "slow", 0)
            await commit(node, "fast", 25)
            await node.services.upkeep.backlog.measure_all()
            assert (committed(node, "slow"), committed(node, "fast")) == (21, 25)
            assert (await answer(produce(node, batch())))["error_code"] == 0
            assert node.services.upkeep.backlog.skipped.of("slow", (TOPIC, 0)).records == {
                Limit.QUOTA_BYTES: 21
            }

    async def test_eviction_keeps_a_quota_by_time(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, backlog_quota_ms="5000", backlog_quota_policy=EVICT)
            await write(node, partition, 7, NOW_MS - 6_000)
            await write(node, partition, 1)
            await read_with_share_group(node, "sharers", 2)
            await node.services.upkeep.backlog.measure_all()
            assert start_offset(node, "sharers") == 7

    async def test_records_skipped_twice_count_once(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, message_ttl_ms="5000")
            await write(node, partition, 4, NOW_MS - 6_000)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            await commit(node, "slow", 2)  # a slow member, below the group's new offset
            await node.services.upkeep.backlog.measure_all()
            assert committed(node, "slow") == 4
            assert node.services.upkeep.backlog.skipped.of("slow", (TOPIC, 0)).total == 4

    async def test_held_records_are_not_skipped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, message_ttl_ms="5000")
            await write(node, partition, 4, NOW_MS - 6_000)
            monkeypatch.setattr(PartitionLog, "held_from", 2)
            await commit(node, "slow", 0)
            await read_with_share_group(node, "sharers", 0)
            await node.services.upkeep.backlog.measure_all()
            assert (committed(node, "slow"), start_offset(node, "sharers")) == (2, 2)

    async def test_records_that_are_not_due_are_not_skipped(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, message_ttl_ms="5000", delivery_delay_header="due")
            await write(node, partition, 2, NOW_MS - 6_000)
            later = NewRecord(b"x", timestamp=NOW_MS - 6_000, headers=[("due", b"%d" % (NOW_MS + 9_000))])
            assert await partition.persisted(partition.append(build_batch([later]), NOW_MS).last_offset)
            await write(node, partition, 2, NOW_MS - 6_000)
            await commit(node, "slow", 0)
            await read_with_share_group(node, "sharers", 0)
            await node.services.upkeep.backlog.measure_all()
            assert (committed(node, "slow"), start_offset(node, "sharers")) == (2, 2)

    async def test_no_group_is_moved_over_an_open_transaction(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, message_ttl_ms="5000")
            await write(node, partition, 2, NOW_MS - 6_000)
            records = [NewRecord(b"x", timestamp=NOW_MS - 6_000)]
            opened = build_batch(records, producer_id=9, base_sequence=0, is_transactional=True)
            assert await partition.persisted(partition.append(opened, NOW_MS).last_offset)
            await write(node, partition, 2, NOW_MS - 6_000)
            await commit(node, "slow", 0)
            await node.services.upkeep.backlog.measure_all()
            assert committed(node, "slow") == 2
            marker = partition.append_end_marker(
                9, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS - 6_000
            )
            assert await partition.persisted(marker.last_offset)
            await node.services.upkeep.backlog.measure_all()
            assert committed(node, "slow") == 6

    async def test_an_offset_that_a_transaction_holds_is_left_alone(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, message_ttl_ms="5000")
            await write(node, partition, 4, NOW_MS - 6_000)
            await commit(node, "slow", 0)
            (shard,) = node.services.coordinators.groups.loaded_shards()
            record = OffsetCommitRecord("slow", TOPIC, 0, CommittedOffset(3, -1, "", NOW_MS))
            shard.offsets.replay(Pending(9, 0, record))
            await node.services.upkeep.backlog.measure_all()
            assert committed(node, "slow") == 0

    async def test_a_groups_acquired_records_are_done(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            partition = await open_topic(node, message_ttl_ms="5000")
            await write(node, partition, 4, NOW_MS - 6_000)
            await read_with_share_group(node, "sharers", 0)
            ((key, found),) = node.services.coordinators.shares.known("sharers").items()
            limits = node.services.coordinators.shares.limits("sharers")
            found.acquire("a", [(0, 0), (1, 1)], 2, limits, NOW_MS)
            await node.services.upkeep.backlog.measure_all()
            assert found.start_offset == 4
            assert len(found.runs) == 0
            assert key in node.services.coordinators.shares.known("sharers")


async def test_a_partition_that_becomes_ready_is_measured_at_once(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        partition = await open_topic(node, backlog_quota_bytes="1", backlog_quota_policy=REFUSE)
        await write(node, partition, 2)
        await commit(node, "slow", 0)
        partition.gate = None
        node.services.upkeep.backlog.run()
        node.services.partitions.registry.became_ready(TOPIC, 0)
        await until_closed(node)
        await node.services.upkeep.backlog.stop()


async def test_a_gateway_over_a_bucket_measures_once_it_has_joined(tmp_path: Path) -> None:
    async with running(tmp_path, *SETTINGS) as first:
        node = Node(first.gateway.services, FixedClock())
        await first.create(backlog_quota_bytes="1", backlog_quota_policy=REFUSE)
        await node.services.coordinators.groups.ensure_topic()
        await first.append(2)
        await commit(node, "slow", 0)
    async with running(tmp_path, *SETTINGS) as second:
        await until_closed(Node(second.gateway.services, FixedClock()))


async def until_closed(node: Node) -> None:
    """Wait until the gate of the partition is closed; opens nothing."""
    topic = node.services.partitions.registry.by_name[TOPIC]
    async with asyncio.timeout(60):
        while (partition := topic.peek(0)) is None or partition.gate is None or not partition.gate.is_closed:
            await asyncio.sleep(0.001)


async def test_topics_without_settings_have_no_gate(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        partition = await open_topic(node, retention_ms="1000")
        await node.services.upkeep.backlog.measure_all()
        assert partition.gate is None
        assert not node.services.upkeep.backlog.holds


async def test_the_brokers_settings_hold_for_all_topics(tmp_path: Path) -> None:
    setting = "seqgate.backlog.quota.bytes=1", f"seqgate.backlog.quota.policy={REFUSE}"
    async with open_node(tmp_path, *SETTINGS, *setting) as node:
        partition = await open_topic(node)
        await write(node, partition, 1)
        await commit(node, "slow", 0)
        await node.services.upkeep.backlog.measure_all()
        assert (await answer(produce(node, batch())))["error_code"] == RETRY
        offsets = node.services.partitions.registry.get("__consumer_offsets", 0)
        assert offsets is not None
        assert offsets.gate is None
        await configure(node, backlog_quota_bytes="-1")
        assert partition.gate is None


# every row of the table in docs/backlog.md

DOCUMENT = REPOSITORY / "docs" / "backlog.md"
POLICY_OF = {"refuse": REFUSE, "hold": HOLD, "evict": EVICT}
OLD, NEW = 10, 2


def documented_rows() -> list[tuple[str, ...]]:
    lines = DOCUMENT.read_text().split("## Every combination")[1].splitlines()
    table = [line for line in lines if line.startswith("|")][2:]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table]


def test_the_table_has_every_combination_once() -> None:
    wanted = itertools.product(
        ("off", "on"), ("none", "refuse", "hold", "evict"), ("no", "yes"), ("by all", "no")
    )
    assert [row[:4] for row in documented_rows()] == list(wanted)


def settings_of(ttl: str, quota: str, retention: str) -> dict[str, str]:
    configs = {"internal_segment_bytes": str(5 * BATCH_BYTES), "retention_ms": "-1"}
    if ttl == "on":
        configs["message_ttl_ms"] = "5000"
    if quota != "none":
        configs |= {"backlog_quota_bytes": str(5 * BATCH_BYTES), "backlog_quota_policy": POLICY_OF[quota]}
    if retention == "yes":
        configs["retention_ms"] = "5500"
    return configs


def what_the_group_does(node: Node, log_start_offset: int, was_at: int) -> str:
    skipped = node.services.upkeep.backlog.skipped
    limits = skipped.of("group", (TOPIC, 0)).records
    assert skipped.of("sharers", (TOPIC, 0)).records == limits
    if limits:
        (limit,) = limits
        assert committed(node, "group") == start_offset(node, "sharers") > 0
        return f"skips it ({limit})"
    assert committed(node, "group") == was_at
    if was_at >= OLD:
        return "reads on"
    return "finds the log start" if log_start_offset > was_at else "reads it"


async def what_producers_do(node: Node) -> str:
    begun = produce(node, batch(), timeout_ms=5_000)
    if isinstance(begun, Deferred) and begun.holds_back and len(node.services.upkeep.backlog.held):
        node.services.upkeep.backlog.held.end_all()
        return "wait"
    return "are refused" if (await answer(begun))["error_code"] == RETRY else "continue"


@pytest.mark.parametrize("row", documented_rows(), ids=" ".join)
async def test_combination(tmp_path: Path, row: tuple[str, ...]) -> None:
    ttl, quota, retention, read, record_is, group, producers = row
    async with open_node(tmp_path, *SETTINGS) as node:
        partition = await open_topic(node, **settings_of(ttl, quota, retention))
        await write(node, partition, OLD, NOW_MS - 6_000)
        await write(node, partition, NEW)
        was_at = OLD if read == "by all" else 0
        await commit(node, "group", was_at)
        await read_with_share_group(node, "sharers", was_at)
        delete_old_segments(partition.log, NOW_MS)
        await node.services.upkeep.backlog.measure_all()
        assert record_is == ("deleted" if partition.log.log_start_offset > 0 else "kept")
        assert group == what_the_group_does(node, partition.log.log_start_offset, was_at)
        assert producers == await what_producers_do(node)


@pytest.mark.parametrize(
    "limit", [{"backlog_quota_bytes": "1"}, {"backlog_quota_ms": "4000"}, {"message_ttl_ms": "4000"}]
)
async def test_no_client_waits_for_blocks_that_only_a_bucket_has(
    tmp_path: Path, limit: dict[str, str]
) -> None:
    bucket = Bucket()
    async with open_node(tmp_path, *SETTINGS, storage=Storage(disk=bucket.disk)) as node:
        backlog = node.services.upkeep.backlog
        partition = await open_topic(node, backlog_quota_policy=REFUSE, **limit)
        partition.log.update_config(replace(partition.log.config, segment_bytes=4 * BATCH_BYTES))
        await write(node, partition, 2, NOW_MS - 5_000)
        await write(node, partition, 4)
        await commit(node, "slow", 1)
        bucket.take_first_segment(partition.log)
        await backlog.measure_all()
        assert partition.gate is None or not partition.gate.is_closed
        assert committed(node, "slow") == 1
        async with asyncio.timeout(60):
            while not (partition.gate is not None and partition.gate.is_closed):
                if committed(node, "slow") == 2:
                    break
                await backlog.measure_all()
                await asyncio.sleep(0)
            await backlog.stop()
            while node.services.partitions.cold_reads.blocks_waiting:
                await asyncio.sleep(0)  # a reader that joins a load whose block is taken again waits itself

        bucket.take_first_segment(partition.log)
        page = await answer_command(node, BacklogRequest(TOPIC))
        unread = 6 - committed(node, "slow")
        assert [row.backlog_bytes for row in page.partitions[0].readers] == [unread * BATCH_BYTES]
        bucket.take_first_segment(partition.log)
        planned = await answer_command(node, ResetOffsetsRequest("slow", "timestamp", NOW_MS - 1_000))
        assert [change.new_offset for change in planned.changes] == [2]


async def test_after_a_restart_only_partitions_with_slow_readers_are_opened(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        await node.services.coordinators.groups.ensure_topic()
        await create(node, TOPIC, 2)
        await configure(node, backlog_quota_bytes="1", backlog_quota_policy=REFUSE)
        for index in range(2):
            partition = node.services.partitions.registry.get(TOPIC, index)
            assert partition is not None
            assert await partition.persisted(partition.append(batch(), NOW_MS).last_offset)
        await commit(node, "slow", 0)
        value = CommittedOffset(1, -1, "", NOW_MS)
        await commit_offsets(
            node.services.coordinators.groups,
            Committer("fast"),
            [OffsetCommitRecord("fast", TOPIC, 1, value)],
        )
    async with open_node(tmp_path, *SETTINGS) as node:
        node.services.upkeep.backlog.start()
        await node.services.upkeep.backlog.measure_all()
        topic = node.services.partitions.registry.by_name[TOPIC]
        slow = topic.peek(0)
        assert slow is not None
        assert slow.gate is not None
        assert slow.gate.is_closed
        assert topic.peek(1) is None
