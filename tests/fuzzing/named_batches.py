"""Batches of records with producer names: an input is a byte of choices and up to four batches, one after the
other.

The fast search for name headers must find the same as a plain reading of every record, whatever batch came
before. A deduplicating log then gets each batch twice, is stopped or killed, and gets all batches again from
another producer. It must store and remember exactly what a plain model of names says, and nothing twice.
"""

from __future__ import annotations

import struct
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from seqgate.log import InvalidRecord, LogConfig, LogError, PartitionLog, Storage
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import NameLimitReached, NamesNotReady
from seqgate.log.format.batch_validation import check_batch
from seqgate.log.format.named_records import NameHeaders, named_records
from seqgate.log.format.record_batch import TRANSACTIONAL_FLAG, BatchHeader, whole_batches
from seqgate.log.format.records import Record, iterate_records
from seqgate.log.segments.scan import Appended
from seqgate.seq_validator.names import NO_PRODUCER, NameBudget, NamedRecord
from tests.faults.simulated_disk import SimulatedDisk
from tests.fuzzing.composed_names import (
    EPOCH,
    MAX_NAMES,
    NAME,
    NOW_MS,
    SEQUENCE,
    batches_of,
    mutated,
    sealed,
    seeds,
)
from tests.fuzzing.plain_names import HalfNamed, PlainNames, plain_name, plain_records
from tests.fuzzing.target import Breach, Run
from tests.log.support import append_end_marker, flush, persist, read_log
from tests.models.names import Judged

__all__ = ["BASE_WORK", "MAX_INPUT_BYTES", "PEAK_BYTES", "mutated", "opened", "seeds"]

MAX_INPUT_BYTES = 4096
PEAK_BYTES = 32 << 20
BASE_WORK = 400.0
DIRECTORY = "/data/named-0"
CONFIG = LogConfig(
    segment_bytes=1 << 20,
    max_decompressed_bytes=64 << 10,
    max_decoded_records=500,
    deduplicates=True,
    deduplication_names_max=MAX_NAMES,
    deduplication_name_max_bytes=20,
)
KILLED, COMMITTED = 1, 2
"""Bits of the input's first byte: kill the log instead of stopping it; commit open transactions."""
_REFUSED_FOR_ITS_PRODUCER = {45, 47, 48, 52, 89}
"""Error codes that are found before the log reads names."""


@contextmanager
def opened() -> Iterator[Run]:
    yield feed


def feed(data: bytes) -> None:
    choices = data[0] if data else 0
    batches = [_Sent(batch) for batch in batches_of(data[1:])]
    headers = _name_headers()
    for sent in batches:
        sent.check_reading(headers)
    life = _Life(is_killed=bool(choices & KILLED), commits=bool(choices & COMMITTED))
    life.live([sent for sent in batches if sent.is_sound])
    life.end([sent for sent in batches if not sent.is_sound])


def _name_headers() -> NameHeaders:
    return NameHeaders(NAME, SEQUENCE, EPOCH, CONFIG.deduplication_name_max_bytes)


