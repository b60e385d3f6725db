"""Tracks a log's records that are due later: judged at append, saved in a side file, restored at starts.

The log stores delayed records like all others. Share groups ask `Delays.records` which of them are due.

`DelayedRecords` tracks the records that are not due yet, and the offset from which the log is held for them.
A record is tracked from its append until the record is due, aborted or deleted. After the due time the log is
held for the record a while longer. Otherwise retention could remove the record as too old before a share
group has read it. Source: Pulsar's InMemoryDelayedDeliveryTracker, which does the same for a subscription
(PIP-26).

When a record is due stands in the record header that the topic's settings name: the time in ms since 1970 as
decimal text. Without the header, or with any other value, a record is due at once. Where a record has the
header more than once, the last one counts, as in Kafka's `Headers.lastHeader`.

`DelayedSnapshot` is the file `delayed-records` of a partition: the records below `covered_offset` that are
not due yet.

    magic "SQDR" | version int16 | covered_offset int64 | header_name int16 bytes, UTF-8
          | holds int32 | (offset int64, until_ms int64) … | records int32 | (due_ms int64, offset int64) …
          | CRC-32C of all before, uint32

All records below `covered_offset` are durable and decided, so no crash makes the file wrong. A start replays
the log after that offset, or the whole log without a readable file.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import struct
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

from seqgate.log.config import LogConfig, LogPlace
from seqgate.log.durability.unflushed import Capture, SideFile, WriteOnly
from seqgate.log.environment import DelayedLimit
from seqgate.log.errors import (
    DelayedLimitReached,
    IncompatibleFormat,
    InvalidRecord,
    UnsupportedCompressionType,
)
from seqgate.log.files.file_names import DELAYED_RECORDS
from seqgate.log.files.storage import DurableFiles, Storage
from seqgate.log.format import compression
from seqgate.log.format.batch_validation import check_countable
from seqgate.log.format.record_batch import HEADER_BYTES, BatchHeader
from seqgate.log.format.records import check_header_count, read_end_marker, read_varint, read_varlong
from seqgate.log.state.transactions import OffsetRanges
from seqgate.seq_validator.checksum import crc32c

_logger = logging.getLogger(__name__)

_MAX_DIGITS: Final = 18
"""Digits of a due time; longer text is none. 18 digits fit an int64 and reach the year 31 million."""
_ATTRIBUTES_BYTES: Final = 1


def parse_due_ms(value: bytes | None) -> int | None:
    """Return the due time in a header's value, in ms since 1970; None when the value holds none."""
    if value is None or not 0 < len(value) <= _MAX_DIGITS or not value.isdigit():
        return None
    return int(value)


def due_values(
    batch: BatchHeader, view: memoryview, name: bytes, limit_bytes: int
) -> list[tuple[int, bytes | None]]:
    """Return (offset_delta, value of the header) of each record of the batch that has the header `name`.
    Others cost next to nothing. Raises InvalidRecord for damage, UnsupportedCompressionType.
    """
    plain = compression.decompress(batch.compression, view[HEADER_BYTES : batch.size_bytes], limit_bytes)
    data = bytes(plain)
    found: list[tuple[int, bytes | None]] = []
    hit = data.find(name)
    position = 0
    last_delta = -1
    headers = 0
    for number in range(batch.record_count):
        if hit < 0:
            break
        size, start = read_varint(plain, position)
        position = start + size
        if size <= 0 or position > len(data):
            raise InvalidRecord(f"a record of {size} bytes does not fit the batch")
        if hit >= position:
            continue
        offset_delta, has_header, value, count = _read(data, plain, start, position, name, number, headers)
        headers += count
        if has_header:
            if not last_delta < offset_delta <= batch.last_offset_delta:
                raise InvalidRecord(
                    f"a record has offset delta {offset_delta}; it must be above {last_delta} and at most "
                    f"{batch.last_offset_delta}"
                )
            last_delta = offset_delta
            found.append((offset_delta, value))
        hit = data.find(name, position)
    return found


def _read(
    data: bytes,
    plain: memoryview,
    start: int,
    end: int,
    name: bytes,
    records_before: int,
    headers_before: int,
) -> tuple[int, bool, bytes | None, int]:
    """Return (offset_delta, whether the header is there, its value, count of all headers) of a record."""
    _, position = read_varlong(plain, start + _ATTRIBUTES_BYTES)
    offset_delta, position = read_varint(plain, position)
    size, position = read_varint(plain, position)  # skip the key next
    size, position = read_varint(plain, position + max(0, size))
    count, position = read_varint(plain, position + max(0, size))
    check_header_count(count, end - start, records_before, headers_before)
    value = None
    has_header = False
    for _ in range(count):
        size, name_start = read_varint(plain, position)
        size_of_value, value_start = read_varint(plain, name_start + max(0, size))
        position = value_start + max(0, size_of_value)
        if size < 0 or position > end:
            raise InvalidRecord("a header has no name, or is longer than the rest of its record")
        if size == len(name) and data.startswith(name, name_start):
            has_header = True
            value = None if size_of_value < 0 else data[value_start:position]
    if position > end:
        raise InvalidRecord("the fields of a record are longer than the record")
    return offset_delta, has_header, value, count


