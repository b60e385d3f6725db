"""Cleans one log in two passes: one over the dirty section for the newest offset of each key, one that writes what stays.

The cleaner only reads the log, and writes `*.cleaned` files beside it. The files are durable before they are reported, and `swap`
puts them in place. Memory: the offset map, two buffers, one batch, and the indexes of one segment.
Source: Kafka's `Cleaner.doClean`, `buildOffsetMap`, `cleanSegments`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from log.compaction.cleaned_transactions import CleanedTransactions
from log.compaction.job import CleanedSegment, CleaningFinished
from log.compaction.kept_records import KeptRecords
from log.compaction.offset_map import OffsetMap
from log.compaction.segment_groups import SourceSegment, grouped_segments
from log.environment import LogEnvironment
from log.errors import CorruptRecord
from log.files.data_file import DataFile, Place
from log.files.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    cleaned_name,
    offset_name,
)
from log.format.batch_rewriting import plain_records, stored_records
from log.format.end_marker import read_end_marker
from log.format.record_batch import HEADER_BYTES, crc_matches, parse_header
from log.segments.segment import Segment
from log.segments.transaction_index import ENTRY, AbortedTransaction

if TYPE_CHECKING:
    from log.compaction.job import CleaningJob, JobSegment
    from log.compaction.throttle import Throttle
    from log.files.storage import Storage
    from log.format.record_batch import BatchHeader

_SECTION_OF_ONE_WRITE: Final = 256 * 1024


def clean(
    storage: Storage,
    job: CleaningJob,
    *,
    throttle: Throttle,
    salt: bytes,
    report: Callable[[CleanedSegment], None],
) -> CleaningFinished:
    """Clean the log of the job, and report each cleaned segment when it is durable. `salt` is for the offset map.

    Raises CorruptRecord, InvalidRecord, UnsupportedCompressionType when the log can't be cleaned, ValueError without
    room for a key, OSError. `*.cleaned` files that were written and not reported then stay behind.
    """
    return _Cleaner(storage, job, throttle, salt, report).run()


class _Cleaner:
    def __init__(
        self,
        storage: Storage,
        job: CleaningJob,
        throttle: Throttle,
        salt: bytes,
        report: Callable[[CleanedSegment], None],
    ) -> None:
        self.storage = storage
        self.environment = LogEnvironment(storage)
        self.job = job
        self.throttle = throttle
        self.report = report
        self.map = OffsetMap(job.limits.map_bytes, load_factor=job.limits.map_load_factor, salt=salt)
        self.bytes_read = 0
        self.bytes_kept = 0

    def run(self) -> CleaningFinished:
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
            )
            index_bytes = self.index_sizes()
            sources = [
                SourceSegment(
                    segment.base_offset,
                    segment.end_offset,
                    segment.size_bytes,
                    index_bytes[segment.base_offset],
                )
                for segment in job.segments
                if segment.base_offset < end_offset
            ]
            groups = grouped_segments(
                sources, max_bytes=job.segment_bytes, max_index_bytes=job.segment_index_bytes
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
        put = self.map.put
        for header, batch in self.batches(segment):
            if header.is_control:
                marker = read_end_marker(batch) if header.record_count else None
                transactions.end(header.producer_id, header.last_offset, marker)
            elif not transactions.is_aborted(
                header.producer_id, header.last_offset, is_transactional=header.is_transactional
            ):
                plain = plain_records(header, batch, self.job.max_decompressed_bytes)
                for record in stored_records(header, plain):
                    if (
                        record.key is not None
                        and record.offset >= first_dirty_offset
                        and not put(record.key, record.offset)
                    ):
                        self.map.account_for(record.offset - 1)
                        return False
            self.map.account_for(header.last_offset)
        return True

    # --- second pass: writing the records that stay

    def clean_group(self, group: list[SourceSegment], kept: KeptRecords, aborted: _Aborted) -> None:
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
            output.note_aborted(kept.aborted_kept)
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

    def batches(self, segment: JobSegment | SourceSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
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
                    self.storage.drop_cached(Place(path, position, at))
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
        """Yield the transactions that begin in [base_offset, end_offset); for the first segment also earlier ones."""
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
            entries = self.entries[base_offset] = [
                AbortedTransaction(first, producer_id, last, stable)
                for _, producer_id, first, last, stable in ENTRY.iter_unpack(content[:whole])
            ]
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

    def note_aborted(self, entries: Sequence[AbortedTransaction]) -> None:
        for entry in entries:
            self.segment.aborts.add(entry)

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
