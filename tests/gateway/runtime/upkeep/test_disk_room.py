from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.verdicts import RETRIED_EVERY_MS
from seqgate.gateway.runtime.upkeep.disk_room import CHECKS_BETWEEN_TRIES
from seqgate.log import Recovery, Storage, StorageFailed
from seqgate.log.files.file_names import LEADER_EPOCHS
from seqgate.log.files.storage import DataFile
from seqgate.log.format.record_batch import Buffer
from tests.gateway.handlers.requests import create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.runtime.backlog.test_backlog import answer, batch, open_topic, produce

MIN_FREE_BYTES = 1000
SETTINGS = (
    f"seqgate.log.min.free.bytes={MIN_FREE_BYTES}",
    "offsets.topic.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
)
PLENTY = 1 << 40
STORAGE_ERROR, WAITS = 56, 19


class Disk(Storage):
    """A storage that reports a given amount of free space, and fails writes with `error`."""

    free = PLENTY
    error = 0
    is_gone = False

    def free_bytes(self, path: str) -> int:
        if self.is_gone:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.free

    def write(self, file: DataFile, buffers: Sequence[Buffer], position: int) -> int:
        self._check(file.path)
        return super().write(file, buffers, position)

    def write_file(self, path: str, content: bytes) -> None:
        self._check(path)
        super().write_file(path, content)

    def truncate(self, file: DataFile, size_bytes: int) -> None:
        self._check(file.path)
        super().truncate(file, size_bytes)

    def _check(self, path: str) -> None:
        if self.error:
            raise OSError(self.error, os.strerror(self.error), path)


async def error_of(node: Node, sent: bytes) -> int:
    return int((await answer(produce(node, sent)))["error_code"])


async def check(node: Node) -> None:
    """Check the free space, and wait for the partitions that are reopened."""
    room = node.services.upkeep.disk_room
    room.check_free_space()
    if room.reopening is not None:
        await room.reopening


async def taken_offline(node: Node, disk: Disk, error: int) -> Partition:
    """Return a partition that went offline after a write failed with this error; then the disk works again."""
    partition = await open_topic(node)
    disk.error = error
    assert await error_of(node, batch()) == STORAGE_ERROR
    assert partition.log.offline
    disk.error = 0
    return partition


async def test_below_the_reserve_producers_are_refused_and_topics_can_be_deleted(tmp_path: Path) -> None:
    disk = Disk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        await open_topic(node)
        room = node.services.upkeep.disk_room
        first, second, third = (batch(producer_id=7, sequence=number) for number in range(3))
        disk.free = MIN_FREE_BYTES
        room.check_free_space()
        assert await error_of(node, first) == 0
        disk.free = MIN_FREE_BYTES - 1
        room.check_free_space()
        assert await error_of(node, second) == STORAGE_ERROR
        assert await error_of(node, first) == 0, (
            "a duplicate must be answered, because the log has its original"
        )
        assert await error_of(node, b"short") != 0
        assert room.refused_batches == 1
        await create(node, "made")
        await delete(node, "made")
        disk.free = PLENTY
        room.check_free_space()
        assert await error_of(node, third) == WAITS, "a batch after a refused one must be refused"
        assert [await error_of(node, sent) for sent in (second, third)] == [0, 0]


async def test_refusals_for_want_of_room_are_logged_at_once_and_then_at_a_bounded_rate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    disk.free = MIN_FREE_BYTES - 1
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        await open_topic(node)
        node.services.upkeep.disk_room.check_free_space()
        caplog.clear()
        for _ in range(500):
            assert await error_of(node, batch(producer_id=7)) == STORAGE_ERROR
        (line,) = [record for record in caplog.records if "refused a batch" in record.getMessage()]
        assert line.levelno == logging.WARNING
        node.clock.time_ms += RETRIED_EVERY_MS
        assert await error_of(node, batch(producer_id=7)) == STORAGE_ERROR
        assert caplog.messages[-1].endswith("; 499 more since the last such line")


async def test_a_data_directory_that_is_gone_is_reported_once_and_so_is_its_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        room = node.services.upkeep.disk_room
        for _ in range(2):
            caplog.clear()
            with caplog.at_level(logging.INFO, "seqgate.gateway.runtime.upkeep.disk_room"):
                disk.is_gone = True
                for _ in range(10):
                    room.check_free_space()
                disk.is_gone = False
                for _ in range(10):
                    room.check_free_space()
            gone, back = caplog.records
            assert (gone.levelno, back.levelno) == (logging.WARNING, logging.INFO)
            assert str(tmp_path) in gone.getMessage()
            assert str(tmp_path) in back.getMessage()