REPLAY_BYTES: Final = 1 << 20
"""Bytes of the log that one read of a replay takes; the next read continues after them."""


NOT_HELD: Final = 2**63 - 1
"""The value of `PartitionLog.held_from` while no records are held."""


class DueTimes(NamedTuple):
    """The due times of a batch's records."""

    later: list[tuple[int, int]]
    """(offset_delta, due_ms) of the records that are due later."""
    undated: int = 0
    """The number of records whose header holds no valid time. Such records are due at once."""


NOTHING_DUE_LATER: Final = DueTimes([])


class Delays:
    """The delayed records of a log whose topic sets `delivery.delay.header`."""

    def __init__(
        self, storage: Storage, place: LogPlace, config: LogConfig, limit: DelayedLimit, loaded_at_ms: int
    ) -> None:
        """Begin without delayed records. A replay takes `loaded_at_ms` for the present time."""
        self.records = DelayedRecords(limit, config.delivery_delay_hold_ms)
        self._storage = storage
        self._place = place
        self._config = config
        self._loaded_at_ms = loaded_at_ms
        self._log_start_offset = 0
        self._path = f"{place.directory}/{DELAYED_RECORDS}"
        self._file = SideFile()
        self._captured: tuple[int, int, int] | None = None
        """A fingerprint of the last capture, to skip an equal one."""

    def apply(self, config: LogConfig) -> None:
        """Take over changed limits of the delay; the header stays the same."""
        self._config = config
        self.records.hold_ms = config.delivery_delay_hold_ms

    # --- judging a batch before it is written

    def judge(self, batch: BatchHeader, view: memoryview, now_ms: int) -> DueTimes:
        """Return which records of a batch are due later. Raises DelayedLimitReached, InvalidRecord,
        UnsupportedCompressionType.
        """
        if batch.is_control:
            return NOTHING_DUE_LATER
        check_countable(batch, self._config)
        found = self._due_times(batch, view, now_ms)
        latest_ms = now_ms + self._config.delivery_delay_max_ms
        for _, due_ms in found.later:
            if due_ms > latest_ms:
                raise InvalidRecord(
                    f"A record is due {due_ms - now_ms} ms from now; "
                    f"delivery.delay.max.ms is {self._config.delivery_delay_max_ms}."
                )
        refusal = self.records.refusal(len(found.later)) if found.later else None
        if refusal is not None:
            raise DelayedLimitReached(f"No more records that are due later can be tracked: {refusal}.")
        return found

    def _due_times(self, batch: BatchHeader, view: memoryview, after_ms: int) -> DueTimes:
        config = self._config
        header = config.delivery_delay_header.encode()
        later = []
        undated = 0
        for offset_delta, value in due_values(batch, view, header, config.max_decompressed_bytes):
            due_ms = parse_due_ms(value)
            if due_ms is None:
                undated += 1
            elif due_ms > after_ms:
                later.append((offset_delta, due_ms))
        return DueTimes(later, undated)

    # --- folding in a written batch

    def fold_in(self, batch: BatchHeader, view: memoryview, due_times: DueTimes) -> None:
        """Track the delayed records of a batch that was written. A marker ends its transaction."""
        if batch.is_control:
            self._end_transaction(batch, view)
            return
        self._log_undated(due_times.undated)
        self._track(batch, due_times, from_offset=0)

    def replay(
        self,
        batch: BatchHeader,
        view: memoryview,
        now_ms: int,  # noqa: ARG002 - part of the port
        high_watermark: int,  # noqa: ARG002
    ) -> None:
        """Fold in a batch read from the log. Records due shortly before the load are still held."""
        if batch.is_control:
            self._end_transaction(batch, view)
            return
        try:
            due_times = self._due_times(batch, view, self._loaded_at_ms - self._config.delivery_delay_hold_ms)
        except (InvalidRecord, UnsupportedCompressionType) as error:
            _logger.warning(
                "%s: the records from %d to %d can't be decoded, they are due at once: %s",
                self._place,
                batch.base_offset,
                batch.last_offset,
                error,
            )
            return
        self._log_undated(due_times.undated)
        self._track(batch, due_times, from_offset=self._log_start_offset)

    def _track(self, batch: BatchHeader, due_times: DueTimes, from_offset: int) -> None:
        transaction_of = batch.producer_id if batch.is_transactional else None
        for offset_delta, due_ms in due_times.later:
            if batch.base_offset + offset_delta >= from_offset:
                self.records.add(batch.base_offset + offset_delta, due_ms, transaction_of)

    def _log_undated(self, undated: int) -> None:
        if undated:
            _logger.warning(
                "%s: the header %s of %d records of a batch holds no time in ms, these records are due at "
                "once",
                self._place,
                self._config.delivery_delay_header,
                undated,
            )

    def _end_transaction(self, batch: BatchHeader, view: memoryview) -> None:
        marker = read_end_marker(view)
        if marker is not None:
            self.records.end_transaction(batch.producer_id, commit=marker.is_commit)

    @property
    def kept_from(self) -> int:
        return self.records.held_from

    def discard_below(self, log_start_offset: int) -> None:
        self._log_start_offset = log_start_offset
        self.records.discard_below(log_start_offset)

    # --- the side file

    def restore(self, log_start_offset: int, log_end_offset: int) -> int:
        """Load the side file. Return the offset to replay from. Raises OSError, IncompatibleFormat."""
        self._log_start_offset = log_start_offset
        snapshot = self._read_snapshot(log_end_offset)
        if snapshot is None:
            return log_start_offset
        waiting = (entry for entry in snapshot.entries if log_start_offset <= entry[1])
        self.records.restore(waiting, snapshot.holds)
        return max(log_start_offset, snapshot.covered_offset)

    def _read_snapshot(self, log_end_offset: int) -> DelayedSnapshot | None:
        if not self._storage.exists(self._path):
            return None
        try:
            snapshot = decode(self._storage.read_file(self._path), self._path)
        except CorruptDelayedSnapshot as error:
            _logger.warning("%s The log is read instead.", error)
            return None
        if snapshot.header_name != self._config.delivery_delay_header:
            return None
        if snapshot.covered_offset > log_end_offset:
            _logger.warning(
                "%s covers offsets up to %d, beyond the log end offset %d. The log is read instead.",
                self._path,
                snapshot.covered_offset,
                log_end_offset,
            )
            self.delete_file()
            return None
        return snapshot

    def delete_file(self) -> None:
        """Delete the side file, so that the next start replays the log; an error is only logged."""
        try:
            self._storage.delete(self._path)
        except OSError as error:
            _logger.warning("%s can't be deleted: %s", self._path, error)

    def unsaved_below(self, offset: int) -> bool:  # noqa: ARG002 - part of the port
        """Return False: a removed record no longer waits, so nothing of it must be saved."""
        return False

    def capture(self, covered_offset: int, log_end_offset: int) -> Capture | None:
        """Capture the records that wait below `covered_offset`, all decided; None when nothing changed."""
        entries = self.records.entries()
        if covered_offset < log_end_offset:
            entries = [entry for entry in entries if entry[1] < covered_offset]
        holds = self.records.holds()
        header = self._config.delivery_delay_header
        state = covered_offset, len(entries), hash((tuple(holds), header))
        if state == self._captured:
            return None
        self._captured = state
        snapshot = DelayedSnapshot(covered_offset, header, holds, entries)
        return WriteOnly(partial(self._write, self._file.next_number(), snapshot))

    def _write(self, number: int, snapshot: DelayedSnapshot, files: DurableFiles) -> None:
        """Persist the side file; any thread may call. An error is only logged: the next start replays more of
        the log.
        """
        try:
            self._file.write(number, lambda: files.replace(self._path, encode(snapshot)))
        except FileNotFoundError:
            raise
        except OSError as error:
            _logger.warning(
                "%s can't be written, the next start reads more of the log: %s", self._path, error
            )

    def close(self) -> None:
        """Release the waiting records' part of the limit, and write no more."""
        self.records.clear()
        self._file.close()


