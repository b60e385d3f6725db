"""The cleaning of a log, in a process of its own: what is read, which records stay, and what is written.

`LogCleaner` cleans in two passes: one finds the newest offset of each dirty key, one writes what stays. The
cleaner only reads the log, and writes `*.cleaned` files beside it. The files are durable before they are
reported, and `swap` puts them in place. Memory: the offset map, two buffers, one batch, and the indexes of
one segment. Source: Kafka's `Cleaner.doClean`, `buildOffsetMap`, `cleanSegments`.

`grouped_segments` finds the segments that a cleaning merges into one. Otherwise there would be ever more and
smaller ones. Source: Kafka's `Cleaner.groupSegmentsBySize`, which does not limit the segments in a group.

`main` is the process that cleans logs, apart from the gateway, because decoding records takes long. The
process reads jobs from standard input and writes reports to standard output (see `job`), until the input
ends. It keeps no state, so it can be killed at any time.

`Throttle` limits a cleaning to a number of bytes per second, by sleeping. Source: Kafka's `Throttler`.

`KeptRecords` decides which records stay, batch by batch, from the batch's bytes. A record stays unless a
newer record has the same key. A tombstone (a record without a value) stays until its batch's delete horizon,
which the first cleaning of the batch sets. Aborted records never stay. A transaction marker stays while
batches of its transaction are left, and then until its own horizon. A batch that loses all records stays as
an empty one if its offsets and sequences are needed: as the last batch of a tracked producer, or the last
batch of the cleaning. Source: Kafka's `Cleaner.cleanInto`, `MemoryRecords.filterTo` (KIP-98, KIP-534).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import heapq
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from seqgate.log.compaction.job import (
    CleanedSegment,
    CleaningFailed,
    CleaningFinished,
    CleaningJob,
    CleaningReport,
    JobSegment,
    UnknownJobVersion,
    decode_job,
    encode_report,
)
from seqgate.log.compaction.offset_map import OffsetMap
from seqgate.log.config import ANY_RECORD_BYTES, DEFAULT_DECOMPRESSED_BYTES
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import CorruptRecord, LogError
from seqgate.log.files.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    cleaned_name,
    offset_name,
)
from seqgate.log.files.page_cache import PageRange
from seqgate.log.files.storage import DataFile, Storage
from seqgate.log.format.batch_validation import (
    delete_horizon_ms,
    empty_batch,
    plain_records,
    rewritten_batch,
    stored_records,
)
from seqgate.log.format.record_batch import HEADER_BYTES, BatchHeader, crc_matches, parse_header
from seqgate.log.format.record_walk import PlainRecord
from seqgate.log.format.records import EndMarker, read_end_marker
from seqgate.log.segments.segment import NEVER, Segment
from seqgate.log.segments.transaction_index import ENTRY, AbortedTransaction, TransactionIndex

_SECTION_OF_ONE_WRITE: Final = 256 * 1024


class LogCleaner:
    """Cleans the log of one job, and reports each cleaned segment when it is durable."""

    def __init__(
        self,
        storage: Storage,
        job: CleaningJob,
        *,
        throttle: Throttle,
        salt: bytes,
        report: Callable[[CleanedSegment], None],
    ) -> None:
        """Take the job; `salt` is for the offset map. Raises ValueError without room for a key."""
        self.storage = storage
        self.environment = LogEnvironment(storage)
        self.job = job
        self.throttle = throttle
        self.report = report
        self.map = OffsetMap(job.limits.map_bytes, load_factor=job.limits.map_load_factor, salt=salt)
        self.bytes_read = 0
        self.bytes_kept = 0

    def run(self) -> CleaningFinished:
        """Clean the log. `*.cleaned` files that were written and not reported stay behind after an error.
        Raises CorruptRecord, InvalidRecord, UnsupportedCompressionType if the log can't be cleaned; OSError.
        """
        job = self.job
        try:
            self.fill_map()
            end_offset = self.map.latest_offset + 1
            kept = KeptRecords(
                self.map,
                {producer_id: (last, epoch) for producer_id, last, epoch in job.producers},
                now_ms=job.now_ms,
                delete_retention_ms=job.delete_retention_ms,
                round_end_offset=job.round_end_offset,
                limit_bytes=job.max_decompressed_bytes,
                max_record_bytes=job.max_record_bytes,
            )
            sources = [segment for segment in job.segments if segment.base_offset < end_offset]
            groups = grouped_segments(
                sources,
                self.index_sizes(),
                max_bytes=job.segment_bytes,
                max_index_bytes=job.segment_index_bytes,
            )
            aborted = _Aborted(self.storage, job, job.segments)
            for group in groups:
                self.clean_group(group, kept, aborted)
        finally:
            size = self.map.size
            self.map.close()
        return CleaningFinished(
            clean_end_offset=end_offset,
            keys=size,
            records_read=kept.records_read,
            records_kept=kept.records_kept,
            bytes_read=self.bytes_read,
            bytes_kept=self.bytes_kept,
            keyless_records=kept.keyless_records,
        )

    def index_sizes(self) -> dict[int, int]:
        files = self.storage.list_files(self.job.directory)
        suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        return {
            segment.base_offset: max(
                files.get(offset_name(segment.base_offset, suffix), 0) for suffix in suffixes
            )
            for segment in self.job.segments
        }

    # --- first pass: the newest offset of each key

    def fill_map(self) -> None:
        """Map each key from first_dirty_offset on to its newest offset, until the map is full."""
        dirty = [segment for segment in self.job.segments if segment.end_offset > self.job.first_dirty_offset]
        aborted = _Aborted(self.storage, self.job, dirty)
        transactions = CleanedTransactions()
        self.map.account_for(self.job.first_dirty_offset - 1)
        for segment in dirty:
            transactions.announce(aborted.beginning_in(segment.base_offset, segment.end_offset))
            if not self.fill_map_from(segment, transactions):
                return
            self.map.account_for(segment.end_offset - 1)

    def fill_map_from(self, segment: JobSegment, transactions: CleanedTransactions) -> bool:
        """Map the keys of a segment. Return whether the map had room for all."""
        first_dirty_offset = self.job.first_dirty_offset
        for header, batch in self.batches(segment):
            if header.is_control:
                marker = read_end_marker(batch) if header.record_count else None
                transactions.end(header.producer_id, header.last_offset, marker)
            elif not transactions.is_aborted(
                header.producer_id, header.last_offset, is_transactional=header.is_transactional
            ):
                plain = plain_records(
                    header, batch, self.job.max_decompressed_bytes, self.job.max_record_bytes
                )
                if not self.map.put_all(stored_records(header, plain), first_dirty_offset):
                    return False
            self.map.account_for(header.last_offset)
        return True

    # --- second pass: writing the records that stay

    def clean_group(self, group: list[JobSegment], kept: KeptRecords, aborted: _Aborted) -> None:
        output = _Output(self.storage, self.environment, self.job, group[0].base_offset, self.throttle)
        is_changed = len(group) > 1
        try:
            for source in group:
                kept.transactions.announce(aborted.beginning_in(source.base_offset, source.end_offset))
                for header, batch in self.batches(source):
                    rest = kept.of_batch(header, batch)
                    is_changed = is_changed or rest is not batch
                    if rest is not None:
                        output.append(rest)
            for entry in kept.aborted_kept:
                output.segment.aborts.add(entry)
            kept.aborted_kept.clear()
            if is_changed:
                modified_ms = self.storage.modified_ms(
                    f"{self.job.directory}/{offset_name(group[-1].base_offset, LOG_SUFFIX)}"
                )
                self.report(output.finish([source.base_offset for source in group], modified_ms))
            else:
                output.discard()
        finally:
            output.close()
        self.bytes_kept += output.size_bytes

    def batches(self, segment: JobSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches of a segment, after checking each. Raises CorruptRecord, OSError."""
        path = f"{self.job.directory}/{offset_name(segment.base_offset, LOG_SUFFIX)}"
        file = DataFile(path)
        position, size_bytes = 0, segment.size_bytes
        next_offset = segment.base_offset
        wanted = self.job.limits.read_bytes
        try:
            while position < size_bytes:
                asked = min(wanted, size_bytes - position)
                data = memoryview(self.storage.read(file, asked, position))
                at = 0
                needed = HEADER_BYTES
                while len(data) - at >= HEADER_BYTES:
                    header = parse_header(data, at)
                    needed = header.size_bytes
                    if not _fits(header, next_offset, segment.end_offset):
                        raise CorruptRecord(f"{path} is damaged at position {position + at}")
                    if len(data) - at < needed:
                        break
                    batch = data[at : at + needed]
                    if not crc_matches(header, batch):
                        raise CorruptRecord(
                            f"{path} is damaged at position {position + at}: the CRC is wrong"
                        )
                    yield header, batch
                    next_offset = header.last_offset + 1
                    at += needed
                if len(data) < asked or (not at and needed > size_bytes - position):
                    raise CorruptRecord(f"{path} ends within the batch at position {position + at}")
                wanted = self.job.limits.read_bytes if at else needed
                if at:
                    # Old data must not evict newly written pages from the page cache.
                    self.storage.drop_cached(PageRange(path, position, at))
                position += at
                self.bytes_read += at
                self.throttle.count(at)
        finally:
            self.storage.descriptors.release(file)


