"""Group commit: what a round covers, who waits for it, and the consequences of a failed flush."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import TICKETS_PER_THREAD, Flusher, FlushWaiter
from seqgate.log import StorageFailed


class FakeTicket:
    is_small = True

    def __init__(self, log: FakeLog, end_offset: int) -> None:
        self.log = log
        self.end_offset = end_offset

    def run(self) -> None:
        self.log.gate.wait(5)
        self.log.flushes += 1
        if isinstance(self.log.broken, Exception):
            raise self.log.broken
        if self.log.broken:
            raise OSError(5, "Input/output error")


class FakeDurability:
    """A durability that commits tickets as each of them says."""

    max_shares = 100

    def commit(self, tickets: Sequence[Any]) -> list[OSError | None]:
        errors: list[OSError | None] = []
        for ticket in tickets:
            try:
                ticket.run()
            except OSError as error:
                errors.append(error)
            else:
                errors.append(None)
        return errors


class FakeLog:
    topic = "t"

    def __init__(self, partition: int = 0) -> None:
        self.partition = partition
        self.log_end_offset = 0
        self.recovery_point = 0
        self.offline = False
        self.broken: bool | Exception = False
        self.flushes = 0
        self.gate = threading.Event()
        self.gate.set()

    def prepare_flush(self) -> FakeTicket | None:
        if self.offline or self.recovery_point == self.log_end_offset:
            return None
        return FakeTicket(self, self.log_end_offset)

    @property
    def high_watermark(self) -> int:
        return self.recovery_point

    def complete_flush(self, ticket: FakeTicket) -> None:
        self.recovery_point = ticket.end_offset

    def fail_flush(self, ticket: FakeTicket, error: OSError) -> None:
        self.offline = True


class Owner:
    """The owner of a log, to which the flusher reports finished flushes."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.flushes_heard_of = 0
        self.told: list[bool] = []
        """The outcomes that waiting requests got."""

    def flush_finished(self) -> None:
        self.flushes_heard_of += 1

    def waiting(self, offset: int) -> FlushWaiter:
        return FlushWaiter(self, offset, self.told.append)


@pytest.fixture
async def flusher() -> Any:
    flusher = Flusher(asyncio.get_running_loop(), durability=FakeDurability())
    flusher.start()
    yield flusher
    await flusher.idle()
    flusher.stop()


async def test_one_round_serves_all_who_wait(flusher: Flusher) -> None:
    logs: list[Any] = [FakeLog(number) for number in range(20)]
    for log in logs:
        log.log_end_offset = 1
    await asyncio.gather(*(flusher.flushed(log) for log in logs for _ in range(5)))
    assert flusher.rounds == 1
    assert [log.flushes for log in logs] == [1] * 20
    assert all(log.recovery_point == 1 for log in logs)


