"""Fetches of uploaded records at another gateway than the leader, and fetches that the leader sends there."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.config.cluster import SPREADING_SELECTOR
from seqgate.gateway.metadata.records import BrokerRegistrationChangeRecord, PartitionRecord, TopicRecord
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics import read_replicas
from seqgate.gateway.runtime.topics.read_replicas import ReadReplicas
from tests.gateway.cluster.bucket_reads.scene import PARTITION, Scene
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.support import NOW_MS, Node
from tests.gateway.handlers.two_brokers import OTHER, THIS, broker, commit, node_of_two
from tests.support.batches import Batch, read_batches, records
from tests.support.wire import Plain

UPLOADED = 30
LEADER_EPOCH = 3
NOT_LEADER = int(ErrorCode.not_leader_or_follower)
FENCED = int(ErrorCode.fenced_leader_epoch)
UNKNOWN_EPOCH = int(ErrorCode.unknown_leader_epoch)


class Two:
    """This node, and another one; `history` is led by the other one, and `led` by this one."""

    def __init__(self, node: Node, scene: Scene, led: Partition) -> None:
        self.node = node
        self.scene = scene
        self.led = led
        self.asking = Asking(node)
        self.session_id = self.session_epoch = 0

    async def fetch(
        self,
        offset: int = 0,
        *,
        topic: uuid.UUID = PARTITION.topic_id,
        epoch: int = LEADER_EPOCH,
        version: int = 13,
        committed_only: bool = False,
        session: bool = False,
        **fields: Any,
    ) -> Plain | None:
        """Return the row of the answer; None if a session's answer has none."""
        named = {"topic_id": str(topic)} if version >= 13 else {"topic": "history"}
        row = {
            "partition": 0,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
            **({"last_fetched_epoch": -1} if version >= 12 else {}),
        }
        request: Plain = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": int(committed_only),
            "session_id": self.session_id,
            "session_epoch": self.session_epoch if session else -1,
            "topics": [{**named, "partitions": [row]}],
            "forgotten_topics_data": [],
            **({"rack_id": "r2"} if version >= 11 else {}),
            **({"replica_id": -1} if version < 15 else {}),
            **fields,
        }
        answer = await self.asking.ask("fetch", version, **request)
        if session:
            self.session_id, self.session_epoch = answer["session_id"], self.session_epoch + 1
        return answer["responses"][0]["partitions"][0] if answer["responses"] else None

    async def row(self, offset: int = 0, **fields: Any) -> Plain:
        found = await self.fetch(offset, **fields)
        assert found is not None
        return found


def offsets(row: Plain) -> list[int]:
    return [view.base_offset for view in read_batches(row["records"] or b"")[0]]


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with opened(tmp_path) as two:
        yield two


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Two]:
    (path / "leader").mkdir()
    scene = Scene(path / "leader")
    for _ in range(UPLOADED):
        scene.append()
    manifest = await scene.upload()
    scene.append(5)
    async with node_of_two(path / "node") as node:
        led_id = uuid.UUID(int=77)
        await commit(
            node,
            TopicRecord("history", PARTITION.topic_id),
            PartitionRecord(0, PARTITION.topic_id, (OTHER, THIS), (OTHER, THIS), OTHER, LEADER_EPOCH),
            TopicRecord("led", led_id),
            PartitionRecord(0, led_id, (THIS, OTHER), (THIS, OTHER), THIS, LEADER_EPOCH),
        )
        led = node.services.partitions.registry.get("led", 0)
        assert led is not None
        led.append(Batch(records(UPLOADED), base_timestamp=NOW_MS).encode(), NOW_MS)
        assert await led.persisted(UPLOADED - 1)
        services = node.services.partitions
        services.bucket_reads = scene.reads
        services.replicas = ReadReplicas(
            SPREADING_SELECTOR,
            THIS,
            node.services.topics.metadata_log.image,
            node.services.node.brokers,
            lambda key: manifest if key == PartitionKey(led_id, 0) else None,
            node.services.node.loop.time,
        )
        yield Two(node, scene, led)
        await scene.reads.stop()
    await scene.objects.close()


@pytest.mark.parametrize("version", range(11, 19))
async def test_uploaded_records_are_served_elsewhere(two: Two, version: int) -> None:
    row = await two.row(3, version=version)
    assert (row["error_code"], row["preferred_read_replica"]) == (0, -1)
    assert offsets(row) == list(range(3, UPLOADED))
    assert (row["high_watermark"], row["last_stable_offset"], row["log_start_offset"]) == (
        UPLOADED,
        UPLOADED,
        0,
    )
    assert row["aborted_transactions"] is None


