"""Producer names as their description has them: what records say of themselves, and what is stored of them.

Slow and plain, to be held against what the log does.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from log import InvalidRecord, LogConfig, LogError
from log.errors import NameFenced, NameLimitReached, NameUndecided
from log.format.record_batch import parse_header
from log.format.records import Record, iterate_records
from seq_validator.names import MAX_SEQUENCE_ID, NO_NAME_EPOCH, NO_PRODUCER, NO_SEQUENCE_ID, NamedRecord

MOST_DIGITS = 19


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


@dataclass
class _Name:
    """One name. What open transactions hold is told by producer id."""

    highest: int = NO_SEQUENCE_ID
    epoch: int = NO_NAME_EPOCH
    held: dict[int, int] = field(default_factory=dict)


@dataclass
class Judged:
    """What is to become of a batch: at which offsets its duplicates are, and what is known of its names then.

    `raised` are the new epochs of names of which it has nothing else that is new: they are written down first.
    """

    duplicates: set[int]
    names: dict[bytes, _Name]
    raised: dict[bytes, int]


class PlainNames:
    """All names of one partition."""

    def __init__(self, max_names: int) -> None:
        self.names: dict[bytes, _Name] = {}
        self._max_names = max_names

    def judge(self, records: Sequence[NamedRecord], transaction_of: int) -> Judged | type[LogError]:
        """What is to become of a batch with these records; with what it is refused, otherwise."""
        duplicates: set[int] = set()
        touched: dict[bytes, _Name] = {}
        stored_epochs: dict[bytes, int] = {}
        for record in records:
            known = touched.get(record.name)
            if known is None:
                known = touched[record.name] = deepcopy(self.names.get(record.name, _Name()))
                if known.held.keys() - {transaction_of}:
                    return NameUndecided
            if record.epoch < known.epoch:
                return NameFenced
            known.epoch = record.epoch
            if record.sequence_id <= max(known.highest, known.held.get(transaction_of, NO_SEQUENCE_ID)):
                duplicates.add(record.position)
                continue
            stored_epochs[record.name] = record.epoch
            if transaction_of == NO_PRODUCER:
                known.highest = record.sequence_id
            else:
                known.held[transaction_of] = record.sequence_id
        if len(self.names.keys() | touched.keys()) > self._max_names and touched.keys() - self.names.keys():
            return NameLimitReached
        raised = {
            name: known.epoch
            for name, known in touched.items()
            if name not in stored_epochs and known.epoch > self.names[name].epoch
        }
        for name, epoch in stored_epochs.items():
            touched[name].epoch = epoch
        return Judged(duplicates, touched, raised)

    def take(self, judged: Judged) -> None:
        """The batch was taken."""
        self.names.update(judged.names)

    def raise_epochs(self, judged: Judged) -> None:
        """The batch was refused until its epochs are written down; they hold at once."""
        for name, epoch in judged.raised.items():
            self.names[name].epoch = epoch

    def open_transactions(self) -> list[int]:
        """The producers that hold names."""
        return sorted({producer for name in self.names.values() for producer in name.held})

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """What a producer holds counts from now on, or never."""
        for name in self.names.values():
            held = name.held.pop(producer, NO_SEQUENCE_ID)
            if commit:
                name.highest = max(name.highest, held)
