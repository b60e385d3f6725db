"""Retention of open partitions runs in the background and in slices, and is logged and counted."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.runtime.partitions.flusher import Flusher
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.upkeep.retention import Retention
from seqgate.log import DeletionReason, LocalDurability, LogConfig, LogDirectory, Storage
from tests.faults.directory_life import ROOT, new_disk
from tests.log.support import batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
CONFIG = LogConfig(segment_bytes=100, retention_ms=HOUR_MS, segment_ms=HOUR_MS, file_delete_delay_ms=0)


@dataclass
class Clock:
    time_ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


@pytest.fixture
async def flusher() -> AsyncIterator[Flusher]:
    flusher = Flusher(asyncio.get_running_loop(), durability=LocalDurability(Storage()))
    flusher.start()
    yield flusher
    await flusher.idle()
    flusher.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def filled(
    directory: LogDirectory, flusher: Flusher, batches: int, index: int = 0, config: LogConfig = CONFIG
) -> Partition:
    flusher.durability = directory.environment.durability
    log = directory.create("t", uuid.UUID(int=5), index, config)
    partition = Partition(log, flusher, leader_epoch=0, flush_messages=1, flush_ms=1 << 60)
    partition.start_flush()
    await flusher.idle()
    for _ in range(batches):
        partition.append(batch(timestamp=NOW_MS), NOW_MS)
    await flusher.flushed(log, partition)
    return partition


@pytest.fixture
def directory(tmp_path: Path, clock: Clock) -> LogDirectory:
    return LogDirectory.open(tmp_path / "data", Storage(), node_id=1, now_ms=clock.now_ms)


async def test_old_segments_are_deleted_and_logged(
    directory: LogDirectory, flusher: Flusher, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    retention = Retention(clock, ColdReads(asyncio.get_running_loop(), directory.environment.storage))
    partition = await filled(directory, flusher, 120)
    size_bytes = partition.log.size_bytes
    retention.apply(partition)
    assert not retention.deleted_segments

    clock.time_ms += HOUR_MS + 1
    retention.apply(partition)
    await until(lambda: len(partition.log.segments) == 1)
    assert partition.log.log_start_offset == 120
    assert retention.deleted_segments == {DeletionReason.RETENTION_MS: 120}
    assert retention.deleted_bytes == {DeletionReason.RETENTION_MS: size_bytes}
    assert "t-0: deleted 50 segments with the offsets 0 to 49" in caplog.text
    assert "because of retention.ms" in caplog.text
    await retention.stop()


async def test_other_requests_run_between_the_slices(
    directory: LogDirectory, flusher: Flusher, clock: Clock
) -> None:
    retention = Retention(clock, ColdReads(asyncio.get_running_loop(), directory.environment.storage))
    partition = await filled(directory, flusher, 160)
    clock.time_ms += HOUR_MS + 1
    seen = set()
    retention.apply(partition)
    while len(partition.log.segments) > 1:
        seen.add(len(partition.log.segments))
        await asyncio.sleep(0)
    assert len(seen) >= 3
    await retention.stop()


async def test_an_idle_segment_rolls_and_its_file_names_become_durable(
    tmp_path: Path, flusher: Flusher, clock: Clock
) -> None:
    disk = new_disk()
    directory = LogDirectory.open(ROOT, Storage(disk=disk.process()), node_id=1, now_ms=clock.now_ms)
    retention = Retention(clock, ColdReads(asyncio.get_running_loop(), directory.environment.storage))
    partition = await filled(directory, flusher, 3, config=replace(CONFIG, retention_ms=-1))
    clock.time_ms += HOUR_MS + 1
    retention.apply(partition)
    assert (retention.rolled_segments, len(partition.log.segments)) == (1, 4)
    await flusher.idle()
    left = disk.copy()
    left.power_cut(None)
    assert str(ROOT / "t-0" / f"{3:020d}.log") in left.files()
    retention.apply(partition)
    assert retention.rolled_segments == 1


async def test_many_partitions_at_once(directory: LogDirectory, flusher: Flusher, clock: Clock) -> None:
    retention = Retention(clock, ColdReads(asyncio.get_running_loop(), directory.environment.storage))
    partitions = [await filled(directory, flusher, 5, index) for index in range(12)]
    clock.time_ms += HOUR_MS + 1
    for _ in range(2):
        for partition in partitions:
            retention.apply(partition)
    await until(lambda: all(len(partition.log.segments) == 1 for partition in partitions))
    assert retention.deleted_segments[DeletionReason.RETENTION_MS] == 60
    await retention.stop()


async def test_a_partition_deleted_meanwhile_is_left_alone(
    directory: LogDirectory, flusher: Flusher, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    retention = Retention(clock, ColdReads(asyncio.get_running_loop(), directory.environment.storage))
    partition = await filled(directory, flusher, 60)
    clock.time_ms += HOUR_MS + 1
    retention.apply(partition)
    await asyncio.sleep(0)
    partition.close()
    directory.delete("t", 0)
    await retention.stop()
    assert not retention.deleted_segments
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_disk_that_fails_takes_the_partition_offline(
    tmp_path: Path, flusher: Flusher, clock: Clock
) -> None:
    disk = new_disk()
    directory = LogDirectory.open(ROOT, Storage(disk=disk.process()), node_id=1, now_ms=clock.now_ms)
    retention = Retention(clock, ColdReads(asyncio.get_running_loop(), directory.environment.storage))
    partition = await filled(directory, flusher, 5)
    clock.time_ms += HOUR_MS + 1
    retention.apply(partition)
    disk.plan.fail_at, disk.plan.fail_for_ever = disk.plan.operations + 1, True
    await until(lambda: partition.log.offline)
    await retention.stop()
    disk.plan.heal()
    disk.plan.fail_for_ever = False
    partition.log.reopen(clock.time_ms)
    retention.apply(partition)
    await until(lambda: len(partition.log.segments) == 1)
    await retention.stop()
