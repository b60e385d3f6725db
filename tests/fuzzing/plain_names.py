"""Producer names as their description has them: what records say of themselves, and what is stored of them.

Slow and plain, to be held against what the log does.
"""

from __future__ import annotations

from collections.abc import Sequence

from log import InvalidRecord, LogConfig, LogError
from log.errors import NameFenced, NameLimitReached, NameUndecided
from log.format.record_batch import parse_header
from log.format.records import Record, iterate_records
from seq_validator.names import MAX_SEQUENCE_ID, NO_NAME_EPOCH, NamedRecord
from tests.models.names import Claim, Judged, NameState, Refusal, judge

MOST_DIGITS = 19
REFUSALS: dict[Refusal, type[LogError]] = {Refusal.UNDECIDED: NameUndecided, Refusal.FENCED: NameFenced}


class HalfNamed(Exception):
    """A record says only a part of what it should, or what can't be."""


def plain_records(batch: bytes, config: LogConfig) -> list[Record]:
    """All records of a batch, with offsets from 0 on. Raises LogError."""
    header = parse_header(batch)
    found = []
    last_offset = -1
    for record in iterate_records(batch, limit_bytes=config.max_decompressed_bytes):
        offset = record.offset - header.base_offset
        if not last_offset < offset <= header.last_offset_delta:
            raise InvalidRecord("the offsets of the records don't fit")
        last_offset = offset
        found.append(record._replace(offset=offset))
    return found


def plain_name(record: Record, config: LogConfig) -> NamedRecord | None:
    """What a record says of itself; None where it says nothing. Raises HalfNamed."""
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
    """All names of one partition, of which it may remember so many."""

    def __init__(self, max_names: int) -> None:
        self.names: dict[bytes, NameState] = {}
        self._max_names = max_names

    def judge(self, records: Sequence[NamedRecord], transaction_of: int) -> Judged[bytes] | type[LogError]:
        """Return what is to become of a batch with these records, or the error with which it is refused."""
        claims = [Claim(record.position, record.name, record.sequence_id, record.epoch) for record in records]
        judged = judge(self.names, claims, transaction_of)
        if isinstance(judged, Refusal):
            return REFUSALS[judged]
        newcomers = judged.names.keys() - self.names.keys()
        if newcomers and len(self.names) + len(newcomers) > self._max_names:
            return NameLimitReached
        return judged

    def raised(self, judged: Judged[bytes]) -> dict[bytes, int]:
        """Return the new epochs that no stored record tells: they are written down before the batch is taken."""
        return {
            name: judged.names[name].epoch
            for name in judged.repeated
            if judged.names[name].epoch > self.names[name].epoch
        }

    def take(self, judged: Judged[bytes]) -> None:
        """Take the batch."""
        self.names.update(judged.names)

    def raise_epochs(self, judged: Judged[bytes]) -> None:
        """Refuse the batch until its epochs are written down; they hold at once."""
        for name, epoch in self.raised(judged).items():
            self.names[name].epoch = epoch

    def open_transactions(self) -> list[int]:
        """The producers that hold names."""
        return sorted({producer for name in self.names.values() for producer in name.held})

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """Count what a producer holds from now on, or never."""
        for name in self.names.values():
            name.decide(producer, commit=commit)
