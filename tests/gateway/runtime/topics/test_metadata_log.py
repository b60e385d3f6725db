"""The metadata log and its listeners: a change counts once it is durable, a replay uses the same code, and
the image decides at the start.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import TOPIC_RESOURCE, MetadataImage
from seqgate.gateway.metadata.records import ConfigRecord, MetadataRecord
from seqgate.gateway.runtime.topics import metadata_log as module
from seqgate.gateway.runtime.topics.metadata_log import (
    METADATA_TOPIC_ID,
    LocalJournal,
    MetadataLog,
    open_metadata_log,
    replay_log,
)
from seqgate.gateway.runtime.topics.producer_ids import EmbeddedBlockStore
from seqgate.gateway.runtime.topics.topic_lifecycle import topic_policy
from seqgate.log import LogDirectory, Storage, StorageFailed
from seqgate.pid_allocator import NextIdBehind, ProducerIdBlock, ProducerIdsExhausted, StoreUnavailable
from tests.gateway.handlers.requests import create, delete, grow
from tests.gateway.handlers.support import NOW_MS, open_node
from tests.support.batches import Batch, records
from tests.support.wire import Wire


def setting(value: str) -> Any:
    record = ConfigRecord(TOPIC_RESOURCE, "t", "retention.ms", value)
    return lambda image: Decision((record,), value)


class TestCommit:
    async def test_the_answer_comes_after_image_and_listeners(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            told: list[MetadataRecord] = []

            async def listen(records: Any) -> None:
                assert node.services.topics.metadata_log.image.topic_configs("t") == {"retention.ms": "5"}
                told.extend(records)

            node.services.topics.metadata_log.add_listener(listen)
            assert await node.services.topics.metadata_log.commit(setting("5")) == "5"
            assert len(told) == 1

    async def test_it_is_durable_before_it_is_true(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            log = node.services.partitions.log_directory.get("__cluster_metadata", 0)
            assert log is not None
            await node.services.topics.metadata_log.commit(setting("5"))
            assert log.recovery_point == log.log_end_offset == log.high_watermark
            assert log.topic_id == METADATA_TOPIC_ID

    async def test_changes_are_decided_one_after_the_other(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:

            def increase(image: MetadataImage) -> Decision[int]:
                number = int(image.topic_configs("t").get("retention.ms", "0")) + 1
                record = ConfigRecord(TOPIC_RESOURCE, "t", "retention.ms", str(number))
                return Decision((record,), number)

            commit = node.services.topics.metadata_log.commit
            assert sorted(await asyncio.gather(*(commit(increase) for _ in range(20)))) == list(range(1, 21))

    async def test_no_records_write_nothing(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            log = node.services.partitions.log_directory.get("__cluster_metadata", 0)
            assert log is not None
            assert (
                await node.services.topics.metadata_log.commit(lambda image: Decision((), "answer"))
                == "answer"
            )
            assert log.log_end_offset == 0

    async def test_a_cancelled_caller_does_not_stop_the_change(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            caller = asyncio.create_task(node.services.topics.metadata_log.commit(setting("5")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
            await node.services.topics.metadata_log.close()
            assert node.services.topics.metadata_log.image.topic_configs("t") == {"retention.ms": "5"}

    async def test_a_failed_flush_leaves_the_image_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_node(tmp_path) as node:

            async def fail(log: Any, observer: Any = None) -> None:
                raise StorageFailed("disk")

            monkeypatch.setattr(node.services.partitions.flusher, "flushed", fail)
            with pytest.raises(StorageFailed):
                await node.services.topics.metadata_log.commit(setting("5"))
            assert node.services.topics.metadata_log.image.topic_configs("t") == {}
            assert (await create(node, "t")).error_code.name == "kafka_storage_error"
            with pytest.raises(StoreUnavailable):
                await EmbeddedBlockStore(node.services.topics.metadata_log, 1).claim(10, "n1", 0)

    async def test_unflushed_records_are_replayed_before_the_next_change(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_node(tmp_path) as node:
            store = EmbeddedBlockStore(node.services.topics.metadata_log, 1)

            async def fail(log: Any, observer: Any = None) -> None:
                raise StorageFailed("disk")

            with monkeypatch.context() as broken:
                broken.setattr(node.services.partitions.flusher, "flushed", fail)
                with pytest.raises(StoreUnavailable):
                    await store.claim(10, "n1", 0)
            assert (await store.claim(10, "n1", 0)).first_producer_id == 10
            assert len(await store.blocks()) == 2

    async def test_replay_crosses_segments_and_reads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("seqgate.log.partition_log._READ_BYTES", 300)
        async with open_node(tmp_path) as node:
            log = node.services.partitions.log_directory.get("__cluster_metadata", 0)
            assert log is not None
            for number in range(20):
                await node.services.topics.metadata_log.commit(setting(str(number)))
                if number == 10:
                    log.roll(NOW_MS)
            image = MetadataImage()
            assert replay_log(log, image) == 20
            assert image.topic_configs("t") == {"retention.ms": "19"}


class TestAtStart:
    async def test_a_missing_directory_is_created(self, tmp_path: Path) -> None:
        async with open_node(tmp_path / "data") as node:
            await create(node, "t", 3)
            assert len(list(node.services.partitions.registry.by_name["t"].all())) == 3
        shutil.rmtree(tmp_path / "data" / "t-1")
        async with open_node(tmp_path / "data") as node:
            assert [
                partition.index for partition in node.services.partitions.registry.by_name["t"].all()
            ] == [0, 1, 2]
            assert (tmp_path / "data" / "t-1").is_dir()

    async def test_a_directory_without_its_topic_is_deleted(self, tmp_path: Path) -> None:
        async with open_node(tmp_path / "data") as node:
            await create(node, "t", 2)
            assert len(list(node.services.partitions.registry.by_name["t"].all())) == 2
            saved = tmp_path / "saved"
            shutil.copytree(tmp_path / "data" / "t-0", saved)
            await delete(node, "t")
        shutil.copytree(saved, tmp_path / "data" / "t-0")
        async with open_node(tmp_path / "data") as node:
            assert node.services.partitions.registry.by_name == {}
            assert not (tmp_path / "data" / "t-0").exists()

    async def test_a_directory_of_the_former_topic_id_is_replaced(self, tmp_path: Path) -> None:
        async with open_node(tmp_path / "data") as node:
            await create(node, "t")
            node.services.partitions.registry.get("t", 0)
            saved = tmp_path / "saved"
            shutil.copytree(tmp_path / "data" / "t-0", saved)
            await delete(node, "t")
            created = await create(node, "t")
            node.services.partitions.registry.get("t", 0)
        shutil.rmtree(tmp_path / "data" / "t-0")
        shutil.copytree(saved, tmp_path / "data" / "t-0")
        async with open_node(tmp_path / "data") as node:
            assert node.services.partitions.registry.get("t", 0) is None, (
                "the partition's name must not be free for a new log yet"
            )
            async with asyncio.timeout(60):
                while (partition := node.services.partitions.registry.get("t", 0)) is None:
                    await asyncio.sleep(0)
            assert partition.log.topic_id == created.topic_id

    async def test_a_log_that_can_not_be_created_leaves_the_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_node(tmp_path / "data") as node:
            directory = node.services.partitions.log_directory
            real_create = type(directory).create

            def create_but_one(self: Any, topic: str, *rest: Any) -> Any:
                if topic == "full":
                    raise OSError(28, "No space left on device")
                return real_create(self, topic, *rest)

            monkeypatch.setattr(type(directory), "create", create_but_one)
            await create(node, "full", 2)
            await create(node, "good", 2)
            assert node.services.partitions.registry.get("full", 0) is None
            assert node.services.partitions.registry.get("good", 1) is not None
            monkeypatch.undo()
            await grow(node, "full", 3)
            assert len(list(node.services.partitions.registry.by_name["full"].all())) == 3


class TestShortening:
    """tests/faults/test_shortened_metadata.py has the crashes in between."""

    @pytest.fixture(autouse=True)
    def short_logs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "SHORTENED_FROM_BYTES", 0)

    async def test_a_start_drops_history_and_goes_on(self, tmp_path: Path) -> None:
        config = load_config(overrides=[f"log.dirs={tmp_path / 'data'}", "listeners=PLAINTEXT://127.0.0.1:0"])
        ends = []
        for run in range(3):
            gateway = Gateway(config)
            await gateway.start()
            log = gateway.services.topics.metadata_log.log
            ends.append((log.log_start_offset, log.log_end_offset))
            (endpoint,) = gateway.services.node.bound.values()
            await asyncio.to_thread(self._use, endpoint.port, run)
            await gateway.stop()
        assert ends[0][0] == 0 < ends[1][0] < ends[2][0], ends
        assert ends[2][1] - ends[2][0] < 12, "a topic and its partition, blocks of ids"

    @staticmethod
    def _use(port: int, run: int) -> None:
        """Keep one topic from the first run on, of which each run writes one record; others come and go."""
        with Wire(f"127.0.0.1:{port}") as wire:
            made = ["kept"] if run == 0 else []
            made += [f"t{number}" for number in range(20)]
            topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in made]
            created = wire.call("create_topics", 7, topics=topics, timeout=10_000).fields["topics"]
            assert not any(row["error_code"] for row in created)
            names = [{"name": name, "topic_id": None} for name in made if name != "kept"]
            wire.call("delete_topics", 6, topics=names, timeout=10_000)
            named = wire.call("metadata", 12, topics=None).fields["topics"]
            assert [topic["name"] for topic in named] == ["kept"]
            rows = [{"index": 0, "records": Batch(records(1)).encode()}]
            topic_data = [{"name": "kept", "partition_data": rows}]
            answer = wire.call("produce", 9, acks=-1, timeout=10_000, topic_data=topic_data).fields
            assert answer["responses"][0]["partition_responses"][0]["base_offset"] == run

    async def test_history_stays_that_tells_of_a_log_on_disk(self, tmp_path: Path) -> None:
        async with open_node(tmp_path / "data") as node:
            for number in range(20):
                await create(node, f"t{number}")
                if number == 0:
                    node.services.partitions.registry.get("t0", 0)
                    shutil.copytree(tmp_path / "data" / "t0-0", tmp_path / "saved")
                await delete(node, f"t{number}")

        def start_offset() -> int:
            directory = LogDirectory.open(tmp_path / "data", Storage(), node_id=1, now_ms=lambda: NOW_MS)
            unused: Any = None
            metadata = MetadataLog(LocalJournal(open_metadata_log(directory), unused, unused))
            metadata.replay()
            metadata.shorten(directory, NOW_MS)
            start = metadata.log.log_start_offset
            directory.close(clean=True)
            return start

        shutil.copytree(tmp_path / "saved", tmp_path / "data" / "t0-0")
        assert start_offset() == 0
        shutil.rmtree(tmp_path / "data" / "t0-0")
        assert start_offset() > 0


class TestEmbeddedBlockStore:
    async def test_blocks_never_overlap_over_restarts(self, tmp_path: Path) -> None:
        for number in range(3):
            async with open_node(tmp_path) as node:
                store = EmbeddedBlockStore(node.services.topics.metadata_log, 1)
                assert await store.claim(1000, "n1", number) == ProducerIdBlock(
                    number * 1000, number * 1000 + 999, "n1", number
                )
                assert len(await store.blocks()) == number + 1

    async def test_concurrent_claims_get_different_blocks(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            store = EmbeddedBlockStore(node.services.topics.metadata_log, 1)
            blocks = await asyncio.gather(*(store.claim(10, "n1", 0) for _ in range(20)))
            assert len({block.first_producer_id for block in blocks}) == 20

    async def test_moving_next(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            store = EmbeddedBlockStore(node.services.topics.metadata_log, 1)
            await store.claim(10, "n1", 0)
            assert await store.move_next(100) == 10
            with pytest.raises(NextIdBehind):
                await store.move_next(99)
            assert (await store.claim(10, "n1", 0)).first_producer_id == 100

    async def test_sizes_that_are_refused(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            store = EmbeddedBlockStore(node.services.topics.metadata_log, 1)
            with pytest.raises(ValueError, match="must be at least 1, not 0"):
                await store.claim(0, "n1", 0)
            with pytest.raises(ProducerIdsExhausted):
                await store.claim(2**63, "n1", 0)


class TestTopicPolicy:
    def test_the_topics_own_values_count(self) -> None:
        config = load_config(overrides=["log.flush.interval.messages=3", "seqgate.log.deep.validation=true"])
        own = {"segment.bytes": "2097152", "flush.ms": "7", "max.decompressed.message.bytes": "9"}
        policy = topic_policy(config, own)
        assert policy.log_config.max_record_bytes == 9
        assert policy.log_config.segment_bytes == 2097152
        assert policy.log_config.deep_validation
        assert (policy.flush_messages, policy.flush_ms) == (3, 7)

    def test_defaults_are_kafkas_but_for_the_flush(self) -> None:
        policy = topic_policy(load_config(), {})
        assert policy.flush_messages == 1
        assert policy.log_config.segment_ms == policy.log_config.retention_ms == 604800000

    def test_an_internal_segment_size_takes_precedence(self) -> None:
        policy = topic_policy(load_config(), {"segment.bytes": "2097152", "internal.segment.bytes": "1000"})
        assert policy.log_config.segment_bytes == 1000

    @pytest.mark.parametrize(("policy", "limit"), [("", -1), ("delete", 5)])
    def test_only_the_delete_policy_deletes(self, policy: str, limit: int) -> None:
        overrides = {"cleanup.policy": policy, "retention.ms": "5", "retention.bytes": "5"}
        config = topic_policy(load_config(), overrides).log_config
        assert (config.retention_ms, config.retention_bytes) == (limit, limit)


async def test_a_thousand_partitions_are_created_and_deleted(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "wide", 1000)
        assert len(node.services.partitions.registry) == 1000
        await delete(node, "wide")
        assert len(node.services.partitions.registry) == 0
        assert node.services.topics.metadata_log.image.partition_count == 0
