"""Coordinator operations in rounds: many share one batch and one flush, and a failing one affects the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.handlers.groups.groups import delete_group
from seqgate.gateway.handlers.groups.offset_commit import begin_commit, commit_offsets
from seqgate.gateway.metadata.image import OFFSETS_TOPIC
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.partitions.partition import Partition
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch
from tests.support.held_disk import HeldDisk

PATIENCE_S = 60.0
ONE_PARTITION = ("offsets.topic.num.partitions=1",)
MANY_PARTITIONS = ("offsets.topic.num.partitions=40",)
PAGE_CACHE = (*ONE_PARTITION, "log.flush.interval.messages=9223372036854775807")
PLACE: TopicPartition = ("flights", 0)

A = TypeVar("A")


def record(group_id: str, offset: int, metadata: str = "") -> OffsetCommitRecord:
    return OffsetCommitRecord(group_id, *PLACE, CommittedOffset(offset, -1, metadata, NOW_MS))


async def commit(node: Node, group_id: str, offset: int) -> ErrorCode:
    return await commit_offsets(
        node.services.coordinators.groups, Committer(group_id), [record(group_id, offset)]
    )


async def delete(node: Node, group_id: str) -> ErrorCode:
    return await node.services.coordinators.groups.run(
        group_id, lambda shard, effects: delete_group(shard, group_id, effects)
    )


def offsets(groups: GroupCoordinator) -> dict[str, int]:
    """Return the committed offset of every group."""
    (shard,) = groups.loaded_shards()
    return {group_id: shard.offsets.of(group_id)[PLACE].offset for group_id in shard.offsets.groups()}


def offsets_log(node: Node) -> Partition:
    partition = node.services.partitions.registry.get(OFFSETS_TOPIC, 0)
    assert partition is not None
    return partition


def batch_sizes(node: Node) -> list[int]:
    """Return how many records each batch of the offsets topic has."""
    return [header.record_count for header, _ in offsets_log(node).log.replay_batches(0)]


async def one_group_for_each_shard(node: Node) -> list[str]:
    """Create the offsets topic; return as many group ids as it has partitions, each in a shard of its own."""
    groups = node.services.coordinators.groups
    await groups.ensure_topic()
    by_shard: dict[int, str] = {}
    for number in range(1000):
        by_shard.setdefault(groups.shards.of(f"g-{number}").partition.index, f"g-{number}")
    assert len(by_shard) == 40
    await node.services.partitions.flusher.idle()  # opening a log begins a flush
    return list(by_shard.values())


async def outcomes(*work: Awaitable[A]) -> list[A | BaseException]:
    return await asyncio.gather(*work, return_exceptions=True)


def codes(found: list[Any]) -> list[ErrorCode]:
    return [one.error_code if isinstance(one, Unavailable) else one for one in found]


class TestRounds:
    @pytest.mark.parametrize("settings", [ONE_PARTITION, PAGE_CACHE])
    async def test_commits_of_one_turn_are_one_batch(self, tmp_path: Path, settings: tuple[str, ...]) -> None:
        async with open_node(tmp_path, *settings) as node:
            await node.services.coordinators.groups.ensure_topic()
            found = await outcomes(*(commit(node, f"g-{number}", number) for number in range(20)))
            assert found == [ErrorCode.none] * 20
            assert batch_sizes(node) == [20]
        async with open_node(tmp_path, *settings) as node:
            assert offsets(node.services.coordinators.groups) == {
                f"g-{number}": number for number in range(20)
            }

    async def test_commits_during_a_flush_share_the_next_one(self, tmp_path: Path) -> None:
        disk = HeldDisk()
        async with open_node(tmp_path, *ONE_PARTITION, storage=disk) as node:
            await node.services.coordinators.groups.ensure_topic()
            await commit(node, "before", 0)
            rounds = node.services.partitions.flusher.rounds
            with disk.held(OFFSETS_TOPIC):
                first = asyncio.create_task(commit(node, "first", 1))
                while not disk.waiting:
                    await asyncio.sleep(0)
                later = []
                for number in range(5):
                    later.append(asyncio.create_task(commit(node, f"later-{number}", number)))
                    await asyncio.sleep(0)
            assert await outcomes(first, *later) == [ErrorCode.none] * 6
            assert batch_sizes(node) == [1, 1, 5]
            assert node.services.partitions.flusher.rounds == rounds + 2

    async def test_without_a_flush_nobody_waits_for_the_flush_of_another_topic(self, tmp_path: Path) -> None:
        disk = HeldDisk()
        async with open_node(tmp_path, *PAGE_CACHE, storage=disk) as node:
            await node.services.coordinators.groups.ensure_topic()
            await create(node, "flights", configs={"flush.messages": "1"})
            partition = node.services.partitions.registry.get(*PLACE)
            assert partition is not None
            with disk.held(PLACE[0]):
                partition.append(Batch(base_timestamp=NOW_MS).encode(), NOW_MS)
                while not disk.waiting:
                    await asyncio.sleep(0)
                assert await commit(node, "g", 1) is ErrorCode.none

    async def test_each_operation_sees_what_those_before_it_changed(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            await node.services.coordinators.groups.ensure_topic()
            found = await outcomes(
                commit(node, "g", 1), delete(node, "g"), delete(node, "g"), commit(node, "g", 2)
            )
            assert found == [ErrorCode.none, ErrorCode.none, ErrorCode.group_id_not_found, ErrorCode.none]
            assert offsets(node.services.coordinators.groups) == {"g": 2}
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            assert offsets(node.services.coordinators.groups) == {"g": 2}

    async def test_what_is_applied_at_once_comes_after_what_waits(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            waiting = asyncio.create_task(commit(node, "g", 1))
            await asyncio.sleep(0)
            loaded = groups.shards.at(0)

            def judge(shard: GroupShard, _: int) -> Change[int]:
                return Change(shard.offsets.of("g")[PLACE].offset, [record("g", 2)])

            assert groups.shards.apply(loaded, judge) == (1, 1)
            assert await waiting is ErrorCode.none
            assert offsets(groups) == {"g": 2}

    async def test_more_than_a_batch_can_hold_is_several(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *ONE_PARTITION, "message.max.bytes=4096") as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            found = await outcomes(*(commit(node, f"g-{number:03}", number) for number in range(100)))
            assert found == [ErrorCode.none] * 100
            sizes = batch_sizes(node)
            assert sum(sizes) == 100
            assert 2 < len(sizes) < 10


class TestManyShards:
    """More shards have operations than one flush persists quickly."""

    async def test_those_that_wait_for_their_round_gather_operations(self, tmp_path: Path) -> None:
        disk = HeldDisk()
        async with open_node(tmp_path, *MANY_PARTITIONS, storage=disk) as node:
            groups = node.services.coordinators.groups
            names = await one_group_for_each_shard(node)
            logs = [groups.shards.of(name).partition.log for name in names]
            at_once = node.services.partitions.flusher.logs_per_round
            assert at_once < len(names)
            with disk.held(OFFSETS_TOPIC):
                first = [asyncio.create_task(commit(node, name, 1)) for name in names]
                while not disk.waiting:
                    await asyncio.sleep(0)
                later = [asyncio.create_task(commit(node, name, 2)) for name in names]
                await asyncio.sleep(0)
                assert [log.log_end_offset for log in logs] == [1] * at_once + [0] * (len(logs) - at_once)
            assert await outcomes(*first, *later) == [ErrorCode.none] * 2 * len(names)
            sizes = [[header.record_count for header, _ in log.replay_batches(0)] for log in logs]
            assert sizes == [[1, 1]] * at_once + [[2]] * (len(logs) - at_once)

    async def test_operations_that_need_no_flush_are_one_turn(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *MANY_PARTITIONS) as node:
            groups = node.services.coordinators.groups
            names = await one_group_for_each_shard(node)
            rounds = node.services.partitions.flusher.rounds
            async with asyncio.timeout(PATIENCE_S):
                found = await outcomes(*(groups.durable_shard(name) for name in names))
            assert found == [groups.shards.of(name).shard for name in names]
            assert node.services.partitions.flusher.rounds == rounds

    async def test_nobody_waits_for_ever_when_flushes_fail(self, tmp_path: Path) -> None:
        disk = HeldDisk()
        async with open_node(tmp_path, *MANY_PARTITIONS, storage=disk) as node:
            names = await one_group_for_each_shard(node)
            disk.broken_topic = OFFSETS_TOPIC
            async with asyncio.timeout(PATIENCE_S):
                found = await outcomes(*(commit(node, name, 1) for name in names))
            assert codes(found) == [ErrorCode.not_coordinator] * len(names)
            disk.broken_topic = ""


class TestRefusals:
    async def test_an_operation_that_is_refused_leaves_the_others_alone(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            await node.services.coordinators.groups.ensure_topic()
            stranger = commit_offsets(
                node.services.coordinators.groups, Committer("g", 3, "nobody"), [record("g", 3)]
            )

            def fail(*_: object) -> Change[None]:
                raise LookupError("a bug")

            shards = node.services.coordinators.groups.shards
            found = await outcomes(
                commit(node, "a", 1), stranger, shards.run(shards.at(0), fail), commit(node, "b", 2)
            )
            assert found[:2] == [ErrorCode.none, ErrorCode.group_id_not_found]
            assert isinstance(found[2], LookupError)
            assert found[3] is ErrorCode.none
            assert offsets(node.services.coordinators.groups) == {"a": 1, "b": 2}

    async def test_an_unexpected_error_leaves_nobody_waiting(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            loaded = groups.shards.at(0)
            broken = groups.shards.run(loaded, lambda *_: Change(None, [None]))
            async with asyncio.timeout(PATIENCE_S):
                found = await outcomes(commit(node, "a", 1), broken, commit(node, "b", 2))
            assert codes(found) == [ErrorCode.not_coordinator] * 3
            assert "an unexpected error ended a round of operations" in caplog.text
            assert await outcomes(commit(node, "a", 3), commit(node, "b", 4)) == [ErrorCode.none] * 2
            assert offsets(groups) == {"a": 3, "b": 4}

    async def test_an_answer_that_fails_keeps_none_of_the_others_back(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])

            def answer(*_: object) -> None:
                raise LookupError("a bug")

            others = [asyncio.create_task(commit(node, name, 1)) for name in ("a", "b")]
            begin_commit(groups, Committer("g"), [record("g", 1)], answer)
            async with asyncio.timeout(PATIENCE_S):
                assert await outcomes(*others) == [ErrorCode.none] * 2
            assert batch_sizes(node) == [3], "all were in one round"
            assert "a bug" in caplog.text

    async def test_a_callback_that_fails_keeps_no_answer_of_its_operation_back(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            loop = asyncio.get_running_loop()
            waiting: asyncio.Future[str] = loop.create_future()

            def fail() -> None:
                raise LookupError("a bug")

            def judge(*_: object) -> Change[str]:
                return Change("done", [record("g", 1)], replies=[(waiting, "joined")], when_durable=fail)

            async with asyncio.timeout(PATIENCE_S):
                assert await groups.shards.run(groups.shards.at(0), judge) == "done"
                assert await waiting == "joined"
            assert "a bug" in caplog.text

    async def test_an_answer_that_fails_keeps_no_other_answer_of_its_operation_back(
        self, tmp_path: Path
    ) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            loop = asyncio.get_running_loop()
            waiting: asyncio.Future[str] = loop.create_future()
            refused: asyncio.Future[str] = loop.create_future()

            def answer(*_: object) -> None:
                raise LookupError("a bug")

            def judge(waiter: object) -> Callable[..., Change[str]]:
                return lambda *_: Change("done", [record("g", 1)], replies=[(waiter, "joined")])

            groups.shards.ask(groups.shards.at(0), judge(waiting), answer)
            async with asyncio.timeout(PATIENCE_S):
                assert await waiting == "joined"
                groups.shards.ask(groups.shards.at(0), judge(refused), answer)
                await asyncio.sleep(0)
                offsets_log(node).log.go_offline("a test says so")
                with pytest.raises(Unavailable):
                    await refused

    async def test_a_record_that_no_batch_can_hold(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *ONE_PARTITION, "message.max.bytes=4096") as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            await commit(node, "durable", 7)
            loaded = groups.shards.at(0)
            too_large = groups.shards.run(loaded, lambda *_: Change(None, [record("g", 1, "x" * 5000)]))
            found = await outcomes(commit(node, "a", 1), too_large, commit(node, "b", 2))
            assert codes(found) == [
                ErrorCode.not_coordinator,
                ErrorCode.unknown_server_error,
                ErrorCode.not_coordinator,
            ]
            assert groups.shards.at(0) is not loaded
            assert offsets(groups) == {"durable": 7, "a": 1}, "the records written before must stay"
            assert await outcomes(commit(node, "a", 3), commit(node, "b", 4)) == [ErrorCode.none] * 2
            after = offsets(groups)
        async with open_node(tmp_path, *ONE_PARTITION, "message.max.bytes=4096") as node:
            assert offsets(node.services.coordinators.groups) == after == {"durable": 7, "a": 3, "b": 4}

    async def test_of_records_with_one_that_no_batch_can_hold_none_is_written(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *ONE_PARTITION, "message.max.bytes=4096") as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            await commit(node, "durable", 7)
            records = [record("a", 1, "x" * 3000), record("b", 1, "x" * 3000), record("c", 1, "x" * 5000)]
            refused = groups.shards.run(groups.shards.at(0), lambda *_: Change(None, records))
            assert codes(await outcomes(refused)) == [ErrorCode.unknown_server_error]
            assert offsets(groups) == {"durable": 7}

    async def test_nobody_is_answered_when_the_flush_fails(self, tmp_path: Path) -> None:
        disk = HeldDisk()
        async with open_node(tmp_path, *ONE_PARTITION, storage=disk) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            await commit(node, "durable", 7)
            with disk.held(OFFSETS_TOPIC):
                during = asyncio.gather(
                    *(commit(node, name, 1) for name in ("a", "b")), return_exceptions=True
                )
                while not disk.waiting:
                    await asyncio.sleep(0)
                later = asyncio.create_task(commit(node, "later", 1))
                await asyncio.sleep(0)
                assert not during.done()
                offsets_log(node).log.go_offline("a test says so")
            assert codes([*await during, *await outcomes(later)]) == [ErrorCode.not_coordinator] * 3
            with pytest.raises(Unavailable):
                await commit(node, "again", 1)

    async def test_those_who_wait_for_a_round_are_refused_when_the_gateway_stops(
        self, tmp_path: Path
    ) -> None:
        async with open_node(tmp_path, *ONE_PARTITION) as node:
            groups = node.services.coordinators.groups
            await groups.ensure_topic()
            await create(node, PLACE[0])
            waiting = asyncio.create_task(commit(node, "g", 1))
            groups.shards.at(0)
            await asyncio.sleep(0)
            groups.stop()
            assert codes(await outcomes(waiting)) == [ErrorCode.not_coordinator]
            assert batch_sizes(node) == []
