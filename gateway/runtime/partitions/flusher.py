"""Group commit: one flush round makes everything durable that was appended before it began.

Requests append at once and then wait for a round. While a round's fdatasyncs run in worker threads, new
appends gather for the next one, so a hundred waiting requests share one flush. A partition's high
watermark follows its round. After a failed flush the partition is offline; a flush is never retried,
because the kernel may have dropped the dirty pages (fsyncgate, PostgreSQL 2018).

One small file for one waiting request, on a disk that lately was quick, is flushed in the event loop itself:
handing it to a thread and back costs more than the flush. The first slow one ends that for a while.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from gateway.runtime.loop.machine import Machine, Workers
from log import FlushTicket, StorageFailed, UnifiedLog

logger = logging.getLogger(__name__)

TICKETS_PER_THREAD = 4
"""Below this many files a second thread costs more than it saves."""
PACE_MEMORY = 0.95
"""How much of a slow flush is still remembered after the next one."""


class _Pace:
    """How long small flushes take by experience (s): a slow one counts at once, and is forgotten slowly."""

    __slots__ = ("_recent_s", "_seconds", "limit_s")

    def __init__(self, limit_s: float, seconds: Callable[[], float]) -> None:
        self.limit_s = limit_s
        self._seconds = seconds
        self._recent_s = 2 * limit_s

    @property
    def is_quick(self) -> bool:
        return self._recent_s < self.limit_s

    def time(self, run: Callable[[], None]) -> None:
        """Run one small flush and learn from it. Raises what it raises."""
        begun_s = self._seconds()
        try:
            run()
        finally:
            took_s = self._seconds() - begun_s
            self._recent_s = max(took_s, PACE_MEMORY * self._recent_s + (1 - PACE_MEMORY) * took_s)


class FlushObserver(Protocol):
    """Who is told when a log's flush is over; runs in the event loop."""

    def flush_finished(self) -> None: ...


class _Round:
    """The tickets of one flush round; each worker thread takes a share."""

    def __init__(
        self,
        logs: dict[UnifiedLog, FlushObserver | None],
        entries: list[tuple[UnifiedLog, FlushTicket]],
        waiters: list[Callable[[], None]],
    ) -> None:
        self.logs = logs
        self.entries = entries
        self.tickets = dict(entries)
        self.waiters = waiters
        self.errors: dict[int, OSError] = {}
        self.shares_left = 0
        self.is_lone = False
        """Whether one request waits for one small file."""


