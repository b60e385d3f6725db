"""The segments of one partition log, in order: finds batches across them, by offset and by time, and
remembers the positions where readers and the newest flush ended.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from seqgate.log.config import LogConfig
from seqgate.log.errors import CorruptRecord, IncompatibleFormat
from seqgate.log.files.page_cache import NotCached, PageRange
from seqgate.log.format.batch_validation import plain_records, stored_records
from seqgate.log.format.record_batch import BatchHeader, whole_batches
from seqgate.log.format.records import as_int64
from seqgate.log.segments.damage import DamagedRange, next_range, range_at, range_holding
from seqgate.log.segments.scan import FileRegion, TimestampAndOffset
from seqgate.log.segments.segment import Segment, SegmentEnvironment
from seqgate.log.segments.transaction_index import AbortedTransaction

_KNOWN_POSITIONS: Final = 16
_PLACES_AT_ONCE: Final = 128
_CHUNK_BYTES: Final = 16 * 1024
_NOWHERE: Final = (-1, -1)
NOWHERE_DAMAGED: Final = 2**63 - 1


class SegmentList:
    """The segments, ascending by base offset. Batches are appended only to `active`, the last segment.

    Reading raises CorruptRecord, OSError, NotCached (see `Storage`). A removed segment stays readable for
    readers that have begun to read it. A known position is (base_offset of the segment, byte in the file).
    """

    __slots__ = (
        "_environment",
        "_examined",
        "_known_positions",
        "_storage",
        "aborting",
        "active",
        "bases",
        "cut_records",
        "flush_end",
        "loaded_bytes",
        "removed_bytes",
        "segments",
        "size_bytes",
    )

    def __init__(self, environment: SegmentEnvironment, segments: list[Segment]) -> None:
        self._environment = environment
        self._storage = environment.storage
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.size_bytes = self.loaded_bytes = sum(segment.size_bytes for segment in segments)
        self.cut_records = 0
        """The records at the end of the log that reopenings have cut off."""
        self.removed_bytes = 0
        """The bytes that retention and compaction have removed since the load."""
        self.aborting = [segment.base_offset for segment in segments if segment.aborts.has_any]
        """Base offsets of the segments that hold markers of aborts."""
        self._known_positions: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._examined: dict[int, int] = {}
        """The sizes that segments had when all of their batches were checked, by base offset."""
        self.flush_end = -1, _NOWHERE
        """The end offset and position of the last flush, where the high watermark is after it."""

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def appended_bytes(self) -> int:
        """Return the bytes of all batches appended since the load."""
        return self.size_bytes + self.removed_bytes - self.loaded_bytes

    def continue_counts(self, before: SegmentList, cut_records: int) -> None:
        """Take over the counts of the segments `before` a reopening, which has cut off this many records."""
        self.loaded_bytes -= before.appended_bytes
        self.cut_records = before.cut_records + cut_records

    def _remove_bytes(self, count: int) -> None:
        self.size_bytes -= count
        self.removed_bytes += count

    # --- segments in order

    def add(self, segment: Segment) -> None:
        """Close the active segment, and make `segment` the active one."""
        self.active.become_closed()
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def drop_first(self, count: int) -> list[Segment]:
        dropped = self.segments[:count]
        del self.segments[:count]
        del self.bases[:count]
        if dropped:
            del self.aborting[: bisect_right(self.aborting, dropped[-1].base_offset)]
            self._remove_bytes(sum(segment.size_bytes for segment in dropped))
        return dropped

    def place_of(self, base_offsets: list[int]) -> slice | None:
        """Return the slice that holds these segments; None when one is missing or is the active segment."""
        start = bisect_left(self.bases, base_offsets[0])
        place = slice(start, start + len(base_offsets))
        is_there = self.bases[place] == base_offsets and place.stop < len(self.bases)
        return place if is_there else None

    def replace(self, place: slice, new: Segment) -> None:
        old = self.segments[place]
        self._remove_bytes(sum(segment.size_bytes for segment in old) - new.size_bytes)
        self.segments[place] = [new]
        self.bases[place] = [new.base_offset]
        self.aborting[:] = [segment.base_offset for segment in self.segments if segment.aborts.has_any]
        self._forget_segments([segment.base_offset for segment in old])

    def number_of(self, offset: int) -> int:
        """Return the index of the segment that holds `offset`: the number of closed segments that end at it
        or before. 0 for an offset before the first segment.
        """
        return max(0, bisect_right(self.bases, offset) - 1)

    def end_offset(self, number: int, log_end_offset: int) -> int:
        """Return the offset at which a segment ends (exclusive)."""
        return self.bases[number + 1] if number + 1 < len(self.bases) else log_end_offset

    def holding(self, offset: int) -> Sequence[Segment]:
        """Return the segments from the one that holds `offset` to the active one."""
        return self.segments[self.number_of(offset) :]

    def write_indexes(self, *, may_omit: bool = False) -> list[str]:
        """Write all indexes of the active segment; return their paths, not durable yet. With `may_omit`, a
        small segment that has no offset and time index yet stays without. Raises OSError.
        """
        return [*self.active.write_indexes(may_omit=may_omit), *self.active.aborts.write()]

    def retire(self, *, for_readers: bool = False) -> None:
        """Close the files and drop the cached indexes. With `for_readers`, readers at work may finish."""
        for segment in self.segments:
            self._storage.descriptors.retire(segment.file, for_readers=for_readers)
            self._environment.forget_file(segment.file)

    def drop_cached(self) -> None:
        """Drop the closed segments from the page cache, after reading them all for the last time."""
        for segment in self.segments[:-1]:
            with contextlib.suppress(OSError):
                self._storage.forget_cached(segment.file)

    # --- finding batches

    def _remember(self, offset: int, segment_base_offset: int, position: int) -> None:
        """Remember the position of the batch at `offset`. Readers resume at the offset where they ended."""
        known = self._known_positions
        known[offset] = (segment_base_offset, position)
        if len(known) > _KNOWN_POSITIONS:
            known.popitem(last=False)

    def _forget_segments(self, base_offsets: list[int]) -> None:
        gone = set(base_offsets)
        for offset in [offset for offset, place in self._known_positions.items() if place[0] in gone]:
            del self._known_positions[offset]
        if self.flush_end[1][0] in gone:
            self.flush_end = -1, _NOWHERE

    def find(
        self, offset: int, max_bytes: int, upper_bound: int, log_end_offset: int, min_one_batch: bool
    ) -> FileRegion | None:
        """Return the batches of one segment from the one that holds `offset` up to `upper_bound` (exclusive).

        The region ends before a damaged range. A damaged batch with sound size and offsets is returned alone;
        any other damage at `offset` raises CorruptRecord.
        """
        index = bisect_right(self.bases, offset) - 1
        while index < len(self.segments):
            segment = self.segments[index]
            damaged = range_holding(segment.damage, offset) if segment.damage else None
            if damaged is not None:
                return self._damaged_region(segment, damaged, max_bytes, upper_bound, min_one_batch)
            try:
                end = self._readable_end(index, upper_bound, log_end_offset)
                position = self._start_position(segment, offset, end)
                if position >= end:
                    self._check_end(index, end, offset)
            except CorruptRecord:
                if not self._is_damage_found(index, log_end_offset):
                    raise
                continue
            index += 1
            if position >= end:
                continue
            if segment.damage:
                damaged = range_at(segment.damage, position)
                if damaged is not None:
                    return self._damaged_region(segment, damaged, max_bytes, upper_bound, min_one_batch)
                ahead = next_range(segment.damage, position)
                end = end if ahead is None else min(end, ahead.position)
            return self._region(index, position, end, max_bytes, upper_bound, min_one_batch)
        return None

    def _check_end(self, index: int, end: int, offset: int) -> None:
        """Raise CorruptRecord if the last segment ends before an offset that the log has."""
        segment = self.segments[index]
        if index + 1 == len(self.segments) and 0 < segment.size_bytes == end:
            raise CorruptRecord(f"{segment.file.path} has no batch with offset {offset}")

    def _is_damage_found(self, index: int, log_end_offset: int) -> bool:
        """Check a segment whose headers can't be right, once. Return whether the check found new damage."""
        segment = self.segments[index]
        if self._examined.get(segment.base_offset) == segment.size_bytes:
            return False
        try:
            is_found = segment.examine(self.end_offset(index, log_end_offset))
        except IncompatibleFormat as error:
            raise CorruptRecord(str(error)) from error
        self._examined[segment.base_offset] = segment.size_bytes
        return is_found

    def _region(
        self, index: int, position: int, end: int, max_bytes: int, upper_bound: int, min_one_batch: bool
    ) -> FileRegion | None:
        """Return at most `max_bytes` of batches from `position` on, in the segment before the index."""
        segment = self.segments[index - 1]
        readable_bytes = end - position
        region = FileRegion(self._storage, segment.file, position, readable_bytes, segment.base_offset)
        size_bytes = min(max_bytes, readable_bytes)
        if size_bytes < readable_bytes:
            first_bytes = min(region.first_batch_bytes(), readable_bytes)
            if first_bytes > size_bytes and not min_one_batch:
                return None
            size_bytes = max(size_bytes, first_bytes)
        if position + size_bytes == end and not segment.damage:
            next_offset = self.bases[index] if index < len(self.bases) else upper_bound
            self._remember(min(next_offset, upper_bound), segment.base_offset, end)
        region.size_bytes = size_bytes
        return region

    def find_sound(self, offset: int, max_bytes: int, log_end_offset: int) -> tuple[FileRegion | None, int]:
        """Return the next undamaged batches from `offset` on, and the offset after the skipped damage."""
        while offset < log_end_offset:
            damaged = self.damage_at(offset)
            if damaged is None:
                try:
                    return self.find(offset, max_bytes, log_end_offset, log_end_offset, True), offset
                except CorruptRecord:
                    damaged = self.damage_at(offset)
                    if damaged is None:
                        raise
            offset = damaged.end_offset
        return None, offset

    def first_damaged_base(self) -> int:
        """Return the base offset of the first segment with known damage; NOWHERE_DAMAGED without damage."""
        return next((segment.base_offset for segment in self.segments if segment.damage), NOWHERE_DAMAGED)

    def _damaged_region(
        self, segment: Segment, damaged: DamagedRange, max_bytes: int, upper_bound: int, min_one_batch: bool
    ) -> FileRegion | None:
        """Return the bytes of a damaged batch, alone, so that the client's CRC check finds the damage. Raises
        CorruptRecord where a client could not recognize the damage.
        """
        if not damaged.is_framed:
            raise CorruptRecord(f"{segment.file.path} is damaged: {damaged}")
        if damaged.end_offset > upper_bound or (damaged.size_bytes > max_bytes and not min_one_batch):
            return None
        return FileRegion(
            self._storage, segment.file, damaged.position, damaged.size_bytes, segment.base_offset
        )

    def damage_at(self, offset: int) -> DamagedRange | None:
        """Return the known damaged range that holds the offset; None without one."""
        damage = self.segments[self.number_of(offset)].damage
        return range_holding(damage, offset) if damage else None

    def _readable_end(self, index: int, upper_bound: int, log_end_offset: int) -> int:
        """Return the position in the segment where the batches below `upper_bound` end."""
        segment = self.segments[index]
        next_base = self.bases[index + 1] if index + 1 < len(self.bases) else log_end_offset
        if upper_bound >= next_base:
            return segment.size_bytes
        if upper_bound == self.flush_end[0] and self.flush_end[1][0] == segment.base_offset:
            return self.flush_end[1][1]
        return segment.position_of(upper_bound, segment.size_bytes)

    def _start_position(self, segment: Segment, offset: int, end: int) -> int:
        if offset <= segment.base_offset:
            return 0
        known = self._known_positions.get(offset)
        if known is not None and known[0] == segment.base_offset:
            return known[1]
        if offset == self.flush_end[0] and self.flush_end[1][0] == segment.base_offset:
            return self.flush_end[1][1]
        return segment.position_of(offset, end)

    # --- batches

    def headers_from(self, number: int, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers of the batches of one segment that end at `offset` or later."""
        segment = self.segments[number]
        start = segment.position_for(max(0, offset - segment.base_offset))
        for _, batch in segment.batches(start, segment.size_bytes, _CHUNK_BYTES):
            if batch.last_offset >= offset:
                yield batch

    def batches(
        self, offset: int, end_offset: int, chunk_bytes: int, *, skips_damage: bool
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each whole batch from that of `offset` to the log end, `end_offset`, with its bytes.

        Reads about `chunk_bytes` at a time. With `skips_damage` the batches after a damaged one follow;
        otherwise damage raises CorruptRecord. A stretch without a whole batch always does.
        """
        while offset < end_offset:
            if skips_damage:
                region, offset = self.find_sound(offset, chunk_bytes, end_offset)
            else:
                region = self.find(offset, chunk_bytes, end_offset, end_offset, True)
            if region is None:
                return
            data = memoryview(region.read())
            begun_at = offset
            for position, batch in whole_batches(data):
                if batch.last_offset >= offset:
                    offset = batch.last_offset + 1
                    yield batch, data[position : position + batch.size_bytes]
            if offset == begun_at:
                raise CorruptRecord(f"There is no whole batch at offset {offset}.")

    # --- aborted transactions, in the transaction indexes. Source: Kafka's `LocalLog.addAbortedTransactions`

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction whose marker was just appended to the active segment's index."""
        active = self.active
        if not active.aborts.has_any:
            self.aborting.append(active.base_offset)
        active.aborts.add(aborted)

    def aborted_between(self, first_offset: int, upper_bound: int) -> list[tuple[int, int]]:
        """Return (producer_id, first_offset) of aborts that reach into [first_offset, upper_bound).

        The transactions come in the order of their markers, which may lie beyond. Without aborted
        transactions the call costs nothing. Raises OSError.
        """
        found: list[tuple[int, int]] = []
        if not self.aborting:
            return found
        holding = self.bases[self.number_of(first_offset)]
        for base_offset in self.aborting[bisect_left(self.aborting, holding) :]:
            segment = self.segments[bisect_left(self.bases, base_offset)]
            if segment.aborts.index().collect(first_offset, upper_bound, found):
                break
        return found

    def aborted_in(self, offset: int, region: FileRegion, log_end_offset: int) -> list[tuple[int, int]]:
        """Return the aborts that a reader of `region`, found for `offset`, must skip. Some may lie beyond, as
        in Kafka: only the next index entry tells the region's last offset. Raises OSError.
        """
        number = bisect_left(self.bases, region.segment_base_offset)
        relative_offset = self.segments[number].offset_after(region.end_position)
        if relative_offset is not None:
            upper_bound = region.segment_base_offset + relative_offset
        else:
            upper_bound = self.end_offset(number, log_end_offset)
        return self.aborted_between(offset, upper_bound)

    def aborted_from(self, marker_offset: int, before_offset: int) -> list[AbortedTransaction]:
        """Return transactions from below `before_offset` aborted from `marker_offset` on. Raises OSError."""
        found: list[AbortedTransaction] = []
        for base_offset in self.aborting[bisect_left(self.aborting, marker_offset) :]:
            index = self.segments[bisect_left(self.bases, base_offset)].aborts.index()
            for aborted in index.transactions():
                if aborted.first_offset < before_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= before_offset:
                    return found
        return found

    # --- records by time. Source: Kafka's `UnifiedLog.fetchOffsetByTimestamp` (KIP-79, KIP-734)

    def first_not_before(
        self, config: LogConfig, timestamp_ms: int, log_start_offset: int
    ) -> TimestampAndOffset | None:
        """Return the first record from the log start on whose timestamp is `timestamp_ms` or later.

        A batch with more than `max_decoded_records` records is not decoded. For such a batch the offset is
        its base offset, or the log start offset if that is higher. Raises LogError, OSError, NotCached.
        """
        _check_timestamps(self.segments, timestamp_ms)
        for segment in self.segments:
            if segment.max_timestamp < timestamp_ms:
                continue
            start = segment.position_for(segment.start_for_time(timestamp_ms - 1))
            for position, batch in segment.batches(start, segment.size_bytes):
                if batch.max_timestamp >= timestamp_ms and batch.last_offset >= log_start_offset:
                    found = _in_batch(config, segment, position, batch, timestamp_ms, log_start_offset)
                    if found is not None:
                        return found
        return None

    def first_of_largest(self, config: LogConfig) -> TimestampAndOffset | None:
        """Return the first record with the largest timestamp of all.

        A batch with more than `max_decoded_records` records is not decoded. For such a batch the result has
        the largest timestamp and the base offset of its header. Raises LogError, OSError, NotCached.
        """
        holding = [segment for segment in self.segments if segment.size_bytes]
        _check_timestamps(holding)
        if not holding:
            return None
        segment = max(holding, key=lambda candidate: candidate.max_timestamp)
        largest = segment.max_timestamp
        start = segment.position_of(segment.offset_of_max_timestamp, segment.size_bytes)
        for position, batch in segment.batches(start, segment.size_bytes):
            if batch.max_timestamp == largest:
                return _first_of_largest_in_batch(config, segment, position, batch)
        return None


def _check_timestamps(segments: Sequence[Segment], wanted_ms: float = math.inf) -> None:
    """Raise one NotCached for many segments whose largest timestamps are not in memory. Stops at the first
    segment whose timestamp is `wanted_ms` or later, as no later segment is needed.
    """
    missing: list[PageRange] = []
    for segment in segments:
        try:
            if segment.max_timestamp >= wanted_ms:
                break
        except NotCached as cold:
            missing += cold.places
            if len(missing) >= _PLACES_AT_ONCE:
                break
    if missing:
        raise NotCached(missing)


def _is_whole(batch: BatchHeader) -> bool:
    """Return whether the batch still has all its records: compaction removed none."""
    return batch.record_count == batch.last_offset_delta + 1


def _first_of_largest_in_batch(
    config: LogConfig, segment: Segment, position: int, batch: BatchHeader
) -> TimestampAndOffset | None:
    """Return the batch's first record with the largest timestamp; None when compaction has emptied it.
    Decodes the records, because without deep validation the header's max_timestamp may be wrong.
    """
    leader_epoch = batch.partition_leader_epoch
    if not batch.record_count:
        return None
    if (batch.is_log_append_time and _is_whole(batch)) or batch.record_count > config.max_decoded_records:
        return TimestampAndOffset(batch.max_timestamp, batch.base_offset, leader_epoch)
    records = _records(config, segment, position, batch)
    timestamp, offset = max(records, key=itemgetter(0))
    return TimestampAndOffset(timestamp, offset, leader_epoch)


def _in_batch(
    config: LogConfig,
    segment: Segment,
    position: int,
    batch: BatchHeader,
    timestamp_ms: int,
    log_start_offset: int,
) -> TimestampAndOffset | None:
    leader_epoch = batch.partition_leader_epoch
    if (batch.is_log_append_time and _is_whole(batch)) or batch.record_count > config.max_decoded_records:
        return TimestampAndOffset(batch.max_timestamp, max(batch.base_offset, log_start_offset), leader_epoch)
    for timestamp, offset in _records(config, segment, position, batch):
        if timestamp >= timestamp_ms and offset >= log_start_offset:
            return TimestampAndOffset(timestamp, offset, leader_epoch)
    return None


def _records(
    config: LogConfig, segment: Segment, position: int, batch: BatchHeader
) -> Iterator[tuple[int, int]]:
    """Yield (timestamp, offset) of a batch's records. Their headers, maybe millions, are not decoded."""
    data = segment.read_at(position, batch.size_bytes)
    plain = plain_records(batch, memoryview(data), config.max_decompressed_bytes, config.max_record_bytes)
    for record in stored_records(batch, plain):
        if batch.is_log_append_time:
            yield batch.max_timestamp, record.offset
        else:
            yield as_int64(batch.base_timestamp + record.timestamp_delta), record.offset
