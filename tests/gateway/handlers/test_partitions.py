from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from seqgate.gateway.handlers.admin.log_dirs import DESCRIBE_LOG_DIRS_API
from seqgate.gateway.handlers.records import delete_records, list_offsets
from seqgate.gateway.handlers.transactions import describe_producers
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log.format.records import NewRecord, build_batch
from tests.gateway.handlers.requests import TIMEOUT, create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node, versions
from tests.support.held_disk import HeldDisk

PATIENCE_S = 120.0


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk()


@pytest.fixture
async def node(tmp_path: Path, disk: HeldDisk) -> AsyncIterator[Node]:
    async with open_node(tmp_path, storage=disk) as node:
        await create(node, "t", 2)
        yield node


def partition_of(node: Node, topic: str = "t", index: int = 0) -> Partition:
    partition = node.services.partitions.registry.get(topic, index)
    assert partition is not None
    return partition


async def produce(node: Node, count: int = 10, *, topic: str = "t") -> None:
    """Append a batch of an idempotent producer to partition 0, durably."""
    partition = partition_of(node, topic)
    records = [NewRecord(b"v%d" % number, timestamp=NOW_MS) for number in range(count)]
    partition.append(build_batch(records, producer_id=4711, producer_epoch=2, base_sequence=0), NOW_MS)
    await node.services.partitions.flusher.flushed(partition.log, partition)