async def test_older_versions_read_from_leaders_alone(two: Two) -> None:
    assert (await two.row(version=10))["error_code"] == NOT_LEADER
    assert two.scene.asked == 0


async def test_the_end_sends_the_client_to_the_leader(two: Two) -> None:
    for offset in (UPLOADED, UPLOADED + 3, UPLOADED + 1000):
        row = await two.row(offset)
        assert (row["error_code"], row["preferred_read_replica"], row["records"] or b"") == (0, OTHER, b"")
        assert row["high_watermark"] == -1, "it is no end of the partition"


async def test_a_client_without_a_leader_epoch_asks_for_the_metadata_at_the_end(two: Two) -> None:
    assert offsets(await two.row(0, epoch=-1)) == list(range(UPLOADED))
    row = await two.row(UPLOADED, epoch=-1)
    assert (row["error_code"], row["preferred_read_replica"]) == (NOT_LEADER, -1)


async def test_leader_epochs_are_checked(two: Two) -> None:
    assert (await two.row(epoch=LEADER_EPOCH - 1))["error_code"] == FENCED
    assert (await two.row(epoch=LEADER_EPOCH + 1))["error_code"] == UNKNOWN_EPOCH
    assert two.scene.asked == 0


async def test_without_a_live_leader_nothing_is_served(two: Two) -> None:
    await commit(two.node, BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
    assert (await two.row())["error_code"] == NOT_LEADER


async def test_clients_ask_for_the_metadata_while_the_leader_does_not_answer(two: Two) -> None:
    """The leader may be gone, so a client that is sent there would come again and again."""
    two.scene.leader_is_away = True
    row = await two.row()
    assert (row["error_code"], row["preferred_read_replica"]) == (NOT_LEADER, -1)


async def test_a_follower_is_refused(two: Two) -> None:
    assert (await two.row(version=13, replica_id=OTHER))["error_code"] == NOT_LEADER


async def test_committed_readers_get_the_aborted_transactions(two: Two) -> None:
    two.scene.write_in_transaction(1, 2)
    two.scene.end_transaction(1, commit=False)
    two.scene.write_in_transaction(2, 2)
    await two.scene.upload()
    begin = UPLOADED + 5
    row = await two.row(begin, committed_only=True)
    assert row["aborted_transactions"] == [{"producer_id": 1, "first_offset": begin}]
    assert offsets(row) == [begin, begin + 2]
    assert row["last_stable_offset"] == begin + 3
    assert (await two.row(begin + 3, committed_only=True))["preferred_read_replica"] == OTHER


async def test_a_session_tells_of_the_leader_again(two: Two) -> None:
    first = await two.row(UPLOADED, session=True)
    assert first["preferred_read_replica"] == OTHER
    again = await two.row(UPLOADED, session=True)
    assert again["preferred_read_replica"] == OTHER, "an answer without news would have no row"


async def test_a_topic_that_was_made_again_is_another(two: Two) -> None:
    row = await two.row(topic=uuid.UUID(int=6))
    assert row["error_code"] == int(ErrorCode.unknown_topic_id)


async def test_the_leader_sends_a_reader_away_once(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_replicas, "LEAST_BYTES", 1)
    row = await two.row(topic=two.led.topic_id)
    assert (row["error_code"], row["preferred_read_replica"], row["records"] or b"") == (0, OTHER, b"")
    assert row["high_watermark"] == UPLOADED
    row = await two.row(topic=two.led.topic_id)
    assert row["preferred_read_replica"] == -1
    assert offsets(row) == [0]


async def test_the_leader_checks_epochs_before_it_sends_readers_away(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_replicas, "LEAST_BYTES", 1)
    row = await two.row(topic=two.led.topic_id, epoch=LEADER_EPOCH - 1)
    assert (row["error_code"], row["preferred_read_replica"]) == (FENCED, -1)


async def test_a_partition_of_this_node_whose_records_are_not_here_is_not_read_from_the_bucket(
    two: Two,
) -> None:
    """A client that asks the leader must not be told the end of the upload."""
    await commit(two.node, broker(THIS, 2))
    two.node.services.node.brokers.withheld.add(("led", 0))
    two.node.services.partitions.registry.release("led", 0)
    row = await two.row(topic=two.led.topic_id)
    assert (row["error_code"], row["preferred_read_replica"]) == (NOT_LEADER, -1)
    two.node.services.node.brokers.withheld.clear()