class _Sent:
    """A batch as it was sent, and its records as a plain reader decodes them."""

    def __init__(self, batch: bytes) -> None:
        self.bytes = batch
        self.header = _header(batch)
        self.records: list[Record] | None = None
        self.named: list[NamedRecord] = []
        self.is_half_named = False
        if self.header is None or self.header.record_count > CONFIG.max_decoded_records:
            return
        try:
            self.records = plain_records(batch, CONFIG)
        except LogError:
            return
        for record in self.records:
            try:
                named = plain_name(record, CONFIG)
            except HalfNamed:
                self.is_half_named = True
            else:
                self.named += [] if named is None else [named]

    @property
    def is_sound(self) -> bool:
        """Return whether the outcome of the batch is certain.

        The outcome is open if the batch can't be read, or if no Produce request can bring it to a log.
        """
        if self.header is None:
            return True
        is_of_nobody = self.header.is_transactional and self.header.producer_id < 0
        return self.records is not None and not is_of_nobody

    @property
    def transaction_of(self) -> int:
        assert self.header is not None
        return self.header.producer_id if self.header.is_transactional else NO_PRODUCER

    def check_reading(self, used: NameHeaders) -> None:
        """Read the batch twice, with and without the header layout of an earlier batch."""
        if self.header is None or self.header.record_count > CONFIG.max_decoded_records:
            return
        for headers in (used, _name_headers()):
            for is_strict in (True, False):
                self._check_reading(self.header, headers, is_strict=is_strict)

    def _check_reading(self, header: BatchHeader, headers: NameHeaders, *, is_strict: bool) -> None:
        try:
            found = named_records(
                header, memoryview(self.bytes), headers, CONFIG.max_decompressed_bytes, is_strict=is_strict
            )
        except LogError as error:
            if self.records is not None and not (is_strict and self.is_half_named):
                raise Breach(f"the names can't be read, although the records can: {error}") from error
            return
        if self.records is None:
            return
        if is_strict and self.is_half_named:
            raise Breach("a record with only a part of its name headers is accepted")
        if found != self.named:
            raise Breach(f"the names of the records are {self.named}, but {found} were found")

    def by_another(self) -> _Sent:
        """Return the same records from a producer without an id."""
        batch = bytearray(self.bytes)
        batch[22] &= ~TRANSACTIONAL_FLAG
        struct.pack_into(">qhi", batch, 43, -1, -1, -1)
        return _Sent(sealed(bytes(batch)))


def _header(batch: bytes) -> BatchHeader | None:
    """Return the batch's header, or None if the batch is refused before its records are decoded."""
    try:
        return check_batch(memoryview(batch), CONFIG, NOW_MS, is_client=True)
    except LogError:
        return None


