"""Staging in a running gateway: compaction waits, deleted files stay, and a command that dies leaves nothing."""

from __future__ import annotations

import asyncio
import errno
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.runtime.loop.clock import SystemClock, TaskList
from seqgate.gateway.runtime.upkeep import backup_staging
from seqgate.gateway.runtime.upkeep.backup_staging import BackupStaging, StagingRefused
from seqgate.log import LogDirectory, Storage
from seqgate.log.staging import (
    STAGING,
    STAGING_LOCK,
    begin_shares,
    capture,
    join_shares,
    read_staged,
    stage_share,
)
from tests.log.support import NOW_MS, fill
from tests.properties.backup_life import CONFIG


class Gateway:
    """A log directory with one log, and the staging of its backups."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.swapping = asyncio.Lock()
        self.tasks = TaskList(SystemClock())
        self.directory = LogDirectory.open(path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=CONFIG)
        self.log = self.directory.create("orders", uuid.UUID(int=5), 0, CONFIG)
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


async def test_it_leaves_nothing_although_the_lock_could_not_be_asked_once(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = gateway.directory.environment.storage
    lock, failures = storage.lock, [OSError(errno.EMFILE, "Too many open files")]

    def failing(path: str) -> None:
        if failures:
            raise failures.pop()
        lock(path)

    gateway.lock()
    await gateway.staging.begin()
    gateway.unlock()
    monkeypatch.setattr(storage, "lock", failing)
    async with asyncio.timeout(60):
        while gateway.is_staged:
            await asyncio.sleep(0.01)
    assert "can't be removed now: [Errno 24] Too many open files" in caplog.text


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


class Part:
    """A part whose steps the test takes, and what the gateway did between them."""

    def __init__(self, gateway: Gateway, *, is_late: bool = False) -> None:
        self.due, self.end = asyncio.Event(), asyncio.Event()
        self.reports: list[str | None] = []
        self._gateway, self._is_late = gateway, is_late

    async def prepared(self) -> None:
        assert self._gateway.swapping.locked()
        await self.due.wait()

    def hold(self) -> None:
        fill(self._gateway.log, 1)
        if self._is_late:
            raise StagingRefused("it was late")

    async def linked(self, failure: str | None) -> None:
        self.reports.append(failure)
        await self.end.wait()


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_worker_keeps_its_files_until_all_shares_are_linked(gateway: Gateway, is_late: bool) -> None:
    storage, root = gateway.directory.environment.storage, str(gateway.path)
    part = Part(gateway, is_late=is_late)
    await gateway.swapping.acquire()
    staging = asyncio.create_task(gateway.staging.stage_share(part))
    await asyncio.sleep(0)
    assert not storage.keeps_deleted
    gateway.swapping.release()
    begin_shares(Storage(), root)
    fill(gateway.log, 4)
    end_bytes = gateway.log.segments.active.size_bytes
    part.due.set()
    async with asyncio.timeout(60):
        while not part.reports:
            await asyncio.sleep(0.01)
    assert storage.keeps_deleted
    part.end.set()
    await staging
    assert (storage.keeps_deleted, gateway.swapping.locked()) == (False, False)
    if is_late:
        assert part.reports == ["it was late"]
        assert join_shares(Storage(), root, NOW_MS).partitions == 0
    else:
        assert part.reports == [None]
        staged = join_shares(Storage(), root, NOW_MS)
        assert (staged.partitions, list(staged.sizes.values())) == (1, [end_bytes])


@pytest.mark.parametrize("refusal", [None, "worker 2 has ended"])
async def test_the_worker_that_is_asked_stages_with_all_others(gateway: Gateway, refusal: str | None) -> None:
    root = str(gateway.path)
    begin_shares(Storage(), root)  # what an earlier command has left
    stage_share(Storage(), root, "3", [], ())

    async def stage_all() -> int:
        assert not gateway.is_staged
        begin_shares(Storage(), root)
        for name, cuts in (("1", capture(gateway.directory)), ("2", [])):
            stage_share(Storage(), root, name, cuts, ())
        if refusal is not None:
            raise StagingRefused(refusal)
        return NOW_MS - 5

    staging = BackupStaging(SystemClock(), gateway.directory, gateway.tasks, gateway.swapping, (), stage_all)
    gateway.lock()
    if refusal is None:
        assert await staging.begin() == read_staged(Storage(), root)
        assert read_staged(Storage(), root).taken_ms == NOW_MS - 5
    else:
        with pytest.raises(StagingRefused, match=refusal):
            await staging.begin()
    assert gateway.is_staged == (refusal is None)
