"""A slow and plain model of producer names: it reads the names of records, and says what a log must store."""

from __future__ import annotations

from collections.abc import Sequence

from seqgate.log import InvalidRecord, LogConfig, LogError
from seqgate.log.errors import NameFenced, NameLimitReached, NameUndecided
from seqgate.log.format.record_batch import parse_header
from seqgate.log.format.records import Record, iterate_records
from seqgate.seq_validator.names import MAX_SEQUENCE_ID, NO_NAME_EPOCH, NamedRecord
from tests.models.names import Claim, Judged, NameState, Refusal, judge

MOST_DIGITS = 19
REFUSALS: dict[Refusal, type[LogError]] = {Refusal.UNDECIDED: NameUndecided, Refusal.FENCED: NameFenced}


class HalfNamed(Exception):
    """A record has only some of its name headers, or impossible values."""


def plain_records(batch: bytes, config: LogConfig) -> list[Record]:
    """Return all records of a batch, with offsets from 0 on. Raises LogError."""
    header = parse_header(batch)
    found = []
    last_offset = -1
    for record in iterate_records(batch, limit_bytes=config.max_decompressed_bytes):
        offset = record.offset - header.base_offset
        if not last_offset < offset <= header.last_offset_delta:
            raise InvalidRecord("the offsets of the records don't match the header")
        last_offset = offset
        found.append(record._replace(offset=offset))
    return found


def plain_name(record: Record, config: LogConfig) -> NamedRecord | None:
    """Return the name, sequence id and epoch of a record; None without name headers. Raises HalfNamed."""
    said = dict(record.headers)
    name = said.get(config.deduplication_name_header, b"")
    sequence = said.get(config.deduplication_sequence_header, b"")
    if {config.deduplication_name_header, config.deduplication_sequence_header}.isdisjoint(said):
        return None
    epoch = NO_NAME_EPOCH
    if config.deduplication_epoch_header in said:
        epoch = _number(said[config.deduplication_epoch_header])
    if name is None or not 1 <= len(name) <= config.deduplication_name_max_bytes:
        raise HalfNamed
    return NamedRecord(record.offset, name, _number(sequence), epoch)


def _number(text: bytes | None) -> int:
    if text is None or len(text) > MOST_DIGITS or not text.isdigit() or int(text) > MAX_SEQUENCE_ID:
        raise HalfNamed
    return int(text)


class PlainNames:
    """All names of one partition, up to a limit."""

    def __init__(self, max_names: int) -> None:
        self.names: dict[bytes, NameState] = {}
        self._max_names = max_names

    def judge(self, records: Sequence[NamedRecord], transaction_of: int) -> Judged[bytes] | type[LogError]:
        """Return the outcome of a batch with these records, or the error that refuses it."""
        claims = [Claim(record.position, record.name, record.sequence_id, record.epoch) for record in records]
        judged = judge(self.names, claims, transaction_of)
        if isinstance(judged, Refusal):
            return REFUSALS[judged]
        newcomers = judged.names.keys() - self.names.keys()
        if newcomers and len(self.names) + len(newcomers) > self._max_names:
            return NameLimitReached
        return judged

    def raised(self, judged: Judged[bytes]) -> dict[bytes, int]:
        """Return the new name epochs that no stored record holds; they must be persisted before the batch is
        accepted.
        """
        return {
            name: judged.names[name].epoch
            for name in judged.repeated
            if judged.names[name].epoch > self.names[name].epoch
        }

    def take(self, judged: Judged[bytes]) -> None:
        """Accept the batch."""
        self.names.update(judged.names)

    def raise_epochs(self, judged: Judged[bytes]) -> None:
        """Refuse the batch until its name epochs are persisted; they count at once."""
        for name, epoch in self.raised(judged).items():
            self.names[name].epoch = epoch

    def open_transactions(self) -> list[int]:
        """Return the producers with pending names."""
        return sorted({producer for name in self.names.values() for producer in name.held})

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """End a producer's transaction: its pending sequence ids count from now on, or never."""
        for name in self.names.values():
            name.decide(producer, commit=commit)
