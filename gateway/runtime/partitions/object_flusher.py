"""Group commit into a bucket: a round becomes objects of the session's write-ahead log, and no file is flushed.

A round takes the tickets of all logs with new records, reads their bytes back from the local files, and puts the bytes into the
write-ahead log as one object, or as several objects if the bytes exceed the limit of one. Rounds overlap: the next round may begin once
all objects of the previous round are put. Rounds end in order, because the write-ahead log confirms its objects in order. After a round,
as after a flush of the local disk, high watermarks move and the waiting requests get their answers.

A round begins at once while no object is in flight. Otherwise it begins when enough bytes or enough time have gathered. No round exceeds
the budget of puts (`PutLimits`), except with full objects, which are the cheapest way to put bytes.

An object that was put has one of two outcomes. Either it is confirmed, or another gateway has ended the session. Then every ticket
fails, all logs go offline, and the gateway stops.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from gateway.cluster.wal.wal_object import Row, RowData
from gateway.durations import Durations
from gateway.runtime.loop.machine import Machine, Workers
from gateway.runtime.partitions.flush_round import FlushRound, IdleWaiters, wait_until_flushed
from gateway.runtime.partitions.object_round import ObjectRound, is_quickly_read
from gateway.runtime.partitions.put_budget import SOON_S, PutBudget, PutLimits
from gateway.runtime.partitions.round_reader import ObjectContent, RoundReader
from gateway.runtime.partitions.unwritten import Unwritten
from gateway.runtime.partitions.waiting import LogOwner, Waiting
from log import CachedDurability, FlushTicket, PartitionLog

logger = logging.getLogger(__name__)


class WriteAheadLog(Protocol):
    """The log of this process's session, as rounds use it; `gateway.cluster.wal.session_wal` implements it."""

    on_fenced: list[Callable[[str], None]]
    """Called with a sentence when somebody else has ended the session. Nothing is confirmed after that."""

    def put(self, rows: Sequence[Row], data: Sequence[RowData], confirmed: Callable[[], None]) -> None:
        """Put the next object of the log, and return without waiting.

        Calls `confirmed` when the bucket is known to hold this object and all earlier ones as this session wrote them.
        """


