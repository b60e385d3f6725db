"""A running gateway takes partitions over that another one led, after its end or by a planned move."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.cluster.uploads.uploads import HandOverFailed
from seqgate.gateway.cluster.wal.wal_object import identify
from seqgate.gateway.metadata.image import TOPIC_RESOURCE
from seqgate.gateway.metadata.records import ConfigRecord, RemoveTopicRecord
from tests.gateway.backends.members import Member, Members, led, members, until
from tests.gateway.handlers.support import NOW_MS
from tests.support.batches import Batch, records
from tests.support.simulated_objects import Faults, SimulatedBucket, SimulatedObjects

FLIGHTS, OTHERS, OFFSETS, AGAIN = (uuid.UUID(int=number) for number in (5, 6, 7, 8))
NOT_LEADER = int(ErrorCode.not_leader_or_follower)
LOADING = int(ErrorCode.coordinator_load_in_progress)


def simulated(faults: Faults, seed: int = 1) -> Callable[[], ObjectStore]:
    bucket = SimulatedBucket()
    count = iter(range(1000))
    return lambda: SimulatedObjects(bucket, faults=faults, seed=seed, name=f"client {next(count)}")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Members]:
    async with members(tmp_path) as made:
        yield made


async def two(cluster: Members) -> tuple[Member, Member]:
    """Start two gateways, of which the first leads the topic `flights`."""
    first, second = await cluster.join(1), await cluster.join(2)
    await cluster.brokers()
    await cluster.topic("flights", FLIGHTS, first)
    return first, second


async def fill(member: Member, topic: str, first: int, end: int) -> None:
    for sequence in range(first, end):
        row = await member.produce(topic, sequence)
        assert (row["error_code"], row["base_offset"]) == (0, sequence)


async def check(member: Member, topic: str, end: int) -> None:
    """Check that a gateway has all records, answers a retry with the first offset, and takes the next one."""
    retried = await member.produce(topic, end - 1)
    assert (retried["error_code"], retried["base_offset"]) == (0, end - 1)
    log = member.partition(topic).log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, end, end)
    batches = [header.base_offset for header, _ in log.batches(0, end, 1 << 20)]
    assert batches == list(range(end))
    await fill(member, topic, end, end + 1)


class TestFailover:
    async def test_the_new_leader_has_everything_that_was_acknowledged(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 5)
        await cluster.end(first)
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        await second.until_ready("flights")
        await check(second, "flights", 5)
        epochs = second.partition("flights").log.epochs
        assert [epochs.end_offset(epoch, 6) for epoch in (0, 1)] == [(0, 5), (1, 6)]

    async def test_a_gateway_that_stops_begins_no_adoption(self, cluster: Members) -> None:
        """It reads the metadata once more for the end of its session."""
        first, second = await two(cluster)
        await cluster.end(first)
        await second.adoptions.stop()
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        assert not second.adoptions._wanted
        assert not second.adoptions._tasks

    async def test_until_then_no_leader_is_named(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 5)
        await cluster.end(first)
        second.sessions.gate.clear()
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        row = await second.produce("flights", 5)
        assert row["error_code"] == NOT_LEADER
        assert row["current_leader"] == {"leader_id": -1, "leader_epoch": -1}
        second.sessions.gate.set()
        await second.until_ready("flights")
        await check(second, "flights", 5)

    async def test_compaction_checks_a_partition_that_nobody_uses(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 3)
        first.partition("flights").log.roll(NOW_MS)
        await fill(first, "flights", 3, 5)
        await cluster.change(ConfigRecord(TOPIC_RESOURCE, "flights", "cleanup.policy", "compact"))
        services = second.node.services
        flights = services.partitions.registry.by_name["flights"]
        await services.upkeep.compaction._due()  # that of the start
        await cluster.end(first)
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        await second.until_ready("flights")
        assert flights.peek(0) is None
        await services.upkeep.compaction._due()
        assert flights.peek(0) is not None

    async def test_manifest_and_log_together(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 5)
        await first.uploads.round()
        await fill(first, "flights", 5, 9)
        await cluster.end(first)
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        await second.until_ready("flights")
        await check(second, "flights", 9)

    async def test_a_second_leader_that_ends_before_it_uploads(self, cluster: Members) -> None:
        """The third leader's session is older than the second one's, and the second one's log is read last."""
        third, first, second = await cluster.join(3), await cluster.join(1), await cluster.join(2)
        await cluster.brokers()
        await cluster.topic("flights", FLIGHTS, first)
        await fill(first, "flights", 0, 3)
        await cluster.end(first)
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        await second.until_ready("flights")
        await fill(second, "flights", 3, 6)
        await cluster.end(second)
        await cluster.change(led(FLIGHTS, 0, 3, 2))
        await third.until_ready("flights")
        await fill(third, "flights", 6, 8)
        await cluster.end(third)
        last = await cluster.join(4)
        await cluster.brokers()
        await cluster.change(led(FLIGHTS, 0, 4, 3))
        await last.until_ready("flights")
        await check(last, "flights", 8)

    async def test_committed_offsets(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await cluster.topic("__consumer_offsets", OFFSETS, first)
        topics = [
            {
                "name": "flights",
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 42,
                        "committed_leader_epoch": -1,
                        "committed_metadata": None,
                    }
                ],
            }
        ]
        fields = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
        }
        answer = await first.asking.ask("offset_commit", 8, **fields, topics=topics)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0
        await cluster.end(first)
        second.sessions.gate.clear()
        await cluster.change(led(OFFSETS, 0, 2, 1))
        beat = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
        assert (await second.asking.ask("heartbeat", 4, **beat))["error_code"] == 0
        left = await second.asking.ask("leave_group", 0, group_id="g", member_id="m")
        assert left["error_code"] == LOADING
        listed = await second.asking.ask("list_groups", 2)
        assert (listed["error_code"], listed["groups"]) == (LOADING, [])
        second.sessions.gate.set()
        await second.until_ready("__consumer_offsets")
        listed = await second.asking.ask("list_groups", 2)
        assert (listed["error_code"], [row["group_id"] for row in listed["groups"]]) == (0, ["g"])
        asked = [{"name": "flights", "partition_indexes": [0]}]
        groups = [{"group_id": "g", "member_id": None, "member_epoch": -1, "topics": asked}]
        found = await second.asking.ask("offset_fetch", 9, groups=groups, require_stable=False)
        (group,) = found["groups"]
        assert group["topics"][0]["partitions"][0]["committed_offset"] == 42

    async def test_an_open_transaction_stays_open(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 2)
        log = first.partition("flights")
        batch = Batch(records(1), producer_id=9, producer_epoch=0, base_sequence=0, attributes=0x10)
        offset = log.append(batch.encode(), first.node.clock.now_ms(), is_client=False).last_offset
        assert await log.persisted(offset)
        await cluster.end(first)
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        await second.until_ready("flights")
        taken = second.partition("flights").log
        assert (taken.last_stable_offset, taken.high_watermark) == (2, 3)
        assert taken.transactions.open_transaction(9) is not None