class _Life:
    """A log, and the contents that it must have."""

    def __init__(self, *, is_killed: bool, commits: bool) -> None:
        self._is_killed = is_killed
        self._commits = commits
        self._disk = SimulatedDisk()
        self._disk.provide_directory(DIRECTORY)
        self._log = self._opened()
        self._names = PlainNames(MAX_NAMES)
        self._stored: dict[int, list[Record]] = {}
        """The records of each batch, by its base offset."""
        self._is_whole = False
        """Whether the log has learned since its start that the topic has no other partitions."""
        self._epochs: Counter[int] = Counter()
        """The newest producer epoch of each producer id."""

    def live(self, batches: Sequence[_Sent]) -> None:
        for sent in batches:
            self._append(sent)
            self._append(sent)
        self._flush()
        for producer in self._names.open_transactions():
            append_end_marker(
                self._log,
                producer,
                self._epochs[producer],
                commit=self._commits,
                coordinator_epoch=0,
                now_ms=NOW_MS,
            )
            self._names.end_transaction(producer, commit=self._commits)
        self._flush()
        self._check()
        self._start_again()
        self._check()
        for again in [sent.by_another() for sent in batches]:
            if again.is_sound:
                self._append(again)
        self._flush()
        self._check()

    def end(self, batches: Sequence[_Sent]) -> None:
        """Append an unreadable batch, and restart with it."""
        for sent in batches:
            with suppress(LogError):
                self._log.append(sent.bytes, now_ms=NOW_MS)
        if batches:
            self._flush()
            self._start_again()

    def _append(self, sent: _Sent) -> None:
        """Append. Try again after a new name epoch had to be persisted, or after the other partitions (there
        are none) had to be read.
        """
        judged = self._judged(sent)
        log_end_offset = self._log.log_end_offset
        try:
            info = self._log.append(sent.bytes, now_ms=NOW_MS)
        except NamesNotReady:
            if isinstance(judged, Judged) and self._names.raised(judged):
                self._names.raise_epochs(judged)
                self._log.capture_names()
                self._flush()
            elif judged is NameLimitReached and not self._is_whole:
                self._log.record_states.note_whole_topic()
                self._is_whole = True
            else:
                raise
            self._append(sent)
        except LogError as error:
            is_for_its_names = isinstance(judged, type) and isinstance(error, judged)
            is_for_its_producer = error.kafka_error_code in _REFUSED_FOR_ITS_PRODUCER
            if sent.header is not None and not is_for_its_names and not is_for_its_producer:
                raise Breach(f"a batch that must be {judged} is refused: {error!r}") from error
        else:
            self._take(sent, judged, info, log_end_offset)

    def _judged(self, sent: _Sent) -> Judged[bytes] | type[LogError]:
        if sent.header is None or sent.is_half_named:
            return InvalidRecord
        return self._names.judge(sent.named, sent.transaction_of)

    def _take(
        self, sent: _Sent, judged: Judged[bytes] | type[LogError], info: Appended, log_end_offset: int
    ) -> None:
        if sent.header is None:
            return
        if info.is_duplicate and info.has_offsets:
            return  # this producer has sent this batch before
        if not isinstance(judged, Judged):
            raise Breach(f"a batch is accepted that must be refused with {judged.__name__}")
        if self._names.raised(judged):
            raise Breach("a new name epoch is acknowledged that is neither in a record nor persisted")
        self._names.take(judged)
        self._epochs[sent.header.producer_id] = sent.header.producer_epoch
        self._check_answer(sent, judged, info, log_end_offset)

    def _check_answer(self, sent: _Sent, judged: Judged[bytes], info: Appended, log_end_offset: int) -> None:
        assert sent.header is not None
        assert sent.records is not None
        stored = [record for record in sent.records if record.offset not in judged.duplicates]
        if not stored and sent.header.producer_id < 0:
            if not info.is_duplicate or self._log.log_end_offset != log_end_offset:
                raise Breach(f"a batch of duplicates is answered with {info}")
            if info.answer_after >= log_end_offset:
                raise Breach(
                    f"a batch of duplicates waits for the offset {info.answer_after}, which does not exist"
                )
            return
        if info.is_duplicate or info.base_offset != log_end_offset:
            raise Breach(f"a batch with new records is answered with {info}")
        self._stored[info.base_offset] = [
            record._replace(offset=info.base_offset + record.offset) for record in stored
        ]

    def _start_again(self) -> None:
        if self._is_killed:
            self._disk.kill()
        else:
            self._log.close(clean=True)
        self._log = self._opened()
        self._is_whole = False
        while not self._log.record_states.replay_names(1, NOW_MS):
            pass
        self._log.advance_high_watermark(self._log.log_end_offset)

    def _opened(self) -> PartitionLog:
        environment = LogEnvironment(
            Storage(disk=self._disk.process()), name_budget=NameBudget(min_idle_ms=1_000)
        )
        log = PartitionLog(
            environment,
            DIRECTORY,
            topic="named",
            partition=0,
            topic_id=uuid.UUID(int=7),
            config=CONFIG,
            now_ms=NOW_MS,
        )
        flush(log)  # as a gateway does: it persists the offset from which names are tracked
        return log

    def _flush(self) -> None:
        ticket = self._log.prepare_flush()
        if ticket is not None:
            persist(ticket)
            self._log.complete_flush(ticket)
        self._log.advance_high_watermark(self._log.log_end_offset)

    def _check(self) -> None:
        """Check that the log stores and remembers exactly what it must."""
        told = {
            state.name: (state.persisted_sequence, state.pushed_sequence, state.epoch, state.is_pending)
            for state in self._log.record_states.name_states()
        }
        wanted = {
            name: (known.highest, known.highest, known.epoch, bool(known.held))
            for name, known in self._names.names.items()
        }
        if told != wanted:
            raise Breach(f"the log remembers {told} instead of {wanted}")
        end = self._log.log_end_offset
        data = memoryview(read_log(self._log, 0, 16 << 20, upper_bound=end)) if end else memoryview(b"")
        seen: set[tuple[bytes, int]] = set()
        for position, header in whole_batches(data):
            if not header.is_control:
                records = list(iterate_records(data[position : position + header.size_bytes]))
                if [_content(record) for record in records] != [
                    _content(record) for record in self._stored.get(header.base_offset, ())
                ]:
                    raise Breach(f"the batch at offset {header.base_offset} has other records")
                if self._commits or not header.is_transactional:
                    _note(seen, records)


def _content(record: Record) -> Record:
    """Return a record's contents without its timestamp, which the topic's configuration may change."""
    return record._replace(timestamp=0)


def _note(seen: set[tuple[bytes, int]], records: Sequence[Record]) -> None:
    for record in records:
        named = plain_name(record, CONFIG)
        if named is not None:
            if (named.name, named.sequence_id) in seen:
                raise Breach(f"{named} is stored twice")
            seen.add((named.name, named.sequence_id))
