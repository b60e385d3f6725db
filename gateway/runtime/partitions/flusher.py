"""Group commit: one flush round makes everything durable that was appended before it began.

A record batch comes back as an answer on this way, in the event loop but for the flush itself:

    Partition.append ─────────► LogFlusher.mark_dirty      the next round makes the log durable
    Partition.when_decided ───► LogFlusher.wait(Waiting)   the Waiting joins the round that has its offset
                                ... the round flushes in worker threads, or becomes objects in a bucket ...
    Partition.flush_finished ◄─ LogFlusher                 the high watermark follows what is durable
    then(persisted?) ◄───────── Waiting.resolve            every request of this round gets its result

`Flusher` flushes the files of the local disk. `ObjectFlusher` writes objects of a write-ahead log to a
bucket. Both begin and end their rounds with `FlushRound`. While a round's fdatasyncs run in worker threads,
new appends gather for the next one, so a hundred waiting requests share one flush. After a failed flush the
partition is offline; a flush is never retried, because the kernel may have dropped the dirty pages
(fsyncgate, PostgreSQL 2018). A fetch that waits for records yet to be written waits for no flush: it watches
the high watermark (`Partition.watch`).

A small file that a single request waits for is flushed in the event loop itself while the disk is quick: a
thread would cost more than the flush. The first slow flush ends that for a while.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from seqgate.gateway.durations import Durations
from seqgate.gateway.runtime.loop.machine import Machine, Workers
from seqgate.gateway.runtime.partitions.unwritten import Unwritten
from seqgate.gateway.tasks import settle
from seqgate.log import Durability, FlushTicket, PartitionLog, StorageFailed

logger = logging.getLogger(__name__)


class LogOwner(Protocol):
    """The owner of a log that is flushed. The flusher calls all methods in the event loop."""

    @property
    def log(self) -> PartitionLog: ...

    def flush_finished(self) -> None:
        """Handle the end of a flush, successful or not."""


class FlushWaiter:
    """A request that waits for the flush which decides about the records of one log up to `offset`."""

    __slots__ = ("_then", "offset", "owner")

    def __init__(self, owner: LogOwner, offset: int, then: Callable[[bool], None]) -> None:
        self.owner = owner
        self.offset = offset
        self._then = then

    def resolve(self) -> None:
        """Tell the request whether the records are persisted (`Partition.is_persisted`). Call this at the end
        of the flush: a log that is reopened later may hold other records at `offset`.
        """
        self._then(self.offset < self.owner.log.high_watermark)


class Unserved:
    """The owner of a log without a partition, such as the metadata log. Only the owner waits for flushes."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    def flush_finished(self) -> None:
        pass