class TestMoves:
    async def _move(self, cluster: Members, source: Member, target: Member, epoch: int) -> None:
        await source.adoptions.hand_over(FLIGHTS, 0)
        await cluster.change(led(FLIGHTS, 0, target.node_id, epoch))
        await target.until_ready("flights")

    async def test_there_and_back(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 4)
        await self._move(cluster, first, second, 1)
        assert (await first.produce("flights", 4))["error_code"] == NOT_LEADER
        await check(second, "flights", 4)
        await self._move(cluster, second, first, 2)
        await check(first, "flights", 5)
        await self._move(cluster, first, second, 3)
        await check(second, "flights", 6)

    async def test_a_topic_that_is_created_again_meanwhile_stays(self, cluster: Members) -> None:
        first, _ = await two(cluster)
        await cluster.change(RemoveTopicRecord(FLIGHTS))
        await cluster.topic("flights", AGAIN, first)
        with pytest.raises(HandOverFailed):
            await first.adoptions.hand_over(FLIGHTS, 0)
        await fill(first, "flights", 0, 4)
        await check(first, "flights", 4)

    async def test_a_move_that_the_metadata_refuses(self, cluster: Members) -> None:
        first, _ = await two(cluster)
        await fill(first, "flights", 0, 4)
        await first.adoptions.hand_over(FLIGHTS, 0)
        assert (await first.produce("flights", 4))["error_code"] == NOT_LEADER
        first.adoptions.keep(FLIGHTS, 0)
        await check(first, "flights", 4)

    async def test_the_next_leader_ends_after_a_move_back(self, cluster: Members) -> None:
        """The log of the first session has rows from before and after the second leader's manifest."""
        first, second = await two(cluster)
        await fill(first, "flights", 0, 4)
        await self._move(cluster, first, second, 1)
        await fill(second, "flights", 4, 6)
        await self._move(cluster, second, first, 2)
        await fill(first, "flights", 6, 9)
        await cluster.end(first)
        await cluster.change(led(FLIGHTS, 0, 2, 3))
        await second.until_ready("flights")
        await check(second, "flights", 9)

    async def test_only_the_new_leader_uploads(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 4)
        await self._move(cluster, first, second, 1)
        await check(second, "flights", 4)
        await first.uploads.round()
        await second.uploads.round()
        found = await second.uploads._manifests.present(PartitionKey(FLIGHTS, 0))
        assert found is not None
        assert (found.leader_epoch, found.session, found.end_offset) == (1, second.wal.session.session, 5)
        assert not first.uploads._coverage.size_bytes - _metadata_bytes(first)

    async def test_nothing_is_kept_of_what_others_lead_or_was_deleted(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 4)
        await self._move(cluster, first, second, 1)
        assert list(second.adoptions._restored) == [PartitionKey(FLIGHTS, 0)]
        await self._move(cluster, second, first, 2)
        assert not second.adoptions._restored
        await check(first, "flights", 4)
        await first.uploads.round()
        assert PartitionKey(FLIGHTS, 0) in first.uploads._busy
        await cluster.change(RemoveTopicRecord(FLIGHTS))
        await first.uploads.round()
        assert not first.adoptions._restored
        assert PartitionKey(FLIGHTS, 0) not in first.uploads._busy


