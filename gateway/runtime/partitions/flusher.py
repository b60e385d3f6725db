"""Group commit: one flush round makes everything durable that was appended before it began.

Requests append at once and then wait for a round. While a round's fdatasyncs run in worker threads, new
appends gather for the next one, so a hundred waiting requests share one flush. A partition's high watermark
follows its round. After a failed flush the partition is offline; a flush is never retried, because the kernel
may have dropped the dirty pages (fsyncgate, PostgreSQL 2018).

A small file that a single request waits for is flushed in the event loop itself while the disk is quick: a
thread would cost more than the flush. The first slow flush ends that for a while.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from seqgate.gateway.durations import Durations
from seqgate.gateway.runtime.loop.machine import Machine, Workers
from seqgate.gateway.runtime.partitions.flush_round import FlushRound, IdleWaiters, wait_until_flushed
from seqgate.gateway.runtime.partitions.waiting import LogOwner, Waiting
from seqgate.log import Durability, FlushTicket, PartitionLog

logger = logging.getLogger(__name__)

TICKETS_PER_THREAD = 4
"""The number of files below which a further thread costs more time than it saves."""
PACE_MEMORY = 0.95
"""The weight of the earlier estimate when a quicker flush lowers it; the measured time has the rest."""


class _Pace:
    """Estimates how long small flushes take (s). A slower flush raises the estimate at once; quicker flushes
    lower it slowly.
    """

    __slots__ = ("_recent_s", "_seconds", "limit_s")

    def __init__(self, limit_s: float, seconds: Callable[[], float]) -> None:
        self.limit_s = limit_s
        self._seconds = seconds
        self._recent_s = 2 * limit_s

    @property
    def is_quick(self) -> bool:
        return self._recent_s < self.limit_s

    def time(self, commit: Callable[[], list[OSError | None]]) -> list[OSError | None]:
        """Commit one small flush and measure its time. Raises the errors of `commit`."""
        begun_s = self._seconds()
        try:
            return commit()
        finally:
            took_s = self._seconds() - begun_s
            self._recent_s = max(took_s, PACE_MEMORY * self._recent_s + (1 - PACE_MEMORY) * took_s)


class Flusher:
    """Collects logs with unflushed appends and flushes them together.

    At most `threads` files are flushed at the same time. A flush runs in the event loop only if it is
    expected to take less than `inline_limit_s` (0: never).
    """

    unwritten: Final = None
    flushes_disk = True
    keeps_flush_settings = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        durability: Durability,
        threads: int = 8,
        inline_limit_s: float = 0.0,
        machine: Machine | None = None,
    ) -> None:
        self._loop = loop
        self._machine = machine or Machine()
        self.durability = durability
        self._pace = _Pace(inline_limit_s, self._machine.seconds)
        self._thread_count = threads
        self._workers: Workers[tuple[FlushRound, Sequence[int]]]
        self._lock = threading.Lock()
        self._dirty: dict[PartitionLog, LogOwner] = {}
        """The logs that the next round flushes, with their owners."""
        self._waiting: list[Waiting] = []
        """The requests that wait for the next round."""
        self._idle = IdleWaiters(lambda: self._running is None and not self._dirty)
        self._running: FlushRound | None = None
        self._shares_left = 0
        """The shares of the running round that no worker thread has finished."""
        self._is_lone = False
        """Whether in the running round a single request waits for a single small file."""
        self._scheduled = False
        self.after_round: list[Callable[[], None]] = []
        """Called after all requests that waited for a round are resolved, so that their answers leave
        together.
        """
        self.disk_is_busy = False
        """Whether reads of uncached records use the disk right now, so that a quick flush can't be expected.
        """
        self.rounds = 0
        self.failures = 0
        self.round_times = Durations()

    @property
    def inline_limit_s(self) -> float:
        """The limit in seconds: a flush that is expected to take less runs in the event loop.

        With 0 no flush does.
        """
        return self._pace.limit_s

    @inline_limit_s.setter
    def inline_limit_s(self, limit_s: float) -> None:
        self._pace = _Pace(limit_s, self._machine.seconds)

    @property
    def waiting_count(self) -> int:
        """Return the number of requests that wait for a round."""
        return len(self._waiting) + (0 if self._running is None else len(self._running.waiting))

    @property
    def is_flushing(self) -> bool:
        """Whether a round is under way."""
        return self._running is not None

    @property
    def logs_per_round(self) -> int:
        """Return the number of logs up to which a round takes hardly longer than with one log."""
        if self.durability.max_shares == 1:
            return sys.maxsize
        return self._thread_count * TICKETS_PER_THREAD

    def start(self) -> None:
        self._workers = self._machine.workers("flush", self._thread_count, self._do_share)

    def stop(self) -> None:
        """End the worker threads; call after the last round."""
        self._workers.stop()

    def mark_dirty(self, owner: LogOwner) -> None:
        """Add the owner's log to the next round."""
        self._dirty[owner.log] = owner
        if self._running is None and not self._scheduled:
            self._schedule()

    def wait(self, waiting: Waiting) -> None:
        """Resolve `waiting` after the round that flushes its offset: the running round if that one does, else
        the next.
        """
        log = waiting.owner.log
        running = self._running
        if running is not None:
            ticket = running.tickets.get(log)
            if ticket is not None and waiting.offset < ticket.end_offset:
                running.waiting.append(waiting)
                return
        if log not in self._dirty:
            self.mark_dirty(waiting.owner)
        self._waiting.append(waiting)

    def reopened(self, log: PartitionLog) -> None:
        """Remove a reopened log from the running round: the round flushes nothing that is appended from now
        on.
        """
        if self._running is not None:
            self._running.tickets.pop(log, None)

    async def flushed(self, log: PartitionLog, owner: LogOwner | None = None) -> None:
        """Wait until everything now in the log is durable. Raises StorageFailed."""
        await wait_until_flushed(self, log, owner, self._dirty)

    def give_up(self, reason: str) -> None:
        """Do nothing: a flush of the local disk ends by itself."""

    async def commit(self, owner: LogOwner, ticket: FlushTicket) -> OSError | None:
        """Flush a ticket in a thread of its own, at once; return its error."""
        log = owner.log
        try:
            return (await asyncio.to_thread(log.environment.durability.commit, [ticket]))[0]
        except Exception as error:
            # The state of the disk is unknown, and the log waits for its ticket.
            logger.exception("a flush of %s-%d failed in an unexpected way", log.topic, log.partition)
            return OSError(f"{type(error).__name__}: {error}")

    async def idle(self) -> None:
        """Wait until nothing is left to flush."""
        await self._idle.wait()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._start_round)

    def _start_round(self) -> None:
        self._scheduled = False
        if self._running is not None:
            return
        logs, self._dirty = self._dirty, {}
        waiting, self._waiting = self._waiting, []
        current = FlushRound(logs, waiting, self._machine.seconds())
        entries = current.entries
        self._running = current
        self.rounds += 1
        if not entries:
            self._finish_round()
            return
        self._is_lone = len(entries) == 1 and len(waiting) == 1 and entries[0][1].is_small
        if self._is_lone and self._pace.is_quick and not self.disk_is_busy:
            self._flush(current, (0,))
            self._finish_round()
            return
        shares = min(self._thread_count, self.durability.max_shares, -(-len(entries) // TICKETS_PER_THREAD))
        self._shares_left = shares
        for share in range(shares):
            self._workers.put((current, range(share, len(entries), shares)))

    def _do_share(self, share: tuple[FlushRound, Sequence[int]]) -> None:
        current, indexes = share
        self._flush(current, indexes)
        with self._lock:
            self._shares_left -= 1
            finished = self._shares_left == 0
        if finished:
            self._loop.call_soon_threadsafe(self._finish_round)

    def _flush(self, current: FlushRound, indexes: Sequence[int]) -> None:
        tickets = [current.entries[index][1] for index in indexes]
        commit = partial(self.durability.commit, tickets)
        try:
            errors = self._pace.time(commit) if self._is_lone else commit()
        except Exception as error:
            # After any error the state of the disk is unknown, and the round must end.
            logger.exception("a flush failed in an unexpected way")
            errors = [OSError(f"{type(error).__name__}: {error}")] * len(tickets)
        for ticket, found in zip(tickets, errors, strict=True):
            if found is not None:
                current.errors[ticket] = found

    def _finish_round(self) -> None:
        current = self._running
        assert current is not None
        self._running = None
        self.failures += current.finish(self.after_round)
        self.round_times.add(self._machine.seconds() - current.begun_s)
        if self._dirty:
            if not self._scheduled:
                self._schedule()
        elif self._idle.waiting:
            self._idle.tell()
