"""Rebuilds transaction indexes from the log.

Source: Kafka's `LogSegment.recover`, which replays the producer state for the same reason.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from log.errors import CorruptRecord
from log.files.file_names import TRANSACTION_INDEX_SUFFIX
from log.format.due_times import read_end_marker
from log.recovery.parts import parts_of
from log.segments.damage import DamagedRange
from log.segments.transaction_index import AbortedTransaction
from log.state.ongoing_transactions import OngoingTransactions
from log.state.producer_snapshots import restore_newest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from log.config import LogConfig
    from log.environment import LogEnvironment
    from log.format.record_batch import BatchHeader
    from log.recovery.undecided import Undecided
    from log.segments.segment import Segment

_logger = logging.getLogger(__name__)
_EVERYWHERE: Final = 2**63 - 1


def has_sane_index(segment: Segment, end_offset: int) -> bool:
    """Return whether the segment has no aborted transactions, or a readable and plausible transaction index."""
    if not segment.aborts.has_any:
        return True
    try:
        return segment.aborts.index().is_sane(segment.base_offset, end_offset)
    except OSError as error:
        _logger.warning("%s can't be read and is rebuilt: %s", segment.path(TRANSACTION_INDEX_SUFFIX), error)
        return False


def rebuild_transaction_indexes(
    environment: LogEnvironment,
    directory: str,
    config: LogConfig,
    segments: Sequence[Segment],
    doubted: Sequence[Segment],
    snapshots: Sequence[int],
    undecided: Undecided,
) -> None:
    """Rebuild the transaction indexes of the `doubted` segments, some of `segments` and in their order. Raises OSError.

    The indexes of closed segments are durable afterwards; the active segment's stays in memory. The transactions that are open
    where the first doubted segment begins come from the newest earlier of the `snapshots` (offsets), and from the log after it.
    """
    first, last = doubted[0].base_offset, doubted[-1].base_offset
    table, covered = restore_newest(
        environment,
        directory,
        config,
        [offset for offset in snapshots if offset <= first],
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
    """Return the aborts that the segment's present index has in damaged ranges; None without a plausible index."""
    if not segment.damage or not segment.aborts.has_any or not has_sane_index(segment, _EVERYWHERE):
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
        """Follow the transactions in a segment from the offset `start` on. Add its aborts to the index if `is_noted`.

        `known` are the aborts whose markers are damaged; None when they are unknown.
        """
        try:
            for part in parts_of(segment):
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
            _logger.error("aborted transactions may be missing: %s", error)  # noqa: TRY400 - needs no traceback

    def _pass(
        self,
        segment: Segment,
        found: DamagedRange,
        known: Sequence[AbortedTransaction] | None,
        *,
        is_noted: bool,
    ) -> None:
        """Add the aborts in a damaged range from an earlier index. Without such an index all open transactions are undecided."""
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
