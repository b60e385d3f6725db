"""Checks the entries of transaction indexes against the log, because Kafka's format has no checksum.

A flipped bit in an entry would hide committed records or show aborted ones. So an entry is believed if an
abort marker is at its last offset, a batch of the producer begins at its first offset, and its last stable
offset does not contradict later entries. A batch that compaction or retention removed contradicts no entry.

A wrong first offset at which another batch of the same producer begins is believed: only a scan of all
batches between would find the error. A limit on checked entries keeps the load of a log with very many
aborted transactions short.

Rebuilds transaction indexes from the log.

Source: Kafka's `LogSegment.recover`, which replays the producer state for the same reason.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import CorruptRecord
from seqgate.log.files.file_names import TRANSACTION_INDEX_SUFFIX
from seqgate.log.format.record_batch import BatchHeader, crc_matches
from seqgate.log.format.records import read_end_marker
from seqgate.log.recovery.producer_recovery import Undecided
from seqgate.log.segments.damage import DamagedRange
from seqgate.log.segments.segment import Segment
from seqgate.log.segments.transaction_index import ENTRY, AbortedTransaction
from seqgate.log.state.producer_snapshots import restore_newest, snapshot_offsets
from seqgate.log.state.transactions import OngoingTransactions

if TYPE_CHECKING:
    from seqgate.log.recovery.load import Listing

_logger = logging.getLogger(__name__)


MOST_LOOKED_UP: Final = 1_000
"""Entries checked when a log is loaded, the newest first, in about 0.1 s; older entries are not checked."""
_NEVER: Final = 2**63 - 1


def not_borne_out(segments: Sequence[Segment]) -> set[int]:
    """Return the base offsets of the segments whose transaction index contradicts the log. `segments` are all
    segments of the log, each with a plausible transaction index or none. Raises OSError.
    """
    found: set[int] = set()
    begun: dict[int, int] = {}
    earliest = _NEVER
    left = MOST_LOOKED_UP
    for segment in reversed(segments):
        if not segment.aborts.has_any:
            continue
        for entry in reversed(list(ENTRY.iter_unpack(segment.aborts.index().entries))):
            if not left:
                return found
            left -= 1
            _, producer_id, first_offset, last_offset, last_stable_offset = entry
            if (
                last_stable_offset > earliest
                or last_offset >= begun.get(producer_id, _NEVER)
                or not _is_abort(segment, producer_id, last_offset)
                or not _is_begin(segments, producer_id, first_offset)
            ):
                found.add(segment.base_offset)
                continue
            earliest = min(earliest, first_offset)
            begun[producer_id] = first_offset
    return found


def _is_abort(segment: Segment, producer_id: int, offset: int) -> bool:
    """Return whether an abort marker is at this offset, or damage, from which no entry can be rebuilt."""
    try:
        found = _batch_of(segment, offset)
    except CorruptRecord:
        return True
    if found is None:
        return True
    position, batch = found
    if batch.base_offset != offset or batch.producer_id != producer_id or not batch.is_control:
        return _is_damaged(segment, position, batch)
    marker = read_end_marker(segment.read_at(position, batch.size_bytes))
    if marker is None:
        return not batch.record_count or _is_damaged(segment, position, batch)
    return not marker.is_commit or _is_damaged(segment, position, batch)


def _is_begin(segments: Sequence[Segment], producer_id: int, offset: int) -> bool:
    """Return whether a transaction's batch of the producer begins at `offset`, or was removed or damaged."""
    number = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if number < 0:
        return True
    try:
        found = _batch_of(segments[number], offset)
    except CorruptRecord:
        return True
    if found is None or found[1].base_offset > offset:
        return True
    position, batch = found
    is_its = batch.producer_id == producer_id and batch.is_transactional and not batch.is_control
    return (is_its and batch.base_offset == offset) or _is_damaged(segments[number], position, batch)


