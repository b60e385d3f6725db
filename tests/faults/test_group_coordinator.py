"""The partition of `__consumer_offsets` fails: clients get errors that they retry, and no acknowledged commit
is lost."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.handlers.groups.groups import delete_group
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import Storage
from tests.faults.directory_life import ROOT, new_disk
from tests.faults.simulated_disk import SimulatedDisk
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.runtime.coordinators.test_group_coordinator import (
    ONE_PARTITION,
    commit,
    contents,
    form_group,
    joining,
    offsets_of,
    offsets_partition,
)
from tests.gateway.runtime.coordinators.test_share_coordinator import GROUP as SHARE_GROUP
from tests.gateway.runtime.coordinators.test_share_coordinator import beat

KINDS = ("EIO", "ENOSPC", "short")
RETRIABLE = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
WRITE, SYNC = 1, 2
GROUP = "g"
TOPIC = "flights"


def open_on(disk: SimulatedDisk, *overrides: str) -> AbstractAsyncContextManager[Node]:
    return open_node(ROOT, *overrides, storage=Storage(disk=disk.process()))


def fail_next(disk: SimulatedDisk, operation: int, kind: str) -> None:
    """Fail the write of a commit, or the sync that makes the commit durable."""
    disk.plan.fail_at, disk.plan.kind = disk.plan.operations + operation, kind


def reopen(partition: Partition) -> None:
    partition.log.reopen(NOW_MS)
    partition.flush_finished()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", [WRITE, SYNC])
async def test_commits_are_refused_until_the_partition_is_back(operation: int, kind: str) -> None:
    disk = new_disk()
    async with open_on(disk, *ONE_PARTITION) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        await create(node, TOPIC)
        await commit(groups, GROUP, 1)
        await commit(groups, "other", 7)
        fail_next(disk, operation, kind)
        for offset in (2, 3):
            with pytest.raises(Unavailable) as refused:
                await commit(groups, GROUP, offset)
            assert refused.value.error_code in RETRIABLE
        with pytest.raises(Unavailable):
            await offsets_of(groups, GROUP)
        disk.plan.heal()
        reopen(offsets_partition(node))
        told = await offsets_of(groups, GROUP)
        assert told in ({0: 1}, {0: 2}), "a commit that was written and not acknowledged may be in the log"
        assert await offsets_of(groups, "other") == {0: 7}
        await commit(groups, GROUP, 4)
        assert await offsets_of(groups, GROUP) == {0: 4}
        before = contents(groups)
        image = disk.copy()
    image.power_cut(None)
    async with open_on(image, *ONE_PARTITION) as node:
        assert contents(node.services.coordinators.groups) == before


@pytest.mark.parametrize("operation", [WRITE, SYNC])
async def test_members_that_wait_are_answered(operation: int) -> None:
    """The leader's assignment can't be stored: the leader and the members that wait for it must look the
    coordinator up again.
    """
    disk = new_disk()
    async with open_on(disk, *ONE_PARTITION) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        await create(node, TOPIC)
        replies = await asyncio.gather(*(groups.join(GROUP, joining(name)) for name in ("a", "b")))
        members = {reply.member_id: Committer(GROUP, 1, reply.member_id) for reply in replies}
        leader = members.pop(replies[0].leader)
        (follower,) = members.values()
        waiting = asyncio.create_task(groups.sync(follower, ("other", "range"), {}))
        await asyncio.sleep(0)
        fail_next(disk, operation, "EIO")
        with pytest.raises(Unavailable) as refused:
            await groups.sync(leader, ("other", "range"), {leader.member_id: b"x", follower.member_id: b"y"})
        assert refused.value.error_code in RETRIABLE
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, 60)
        disk.plan.heal()
        reopen(offsets_partition(node))
        member = await form_group(groups, "another", "c")
        assert groups.heartbeat(member) is ErrorCode.none


async def test_a_join_that_waits_is_answered_when_others_notice() -> None:
    disk = new_disk()
    slow = ("offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=60000")
    async with open_on(disk, *slow) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        await create(node, TOPIC)
        joining_one = asyncio.create_task(groups.join(GROUP, joining("a")))
        await asyncio.sleep(0)
        fail_next(disk, WRITE, "EIO")
        with pytest.raises(Unavailable):
            await commit(groups, "other", 1)
        with pytest.raises(Unavailable) as refused:
            await asyncio.wait_for(joining_one, 60)
        assert refused.value.error_code in RETRIABLE


async def test_what_nobody_waited_for_is_undone_with_the_log() -> None:
    """The coordinator must answer only from state that the reopened log has."""
    disk = new_disk()
    disk.chance = None
    async with open_on(disk, *ONE_PARTITION) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        await create(node, TOPIC)
        await commit(groups, GROUP, 1)
        partition = offsets_partition(node)
        shard = groups.shards.at(0).shard
        fail_next(disk, SYNC, "EIO")
        groups._apply(groups.shards.at(0), GROUP, lambda shard, effects: delete_group(shard, GROUP, effects))
        assert not shard.groups
        await node.services.partitions.flusher.idle()
        assert partition.log.offline
        disk.plan.heal()
        reopen(partition)
        assert partition.log.log_end_offset == 1, "the failed sync dropped the pages of the deletion"
        assert await offsets_of(groups, GROUP) == {0: 1}


async def test_many_commits_under_failures_lose_nothing() -> None:
    disk = new_disk()
    acknowledged: dict[str, int] = {}
    tried: dict[str, int] = {}
    async with open_on(disk, *ONE_PARTITION) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        await create(node, TOPIC)
        partition = offsets_partition(node)

        async def commit_on(group_id: str) -> None:
            for offset in range(1, 40):
                tried[group_id] = offset
                try:
                    await commit(groups, group_id, offset)
                    acknowledged[group_id] = offset
                    assert (await offsets_of(groups, group_id))[0] == offset
                except Unavailable:
                    if partition.log.offline:
                        disk.plan.heal()
                        reopen(partition)
                if offset % 10 == 0:
                    fail_next(disk, 1 + offset % 3, KINDS[offset % 3])

        await asyncio.gather(*(commit_on(f"group-{number}") for number in range(8)))
        disk.plan.heal()
        if partition.log.offline:
            reopen(partition)
        image = disk.copy()
    image.power_cut(None)
    async with open_on(image, *ONE_PARTITION) as node:
        for group_id, offset in acknowledged.items():
            held = (await offsets_of(node.services.coordinators.groups, group_id))[0]
            assert offset <= held <= tried[group_id]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", [WRITE, SYNC])
async def test_members_of_a_share_group_are_told_nothing_that_the_log_may_lose(
    operation: int, kind: str
) -> None:
    disk = new_disk()
    async with open_on(disk, *ONE_PARTITION) as node:
        await node.services.coordinators.groups.ensure_topic()
        await node.services.coordinators.shares.ensure_topic()
        await create(node, TOPIC)
        first = await beat(node, "a", 0, TOPIC)
        assert first.error_code is ErrorCode.none
        fail_next(disk, operation, kind)
        for _ in range(2):
            refused = await beat(node, "b", 0, TOPIC)
            assert refused.error_code in RETRIABLE
        disk.plan.heal()
        reopen(offsets_partition(node))
        group = node.services.coordinators.shares.group(SHARE_GROUP)
        assert group is not None
        assert set(group.members) in ({"a"}, {"a", "b"}), (
            "a commit that was written and not answered may be in the log"
        )
        second = await beat(node, "b", 0, TOPIC)
        assert second.member_epoch == first.member_epoch + 1
        told = await beat(node, "a", first.member_epoch)
        assert told.member_epoch == second.member_epoch
        image = disk.copy()
    image.power_cut(None)
    async with open_on(image, *ONE_PARTITION) as node:
        again = node.services.coordinators.shares.group(SHARE_GROUP)
        assert again is not None
        assert {name: member.member_epoch for name, member in again.members.items()} == {
            "a": told.member_epoch,
            "b": second.member_epoch,
        }
        assert (await beat(node, "a", told.member_epoch)).assignment is None