class LogFlusher(ABC):
    """Makes logs with appends durable together. Call all methods in the event loop."""

    flushes_disk: bool
    """Whether rounds keep the local disk busy, so that cold reads must wait for them."""
    keeps_flush_settings: bool
    """Whether consumers may see records before a round, as `flush.messages` and `flush.ms` allow."""
    inline_limit_s: float
    """Limit in seconds: a local flush that is expected to take less runs in the event loop; none with 0."""
    unwritten: Unwritten | None = None
    """The bytes waiting for a bucket beyond which producers are refused; None without a bucket."""
    logs_per_round: int = sys.maxsize
    """The number of logs up to which a round takes hardly longer than with one log."""
    is_flushing: bool = False
    """Whether a round is under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, machine: Machine | None) -> None:
        self._loop = loop
        self._machine = machine or Machine()
        self._dirty: dict[PartitionLog, LogOwner] = {}
        """The logs that the next round takes, with their owners."""
        self._waiting: list[FlushWaiter] = []
        """The requests that wait for the next round."""
        self._idle: list[asyncio.Future[None]] = []
        """The tasks that wait until nothing is left to flush."""
        self.after_round: list[Callable[[], None]] = []
        """Called after all requests that waited for a round are resolved: their answers leave together."""
        self.after_next_round: dict[Callable[[], None], None] = {}
        """Called before `after_round` at the end of the next round only, in the order of the entries."""
        self.disk_is_busy = False
        """Whether cold reads use the disk right now."""
        self.rounds = self.failures = 0
        self.round_times = Durations()
        """How long rounds took, from their begin to the answers of the requests that waited."""

    @property
    @abstractmethod
    def waiting_count(self) -> int:
        """Return the number of requests that wait for a round."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether nothing is left to flush."""

    @abstractmethod
    def start(self) -> None:
        """Start the worker threads."""

    @abstractmethod
    def stop(self) -> None:
        """End the worker threads; call after the last round."""

    @abstractmethod
    def mark_dirty(self, owner: LogOwner) -> None:
        """Add the owner's log to the next round."""

    @abstractmethod
    def wait(self, waiting: FlushWaiter) -> None:
        """Resolve `waiting` after the round that makes its offset durable: one under way, or the next."""

    def reopened(self, log: PartitionLog) -> None:  # noqa: B027 - rounds into a bucket still decide
        """Note that a log was reopened. It has all that tickets took."""

    def give_up(self, reason: str) -> None:  # noqa: B027 - a flush of the local disk ends by itself
        """Stop waiting for a bucket that does not answer: logs with records not yet durable go offline."""

    @abstractmethod
    async def commit(self, owner: LogOwner, ticket: FlushTicket) -> OSError | None:
        """Make a ticket durable outside of rounds; return its error. Do not cancel: the log waits for it."""

    async def flushed(self, log: PartitionLog, owner: LogOwner | None = None) -> None:
        """Wait until everything in the log now is durable. Raises StorageFailed. Without an `owner`, the
        owner is looked up among the logs that the next round takes.
        """
        end_offset = log.log_end_offset
        if log.recovery_point < end_offset:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            owner = owner or self._dirty.get(log) or Unserved(log)
            self.wait(FlushWaiter(owner, end_offset - 1, lambda _: settle(done, None)))
            await done
        if log.recovery_point < end_offset:
            raise StorageFailed(f"{log.topic}-{log.partition} could not be flushed")

    async def idle(self) -> None:
        """Wait until nothing is left to flush."""
        while not self.is_idle:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(done)
            await done

    def _tell_idle(self) -> None:
        """Wake the tasks that wait in `idle`. Each checks again whether something is left."""
        waiting, self._idle = self._idle, []
        for done in waiting:
            settle(done, None)


class FlushRound:
    """The tickets of one round, its logs' owners, and the requests that wait for it."""

    def __init__(
        self, dirty: Mapping[PartitionLog, LogOwner], waiting: list[FlushWaiter], begun_s: float = 0.0
    ) -> None:
        """Take the ticket of each log that has something to flush. `begun_s` is in seconds of any clock."""
        self.begun_s = begun_s
        self.owners = dirty.values()
        self.entries: list[tuple[PartitionLog, FlushTicket]] = []
        for log in dirty:
            try:
                ticket = log.prepare_flush()
            except Exception:
                logger.exception("a flush of %s-%d can't begin", log.topic, log.partition)
                continue
            if ticket is not None:
                self.entries.append((log, ticket))
        self.tickets = dict(self.entries)
        """The tickets of logs not reopened since. A new request joins if its records are in a ticket."""
        self.waiting = waiting
        self.errors: dict[FlushTicket, OSError] = {}
        self.failed_files: set[FlushTicket] = set()
        """The tickets with an error whose records are durable: only side files were not written."""

    def finish(
        self, after_round: Iterable[Callable[[], None]], after_next_round: dict[Callable[[], None], None]
    ) -> int:
        """Complete or fail every ticket, notify the logs' owners, answer the waiting requests, and then call
        `after_next_round`, emptied, and `after_round`. Return how many tickets failed.
        """
        failures = 0
        # An error of one log or one answer must not stop the other logs and answers.
        for log, ticket in self.entries:
            error = self.errors.get(ticket)
            try:
                if error is None:
                    log.complete_flush(ticket)
                else:
                    failures += 1
                    self._fail(log, ticket, error)
            except Exception:
                logger.exception("the flush of %s-%d can't be completed", log.topic, log.partition)
        for owner in self.owners:
            try:
                owner.flush_finished()
            except Exception:
                logger.exception("the work after a flush of %s failed", owner.log.place)
        for waiting in self.waiting:
            try:
                waiting.resolve()
            except Exception:
                logger.exception("an answer that waited for a flush failed")
        once = list(after_next_round)
        after_next_round.clear()
        for finished in (*once, *after_round):
            try:
                finished()
            except Exception:
                logger.exception("the work after a flush round failed")
        return failures

    def fail(self, ticket: FlushTicket, error: OSError) -> None:
        """Give a log its failed ticket back early. Does nothing if no log of the round has it."""
        self.errors[ticket] = error
        for entry in self.entries:
            if entry[1] is ticket:
                self.entries.remove(entry)
                del self.tickets[entry[0]]
                self._fail(*entry, error)
                return

    def _fail(self, log: PartitionLog, ticket: FlushTicket, error: OSError) -> None:
        logger.error("flush of %s-%d failed, taking it offline: %s", log.topic, log.partition, error)
        if ticket in self.failed_files:
            log.fail_flush(ticket, error, has_records=True)
        else:
            log.fail_flush(ticket, error)


