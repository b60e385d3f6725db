"""One flush round: the tickets of its logs and the requests that wait for it. Every flusher begins and ends
its rounds here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from seqgate.gateway.runtime.partitions.log_flusher import LogFlusher
from seqgate.gateway.runtime.partitions.waiting import LogOwner, Waiting
from seqgate.log import FlushTicket, PartitionLog, StorageFailed

logger = logging.getLogger(__name__)


class Unserved:
    """The owner of a log that no partition serves, such as the metadata log: its records are persisted once
    they are durable.
    """

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    def flush_finished(self) -> None:
        pass

    def is_persisted(self, offset: int) -> bool:
        return offset < self.log.recovery_point


class FlushRound:
    """The tickets of one round, its logs' owners, and the requests that wait for it."""

    def __init__(
        self, dirty: Mapping[PartitionLog, LogOwner], waiting: list[Waiting], begun_s: float = 0.0
    ) -> None:
        """Take the ticket of each log that has something to flush. `begun_s` is the time in seconds, by any
        clock.
        """
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
        """The ticket of each log. A new request joins this round if its records are in the ticket. Reopened
        logs are removed.
        """
        self.waiting = waiting
        self.errors: dict[FlushTicket, OSError] = {}
        self.failed_files: set[FlushTicket] = set()
        """The tickets with an error whose records are durable all the same: only their side files could not
        be written.
        """

    def finish(self, after_round: Iterable[Callable[[], None]]) -> int:
        """Complete or fail every ticket, notify the logs' owners, answer the waiting requests, and then call
        `after_round`.

        Return how many tickets failed.
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
                logger.exception(
                    "the work after a flush of %s-%d failed", owner.log.topic, owner.log.partition
                )
        for waiting in self.waiting:
            try:
                waiting.resolve()
            except Exception:
                logger.exception("an answer that waited for a flush failed")
        for finished in after_round:
            try:
                finished()
            except Exception:
                logger.exception("the work after a flush round failed")
        return failures

    def fail(self, ticket: FlushTicket, error: OSError) -> None:
        """Give a log its failed ticket back before the end of the round. Does nothing if no log of the round
        has the ticket.
        """
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


async def wait_until_flushed(
    flusher: LogFlusher,
    log: PartitionLog,
    owner: LogOwner | None,
    dirty: Mapping[PartitionLog, LogOwner],
) -> None:
    """Wait until everything that is in the log now is durable. Raises StorageFailed.

    Without an `owner`, the owner of the log is looked up in `dirty`, the logs that the next round flushes.
    """
    end_offset = log.log_end_offset
    if log.recovery_point < end_offset:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        owner = owner or dirty.get(log) or Unserved(log)
        flusher.wait(Waiting(owner, end_offset - 1, lambda _: None if done.done() else done.set_result(None)))
        await done
    if log.recovery_point < end_offset:
        raise StorageFailed(f"{log.topic}-{log.partition} could not be flushed")


class IdleWaiters:
    """The tasks that wait until a flusher has nothing left to flush."""

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self.waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until the flusher is idle."""
        while not self._is_idle():
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(done)
            await done

    def tell(self) -> None:
        """Wake all waiting tasks. Each checks again whether the flusher is idle."""
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            if not done.done():
                done.set_result(None)
