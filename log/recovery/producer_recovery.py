"""Restores the producer state of a partition: the newest readable snapshot and a replay of what follows.

Source: Kafka's `UnifiedLog.rebuildProducerState`.

Tracks what a damaged batch leaves unknown: its producers, and the transactions that ended in it.

A replay that has to pass the damage refuses rather than guesses. A producer without a known batch at or after
the damage may not continue with its producer epoch. Transactions that were open at the damage stay undecided
for readers of committed records, until `seqgate repair` removes the damaged batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from seqgate.log.errors import CorruptRecord
from seqgate.log.files.file_names import SNAPSHOT_SUFFIX, offset_name
from seqgate.log.files.storage import Storage
from seqgate.log.format.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from seqgate.log.format.records import read_end_marker
from seqgate.log.segments.damage import NO_TRANSACTION, DamagedRange
from seqgate.log.segments.segment import Segment
from seqgate.log.state.producer_snapshots import restore_newest, snapshot_offsets, write_snapshot
from seqgate.seq_validator import ProducerTable

if TYPE_CHECKING:
    from seqgate.log.recovery.load import Listing

_logger = logging.getLogger(__name__)


def load_producers(
    listing: Listing, ends: Sequence[int], undecided: Undecided, *, is_snapshot_durable: bool
) -> ProducerTable:
    """Return the producers at the end of the segments, which end at `ends` (exclusive). Raises OSError.

    The snapshot that is restored is durable afterwards. If none covers the closed segments, a new one is
    written. `undecided` records the damaged ranges that the replay passes.
    """
    environment, directory, now_ms = listing.environment, listing.directory, listing.now_ms
    storage, durability = environment.storage, environment.durability
    segments = list(zip(listing.segments, ends, strict=True))
    snapshots = [offset for offset in snapshot_offsets(listing.files) if offset <= ends[-1]]
    log_from = segments[0][0].base_offset
    producers, from_offset = restore_newest(
        environment, directory, listing.config, snapshots, log_from=log_from
    )
    start = from_offset or 0
    try:
        if from_offset is not None and not is_snapshot_durable:
            # The snapshot may be only in the page cache, yet be the only copy of deleted segments' producers.
            path = f"{directory}/{offset_name(from_offset, SNAPSHOT_SUFFIX)}"
            durability.ensure(path, storage.read_file(path))
            durability.sync(directories=[directory])
        for segment, end_offset in segments:
            if end_offset > start:
                _replay(storage, segment, start, producers, undecided, now_ms)
                if segment is not segments[-1][0]:
                    storage.forget_cached(
                        segment.file
                    )  # readers rarely need old segments, so do not keep them in the page cache
        if len(segments) > 1 and len(producers) and start < segments[-1][0].base_offset:
            # Otherwise the producers of closed segments would be forgotten once the segments are deleted.
            log_end_offset = segments[-1][1]
            path = write_snapshot(environment, directory, producers, log_end_offset, log_end_offset)
            durability.sync(paths=[path], directories=[directory])
    except BaseException:
        producers.clear()
        raise
    return producers


def _replay(
    storage: Storage,
    segment: Segment,
    start: int,
    producers: ProducerTable,
    undecided: Undecided,
    now_ms: int,
) -> None:
    update = producers.update
    try:
        position = segment.position_of(start, segment.size_bytes) if start > segment.base_offset else 0
        for part in segment.parts(position):
            if isinstance(part, DamagedRange):
                if part.end_offset > start:
                    undecided.passed_by_producers(part, producers)
                continue
            at, batch = part
            base_offset = batch.base_offset
            if batch.producer_id < 0 or base_offset < start:
                continue
            attributes = batch.attributes
            if attributes & CONTROL_FLAG:
                _replay_marker(storage.read(segment.file, batch.size_bytes, at), batch, producers, now_ms)
                continue
            update(batch, base_offset, now_ms)
            if attributes & TRANSACTIONAL_FLAG:
                producers.continue_transaction(batch.producer_id, base_offset)
    except CorruptRecord as error:
        _logger.error("producers may be forgotten: %s", error)  # noqa: TRY400 - needs no traceback


def _replay_marker(data: bytes, batch: BatchHeader, producers: ProducerTable, now_ms: int) -> None:
    marker = read_end_marker(data)
    if marker is not None:
        producers.end_transaction(
            batch.producer_id,
            batch.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            offset=batch.base_offset,
            timestamp=batch.max_timestamp,
            now_ms=now_ms,
        )


class Undecided:
    """The damaged ranges that replays of one log passed, and the transactions that were open there."""

    def __init__(self) -> None:
        self._first_offsets: dict[tuple[int, int], int] = {}
        self._unknown_producers: set[tuple[int, int]] = set()

    def passed(self, found: DamagedRange, open_from: Iterable[int]) -> None:
        """Record that a replay passed the range while transactions with these first offsets were open."""
        key = found.segment_base_offset, found.position
        first_offset = min(open_from, default=NO_TRANSACTION)
        earlier = self._first_offsets.get(key, NO_TRANSACTION)
        if first_offset != NO_TRANSACTION:
            self._first_offsets[key] = (
                first_offset if earlier == NO_TRANSACTION else min(earlier, first_offset)
            )

    def passed_by_producers(self, found: DamagedRange, producers: ProducerTable) -> None:
        """Record that the replay of the producers passed the range."""
        self._unknown_producers.add((found.segment_base_offset, found.position))
        self.passed(found, [entry.current_transaction_first_offset for entry in producers.in_transaction()])

    def note(self, segments: Sequence[Segment], producers: ProducerTable) -> list[DamagedRange]:
        """Write the findings into the segments, and mark producers in doubt. Return all ranges."""
        for segment in segments:
            segment.damage = tuple(self._marked(found) for found in segment.damage)
        damage = [found for segment in segments for found in segment.damage]
        for found in damage:
            if found.is_state_unknown:
                producers.doubt(found.end_offset)
        return damage

    def _marked(self, found: DamagedRange) -> DamagedRange:
        key = found.segment_base_offset, found.position
        known = [
            offset
            for offset in (found.undecided_from, self._first_offsets.get(key, NO_TRANSACTION))
            if offset != NO_TRANSACTION
        ]
        return found._replace(
            is_state_unknown=found.is_state_unknown or key in self._unknown_producers,
            undecided_from=min(known, default=NO_TRANSACTION),
        )