def _fits(header: BatchHeader, next_offset: int, end_offset: int) -> bool:
    """Return whether this can be the next batch of a segment, between `next_offset` and `end_offset`."""
    return header.is_plausible and next_offset <= header.base_offset and header.last_offset < end_offset


class _Aborted:
    """The aborted transactions of a log, by their first offsets. The index files are read when needed."""

    def __init__(self, storage: Storage, job: CleaningJob, segments: Sequence[JobSegment]) -> None:
        self.storage = storage
        self.job = job
        self.first_base_offset = segments[0].base_offset if segments else 0
        self.with_index = [segment for segment in segments if segment.has_aborted]
        self.entries: dict[int, list[AbortedTransaction]] = {}

    def beginning_in(self, base_offset: int, end_offset: int) -> Iterator[AbortedTransaction]:
        """Yield the transactions beginning in [base_offset, end_offset), in the first segment also before."""
        start = -1 if base_offset == self.first_base_offset else base_offset
        for passed in [known for known in self.entries if known < base_offset]:
            del self.entries[passed]
        for segment in self.with_index:
            if segment.end_offset <= base_offset:
                continue
            for entry in self.of_segment(segment.base_offset):
                if start <= entry.first_offset < end_offset and entry.last_offset >= base_offset:
                    yield entry
                if entry.last_stable_offset >= end_offset:
                    return
        for entry in self.job.aborted_later:
            if start <= entry.first_offset < end_offset:
                yield entry

    def of_segment(self, base_offset: int) -> list[AbortedTransaction]:
        entries = self.entries.get(base_offset)
        if entries is None:
            name = offset_name(base_offset, TRANSACTION_INDEX_SUFFIX)
            content = self.storage.read_file(f"{self.job.directory}/{name}")
            whole = len(content) - len(content) % ENTRY.size
            entries = list(TransactionIndex(content[:whole]).transactions())
            self.entries[base_offset] = entries
        return entries


