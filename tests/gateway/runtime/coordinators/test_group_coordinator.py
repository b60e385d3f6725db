"""The group coordinator on real logs: where groups are stored, what a restart restores, and rewriting a log."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.group.classic_protocol import Join
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.handlers.groups.groups import delete_group
from seqgate.gateway.handlers.groups.offset_commit import commit_offsets
from seqgate.gateway.handlers.groups.offset_delete import delete_offsets
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import OFFSETS_TOPIC
from seqgate.gateway.metadata.leadership import next_record
from seqgate.gateway.metadata.records import RemoveTopicRecord
from seqgate.gateway.metadata.topics import new_partition
from seqgate.gateway.runtime.coordinators import shards
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.topic_lifecycle import java_hash
from seqgate.log import Storage
from seqgate.log.files.storage import DataFile
from tests.gateway.handlers.requests import create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.held_disk import HeldDisk

TOPIC = "flights"
AT_ONCE = ("group.initial.rebalance.delay.ms=0",)
ONE_PARTITION = (*AT_ONCE, "offsets.topic.num.partitions=1")


def offset_record(
    group_id: str, offset: int, partition: int = 0, topic: str = TOPIC, topic_id: bytes = b""
) -> OffsetCommitRecord:
    value = CommittedOffset(offset, -1, "", NOW_MS, topic_id=topic_id)
    return OffsetCommitRecord(group_id, topic, partition, value)


async def commit(groups: GroupCoordinator, group_id: str, offset: int, partition: int = 0) -> None:
    error = await commit_offsets(groups, Committer(group_id), [offset_record(group_id, offset, partition)])
    assert error is ErrorCode.none


def joining(client_id: str) -> Join:
    return Join(
        api_version=3,
        member_id="",
        group_instance_id=None,
        client_id=client_id,
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="other",
        protocols=(("range", b"metadata of " + client_id.encode()),),
        fresh_member_id=f"{client_id}-1",
    )


class ThreadNotingDisk(Storage):
    """A disk that notes which threads flush files of one partition."""

    def __init__(self, partition: str) -> None:
        super().__init__()
        self._partition = f"/{partition}"
        self.threads: set[int] = set()

    def _sync(self, file: DataFile) -> None:
        self._note(file.path)
        super()._sync(file)

    def fsync_path(self, path: str) -> None:
        self._note(path)
        super().fsync_path(path)

    def _note(self, path: str) -> None:
        if self._partition in path:
            self.threads.add(threading.get_ident())


async def form_group(groups: GroupCoordinator, group_id: str, client_id: str) -> Committer:
    """Create a stable group of one member."""
    joined = await groups.join(group_id, joining(client_id))
    assert joined.error_code is ErrorCode.none
    member = Committer(group_id, joined.generation_id, joined.member_id)
    synced = await groups.sync(member, ("other", "range"), {joined.member_id: b"all of it"})
    assert synced.assignment == b"all of it"
    return member


async def offsets_of(groups: GroupCoordinator, group_id: str) -> dict[int, int]:
    shard = await groups.durable_shard(group_id)
    return {partition: value.offset for (_, partition), value in shard.offsets.of(group_id).items()}


def contents(groups: GroupCoordinator) -> dict[str, Any]:
    """Return all state that must be the same after the log was replayed."""
    found: dict[str, Any] = {}
    for shard in groups.loaded_shards():
        for group_id, group in shard.groups.items():
            found[group_id] = (group.state, group.metadata(), dict(shard.offsets.of(group_id)))
    return found


def offsets_partition(node: Node) -> Partition:
    partition = node.services.partitions.registry.get("__consumer_offsets", 0)
    assert partition is not None
    return partition


async def finish_tasks(groups: GroupCoordinator) -> None:
    while groups.shards._tasks:
        await asyncio.gather(*groups.shards._tasks)


class TestJavaHash:
    @pytest.mark.parametrize(
        ("text", "hash_code"),
        [
            ("", 0),
            ("a", 97),
            ("Aa", 2112),
            ("BB", 2112),
            ("hello", 99_162_322),
            ("hello world", 1_794_106_052),
            ("polygenelubricants", -2_147_483_648),
            ("é", 233),
            ("😀", 1_772_899),
        ],
    )
    def test_it_is_that_of_java(self, text: str, hash_code: int) -> None:
        assert java_hash(text) == hash_code & 0xFFFFFFFF


class TestWhereGroupsLive:
    async def test_without_the_topic_clients_are_asked_to_come_again(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            with pytest.raises(Unavailable) as refused:
                await commit(node.services.coordinators.groups, "g", 1)
            assert refused.value.error_code is ErrorCode.coordinator_not_available

    async def test_what_is_committed_while_the_topic_is_created_is_found_later(self, tmp_path: Path) -> None:
        committed: set[str] = set()
        async with open_node(tmp_path) as node:
            await create(node, TOPIC)
            groups = node.services.coordinators.groups

            async def try_to_commit(group_id: str) -> None:
                with suppress(Unavailable):
                    await commit(groups, group_id, 1)
                    committed.add(group_id)

            creating = asyncio.create_task(groups.ensure_topic())
            tries: list[asyncio.Task[None]] = []
            while not creating.done():
                tries.append(asyncio.create_task(try_to_commit(f"group-{len(tries)}")))
                await asyncio.sleep(0)
            await asyncio.gather(*tries, *(try_to_commit(f"late-{number}") for number in range(20)))
        assert len(committed) >= 20
        async with open_node(tmp_path) as node:
            for group_id in committed:
                assert await offsets_of(node.services.coordinators.groups, group_id) == {0: 1}, group_id

    async def test_groups_are_spread_over_the_partitions(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, "offsets.topic.num.partitions=5") as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, TOPIC)
            await groups.ensure_topic()
            for number in range(30):
                await commit(groups, f"group-{number}", number)
            topic = node.services.partitions.registry.by_name["__consumer_offsets"]
            ends = [partition.log.log_end_offset for partition in topic.all()]
            assert sum(ends) == 30
            assert all(ends)
            index = java_hash("group-7") % 5
            assert set(groups.shards.at(index).shard.groups) >= {"group-7"}


class TestRestart:
    async def test_groups_and_offsets_are_there_again(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *AT_ONCE) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, TOPIC)
            await form_group(groups, "formed", "client")
            for group_id in ("simple", "given-up"):
                await commit(groups, group_id, 3)
                await commit(groups, group_id, 5)
            await groups.run(
                "given-up", lambda shard, effects: delete_offsets(shard, "given-up", [(TOPIC, 0)], effects)
            )
            before = contents(groups)
        async with open_node(tmp_path, *AT_ONCE) as node:
            after = contents(node.services.coordinators.groups)
            assert after["formed"] == before["formed"]
            assert after["simple"] == before["simple"]
            assert await offsets_of(node.services.coordinators.groups, "given-up") == {}

    async def test_a_group_checks_its_topics_when_one_grows_and_not_when_a_leader_moves(
        self, tmp_path: Path
    ) -> None:
        """The check matches each regular expression of the group against all topics."""
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups, metadata_log = node.services.coordinators.groups, node.services.topics.metadata_log
            await create(node, TOPIC)
            await groups.ensure_topic()
            group = ConsumerGroup("g", topics_changed=False)
            (await groups.durable_shard("g")).consumers.groups["g"] = group
            first = metadata_log.image.topics_by_name[TOPIC].partitions[0]
            await metadata_log.commit(lambda _: Decision((next_record(first, leader_epoch=1),), None))
            assert not group.topics_changed
            added = new_partition(first.topic_id, 1, first.replicas)
            await metadata_log.commit(lambda _: Decision((added,), None))
            assert group.topics_changed

    async def test_offsets_of_a_deleted_topic_are_forgotten(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await create(node, TOPIC)
            await groups.ensure_topic()
            await commit(groups, "g", 1)
            topic_id = node.services.partitions.registry.by_name[TOPIC].topic_id
            await delete(node, TOPIC)
            assert await offsets_of(groups, "g") == {}
            # a commit that was found valid before the deletion, and waits for a round
            late = asyncio.ensure_future(commit(groups, "g", 2))
            await asyncio.sleep(0)
            await groups.metadata_changed([RemoveTopicRecord(topic_id)])
            await late
            assert await offsets_of(groups, "g") == {}
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            assert await offsets_of(node.services.coordinators.groups, "g") == {}

    async def test_each_shard_is_cleaned_up_in_a_turn_of_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All shards together may have a million offsets, and requests wait meanwhile."""
        loop = asyncio.get_running_loop()
        turn, visits = 0, []

        def begin_turn() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(begin_turn)

        def visit(*_: object) -> None:
            visits.append(turn)

        async with open_node(tmp_path, *AT_ONCE, "offsets.topic.num.partitions=4") as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            for group_id in "abcd":  # one in each partition
                await commit(groups, group_id, 1)
            monkeypatch.setattr(GroupShard, "clean_up", visit)
            begin_turn()
            groups._clean_up()
            while len(visits) < 4:
                await asyncio.sleep(0)
            monkeypatch.setattr(GroupShard, "forget_gone_topics", visit)
            await groups.metadata_changed([RemoveTopicRecord(uuid.uuid4())])
        assert len(visits) == 8
        assert len(set(visits[:4])) == len(set(visits[4:])) == 4

    @pytest.mark.parametrize("is_created_at_once", [False, True])
    async def test_offsets_of_a_topic_that_is_deleted_amid_the_end_are_forgotten(
        self, tmp_path: Path, is_created_at_once: bool
    ) -> None:
        """The metadata is durable, and the shards have ended: the next start forgets them, for good."""
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await create(node, TOPIC)
            await create(node, "kept")
            await groups.ensure_topic()
            by_name = node.services.partitions.registry.by_name
            await commit_offsets(
                groups,
                Committer("g"),
                [
                    offset_record("g", offset, topic=topic, topic_id=by_name[topic].topic_id_bytes)
                    for topic, offset in ((TOPIC, 1), ("kept", 2))
                ],
            )
            groups.shards.stop()
            await delete(node, TOPIC)
            if is_created_at_once:
                await create(node, TOPIC)
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            if not is_created_at_once:
                await create(node, TOPIC)
            groups = node.services.coordinators.groups
            found = (await groups.durable_shard("g")).offsets.of("g")
            assert {place: value.offset for place, value in found.items()} == {("kept", 0): 2}
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            assert await offsets_of(node.services.coordinators.groups, "g") == {0: 2}

    async def test_a_change_larger_than_a_batch_may_be(self, tmp_path: Path) -> None:
        count = 3_000
        overrides = (*ONE_PARTITION, "message.max.bytes=65536")
        async with open_node(tmp_path, *overrides) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, TOPIC)
            for first in range(0, count, 300):
                records = [offset_record("large", 1, partition) for partition in range(first, first + 300)]
                assert await commit_offsets(groups, Committer("large"), records) is ErrorCode.none
            too_many = [offset_record("large", 2, partition) for partition in range(count)]
            refused = await commit_offsets(groups, Committer("large"), too_many)
            assert refused is ErrorCode.invalid_commit_offset_size
            deleted = await groups.run("large", lambda shard, effects: delete_group(shard, "large", effects))
            assert deleted is ErrorCode.none
        async with open_node(tmp_path, *overrides) as node:
            assert contents(node.services.coordinators.groups) == {}

    async def test_a_record_that_no_batch_can_hold_is_refused_for_good(self, tmp_path: Path) -> None:
        """Kafka refuses it too: a client that may retry would retry for ever."""
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, TOPIC)
            await commit(groups, "other", 7)
            joined = await groups.join("g", joining("a"))
            leader = Committer("g", joined.generation_id, joined.member_id)
            neighbour = await groups.join("neighbour", joining("b"))
            refused = await groups.sync(leader, ("other", "range"), {leader.member_id: b"x" * (2 << 20)})
            assert refused.error_code is ErrorCode.unknown_server_error
            assert await offsets_of(groups, "other") == {0: 7}
            second = Committer("neighbour", neighbour.generation_id, neighbour.member_id)
            assert groups.heartbeat(second) is ErrorCode.none, "the shard was not lost"
            assert groups.heartbeat(leader) is ErrorCode.rebalance_in_progress