async def test_what_is_appended_during_a_round_waits_for_the_next(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.log_end_offset = 1
    log.gate.clear()
    first = asyncio.create_task(flusher.flushed(log))
    while flusher.rounds == 0:
        await asyncio.sleep(0)
    log.log_end_offset = 2
    second = asyncio.create_task(flusher.flushed(log))
    await asyncio.sleep(0)
    log.gate.set()
    await first
    assert log.recovery_point >= 1
    await second
    assert log.recovery_point == 2
    assert flusher.rounds == 2


async def begin_round(flusher: Flusher, log: Any) -> Owner:
    """Begin the first round; its flush lasts until the log's gate is opened."""
    log.gate.clear()
    owner = Owner(log)
    flusher.mark_dirty(owner)
    while flusher.rounds == 0:
        await asyncio.sleep(0)
    return owner


async def test_a_duplicate_waits_for_the_round_its_original_is_in(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.log_end_offset = 3
    owner = await begin_round(flusher, log)
    flusher.wait(owner.waiting(2))
    assert owner.told == []
    log.gate.set()
    await flusher.idle()
    assert owner.told == [True]
    assert flusher.rounds == 1, "the round under way covers it"


async def test_whoever_waits_is_told_after_the_owner_and_when_the_own_round_is_over(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.log_end_offset = 3
    owner = await begin_round(flusher, log)
    flusher.wait(owner.waiting(2))
    log.log_end_offset = 4
    heard: list[int] = []
    flusher.wait(FlushWaiter(owner, 3, lambda _: heard.append(owner.flushes_heard_of)))
    log.gate.set()
    await flusher.idle()
    assert owner.told == [True]
    assert heard == [2], "records that were appended during a round must wait for the next round"
    assert flusher.rounds == 2


async def test_whoever_waits_for_a_failed_flush_is_told_so(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.log_end_offset = 3
    log.broken = True
    owner = await begin_round(flusher, log)
    flusher.wait(owner.waiting(2))
    log.gate.set()
    await flusher.idle()
    assert owner.told == [False]


async def test_what_is_written_after_a_reopening_waits_for_the_next_round(flusher: Flusher) -> None:
    """The ticket of the current round covers the same offsets, but of records that are gone."""
    log: Any = FakeLog()
    log.log_end_offset = 3
    owner = await begin_round(flusher, log)
    flusher.wait(owner.waiting(2))
    log.complete_flush = lambda ticket: None  # the effect of the stale ticket
    log.log_end_offset = 2
    flusher.reopened(log)
    flusher.wait(owner.waiting(1))
    log.gate.set()
    while not owner.told:
        await asyncio.sleep(0)
    assert owner.told == [False]
    del log.complete_flush
    await flusher.idle()
    assert owner.told == [False, True]


async def test_a_failed_flush_takes_the_log_offline_and_others_go_on(flusher: Flusher) -> None:
    broken: Any = FakeLog(0)
    sound: Any = FakeLog(1)
    broken.broken = True
    broken.log_end_offset = sound.log_end_offset = 1
    results = await asyncio.gather(flusher.flushed(broken), flusher.flushed(sound), return_exceptions=True)
    assert isinstance(results[0], StorageFailed)
    assert results[1] is None
    assert broken.offline
    assert broken.recovery_point == 0
    assert flusher.failures == 1
    assert broken.flushes == 1, "an fsync is never retried"
    with pytest.raises(StorageFailed):
        await flusher.flushed(broken)


async def test_idle_waits_for_everything(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.log_end_offset = 7
    flusher.mark_dirty(Owner(log))
    await flusher.idle()
    assert log.recovery_point == 7


async def test_a_callback_that_fails_keeps_nobody_else_waiting(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.log_end_offset = 1

    def fail(persisted: bool) -> None:
        raise ValueError("a bug")

    owner = Owner(log)
    flusher.wait(FlushWaiter(owner, 0, fail))
    flusher.wait(owner.waiting(0))
    await asyncio.wait_for(flusher.idle(), 60)
    assert owner.told == [True]


async def test_a_flush_that_fails_in_an_unexpected_way_ends_its_round(flusher: Flusher) -> None:
    odd: Any = FakeLog(0)
    odd.broken = ValueError("a bug")
    odd.log_end_offset = 1
    for _ in range(2 * TICKETS_PER_THREAD):
        odd.offline = False
        with pytest.raises(StorageFailed):
            await asyncio.wait_for(flusher.flushed(odd), 60)
        assert odd.offline
    sound: Any = FakeLog(1)
    sound.log_end_offset = 1
    await asyncio.wait_for(flusher.flushed(sound), 60)


async def test_a_log_that_can_not_take_its_flush_back_stops_no_other(flusher: Flusher) -> None:
    odd: Any = FakeLog(0)
    sound: Any = FakeLog(1)

    def fail(ticket: FakeTicket) -> None:
        raise OSError(5, "Input/output error")

    odd.complete_flush = fail
    odd.log_end_offset = sound.log_end_offset = 1
    both = asyncio.gather(flusher.flushed(odd), flusher.flushed(sound), return_exceptions=True)
    results = await asyncio.wait_for(both, 60)
    assert isinstance(results[0], StorageFailed)
    assert results[1] is None


class Disk:
    """A clock that stands still except during flushes, each of which takes `takes_s`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.takes_s = 0.0
        self.threads: list[str] = []

    def __call__(self) -> float:
        return self.now_s

    def flush(self) -> None:
        self.now_s += self.takes_s
        self.threads.append(threading.current_thread().name)


class TimedLog(FakeLog):
    def __init__(self, disk: Disk, partition: int = 0) -> None:
        super().__init__(partition)
        self.disk = disk

    def prepare_flush(self) -> FakeTicket | None:
        ticket = super().prepare_flush()
        return None if ticket is None else TimedTicket(self, ticket.end_offset)


class TimedMachine(Machine):
    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def seconds(self) -> float:
        return self._disk()


class TimedTicket(FakeTicket):
    log: TimedLog

    def run(self) -> None:
        self.log.disk.flush()
        super().run()


async def test_a_lone_flush_runs_in_the_event_loop_while_the_disk_is_quick() -> None:
    disk = Disk()
    flusher = Flusher(
        asyncio.get_running_loop(),
        durability=FakeDurability(),
        inline_limit_s=0.001,
        machine=TimedMachine(disk),
    )
    flusher.start()
    log: Any = TimedLog(disk)
    here = threading.current_thread().name

    async def flush_alone() -> str:
        log.log_end_offset += 1
        await flusher.flushed(log)
        return disk.threads[-1]

    disk.takes_s = 0.0001
    ways = [await flush_alone() for _ in range(60)]
    assert ways[0] != here, "no flush of a new disk was measured yet"
    assert ways[-20:] == [here] * 20
    disk.takes_s = 0.05
    assert await flush_alone() == here
    assert await flush_alone() != here, "a slow flush must count at once"
    disk.takes_s = 0.0001
    ways = [await flush_alone() for _ in range(200)]
    assert ways[:20] == [way for way in ways[:20] if way != here], (
        "a slow flush must be remembered for a while"
    )
    assert ways[-20:] == [here] * 20
    flusher.disk_is_busy = True
    assert await flush_alone() != here, "cold reads use the disk"
    flusher.disk_is_busy = False
    assert await flush_alone() == here
    log.broken = True
    log.log_end_offset += 1
    with pytest.raises(StorageFailed):
        await flusher.flushed(log)
    assert disk.threads[-1] == here
    assert log.offline
    flusher.stop()


async def test_what_many_wait_for_never_runs_in_the_event_loop() -> None:
    disk = Disk()
    flusher = Flusher(
        asyncio.get_running_loop(),
        durability=FakeDurability(),
        inline_limit_s=0.001,
        machine=TimedMachine(disk),
    )
    flusher.start()
    log: Any = TimedLog(disk)
    here = threading.current_thread().name
    for _ in range(100):
        log.log_end_offset += 1
        await asyncio.gather(flusher.flushed(log), flusher.flushed(log))
    assert here not in disk.threads
    flusher.stop()
