"""Staging in a running gateway: compaction waits, deleted files stay, and a command that dies leaves nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.runtime.loop.clock import SystemClock, TaskList
from seqgate.gateway.runtime.upkeep import backup_staging
from seqgate.gateway.runtime.upkeep.backup_staging import BackupStaging, StagingRefused
from seqgate.log import LogDirectory, Storage
from seqgate.log.staging import STAGING, STAGING_LOCK
from tests.log.support import NOW_MS
from tests.properties.backup_life import CONFIG


class Gateway:
    """A log directory with one log, and the staging of its backups."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.swapping = asyncio.Lock()
        self.tasks = TaskList(SystemClock())
        self.directory = LogDirectory.open(path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=CONFIG)
        self.directory.create("orders", uuid.UUID(int=5), 0, CONFIG)
        self.staging = BackupStaging(SystemClock(), self.directory, self.tasks, self.swapping, ())
        self.command = Storage()

    @property
    def is_staged(self) -> bool:
        return (self.path / STAGING).exists()

    def lock(self) -> None:
        self.command.lock(str(self.path / STAGING_LOCK))

    def unlock(self) -> None:
        self.command.unlock(str(self.path / STAGING_LOCK))


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(backup_staging, "CHECK_EVERY_S", 0.01)
    made = Gateway(tmp_path / "data")
    yield made
    await made.tasks.stop()
    made.directory.close(clean=False)


async def test_it_waits_for_a_swap_and_keeps_deleted_files_meanwhile(gateway: Gateway) -> None:
    gateway.lock()
    await gateway.swapping.acquire()
    begun = asyncio.create_task(gateway.staging.begin())
    await asyncio.sleep(0)
    assert not gateway.is_staged
    gateway.swapping.release()
    staged = await begun
    assert (staged.partitions, staged.is_live) == (1, True)
    assert not gateway.directory.environment.storage.keeps_deleted
    assert gateway.is_staged


async def test_a_command_that_dies_leaves_nothing(gateway: Gateway) -> None:
    gateway.lock()
    await gateway.staging.begin()
    gateway.unlock()
    async with asyncio.timeout(60):
        while gateway.is_staged:
            await asyncio.sleep(0.01)


async def test_what_a_command_still_copies_stays_over_a_restart(gateway: Gateway) -> None:
    gateway.lock()
    await gateway.staging.begin()
    await gateway.tasks.stop()
    gateway.staging.start()
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert gateway.is_staged
    gateway.unlock()
    async with asyncio.timeout(60):
        while gateway.is_staged:
            await asyncio.sleep(0.01)


async def test_a_request_without_the_lock_is_refused(gateway: Gateway) -> None:
    with pytest.raises(StagingRefused, match="is not locked"):
        await gateway.staging.begin()
    assert not gateway.is_staged


async def test_files_that_can_not_be_linked_end_the_backup(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Storage, "link", refuse)
    gateway.lock()
    with pytest.raises(StagingRefused, match=r"no hard links for .* \(Operation not permitted\)"):
        await gateway.staging.begin()
    assert not gateway.is_staged
    assert not gateway.directory.environment.storage.keeps_deleted
    (task,) = gateway.tasks
    assert task.failure is not None