class ObjectFlusher:
    """Collects logs with new records and makes them durable together, in objects of `wal`."""

    flushes_disk = False
    keeps_flush_settings = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        wal: WriteAheadLog,
        durability: CachedDurability,
        limits: PutLimits | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._loop = loop
        self._machine = machine or Machine()
        self._wal = wal
        self._durability = durability
        self._limits = limits or PutLimits()
        self._budget = PutBudget(self._machine.seconds())
        self._unwritten = Unwritten(self._limits.unwritten_max_bytes)
        self._workers: Workers[ObjectRound]
        self._dirty: dict[PartitionLog, LogOwner] = {}
        """The logs that the next round takes, with their owners."""
        self._waiting: list[Waiting] = []
        """The requests that wait for the next round."""
        self._commits: list[tuple[FlushTicket, asyncio.Future[OSError | None]]] = []
        """The tickets from outside of rounds (`commit`). The next round puts their side files."""
        self._gathering_s = 0.0
        """When the next round began to gather."""
        self._rounds: deque[ObjectRound] = deque()
        """The rounds under way, the oldest first."""
        self._reading: ObjectRound | None = None
        """The round of which not all objects are put; always the newest."""
        self._is_reading = False
        """Whether the worker thread reads an object."""
        self._in_flight = 0
        """The objects that are put and not confirmed."""
        self._next: asyncio.Handle | None = None
        """The next call of `_go_on`, at once or when time is up."""
        self._wake_bytes = 0
        """The unsent bytes from which on `_go_on` need not wait until time is up."""
        self._is_blocked = False
        """Whether flushing can continue only after a confirmation or the end of a read."""
        self._ended_by: str | None = None
        self.when_given_up: list[Callable[[str], None]] = []
        """Called once with the reason when `give_up` is called."""
        self._idle = IdleWaiters(lambda: not (self._rounds or self._is_gathering))
        self.after_round: list[Callable[[], None]] = []
        self.disk_is_busy = False
        self.inline_limit_s = 0.0
        self.rounds = 0
        self.failures = 0
        self.round_times = Durations()
        wal.on_fenced.append(self.give_up)

    @property
    def unwritten(self) -> Unwritten:
        """Return the count of bytes that wait for the bucket."""
        return self._unwritten

    @property
    def waiting_count(self) -> int:
        """Return the number of requests that wait for a round."""
        return len(self._waiting) + sum(len(each.flush.waiting) for each in self._rounds)

    @property
    def is_flushing(self) -> bool:
        """Whether a round is under way."""
        return bool(self._rounds)

    @property
    def logs_per_round(self) -> int:
        """Return the number of logs of a round: any number has room in one object."""
        return sys.maxsize

    @property
    def _is_gathering(self) -> bool:
        return bool(self._dirty or self._waiting or self._commits)

    def start(self) -> None:
        """Start the worker thread that reads rounds."""
        self._workers = self._machine.workers("objects", 1, self._read)

    def stop(self) -> None:
        """End the worker thread; call after the last round."""
        if self._next is not None:
            self._next.cancel()
        self._workers.stop()

    def mark_dirty(self, owner: LogOwner) -> None:
        """Add the owner's log to the next round."""
        log = owner.log
        if not self._dirty:
            self._begin_gathering()
        self._dirty[log] = owner
        self._unwritten.appended(log)
        if self._next is None:
            if not self._is_blocked:
                self._schedule()
        elif self._unwritten.unsent_bytes >= self._wake_bytes:
            self._schedule()

    def wait(self, waiting: Waiting) -> None:
        """Resolve `waiting` after the round that has its offset: a round that is under way, otherwise the next round."""
        log = waiting.owner.log
        for current in self._rounds:
            ticket = current.flush.tickets.get(log)
            if ticket is not None and waiting.offset < ticket.end_offset:
                current.flush.waiting.append(waiting)
                return
        if log not in self._dirty:
            self.mark_dirty(waiting.owner)
        self._waiting.append(waiting)

    def reopened(self, log: PartitionLog) -> None:
        """Do nothing: a log that is back has all that tickets took, so the rounds under way still decide about it."""

    async def flushed(self, log: PartitionLog, owner: LogOwner | None = None) -> None:
        """Wait until everything now in the log is durable. Raises StorageFailed."""
        await wait_until_flushed(self, log, owner, self._dirty)

    async def idle(self) -> None:
        """Wait until nothing is left to put, and everything is confirmed."""
        await self._idle.wait()

    async def commit(self, owner: LogOwner, ticket: FlushTicket) -> OSError | None:
        """Make a ticket durable that has no records of its own: first the records up to its end, then its side files.

        The local file of a new log start offset is written last, when an object has it.
        """
        log = owner.log
        if log.recovery_point < ticket.end_offset:
            decided: asyncio.Future[None] = self._loop.create_future()
            self.wait(Waiting(owner, ticket.end_offset - 1, lambda _: _wake(decided)))
            await decided
            if log.recovery_point < ticket.end_offset:
                return OSError(errno.EIO, "the records before could not be made durable", str(log.place))
        done: asyncio.Future[OSError | None] = self._loop.create_future()
        if not self._is_gathering:
            self._begin_gathering()
        self._commits.append((ticket, done))
        self._schedule()
        error = await done
        if error is not None or ticket.last is None:
            return error
        try:
            await asyncio.to_thread(ticket.last.write, self._durability)
        except OSError as failed:
            return failed
        return None

    # --- when a round begins

    def _begin_gathering(self) -> None:
        self._gathering_s = self._machine.seconds()

    def _schedule(self, delay_s: float = 0.0, wake_bytes: int = sys.maxsize) -> None:
        """Call `_go_on` after a delay, or earlier once so many bytes are unsent."""
        if self._next is not None:
            self._next.cancel()
        self._wake_bytes = wake_bytes
        if delay_s > 0:
            self._next = self._loop.call_later(delay_s, self._go_on)
        else:
            self._next = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Put the next object, or begin the next round, or wait for what either needs."""
        self._next = None
        self._is_blocked = False
        if self._reading is None and self._is_gathering:
            if not self._may_begin():
                return
            self._begin_round()
        if self._reading is not None:
            self._put_next(self._reading)
        elif not self._rounds:
            self._idle.tell()

    def _may_begin(self) -> bool:
        """Return whether a round may begin now. If not, `_go_on` will be called."""
        if self._ended_by is not None or not (self._unwritten.unsent_bytes or self._commits):
            return True
        limits = self._limits
        if self._in_flight >= limits.puts_in_flight:
            self._is_blocked = True
            return False
        if self._unwritten.unsent_bytes >= limits.put_max_bytes:
            return True
        now_s = self._machine.seconds()
        budget_s = self._budget.wait_s(now_s, limits)
        linger_s = self._gathering_s + limits.linger_s - now_s if self._in_flight else 0.0
        if budget_s <= 0 and linger_s <= SOON_S:
            return True
        self._schedule(max(budget_s, linger_s), limits.put_max_bytes)
        return False

    def _begin_round(self) -> None:
        logs, self._dirty = self._dirty, {}
        waiting, self._waiting = self._waiting, []
        commits, self._commits = self._commits, []
        flush = FlushRound(logs, waiting, self._machine.seconds())
        tickets = [ticket for _, ticket in flush.entries]
        size_bytes = sum(part.size_bytes for ticket in tickets for part in ticket.ranges)
        self._unwritten.sent(size_bytes)
        tickets += [ticket for ticket, _ in commits]
        current = ObjectRound(
            flush,
            RoundReader(tickets, self._durability, self._limits.put_max_bytes),
            commits,
            size_bytes,
            is_quickly_read(tickets, size_bytes),
            unread_bytes=size_bytes,
        )
        self.rounds += 1
        if not tickets:
            self._finish(current)  # The round has no data to put. So it ends at once, before earlier rounds.
            return
        self._rounds.append(current)
        if self._ended_by is None:
            self._reading = current
        else:
            self._fail_all(self._ended_by)

    # --- objects

    def _put_next(self, current: ObjectRound) -> None:
        """Read the next object of a round and put it, if the limits allow. If not, `_go_on` will be called."""
        if self._is_reading or self._in_flight >= self._limits.puts_in_flight:
            self._is_blocked = True
            return
        delay_s = 0.0
        if not self._has_full_object(current):
            delay_s = self._budget.wait_s(self._machine.seconds(), self._limits)
        if delay_s > 0:
            self._schedule(delay_s, self._limits.put_max_bytes)
        elif current.is_quick:
            self._was_read(current, current.reader.read())
        else:
            self._is_blocked = self._is_reading = True
            self._workers.put(current)

    def _read(self, current: ObjectRound) -> None:
        """Read the next object of a round; runs in the worker thread."""
        content = current.reader.read()
        self._loop.call_soon_threadsafe(self._was_read, current, content)

    def _was_read(self, current: ObjectRound, content: ObjectContent) -> None:
        self._is_reading = False
        if current is not self._reading:
            return  # the session was fenced meanwhile
        self.failures += current.note_failures()
        if content.rows:
            self._put(current, content)
        if current is self._reading and current.reader.is_done:
            self._reading = None
            current.is_put = True
            self._finish_rounds()
        self._schedule()

    def _put(self, current: ObjectRound, content: ObjectContent) -> None:
        if not self._has_full_object(current):
            self._budget.take(self._machine.seconds(), self._limits)
        current.unread_bytes -= sum(row.length for row in content.rows)
        self._in_flight += 1
        current.objects_out += 1
        try:
            self._wal.put(content.rows, content.data, partial(self._confirmed, current))
        except Exception as error:
            # Later objects would have a gap where this one is missing, so nothing more may be put.
            logger.exception("an object of the write-ahead log can't be put")
            self.give_up(f"an object of the write-ahead log can't be put: {error}")

    def _has_full_object(self, current: ObjectRound) -> bool:
        """Return whether a full object can be put now, from the rest of the round or from the bytes appended since. Such an object costs no budget."""
        return max(current.unread_bytes, self._unwritten.unsent_bytes) >= self._limits.put_max_bytes

    def _confirmed(self, current: ObjectRound) -> None:
        """End the rounds whose objects are all confirmed, because the oldest object in flight was confirmed."""
        if self._ended_by is not None:
            return
        self._in_flight -= 1
        current.objects_out -= 1
        self._finish_rounds()
        self._schedule()

    def _finish_rounds(self) -> None:
        """End the rounds whose objects are all confirmed, in order."""
        while self._rounds and self._rounds[0].is_put and not self._rounds[0].objects_out:
            self._finish(self._rounds.popleft())

    def _finish(self, current: ObjectRound) -> None:
        flush = current.flush
        self.failures += flush.finish(self.after_round)
        self.round_times.add(self._machine.seconds() - flush.begun_s)
        self._unwritten.settled(current.size_bytes)
        for ticket, done in current.commits:
            if not done.done():
                done.set_result(flush.errors.get(ticket))

    # --- the end of the session

    def give_up(self, reason: str) -> None:
        """Fail everything, now and from now on, at the end of the session or when the store does not answer at a stop.

        The bucket may take an object in flight all the same. Its producers then get an error, and the next start finds its records.
        """
        if self._ended_by is not None:
            return
        self._ended_by = reason
        self._in_flight = 0
        self._reading = None
        self._fail_all(reason)
        for given_up in self.when_given_up:
            given_up(reason)
        self._schedule()

    def _fail_all(self, reason: str) -> None:
        error = OSError(errno.EIO, reason)
        while self._rounds:
            current = self._rounds.popleft()
            flush = current.flush
            flush.failed_files.clear()
            flush.errors |= dict.fromkeys(flush.tickets.values(), error)
            flush.errors |= dict.fromkeys((ticket for ticket, _ in current.commits), error)
            self._finish(current)


def _wake(done: asyncio.Future[None]) -> None:
    """Wake the task that waits for `done`, unless the task was cancelled."""
    if not done.done():
        done.set_result(None)