class _Output:
    """The cleaned segment that replaces a group of segments."""

    def __init__(
        self,
        storage: Storage,
        environment: LogEnvironment,
        job: CleaningJob,
        base_offset: int,
        throttle: Throttle,
    ) -> None:
        self.storage = storage
        self.durability = environment.durability
        self.job = job
        self.base_offset = base_offset
        self.throttle = throttle
        # This segment only keeps the indexes; the data goes to a file of another name.
        self.segment = Segment(environment, job.directory, base_offset, 0, job.now_ms)
        self.file = DataFile(self.path(LOG_SUFFIX))
        self.pending: list[bytes | memoryview] = []
        self.pending_bytes = 0
        self.written_bytes = 0
        storage.create(self.file)
        storage.descriptors.pin(self.file)

    @property
    def size_bytes(self) -> int:
        return self.segment.size_bytes

    def path(self, suffix: str) -> str:
        return f"{self.job.directory}/{cleaned_name(self.base_offset, suffix, self.job.token)}"

    def append(self, batch: bytes | memoryview) -> None:
        header = parse_header(batch)
        self.segment.appended(header, header.last_offset, self.job.index_interval_bytes)
        # Copy the bytes: the source's buffer is reused for its next part.
        self.pending.append(bytes(batch))
        self.pending_bytes += header.size_bytes
        if self.pending_bytes >= _SECTION_OF_ONE_WRITE:
            self._write()

    def _write(self) -> None:
        content = b"".join(self.pending)
        self.pending.clear()
        self.pending_bytes = 0
        if self.storage.write(self.file, (content,), self.written_bytes) != len(content):
            raise OSError(errno.ENOSPC, "only a part of the bytes was written", self.file.path)
        self.written_bytes += len(content)
        self.throttle.count(len(content))

    def finish(self, sources: list[int], modified_ms: int) -> CleanedSegment:
        """Write the rest and the indexes, make all files durable, and return the cleaned segment."""
        if self.pending:
            self._write()
        self.durability.sync(data=[self.file])
        self.storage.forget_cached(self.file)
        self.storage.set_modified_ms(self.file.path, modified_ms)
        contents = self.segment.index_contents()
        for suffix, content in contents.items():
            self.storage.write_file(self.path(suffix), content)
            self.durability.sync(paths=[self.path(suffix)])
        self.durability.sync(directories=[self.job.directory])
        return CleanedSegment(
            base_offset=self.base_offset,
            sources=sources,
            suffixes=[LOG_SUFFIX, *contents],
            size_bytes=self.size_bytes,
            has_aborted=self.segment.aborts.has_any,
        )

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.storage.delete(self.file.path)

    def close(self) -> None:
        self.storage.descriptors.release(self.file)
        self.storage.descriptors.unpin(self.file)