class TestRewrite:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shards, "REWRITE_AT_LEAST_BYTES", 20_000)
        monkeypatch.setattr(shards, "RECORDS_AT_ONCE", 3)

    async def commit_much(
        self, groups: GroupCoordinator, group_ids: Iterable[str], partition: int, start: int
    ) -> None:
        for offset in range(start, start + 60):
            for group_id in group_ids:
                await commit(groups, group_id, offset, partition)

    async def test_the_state_is_the_same_and_old_segments_go(self, tmp_path: Path) -> None:
        group_ids = [f"group-{number}" for number in range(5)]
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, TOPIC)
            await form_group(groups, "formed", "client")
            await commit(groups, "deleted", 1)
            assert (
                await groups.run("deleted", lambda shard, effects: delete_group(shard, "deleted", effects))
                is ErrorCode.none
            )
            # commit all the while, so that the rewrite meets offsets newer than its own
            for start in (0, 100, 200):
                await asyncio.gather(
                    *(self.commit_much(groups, group_ids, partition, start) for partition in range(3))
                )
            await finish_tasks(groups)
            log = offsets_partition(node).log
            assert log.log_start_offset > 0
            assert log.size_bytes < 60_000, "900 records of 130 bytes three times over"
            assert log.recovery_point == log.log_end_offset
            first_segment = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
            assert not first_segment.exists()
            before = contents(groups)
            assert set(before) == {"formed", *group_ids}
            assert await offsets_of(groups, "group-3") == {0: 259, 1: 259, 2: 259}
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            assert contents(node.services.coordinators.groups) == before

    async def test_nothing_is_flushed_in_the_event_loop(self, tmp_path: Path) -> None:
        disk = ThreadNotingDisk("__consumer_offsets-0")
        async with open_node(tmp_path, *ONE_PARTITION, storage=disk) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, TOPIC)
            for number in range(30):
                await commit(groups, f"group-{number}", 1)
            disk.threads.clear()
            await groups.shards.at(0).rewrite(node.clock)
            assert offsets_partition(node).log.log_start_offset == 30
            assert disk.threads
            assert threading.get_ident() not in disk.threads

    async def test_nothing_is_deleted_once_the_log_went_offline_meanwhile(self, tmp_path: Path) -> None:
        disk = HeldDisk()
        async with open_node(tmp_path, *ONE_PARTITION, storage=disk) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, TOPIC)
            for number in range(30):
                await commit(groups, f"group-{number}", 1)
            partition = offsets_partition(node)
            with disk.held(f"{OFFSETS_TOPIC}-0/log-start-offset"):
                rewrite = asyncio.create_task(groups.shards.at(0).rewrite(node.clock))
                while not disk.waiting:
                    await asyncio.sleep(0)
                partition.log.go_offline("a test says so")
            await rewrite
            assert partition.log.segments.bases[0] == 0
            partition.log.reopen(NOW_MS)
            partition.flush_finished()
            assert len(contents(groups)) == 30

    async def test_a_rewrite_writes_nothing_once_its_log_was_reopened(self, tmp_path: Path) -> None:
        """The rewrite's state may be older than commits after the reopening."""
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, TOPIC)
            for number in range(30):
                await commit(groups, f"group-{number}", 1)
            partition = offsets_partition(node)
            loaded = groups.shards.at(0)
            rewrite = asyncio.create_task(loaded.rewrite(node.clock))
            await asyncio.sleep(0)
            assert partition.log.log_end_offset > 30, "the rewrite must have begun"
            partition.log.go_offline("a test says so")
            with pytest.raises(Unavailable):
                await commit(groups, "group-29", 2)
            partition.log.reopen(NOW_MS)
            partition.flush_finished()
            await commit(groups, "group-29", 3)
            await rewrite
            assert groups.shards.at(0) is not loaded
            before = contents(groups)
            assert partition.log.log_start_offset == 0
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            assert contents(node.services.coordinators.groups) == before
            assert await offsets_of(node.services.coordinators.groups, "group-29") == {0: 3}

    async def test_a_log_is_not_written_anew_for_what_it_needs(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            for number in range(170):
                await commit(groups, f"group-{number}", 1)
            await finish_tasks(groups)
            loaded = groups.shards.at(0)
            await loaded.rewrite(node.clock)
            assert not loaded.is_worth_a_rewrite
            for offset in range(2, 5):
                await commit(groups, "group-0", offset)
            assert not loaded.is_worth_a_rewrite


async def test_a_group_that_is_too_large_after_a_restart_is_told_to_join_again(tmp_path: Path) -> None:
    async with open_node(tmp_path, *ONE_PARTITION) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        first = await form_group(groups, "g", "a")
        second = asyncio.create_task(groups.join("g", joining("b")))
        while groups.heartbeat(first) is ErrorCode.none:
            await asyncio.sleep(0)
        again = await groups.join("g", replace(joining("a"), member_id=first.member_id))
        members = [Committer("g", reply.generation_id, reply.member_id) for reply in (again, await second)]
        shares = {member.member_id: b"some" for member in members}
        await asyncio.gather(*(groups.sync(member, ("other", "range"), shares) for member in members))
    async with open_node(tmp_path, "group.max.size=2") as node:
        assert node.services.coordinators.groups.heartbeat(members[0]) is ErrorCode.none
    async with open_node(tmp_path, "group.max.size=1") as node:
        assert node.services.coordinators.groups.heartbeat(members[0]) is ErrorCode.rebalance_in_progress


async def test_what_could_not_be_written_for_want_of_memory_is_not_in_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_node(tmp_path, *ONE_PARTITION) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        await create(node, TOPIC)
        await commit(groups, "g", 1)
        with monkeypatch.context() as short:

            def fail(*_: object, **__: object) -> None:
                raise MemoryError

            short.setattr(Partition, "append", fail)
            with pytest.raises(Unavailable):
                await commit_offsets(groups, Committer("g"), [offset_record("g", 2)])
        assert await offsets_of(groups, "g") == {0: 1}


async def test_a_clean_up_that_fails_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cleaned: list[GroupShard] = []

    def clean_up(shard: GroupShard, *_: object) -> None:
        cleaned.append(shard)
        if len(cleaned) == 1:
            raise MemoryError

    async with open_node(tmp_path, "offsets.topic.num.partitions=2") as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        for index in range(2):
            groups.shards.at(index)
        before = groups._cleaning
        monkeypatch.setattr(GroupShard, "clean_up", clean_up)
        groups._clean_up()
        while len(cleaned) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "__consumer_offsets-0 can't be cleaned up now" in caplog.text
        assert groups._cleaning is not before, "the next clean-up comes"


async def test_what_another_request_has_written_is_told_when_it_is_durable(tmp_path: Path) -> None:
    """Kafka's CoordinatorRuntime, too, delays a result without records until the last written record is
    committed.
    """
    disk = HeldDisk()
    async with open_node(tmp_path, *ONE_PARTITION, storage=disk) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        joined = await groups.join("g", joining("a"))
        member = Committer("g", joined.generation_id, joined.member_id)
        with disk.held(OFFSETS_TOPIC):
            first = asyncio.create_task(groups.sync(member, ("other", "range"), {joined.member_id: b"all"}))
            await eventually(lambda: disk.waiting > 0)
            again = asyncio.create_task(groups.sync(member, ("other", "range"), {}))
            for _ in range(200):
                await asyncio.sleep(0)
            assert not first.done()
            assert not again.done()
        assert (await first).assignment == (await again).assignment == b"all"


async def eventually(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(60.0):
        while not is_met():
            await asyncio.sleep(0.001)


async def test_a_partition_that_comes_during_a_stop_is_not_loaded(tmp_path: Path) -> None:
    async with open_node(tmp_path, *ONE_PARTITION) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        await form_group(groups, "g", "a client")
        groups.stop()

        node.services.partitions.registry.became_ready(OFFSETS_TOPIC, 0)

        assert not any(loaded.is_current for loaded in groups.shards)
        with pytest.raises(Unavailable):
            await commit(groups, "g", 1)