class TestDeleteRecords:
    @staticmethod
    async def delete(
        node: Node, *partitions: tuple[int, int], topic: str = "t", version: int = 2
    ) -> list[tuple[int, int, str]]:
        def make(module: Any) -> dict[str, Any]:
            entries = tuple(
                module.DeleteRecordsPartition(partition_index=index, offset=offset)
                for index, offset in partitions
            )
            topics = (module.DeleteRecordsTopic(name=topic, partitions=entries),)
            return {"topics": topics, "timeout": TIMEOUT}

        response = await node.ask(delete_records.API, version, make)
        return [
            (entry.partition_index, entry.low_watermark, entry.error_code.name)
            for entry in response.topics[0].partitions
        ]

    @classmethod
    async def begin_deletion(cls, node: Node, disk: HeldDisk) -> asyncio.Task[list[tuple[int, int, str]]]:
        """Begin a deletion of five records, up to the moment at which the disk must persist the new start."""
        deleting = asyncio.create_task(cls.delete(node, (0, 5)))
        async with asyncio.timeout(PATIENCE_S):
            while not disk.waiting:
                await asyncio.sleep(0)
        return deleting

    async def test_a_partition_that_cannot_be_opened(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(
                node.services.partitions.log_directory, "create", Mock(side_effect=OSError("the disk fails"))
            )
            assert await self.delete(node, (0, 0), (7, 0)) == [
                (0, -1, "kafka_storage_error"),
                (7, -1, "unknown_topic_or_partition"),
            ]
        assert await self.delete(node, (0, 0)) == [(0, 0, "none")]

    async def test_a_deletion_is_answered_with_an_error_when_the_gateway_stops(
        self, node: Node, disk: HeldDisk
    ) -> None:
        await produce(node)
        with disk.held("t"):
            deleting = await self.begin_deletion(node, disk)
            partition_of(node).close()
        assert await deleting == [(0, -1, "not_leader_or_follower")]

    @pytest.mark.parametrize("version", versions(delete_records.API))
    async def test_every_version(self, node: Node, version: int) -> None:
        await produce(node)
        assert await self.delete(node, (0, 4), version=version) == [(0, 4, "none")]
        assert partition_of(node).log.log_start_offset == 4

    async def test_minus_one_means_the_high_watermark(self, node: Node) -> None:
        await produce(node)
        assert await self.delete(node, (0, -1), (1, -1)) == [(0, 10, "none"), (1, 0, "none")]

    async def test_deleting_below_the_log_start_changes_nothing(self, node: Node) -> None:
        await produce(node)
        await self.delete(node, (0, 5))
        assert await self.delete(node, (0, 3)) == [(0, 5, "none")]

    async def test_refusals(self, node: Node) -> None:
        await produce(node)
        assert await self.delete(node, (0, 11), (1, -2), (9, 0)) == [
            (0, -1, "offset_out_of_range"),
            (1, -1, "offset_out_of_range"),
            (9, -1, "unknown_topic_or_partition"),
        ]
        assert await self.delete(node, (0, 0), topic="none") == [(0, -1, "unknown_topic_or_partition")]

    async def test_the_last_offset_for_a_partition_named_twice_counts(self, node: Node) -> None:
        await produce(node)
        assert await self.delete(node, (0, 2), (0, 6)) == [(0, 6, "none")]

    async def test_a_topic_deleted_meanwhile(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        """The disk is not held in this test. Otherwise the topic's deletion would wait for ever for the flush
        in flight.
        """
        await produce(node)

        async def delete_topic(*_: object) -> None:
            await delete(node, "t")

        monkeypatch.setattr(delete_records, "persist_start_and_remove", delete_topic)
        assert await self.delete(node, (0, 4)) == [(0, -1, "unknown_topic_or_partition")]

    async def test_a_disk_that_fails(self, node: Node, disk: HeldDisk) -> None:
        await produce(node)
        disk.broken_topic = "t"
        assert await self.delete(node, (0, 4)) == [(0, -1, "kafka_storage_error")]
        assert partition_of(node).log.log_start_offset == 0
        assert partition_of(node).log.offline

    async def test_a_topic_without_retention(self, node: Node) -> None:
        await create(node, "kept", configs={"cleanup.policy": ""})
        assert await self.delete(node, (0, 0), topic="kept") == [(0, 0, "none")]
        assert partition_of(node, "kept").log.config.retention_ms == -1

    async def test_an_internal_topic(self, node: Node) -> None:
        await create(node, "__consumer_offsets")
        assert await self.delete(node, (0, 0), topic="__consumer_offsets") == [
            (0, -1, "invalid_topic_exception")
        ]


class TestDescribeLogDirs:
    @staticmethod
    async def sizes(
        node: Node, topics: list[tuple[str, tuple[int, ...]]] | None, version: int = 5
    ) -> tuple[Any, dict[tuple[str, int], int]]:
        def make(module: Any) -> dict[str, Any]:
            if topics is None:
                return {"topics": None}
            entries = (
                module.DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics
            )
            return {"topics": tuple(entries)}

        response = await node.ask(DESCRIBE_LOG_DIRS_API, version, make)
        (result,) = response.results
        return result, {
            (topic.name, entry.partition_index): entry.partition_size
            for topic in result.topics
            for entry in topic.partitions
        }

    @pytest.mark.parametrize("version", versions(DESCRIBE_LOG_DIRS_API))
    async def test_every_version(self, node: Node, version: int, tmp_path: Path) -> None:
        await produce(node)
        result, sizes = await self.sizes(node, None, version)
        assert result.log_dir == str(tmp_path)
        assert sizes == {("t", 0): partition_of(node).log.size_bytes, ("t", 1): 0}
        assert sizes["t", 0] > 0
        if version >= 4:
            assert result.total_bytes >= result.usable_bytes > 0

    async def test_only_partitions_of_this_node(self, node: Node) -> None:
        _, sizes = await self.sizes(node, [("t", (1, 1, 9)), ("none", (0,))])
        assert set(sizes) == {("t", 1)}
        _, sizes = await self.sizes(node, [])
        assert sizes == {}

    async def test_a_missing_directory(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(path: str) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("os.statvfs", fail)
        result, _ = await self.sizes(node, None)
        assert result.error_code.name == "kafka_storage_error"


class TestDescribeProducers:
    @staticmethod
    async def describe(node: Node, topic: str, *indexes: int) -> Any:
        def make(module: Any) -> dict[str, Any]:
            return {"topics": (module.TopicRequest(name=topic, partition_indexes=indexes),)}

        return (await node.ask(describe_producers.API, 0, make)).topics[0].partitions

    async def test_an_active_producer(self, node: Node) -> None:
        await produce(node)
        one, other = await self.describe(node, "t", 0, 1)
        (producer,) = one.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (4711, 2, 9)
        assert producer.last_timestamp == NOW_MS
        assert producer.current_txn_start_offset == -1
        assert other.active_producers == ()

    @pytest.mark.parametrize(
        ("topic", "index", "error"),
        [
            ("t", 9, "unknown_topic_or_partition"),
            ("none", 0, "unknown_topic_or_partition"),
            ("a b", 0, "invalid_topic_exception"),
        ],
    )
    async def test_refusals(self, node: Node, topic: str, index: int, error: str) -> None:
        (partition,) = await self.describe(node, topic, index)
        assert partition.error_code.name == error
        assert partition.active_producers == ()


class TestListOffsets:
    @pytest.mark.parametrize("timestamp", [-1, -2, -3, 0])
    async def test_an_offline_partition_returns_no_offset(self, node: Node, timestamp: int) -> None:
        await produce(node)

        def request(module: Any) -> dict[str, Any]:
            entry = module.ListOffsetsPartition(
                partition_index=0, current_leader_epoch=-1, timestamp=timestamp
            )
            topic = module.ListOffsetsTopic(name="t", partitions=(entry,))
            return {"replica_id": -1, "isolation_level": 0, "topics": (topic,)}

        sound = (await node.ask(list_offsets.API, 7, request)).topics[0].partitions[0]
        assert sound.error_code.name == "none"
        partition_of(node).log.go_offline("the disk failed")
        row = (await node.ask(list_offsets.API, 7, request)).topics[0].partitions[0]
        assert (row.error_code.name, row.offset) == ("kafka_storage_error", -1)