NEVER_DUE: Final = 2**63 - 1
_HOLD_STEPS: Final = 60
"""Steps per `hold_ms`. A due record is held to the end of a step, so one `Hold` covers a step's records."""
_STALE_ALLOWED: Final = 1024
RELEASED_AT_ONCE: Final = 5_000
"""Records released in one call; the rest go with the next, so that many due at once hold up no other work."""
_RELEASES_KEPT: Final = 256
_FEW: Final = 50
"""Offsets up to which discarding one by one is faster than one pass over all ranges."""


class Hold(NamedTuple):
    """A hold: the log is held from `offset` on until `until_ms`."""

    offset: int
    until_ms: int


class DelayedRecords:
    """The records of one partition that are not due. Times are in ms, and come from the caller."""

    def __init__(self, limit: DelayedLimit, hold_ms: int) -> None:
        """Begin with no records. `hold_ms` is the time for which the log is held after a record is due."""
        self._limit = limit
        self.hold_ms = hold_ms
        self._offsets = OffsetRanges()
        self._by_due: list[tuple[int, int]] = []
        """A heap of (due_ms, offset). Some entries are stale: their offsets no longer wait."""
        self._undecided: dict[int, list[int]] = {}
        """The offsets in open transactions, by producer id."""
        self._holds: deque[Hold] = deque()
        self._releases: deque[tuple[int, int]] = deque([(0, 0)], maxlen=_RELEASES_KEPT)
        """(number, lowest offset) of the last releases."""

    def __len__(self) -> int:
        return self._offsets.count

    @property
    def held_from(self) -> int:
        """The offset from which on the log is held; NOT_HELD without delayed records and holds."""
        first = self._offsets.first
        held = min((hold.offset for hold in self._holds), default=NOT_HELD)
        return held if first is None else min(first, held)

    @property
    def next_due_ms(self) -> int:
        """The time at which the next record is due, or a little earlier; NEVER_DUE without records."""
        return self._by_due[0][0] if self._offsets.count else NEVER_DUE

    def first_due(self, offset: int) -> int:
        """Return the first offset from `offset` on that does not wait."""
        return self._offsets.first_outside(offset)

    def released_since(self, mark: int) -> tuple[int, int]:
        """Return the lowest offset released since a mark, at first 0, and the mark for the next call."""
        now = self._releases[-1][0]
        if mark < self._releases[0][0]:
            return 0, now
        lowest = NEVER_DUE
        for number, offset in reversed(self._releases):
            if number <= mark:
                break
            lowest = min(lowest, offset)
        return lowest, now

    def waiting(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Return the ranges of waiting offsets between two offsets, all inclusive."""
        return self._offsets.within(first_offset, last_offset)

    def entries(self) -> list[tuple[int, int]]:
        """Return (due_ms, offset) of all waiting records, unordered."""
        self._forget_stale(allowed=0)
        return self._by_due.copy()

    def holds(self) -> list[Hold]:
        """Return the holds for records that are already due."""
        return list(self._holds)

    def restore(self, entries: Iterable[tuple[int, int]], holds: Iterable[Hold]) -> None:
        """Add the (due_ms, offset) entries and holds of a side file. All entries are decided."""
        for due_ms, offset in sorted(entries, key=itemgetter(1)):
            self.add(offset, due_ms)
        self._holds.extend(sorted(holds, key=lambda hold: hold.until_ms))

    def refusal(self, adding: int) -> str | None:
        """Return why `adding` more records may not be added; None when they may."""
        return self._limit.refusal(self._offsets.count, adding)

    def add(self, offset: int, due_ms: int, transaction_of: int | None = None) -> None:
        """Track a record with the highest offset so far, in the open transaction of a producer or in none."""
        self._offsets.append(offset)
        heapq.heappush(self._by_due, (due_ms, offset))
        self._limit.in_all += 1
        if transaction_of is not None:
            self._undecided.setdefault(transaction_of, []).append(offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """End a producer's transaction. Aborted records neither wait nor hold the log any longer."""
        offsets = self._undecided.pop(producer_id, [])
        if not commit:
            self._discard_all(offsets)
            self._forget_stale()

    def release(self, now_ms: int) -> bool:
        """Release the records that are due, at most RELEASED_AT_ONCE. Return whether any were released."""
        due: list[tuple[int, int]] = []
        while self._by_due and self._by_due[0][0] <= now_ms and len(due) < RELEASED_AT_ONCE:
            due.append(heapq.heappop(self._by_due))
        for due_ms, offset in due if self.hold_ms else ():
            if offset in self._offsets:
                self._hold(offset, due_ms)
        released = self._discard_all([offset for _, offset in due])
        while self._holds and self._holds[0].until_ms <= now_ms:
            self._holds.popleft()
        if released and self._undecided:
            self._forget_decided()
        return released

    def _hold(self, offset: int, due_ms: int) -> None:
        step_ms = max(1, self.hold_ms // _HOLD_STEPS)
        until_ms = min((due_ms // step_ms + 1) * step_ms + self.hold_ms, NEVER_DUE)
        if self._holds and until_ms <= self._holds[-1].until_ms:
            offset, until_ms = min(offset, self._holds[-1].offset), self._holds[-1].until_ms
            self._holds.pop()
        self._holds.append(Hold(offset, until_ms))

    def discard_below(self, offset: int) -> None:
        self._limit.in_all -= self._offsets.discard_below(offset)
        self._forget_stale()
        self._forget_decided()

    def clear(self) -> None:
        self._limit.in_all -= self._offsets.count
        self._offsets = OffsetRanges()
        self._by_due.clear()
        self._undecided.clear()
        self._holds.clear()

    def _discard_all(self, offsets: list[int]) -> bool:
        """Take offsets out of the waiting ones. Return whether any of them was waiting."""
        if len(offsets) > _FEW:
            gone = self._offsets.discard_all(sorted(offsets))
        else:
            gone = sum(map(self._offsets.discard, offsets))
        if not gone:
            return False
        self._limit.in_all -= gone
        self._releases.append((self._releases[-1][0] + 1, min(offsets)))
        return True

    def _forget_stale(self, allowed: int | None = None) -> None:
        """Drop stale heap entries above `allowed`, which by default grows with the waiting records."""
        if allowed is None:
            allowed = self._offsets.count + _STALE_ALLOWED
        if len(self._by_due) > self._offsets.count + allowed:
            self._by_due = [entry for entry in self._by_due if entry[1] in self._offsets]
            heapq.heapify(self._by_due)

    def _forget_decided(self) -> None:
        """Drop released offsets of open transactions above a number that grows with the waiting records."""
        if sum(map(len, self._undecided.values())) <= 2 * self._offsets.count + _STALE_ALLOWED:
            return
        for producer_id, offsets in list(self._undecided.items()):
            left = [offset for offset in offsets if offset in self._offsets]
            if left:
                self._undecided[producer_id] = left
            else:
                del self._undecided[producer_id]


_MAGIC: Final = b"SQDR"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">4shqh")
_COUNT: Final = struct.Struct(">i")
_PAIR: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")


class CorruptDelayedSnapshot(Exception):
    """The file is damaged, so its content can't be trusted."""


class DelayedSnapshot(NamedTuple):
    """The records that wait below `covered_offset`, by the record header `header_name`."""

    covered_offset: int
    header_name: str
    holds: list[Hold]
    entries: list[tuple[int, int]]
    """(due_ms, offset) of the waiting records, unordered."""


def encode(snapshot: DelayedSnapshot) -> bytes:
    name = snapshot.header_name.encode()
    content = bytearray(_HEAD.pack(_MAGIC, _VERSION, snapshot.covered_offset, len(name)))
    content += name
    for pairs in (snapshot.holds, snapshot.entries):
        flat = list(chain.from_iterable(pairs))
        content += struct.pack(f">i{len(flat)}q", len(pairs), *flat)
    return bytes(content + _CRC.pack(crc32c(content)))


def decode(content: bytes, path: str) -> DelayedSnapshot:
    """Return the decoded file. Raises CorruptDelayedSnapshot, IncompatibleFormat with `path`."""
    covered_offset, name_bytes = _head(content, path)
    try:
        position = _HEAD.size + name_bytes
        name = content[_HEAD.size : position].decode()
        holds, position = _pairs(content, position)
        entries, _ = _pairs(content, position)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptDelayedSnapshot(f"{path} is damaged: {error}") from error
    return DelayedSnapshot(covered_offset, name, [Hold(*pair) for pair in holds], entries)


def check_delayed_snapshot(content: bytes, path: str) -> None:
    """Check that this release reads the file's version; a damaged file passes. Raises IncompatibleFormat."""
    with contextlib.suppress(CorruptDelayedSnapshot):
        _head(content, path)


def _head(content: bytes, path: str) -> tuple[int, int]:
    if len(content) < _HEAD.size + _CRC.size or content[:4] != _MAGIC:
        raise CorruptDelayedSnapshot(f"{path} is cut short.")
    if _CRC.unpack_from(content, len(content) - _CRC.size)[0] != crc32c(content[: -_CRC.size]):
        raise CorruptDelayedSnapshot(f"{path} is damaged: its CRC-32C does not fit.")
    _, version, covered_offset, name_bytes = _HEAD.unpack_from(content)
    if version > _VERSION:
        raise IncompatibleFormat(f"{path} has version {version}; this program reads version {_VERSION}.")
    return covered_offset, name_bytes


def _pairs(content: bytes, position: int) -> tuple[list[tuple[int, int]], int]:
    (count,) = _COUNT.unpack_from(content, position)
    position += _COUNT.size
    end = position + max(0, count) * _PAIR.size
    return [_PAIR.unpack_from(content, start) for start in range(position, end, _PAIR.size)], end