_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_MAX_SEGMENTS: Final = 100
"""Segments in one group; further ones begin a new group. One step of the event loop removes a whole group."""


def grouped_segments(
    segments: Sequence[JobSegment], index_bytes_of: Mapping[int, int], *, max_bytes: int, max_index_bytes: int
) -> list[list[JobSegment]]:
    """Return groups of neighbours, each small enough for one segment even if the cleaning drops no records.
    `index_bytes_of` are the sizes of the larger index of each segment, by base offset.
    """
    groups: list[list[JobSegment]] = []
    size_bytes = index_bytes = 0
    for segment in segments:
        larger_index_bytes = index_bytes_of[segment.base_offset]
        if (
            groups
            and len(groups[-1]) < _MAX_SEGMENTS
            and size_bytes + segment.size_bytes <= max_bytes
            and index_bytes + larger_index_bytes <= max_index_bytes
            and segment.end_offset - 1 - groups[-1][0].base_offset <= _MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
            size_bytes += segment.size_bytes
            index_bytes += larger_index_bytes
        else:
            groups.append([segment])
            size_bytes, index_bytes = segment.size_bytes, larger_index_bytes
    return groups


_PR_SET_PDEATHSIG: Final = 1
_LENGTH_BYTES: Final = 4
_NICENESS: Final = 10
_SALT_BYTES: Final = 16


def main(parent_id: int) -> None:
    """Serve the process `parent_id`, which started this process, and exit when that process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent_id)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(jobs: BinaryIO, reports: BinaryIO) -> None:

    def send(report: CleaningReport) -> None:
        frame = encode_report(report)
        reports.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)
        reports.flush()

    while length := jobs.read(_LENGTH_BYTES):
        try:
            job = decode_job(jobs.read(int.from_bytes(length, "big")))
        except UnknownJobVersion as error:
            send(CleaningFailed(str(error)))
            continue
        send(_done(job, send))


def _done(job: CleaningJob, send: Callable[[CleaningReport], None]) -> CleaningReport:
    throttle = Throttle(job.limits.bytes_per_s, time.monotonic, time.sleep)
    try:
        salt = secrets.token_bytes(_SALT_BYTES)
        return LogCleaner(Storage(), job, throttle=throttle, salt=salt, report=send).run()
    except (LogError, ValueError) as error:
        return CleaningFailed(f"{type(error).__name__}: {error}", is_corrupt=True)
    except (OSError, MemoryError) as error:
        return CleaningFailed(f"{type(error).__name__}: {error}", is_of_disk=isinstance(error, OSError))


def _die_with(parent_id: int) -> None:
    """Kill this process when its parent ends, on Linux; elsewhere it ends after its present job."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_id:
        raise SystemExit


class Throttle:
    """A limit on bytes per second since it was made; `bytes_per_s` 0 means no limit."""

    __slots__ = ("_bytes_per_s", "_clock", "_done", "_sleep", "_started")

    def __init__(
        self, bytes_per_s: float, clock: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        """Take the limit, a clock in seconds, and a function that sleeps for seconds."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self._done = 0

    def count(self, size_bytes: int) -> None:
        """Count bytes, and sleep if they came faster than the limit."""
        self._done += size_bytes
        if self._bytes_per_s <= 0:
            return
        ahead_s = self._done / self._bytes_per_s - (self._clock() - self._started)
        if ahead_s > 0:
            self._sleep(ahead_s)


class CleanedTransactions:
    """The transactions at one place of a log, while its batches are read in order from the log's start: the
    transactions that are open at this place, and the aborted ones that are announced for later batches.
    Aborted records are dropped, and a marker stays while it has records left. Source: Kafka's
    `CleanedTransactionMetadata` (KIP-98).
    """

    __slots__ = ("_aborted", "_announced", "_committed", "_seen")

    def __init__(self) -> None:
        self._announced: list[AbortedTransaction] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """The producers whose aborted transaction still has batches in the log."""
        self._committed: set[int] = set()

    def announce(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Announce aborted transactions before their first batch comes. Announcing one twice is no error."""
        for transaction in aborted:
            heapq.heappush(self._announced, transaction)

    def is_aborted(self, producer_id: int, last_offset: int, *, is_transactional: bool) -> bool:
        """Take in a batch of records that ends at `last_offset`. Return whether the batch was aborted."""
        self._begin(last_offset)
        if not is_transactional:
            return False
        if producer_id in self._aborted:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def end(
        self, producer_id: int, offset: int, marker: EndMarker | None
    ) -> tuple[bool, AbortedTransaction | None]:
        """Take in a control batch. Return whether its transaction has no batch left, and the entry to keep.

        `marker` is None for a batch that an earlier cleaning emptied. The entry is for the marker's segment.
        """
        self._begin(offset)
        if marker is None:
            return True, None
        if marker.is_commit:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen, None
        transaction = self._aborted.pop(producer_id, None)
        if transaction is not None and producer_id in self._seen:
            self._seen.discard(producer_id)
            return False, transaction
        return True, None

    def _begin(self, offset: int) -> None:
        announced = self._announced
        while announced and announced[0].first_offset <= offset:
            transaction = heapq.heappop(announced)
            if transaction.last_offset >= offset:
                self._aborted.setdefault(transaction.producer_id, transaction)


LastOfProducer = tuple[int, int]
"""(last_offset of the producer's newest batch, -1 if the producer only has a marker; producer_epoch)."""


@dataclass(slots=True)
class KeptRecords:
    """The rules of one cleaning, applied to the batches of a log in order. Times in ms.

    `producers` are the partition's tracked ones. The cleaning ends at `round_end_offset`, exclusive.
    """

    offset_map: OffsetMap
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    round_end_offset: int
    limit_bytes: int = DEFAULT_DECOMPRESSED_BYTES
    max_record_bytes: int = ANY_RECORD_BYTES
    transactions: CleanedTransactions = field(default_factory=CleanedTransactions)
    aborted_kept: list[AbortedTransaction] = field(default_factory=list)
    """The aborted transactions whose markers were kept since the list was last cleared."""
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0

    def of_batch(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """Return `batch` itself if all of it stays, a smaller batch, or None if nothing stays. Raises
        InvalidRecord, UnsupportedCompressionType.
        """
        self.records_read += header.record_count
        horizon_ms = delete_horizon_ms(header)
        is_last = self._is_last_of_producer(header)
        if header.is_control:
            # An emptied control batch has no marker.
            marker = read_end_marker(batch) if header.record_count else None
            is_spent, entry = self.transactions.end(header.producer_id, header.last_offset, marker)
            if entry is not None:
                self.aborted_kept.append(entry)
            # If a producer has no batches left, only its last marker holds the producer epoch.
            is_dropped = is_spent and horizon_ms is not None and horizon_ms <= self.now_ms and not is_last
            if marker is None and header.record_count:
                is_spent = is_dropped = False  # a control record that this version does not know
        else:
            is_spent = is_dropped = self.transactions.is_aborted(
                header.producer_id, header.last_offset, is_transactional=header.is_transactional
            )
        keep_empty = is_last or header.last_offset + 1 == self.round_end_offset
        if is_dropped or not header.record_count:
            return self._emptied(header, batch) if keep_empty else None
        return self._filtered(header, batch, horizon_ms, is_spent and header.is_control, keep_empty)

    def _filtered(
        self,
        header: BatchHeader,
        batch: memoryview,
        horizon_ms: int | None,
        is_spent_marker: bool,
        keep_empty: bool,
    ) -> bytes | memoryview | None:
        plain = plain_records(header, batch, self.limit_bytes, self.max_record_bytes)
        has_tombstone = False
        kept: list[PlainRecord] = []
        for record in stored_records(header, plain):
            if header.is_control or self._stays(record, horizon_ms):
                kept.append(record)
                has_tombstone = has_tombstone or not record.has_value
        if not kept:
            return self._emptied(header, batch) if keep_empty else None
        self.records_kept += len(kept)
        if (has_tombstone or is_spent_marker) and horizon_ms is None:
            new_horizon_ms = min(self.now_ms + self.delete_retention_ms, NEVER)
            return rewritten_batch(header, plain, kept, new_horizon_ms=new_horizon_ms)
        if len(kept) == header.record_count:
            return batch
        return rewritten_batch(header, plain, kept)

    def _stays(self, record: PlainRecord, horizon_ms: int | None) -> bool:
        if record.offset > self.offset_map.latest_offset:
            return True
        if record.key is None:
            self.keyless_records += 1
            return False
        if record.offset < self.offset_map.get(record.key):
            return False
        return record.has_value or horizon_ms is None or self.now_ms < horizon_ms

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_offset, producer_epoch = last
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == producer_epoch

    @staticmethod
    def _emptied(header: BatchHeader, batch: memoryview) -> bytes | memoryview:
        return empty_batch(header) if header.record_count else batch