def _metadata_bytes(member: Member) -> int:
    coverage = member.uploads._coverage
    return sum(
        rows.size_bytes
        for key, entries in coverage._rows.items()
        if key.topic_id == uuid.UUID(int=1)
        for rows in entries
    )


class TestCollection:
    async def test_the_log_of_an_ended_session_goes_once_its_records_have_a_manifest(
        self, cluster: Members, tmp_path: Path
    ) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 5)
        await cluster.end(first)
        log = tmp_path / "bucket" / "wal" / "1" / "0"

        def objects() -> list[str]:
            names = (path for path in log.iterdir() if path.name != "boundary")
            return [path.name for path in names if not identify(path.read_bytes(), path.name).is_seal]

        await second.uploads._collect_ended()
        assert objects()
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        await second.until_ready("flights")
        await second.uploads.round()
        assert not objects()
        await check(second, "flights", 5)


class TestTrouble:
    @pytest.mark.parametrize("seed", range(4))
    async def test_a_rough_store(self, tmp_path: Path, seed: int) -> None:
        faults = Faults(fails_before=0.1, fails_after=0.1, conflicts=0.05, stale_listing=0.2)
        async with members(tmp_path, simulated(faults, seed)) as cluster:
            first, second = await two(cluster)
            await fill(first, "flights", 0, 3)
            await first.uploads.round()
            await fill(first, "flights", 3, 5)
            await cluster.end(first)
            await cluster.change(led(FLIGHTS, 0, 2, 1))
            await second.until_ready("flights")
            await check(second, "flights", 5)
            await second.uploads.round()
            await second.adoptions.hand_over(FLIGHTS, 0)

    async def test_a_damaged_partition_holds_up_no_other(
        self, cluster: Members, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first, second = await two(cluster)
        await cluster.topic("others", OTHERS, first)
        for topic in ("flights", "others"):
            await fill(first, topic, 0, 3)
        await first.uploads.round()
        manifest = tmp_path / "bucket" / "parts" / FLIGHTS.hex / "0" / "manifest"
        sound = manifest.read_bytes()
        manifest.write_bytes(sound[:-9])
        await cluster.end(first)
        await cluster.change(led(FLIGHTS, 0, 2, 1), led(OTHERS, 0, 2, 1))
        await second.until_ready("others")
        await check(second, "others", 3)
        await until(lambda: "is damaged" in caplog.text)
        assert (await second.produce("flights", 3))["error_code"] == NOT_LEADER
        assert caplog.text.count("can't be taken over now") == 1
        await cluster.change(RemoveTopicRecord(FLIGHTS))
        assert not second.adoptions._complaints

    async def test_a_partition_that_is_lost_again_before_it_came(self, cluster: Members) -> None:
        first, second = await two(cluster)
        await fill(first, "flights", 0, 3)
        await cluster.end(first)
        second.sessions.gate.clear()
        await cluster.change(led(FLIGHTS, 0, 2, 1))
        third = await cluster.join(3)
        await cluster.change(led(FLIGHTS, 0, 3, 2))
        second.sessions.gate.set()
        await third.until_ready("flights")
        await check(third, "flights", 3)
        await until(lambda: not second.adoptions._tasks)
        assert not second.node.services.topics.lifecycle.leads("flights", 0)
        assert not list(second.node.services.partitions.log_directory.path.glob("rebuilding-*"))