def _batch_of(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    """Return the first batch that ends at `offset` or later, and where. Raises CorruptRecord, OSError."""
    position = segment.position_of(offset, segment.size_bytes)
    header = segment.header_at(position)
    return (position, header) if header is not None else None


def _is_damaged(segment: Segment, position: int, batch: BatchHeader) -> bool:
    return not crc_matches(batch, memoryview(segment.read_at(position, batch.size_bytes)))


def rebuild_transaction_indexes(listing: Listing, doubted: Sequence[Segment], undecided: Undecided) -> None:
    """Rebuild the transaction indexes of `doubted`, some of the segments in their order. Raises OSError.

    The indexes of closed segments are durable afterwards; the active segment's stays in memory. The
    transactions that are open where the first doubted segment begins come from the newest earlier snapshot,
    and from the log after it.
    """
    environment, directory, segments = listing.environment, listing.directory, listing.segments
    first, last = doubted[0].base_offset, doubted[-1].base_offset
    table, covered = restore_newest(
        environment,
        directory,
        listing.config,
        [offset for offset in snapshot_offsets(listing.files) if offset <= first],
        log_from=segments[0].base_offset,
        is_counted=False,
    )
    follower = _Follower(
        environment,
        {entry.producer_id: entry.current_transaction_first_offset for entry in table.in_transaction()},
        undecided,
    )
    known = {segment.base_offset: _known_in_damage(segment) for segment in doubted}
    for segment in doubted:
        segment.aborts.forget()
    start = 0 if covered is None else covered
    rebuilt = {segment.base_offset for segment in doubted}
    ends = [segment.base_offset for segment in segments[1:]]
    for segment, end_offset in zip(segments, [*ends, None], strict=True):
        if segment.base_offset <= last and (end_offset is None or end_offset > start):
            follower.read(
                segment, start, known.get(segment.base_offset), is_noted=segment.base_offset in rebuilt
            )
    _write(environment, directory, doubted, segments[-1])


def _write(environment: LogEnvironment, directory: str, doubted: Sequence[Segment], active: Segment) -> None:
    storage = environment.storage
    for segment in doubted:
        path = segment.path(TRANSACTION_INDEX_SUFFIX)
        if segment.aborts.has_any and segment is not active:
            environment.durability.sync(paths=segment.aborts.write())
            segment.become_closed()
        elif not segment.aborts.has_any and storage.exists(path):
            storage.delete(path)
    environment.durability.sync(directories=[directory])


def _known_in_damage(segment: Segment) -> list[AbortedTransaction] | None:
    """Return the aborts that a plausible index has in damaged ranges; None without such an index."""
    if (
        not segment.damage
        or not segment.aborts.has_any
        or not segment.aborts.are_sane(segment.base_offset, _NEVER)
    ):
        return None
    return [
        aborted
        for aborted in segment.aborts.index().transactions()
        if any(found.first_offset <= aborted.last_offset < found.end_offset for found in segment.damage)
    ]


class _Follower:
    """Follows the transactions through the log, and adds the aborted ones to the indexes."""

    def __init__(
        self, environment: LogEnvironment, open_transactions: dict[int, int], undecided: Undecided
    ) -> None:
        self._storage = environment.storage
        self._undecided = undecided
        self._first_offsets = open_transactions
        self._ongoing = OngoingTransactions(
            (first_offset, producer_id) for producer_id, first_offset in open_transactions.items()
        )

    def read(
        self, segment: Segment, start: int, known: Sequence[AbortedTransaction] | None, *, is_noted: bool
    ) -> None:
        """Follow the transactions in a segment from `start` on. Add its aborts to the index if `is_noted`.
        `known` are the aborts whose markers are damaged; None when they are unknown.
        """
        try:
            for part in segment.parts():
                if isinstance(part, DamagedRange):
                    if part.end_offset > start:
                        self._pass(segment, part, known, is_noted=is_noted)
                    continue
                position, batch = part
                if batch.producer_id < 0 or not batch.is_transactional or batch.base_offset < start:
                    continue
                if batch.is_control:
                    self._end(segment, position, batch, is_noted=is_noted)
                elif batch.producer_id not in self._first_offsets:
                    self._first_offsets[batch.producer_id] = batch.base_offset
                    self._ongoing.begin(batch.producer_id, batch.base_offset)
        except CorruptRecord as error:
            _logger.error("aborted transactions may be missing: %s", error)  # noqa: TRY400

    def _pass(
        self,
        segment: Segment,
        found: DamagedRange,
        known: Sequence[AbortedTransaction] | None,
        *,
        is_noted: bool,
    ) -> None:
        """Add an earlier index's aborts in a damaged range. Without one, open transactions are undecided."""
        if not is_noted:
            return
        if known is None:
            self._undecided.passed(found, self._first_offsets.values())
            return
        for aborted in known:
            if found.first_offset <= aborted.last_offset < found.end_offset:
                open_from = self._first_offsets.pop(aborted.producer_id, None)
                if open_from is not None:
                    self._ongoing.end(open_from, aborted.last_offset, aborted.last_offset + 1)
                segment.aborts.add(aborted)

    def _end(self, segment: Segment, position: int, batch: BatchHeader, *, is_noted: bool) -> None:
        marker = read_end_marker(self._storage.read(segment.file, batch.size_bytes, position))
        if marker is None:
            return
        first_offset = self._first_offsets.pop(batch.producer_id, None)
        if first_offset is None:
            return
        offset = batch.base_offset
        last_stable_offset = self._ongoing.end(first_offset, offset, offset + 1)
        if is_noted and not marker.is_commit:
            segment.aborts.add(
                AbortedTransaction(first_offset, batch.producer_id, offset, last_stable_offset)
            )