TICKETS_PER_THREAD = 4
"""The number of files below which a further thread costs more time than it saves."""
PACE_MEMORY = 0.95
"""The weight of the earlier estimate when a quicker flush lowers it; the measured time has the rest."""


class _Pace:
    """Estimates the seconds of small flushes: slower ones raise it at once, quicker ones lower it slowly."""

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


class Flusher(LogFlusher):
    """Collects logs with unflushed appends and flushes them together.

    At most `threads` files are flushed at the same time. A flush runs in the event loop only if it is
    expected to take less than `inline_limit_s` (0: never).
    """

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
        super().__init__(loop, machine)
        self.durability = durability
        self._pace = _Pace(inline_limit_s, self._machine.seconds)
        self._thread_count = threads
        if durability.max_shares > 1:
            self.logs_per_round = threads * TICKETS_PER_THREAD
        self._workers: Workers[tuple[FlushRound, Sequence[int]]]
        self._lock = threading.Lock()
        self._running: FlushRound | None = None
        self._shares_left = 0
        """The shares of the running round that no worker thread has finished."""
        self._is_lone = False
        """Whether in the running round a single request waits for a single small file."""
        self._scheduled = False

    @property
    def inline_limit_s(self) -> float:
        return self._pace.limit_s

    @inline_limit_s.setter
    def inline_limit_s(self, limit_s: float) -> None:
        self._pace = _Pace(limit_s, self._machine.seconds)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting) + (0 if self._running is None else len(self._running.waiting))

    @property
    def is_idle(self) -> bool:
        return self._running is None and not self._dirty

    def start(self) -> None:
        self._workers = self._machine.workers("flush", self._thread_count, self._do_share)

    def stop(self) -> None:
        self._workers.stop()

    def mark_dirty(self, owner: LogOwner) -> None:
        self._dirty[owner.log] = owner
        if self._running is None and not self._scheduled:
            self._schedule()

    def wait(self, waiting: FlushWaiter) -> None:
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
        """Remove a reopened log from the running round, which flushes nothing appended from now on."""
        if self._running is not None:
            self._running.tickets.pop(log, None)

    async def commit(self, owner: LogOwner, ticket: FlushTicket) -> OSError | None:
        """Flush a ticket in a thread of its own, at once; return its error."""
        log = owner.log
        try:
            return (await asyncio.to_thread(log.environment.durability.commit, [ticket]))[0]
        except Exception as error:
            # The state of the disk is unknown, and the log waits for its ticket.
            logger.exception("a flush of %s-%d failed in an unexpected way", log.topic, log.partition)
            return OSError(f"{type(error).__name__}: {error}")

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
        self.is_flushing = True
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
        self.is_flushing = False
        self.failures += current.finish(self.after_round, self.after_next_round)
        self.round_times.add(self._machine.seconds() - current.begun_s)
        if self._dirty:
            if not self._scheduled:
                self._schedule()
        elif self._idle:
            self._tell_idle()
