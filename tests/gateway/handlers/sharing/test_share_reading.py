"""A share group with read_committed may acquire all records except aborted ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.coordinator.share.share_partition import ShareLimits, SharePartition
from seqgate.gateway.handlers.sharing import share_fetch
from seqgate.gateway.handlers.sharing.share_fetch import read_batches
from seqgate.gateway.metadata.image import GROUP_RESOURCE as GROUP
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log.format.records import NewRecord, build_batch
from tests.faults.cold_storage import ColdStorage
from tests.gateway.handlers.requests import alter, create
from tests.gateway.handlers.support import NOW_MS, Node, open_node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        await create(node, "t", configs={"flush.messages": str(2**63 - 1)})
        yield node


@pytest.fixture
def partition(node: Node) -> Partition:
    found = node.services.partitions.registry.get("t", 0)
    assert found is not None
    return found


def send(partition: Partition, producer_id: int = -1, sequence: int = -1, count: int = 2) -> None:
    records = [NewRecord(b"v", timestamp=NOW_MS)] * count
    is_transactional = producer_id >= 0
    batch = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    partition.append(batch, NOW_MS)


def end(partition: Partition, producer_id: int, *, commit: bool) -> None:
    partition.append_end_marker(producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)


def offsets(partition: Partition, *, committed_only: bool, start: int = 0) -> list[int]:
    log = partition.log
    region = log.find(start, 1 << 20, upper_bound=log.last_stable_offset)
    assert region is not None
    batches = read_batches(log, start, region, committed_only=committed_only)
    assert batches.end_offset == log.last_stable_offset
    return [offset for place in batches.places for offset in range(place.base_offset, place.last_offset + 1)]


def test_aborted_batches_are_not_acquired(partition: Partition) -> None:
    send(partition, 7, 0)  # offsets 0 and 1
    send(partition, 8, 0)  # offsets 2 and 3
    send(partition)  # offsets 4 and 5
    send(partition, 7, 2)  # offsets 6 and 7
    end(partition, 7, commit=False)  # offset 8
    end(partition, 8, commit=True)  # offset 9
    send(partition, 7, 4)  # offsets 10 and 11
    end(partition, 7, commit=True)  # offset 12
    assert offsets(partition, committed_only=True) == [2, 3, 4, 5, 8, 9, 10, 11, 12]
    assert offsets(partition, committed_only=False) == list(range(13))
    assert offsets(partition, committed_only=True, start=6) == [8, 9, 10, 11, 12]


def test_a_producer_that_aborts_twice_and_commits_between(partition: Partition) -> None:
    for number, commit in enumerate((False, True, False)):
        send(partition, 7, 2 * number)
        end(partition, 7, commit=commit)
    assert offsets(partition, committed_only=True) == [2, 3, 4, 5, 8]


async def test_reading_continues_behind_batches_that_were_all_aborted(
    node: Node, partition: Partition
) -> None:
    for number in range(5):
        send(partition, 7, 2 * number)
    end(partition, 7, commit=False)  # offset 10
    send(partition)  # offsets 11 and 12
    await alter(node, GROUP, "g", {"share.isolation.level": "read_committed"})
    context = node.context(share_fetch.SHARE_FETCH_API, 1)
    found = SharePartition(0)
    batches = await share_fetch.read(context, "g", partition.log, found, 1)  # fetch one batch at a time
    assert batches is not None
    assert [place.base_offset for place in batches.places] == [10]
    everything = await share_fetch.read(context, "another", partition.log, found, 1)
    assert everything is not None
    assert [place.base_offset for place in everything.places] == [0]


async def test_a_record_released_meanwhile_is_not_skipped(node: Node, partition: Partition) -> None:
    send(partition)  # offsets 0 and 1
    for number in range(3):
        send(partition, 7, 2 * number)  # offsets 2 to 7
    end(partition, 7, commit=False)  # offset 8
    await alter(node, GROUP, "g", {"share.isolation.level": "read_committed"})
    context = node.context(share_fetch.SHARE_FETCH_API, 1)
    found = SharePartition(0)
    found.acquire("m", [(0, 1)], 100, ShareLimits(), NOW_MS)
    reading = asyncio.create_task(share_fetch.read(context, "g", partition.log, found, 1))
    await asyncio.sleep(0)
    found.release("m", ShareLimits(), NOW_MS)
    batches = await reading
    assert batches is not None
    assert [place.base_offset for place in batches.places] == [0]


async def test_a_record_acquired_during_a_disk_read_is_not_handed_out_twice(tmp_path: Path) -> None:
    disk = ColdStorage()
    async with open_node(tmp_path, storage=disk) as node:
        await create(node, "t", configs={"flush.messages": str(2**63 - 1)})
        partition = node.services.partitions.registry.get("t", 0)
        assert partition is not None
        for _ in range(3):
            send(partition)  # offsets 0 and 1, 2 and 3, 4 and 5
        disk.freeze(str(tmp_path / "t-0" / f"{0:020}.log"))
        context = node.context(share_fetch.SHARE_FETCH_API, 1)
        found = SharePartition(0)
        reading = asyncio.create_task(share_fetch.read(context, "g", partition.log, found, 1))
        async with asyncio.timeout(60):
            while not disk.asked:
                await asyncio.sleep(0.001)
        found.acquire("m", [(0, 1)], 100, ShareLimits(), NOW_MS)
        disk.gate.set()
        batches = await reading
        assert batches is not None
        assert [place.base_offset for place in batches.places] == [2]
        assert not disk.waited_for