async def test_no_batch_of_an_unknown_producer_overtakes_a_refused_one(tmp_path: Path) -> None:
    disk = Disk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        await open_topic(node)
        disk.error = errno.ENOSPC
        assert await error_of(node, batch(producer_id=7, sequence=0)) == STORAGE_ERROR
        disk.error = 0
        await check(node)
        assert await error_of(node, batch(producer_id=7, sequence=1)) == WAITS
        assert await error_of(node, batch(producer_id=7, sequence=0)) == 0
        assert await error_of(node, batch(producer_id=7, sequence=1)) == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
async def test_partitions_that_lacked_room_are_reopened_with_room(tmp_path: Path, number: int) -> None:
    disk = Disk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        partition = await open_topic(node)
        disk.error = number
        assert await error_of(node, batch()) == STORAGE_ERROR
        assert partition.log.offline
        with pytest.raises(StorageFailed):
            node.services.topics.metadata_log.log.append(batch(), now_ms=NOW_MS)
        disk.free = 0
        await check(node)
        assert partition.log.offline
        disk.free, disk.error = PLENTY, 0
        await check(node)
        assert not partition.log.offline
        assert not node.services.topics.metadata_log.log.offline
        assert await error_of(node, batch()) == 0
        await create(node, "made")


async def test_a_failing_disk_is_left_to_the_operator(tmp_path: Path) -> None:
    disk = Disk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        partition = await taken_offline(node, disk, errno.EIO)
        await check(node)
        assert partition.log.offline


async def test_a_failed_reopening_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        partition = await taken_offline(node, disk, errno.ENOSPC)
        tries = 0

        def fail(recovery: Recovery) -> None:
            nonlocal tries
            tries += 1
            raise OSError(errno.EIO, "broken")

        with monkeypatch.context() as broken:
            broken.setattr(Recovery, "run", fail)
            for _ in range(CHECKS_BETWEEN_TRIES + 2):
                await check(node)
        assert tries == 2
        for _ in range(CHECKS_BETWEEN_TRIES + 1):
            await check(node)
        assert not partition.log.offline


async def test_a_partition_that_stays_offline_keeps_no_other_one_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, run = Disk(), Recovery.run

    def fail_for_the_first(recovery: Recovery) -> None:
        if recovery.place.topic == damaged.topic:
            raise OSError(errno.EIO, "broken")
        run(recovery)

    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        await create(node, "second")
        damaged = await taken_offline(node, disk, errno.ENOSPC)
        second = node.services.partitions.registry.get("second", 0)
        assert second is not None
        disk.error = errno.ENOSPC
        with pytest.raises(StorageFailed):
            second.append(batch(), NOW_MS)
        disk.error = 0
        with monkeypatch.context() as broken:
            broken.setattr(Recovery, "run", fail_for_the_first)
            for _ in range(CHECKS_BETWEEN_TRIES + 2):
                await check(node)
        assert (damaged.log.offline, second.log.offline) == (True, False)
        for _ in range(CHECKS_BETWEEN_TRIES + 1):
            await check(node)
        assert not damaged.log.offline


@pytest.mark.parametrize("looks", [1, 2])
async def test_a_partition_that_could_not_be_opened_for_want_of_room_is_opened_with_room(
    tmp_path: Path, looks: int
) -> None:
    class NoRoomForEpochs(Disk):
        def _check(self, path: str) -> None:
            if LEADER_EPOCHS in path:
                super()._check(path)

    disk = NoRoomForEpochs()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        partitions, ready = node.services.partitions.registry, []
        await create(node, "second")
        partitions.when_ready.append(lambda topic, index: ready.append((topic, index)))
        disk.error = errno.ENOSPC
        assert [partitions.get("second", 0) is None for _ in range(looks)] == [True, False][:looks]
        disk.error = 0
        await check(node)
        opened = partitions.by_name["second"].peek(0)
        assert opened is not None
        assert not opened.log.offline
        assert opened.log.epochs.latest == opened.leader_epoch
        assert ready == [("second", 0)]


async def test_a_topic_that_is_deleted_meanwhile_is_forgotten(tmp_path: Path) -> None:
    disk = Disk()
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        partition = await taken_offline(node, disk, errno.ENOSPC)
        await delete(node, partition.topic)
        await check(node)
        assert not node.services.partitions.log_directory.lists.short_of_room
