"""What every flusher offers: it makes logs durable in rounds, and tells those who wait for a round.

Two classes do so. `Flusher` flushes the files of the local disk. `ObjectFlusher` writes objects of a
write-ahead log to a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from seqgate.gateway.durations import Durations
from seqgate.gateway.runtime.partitions.unwritten import Unwritten
from seqgate.gateway.runtime.partitions.waiting import LogOwner, Waiting
from seqgate.log import CorruptRecord, FlushTicket, PartitionLog
from seqgate.log.format.record_batch import BatchHeader, crc_matches
from seqgate.log.format.records import Record, iterate_records


class LogFlusher(Protocol):
    """Collects logs with appends that are not durable, and makes them durable together. Call all methods in
    the event loop.
    """

    after_round: list[Callable[[], None]]
    """Called after all requests that waited for a round are resolved, so that their answers leave together.
    """
    disk_is_busy: bool
    """Whether cold reads use the disk right now."""
    inline_limit_s: float
    """The expected time up to which a flush of the local disk runs in the event loop."""
    rounds: int
    failures: int
    round_times: Durations
    """How long rounds took, from their begin to the answers of the requests that waited."""
    flushes_disk: bool
    """Whether rounds keep the local disk busy, so that cold reads must wait for them."""
    keeps_flush_settings: bool
    """Whether `flush.messages` and `flush.ms` may let consumers see records before a round has made them
    durable.
    """

    @property
    def unwritten(self) -> Unwritten | None:
        """Return the count of bytes that wait for a bucket, beyond which producers are refused; None without
        a bucket.
        """

    @property
    def waiting_count(self) -> int:
        """Return the number of requests that wait for a round."""

    @property
    def is_flushing(self) -> bool:
        """Whether a round is under way."""

    @property
    def logs_per_round(self) -> int:
        """Return the number of logs up to which a round takes hardly longer than with one log."""

    def start(self) -> None:
        """Start the worker threads."""

    def stop(self) -> None:
        """End the worker threads; call after the last round."""

    def mark_dirty(self, owner: LogOwner) -> None:
        """Add the owner's log to the next round."""

    def wait(self, waiting: Waiting) -> None:
        """Resolve `waiting` after the round that makes its offset durable: a running round if one does, else
        the next.
        """

    def reopened(self, log: PartitionLog) -> None:
        """Note that a log was reopened."""

    async def flushed(self, log: PartitionLog, owner: LogOwner | None = None) -> None:
        """Wait until everything now in the log is durable. Raises StorageFailed."""

    async def idle(self) -> None:
        """Wait until nothing is left to flush."""

    def give_up(self, reason: str) -> None:
        """Stop waiting for a bucket that does not answer: take all logs with records that are not durable
        offline.
        """

    async def commit(self, owner: LogOwner, ticket: FlushTicket) -> OSError | None:
        """Make a ticket durable outside of the flush rounds; return its error, None for success.

        Do not cancel this: the log waits for its ticket.
        """


# Replays a partition log from an offset to its end, to rebuild state that is stored in the log.

_READ_BYTES: Final = 4 * 1024 * 1024


def replay_records(log: PartitionLog, offset: int) -> Iterator[Record]:
    """Yield all records from `offset` to the present end of the log. Raises LogError."""
    for _, batch in replay_batches(log, offset):
        yield from iterate_records(batch)


def replay_batches(log: PartitionLog, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield all batches from `offset` to the present end of the log, as header and bytes. Raises LogError.

    State is replayed from sound batches only: a damaged one ends the replay with CorruptRecord.
    """
    log.outage.check()
    with log.outage.reading():
        for header, batch in log.batches(offset, log.log_end_offset, _READ_BYTES):
            if not crc_matches(header, batch):
                raise CorruptRecord(f"{log.place} is damaged at offset {header.base_offset}")
            yield header, batch
    log.segments.drop_cached()