class Flusher:
    """Collects logs with unflushed appends and flushes them together.

    `threads` bounds how many files are flushed at the same time, `inline_limit_s` how long a flush may be expected
    to take in the event loop (0: none runs there).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        threads: int = 4,
        inline_limit_s: float = 0.0,
        machine: Machine | None = None,
    ) -> None:
        self._loop = loop
        self._machine = machine or Machine()
        self._pace = _Pace(inline_limit_s, self._machine.seconds)
        self._thread_count = threads
        self._workers: Workers[tuple[_Round, Sequence[int]]]
        self._lock = threading.Lock()
        self._dirty: dict[UnifiedLog, FlushObserver | None] = {}
        self._waiters: list[Callable[[], None]] = []
        self._running: _Round | None = None
        self._scheduled = False
        self.after_round: list[Callable[[], None]] = []
        """Called when all who waited for a round were told, so that their answers can leave together."""
        self.disk_is_busy = False
        """Whether others read from the disk right now: a quick flush can't be expected then."""
        self.rounds = 0
        self.failures = 0

    @property
    def inline_limit_s(self) -> float:
        """How long a flush may be expected to take in the event loop."""
        return self._pace.limit_s

    @inline_limit_s.setter
    def inline_limit_s(self, limit_s: float) -> None:
        self._pace = _Pace(limit_s, self._machine.seconds)

    @property
    def is_flushing(self) -> bool:
        """Whether a round is under way."""
        return self._running is not None

    def start(self) -> None:
        self._workers = self._machine.workers("flush", self._thread_count, self._do_share)

    def stop(self) -> None:
        """End the worker threads; call after the last round."""
        self._workers.stop()

    def mark_dirty(self, log: UnifiedLog, observer: FlushObserver | None) -> None:
        """Have the next round flush what this log holds now."""
        if observer is not None or log not in self._dirty:
            self._dirty[log] = observer
        self._schedule()

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call back after the round that holds everything marked dirty until now."""
        self._waiters.append(callback)

    def when_covered(
        self, log: UnifiedLog, observer: FlushObserver | None, last_offset: int, callback: Callable[[], None]
    ) -> None:
        """Call back after the round that decides `last_offset`, which may be under way already."""
        running = self._running
        ticket = None if running is None else running.tickets.get(log)
        if running is not None and ticket is not None and ticket.end_offset > last_offset:
            running.waiters.append(callback)
            return
        self.mark_dirty(log, observer)
        self._waiters.append(callback)

    async def flushed(self, log: UnifiedLog, observer: FlushObserver | None = None) -> None:
        """Wait until everything now in the log is durable. Raises StorageFailed."""
        end_offset = log.log_end_offset
        if log.recovery_point < end_offset:
            done: asyncio.Future[None] = self._loop.create_future()
            self.mark_dirty(log, observer)
            self.when_flushed(lambda: None if done.done() else done.set_result(None))
            await done
        if log.recovery_point < end_offset:
            raise StorageFailed(f"{log.topic}-{log.partition} could not be flushed")

    async def idle(self) -> None:
        """Wait until nothing is left to flush."""
        while self._running is not None or self._dirty or self._waiters:
            done: asyncio.Future[None] = self._loop.create_future()
            self.when_flushed(lambda done=done: None if done.done() else done.set_result(None))  # type: ignore[misc]
            self._schedule()
            await done

    def _schedule(self) -> None:
        if not self._scheduled and self._running is None:
            self._scheduled = True
            self._loop.call_soon(self._start_round)

    def _start_round(self) -> None:
        self._scheduled = False
        if self._running is not None:
            return
        logs, self._dirty = self._dirty, {}
        waiters, self._waiters = self._waiters, []
        entries = []
        for log in logs:
            try:
                ticket = log.prepare_flush()
            except Exception:
                logger.exception("a flush of %s-%d can't begin", log.topic, log.partition)
                continue
            if ticket is not None:
                entries.append((log, ticket))
        current = _Round(logs, entries, waiters)
        self._running = current
        self.rounds += 1
        if not entries:
            self._finish_round()
            return
        if len(entries) == 1 and len(waiters) == 1 and entries[0][1].is_small:
            current.is_lone = True
            if self._pace.is_quick and not self.disk_is_busy:
                self._flush(current, (0,))
                self._finish_round()
                return
        shares = min(self._thread_count, -(-len(entries) // TICKETS_PER_THREAD))
        current.shares_left = shares
        for share in range(shares):
            self._workers.put((current, range(share, len(entries), shares)))

    def _do_share(self, share: tuple[_Round, Sequence[int]]) -> None:
        current, indexes = share
        self._flush(current, indexes)
        with self._lock:
            current.shares_left -= 1
            finished = current.shares_left == 0
        if finished:
            self._loop.call_soon_threadsafe(self._finish_round)

    def _flush(self, current: _Round, indexes: Sequence[int]) -> None:
        for index in indexes:
            run = current.entries[index][1].run
            try:
                if current.is_lone:
                    self._pace.time(run)
                else:
                    run()
            except OSError as error:
                current.errors[index] = error
            except Exception as error:
                # whatever it was, nobody knows what reached the disk, and the round must end
                logger.exception("a flush failed in an unexpected way")
                current.errors[index] = OSError(f"{type(error).__name__}: {error}")

    def _finish_round(self) -> None:
        current = self._running
        assert current is not None
        for index, (log, ticket) in enumerate(current.entries):
            _call(partial(self._finish_flush, log, ticket, current.errors.get(index)))
        self._running = None
        for observer in current.logs.values():
            if observer is not None:
                _call(observer.flush_finished)
        for waiter in current.waiters:
            _call(waiter)
        for finished in self.after_round:
            _call(finished)
        if self._dirty or self._waiters:
            self._schedule()

    def _finish_flush(self, log: UnifiedLog, ticket: FlushTicket, error: OSError | None) -> None:
        if error is None:
            log.complete_flush(ticket)
            return
        self.failures += 1
        logger.error("flush of %s-%d failed, taking it offline: %s", log.topic, log.partition, error)
        log.fail_flush(ticket, error)


def _call(callback: Callable[[], None]) -> None:
    """Do one thing of many; what goes wrong with it must not keep the others waiting."""
    try:
        callback()
    except Exception:
        logger.exception("what follows a flush failed")
