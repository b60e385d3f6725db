"""Reopening the offline partitions of a running gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.admin.reopen import Reopened, ReopenRequest
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import Storage
from tests.faults.directory_life import ROOT, new_disk
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch


async def partition_of(node: Node) -> Partition:
    await create(node, "a")
    partition = node.services.partitions.registry.get("a", 0)
    assert partition is not None
    return partition


async def test_brings_the_partition_back_and_wakes_those_who_wait(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        partition = await partition_of(node)
        assert await partition.persisted(partition.append(batch(3), NOW_MS).last_offset)
        partition.log.go_offline("a test says so")
        assert await answer(node, ReopenRequest("a", 0)) == Reopened("a", 0, 0, 3)
        assert not partition.log.offline
        assert await partition.persisted(partition.append(batch(), NOW_MS).last_offset)


async def test_what_is_still_broken_stays_offline() -> None:
    disk = new_disk()
    async with open_node(ROOT, storage=Storage(disk=disk.process())) as node:
        partition = await partition_of(node)
        partition.log.go_offline("a test says so")
        disk.plan.fail_at = disk.plan.operations + 1
        with pytest.raises(ControlError, match="a-0 stays offline: "):
            await answer(node, ReopenRequest("a", 0))
        assert partition.log.offline
        disk.plan.heal()


async def test_a_partition_whose_files_could_not_be_opened_comes_back() -> None:
    disk = new_disk()
    async with open_node(ROOT, storage=Storage(disk=disk.process())) as node:
        partition = await partition_of(node)
        assert await partition.persisted(partition.append(batch(3), NOW_MS).last_offset)
    async with open_node(ROOT, storage=Storage(disk=disk.process())) as node:
        disk.plan.fail_read_at, disk.plan.fail_for_ever = disk.plan.reads + 1, True
        assert node.services.partitions.registry.get("a", 0) is None
        with pytest.raises(ControlError, match="a-0 stays offline: it can't be opened"):
            await answer(node, ReopenRequest("a", 0))
        disk.plan.heal()
        assert await answer(node, ReopenRequest("a", 0)) == Reopened("a", 0, 0, 3)
        with pytest.raises(ControlError, match="a-0 is not offline"):
            await answer(node, ReopenRequest("a", 0))


@pytest.mark.parametrize(("topic", "index"), [("b", 0), ("a", 5), ("a", -1)])
async def test_unknown_partitions_are_refused(tmp_path: Path, topic: str, index: int) -> None:
    async with open_node(tmp_path) as node:
        await partition_of(node)
        with pytest.raises(ControlError, match=f"no partition {topic}-{index}"):
            await answer(node, ReopenRequest(topic, index))


async def test_a_partition_in_service_is_left_alone(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await partition_of(node)
        with pytest.raises(ControlError, match="a-0 is not offline"):
            await answer(node, ReopenRequest("a", 0))
