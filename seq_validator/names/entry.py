"""The state of one producer name in one partition.

A snapshot of names, whose numbers are all big-endian:

    magic "SQNM" | version int16 | log_end_offset int64 | names int32 | entry … | CRC-32C of all before,
    uint32 entry: name int16 bytes | sequence_id int64 | epoch int64 | offset int64 | last_active_ms int64
           | open transactions int32 | (producer_id int64, sequence_id int64) …

Entries are ordered longest idle first.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec

from seqgate.seq_validator.checksum import CRC_BYTES, HEAD_BYTES, Envelope
from seqgate.seq_validator.entry import NO_OFFSET, Activity

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from seqgate.seq_validator.names.table import WrittenName

NO_SEQUENCE_ID = -1
NO_NAME_EPOCH = -1
MAX_SEQUENCE_ID = 2**63 - 1


class NamedRecord(NamedTuple):
    """The name, sequence id and name epoch in the headers of one record.

    `position` is the record's offset_delta in its batch. `epoch` is NO_NAME_EPOCH without a name epoch.
    """

    position: int
    name: bytes
    sequence_id: int
    epoch: int


class NameState(NamedTuple):
    """The state of one name, for readers: its highest sequence ids, -1 without one.

    The pushed sequence id is written; in a transaction, the marker is written too. The persisted sequence id
    is below the high watermark as well. `offset` is the offset of the pushed record, or of the marker that
    committed the record. `is_pending` is True when an open transaction holds further records of the name.
    `dropped_records` counts the records that were acknowledged and not stored since the table began to
    track the name; -1 when the number is unknown.
    """

    name: bytes
    persisted_sequence: int
    pushed_sequence: int
    epoch: int
    offset: int
    last_active_ms: int
    is_pending: bool
    dropped_records: int = -1


class NameEntry(Activity):
    """One name of one partition.

    An entry keeps three marks of (sequence id, offset): the pushed mark; the awaited mark, which was the
    pushed mark when the persisted mark last moved; and the persisted mark, which needs no offset. Each mark
    is at or above the next. Three marks are enough to report a persisted sequence id, however many batches
    are written before the first is flushed.
    """

    __slots__ = (
        "_awaited_offset",
        "_awaited_sequence",
        "_persisted_sequence",
        "dropped_records",
        "epoch",
        "name",
        "offset",
        "open_sequences",
        "sequence_id",
    )

    def __init__(self, name: bytes, last_active_ms: int) -> None:
        self.name = name
        self.last_active_ms = last_active_ms
        self.epoch = NO_NAME_EPOCH
        self.sequence_id = NO_SEQUENCE_ID
        self.offset = NO_OFFSET
        self._awaited_sequence = NO_SEQUENCE_ID
        self._awaited_offset = NO_OFFSET
        self._persisted_sequence = NO_SEQUENCE_ID
        self.dropped_records = 0
        self.open_sequences: dict[int, int] = {}
        """The highest sequence id in the open transaction of a producer, by producer id."""

    def push(self, sequence_id: int, offset: int, high_watermark: int) -> None:
        """Raise the pushed mark to `sequence_id`, with its record's or marker's offset; never lower it."""
        if sequence_id <= self.sequence_id:
            return
        if self._awaited_offset < high_watermark:
            self._persisted_sequence = self._awaited_sequence
            self._awaited_sequence, self._awaited_offset = self.sequence_id, self.offset
        self.sequence_id, self.offset = sequence_id, offset

    def persisted_sequence(self, high_watermark: int) -> int:
        """Return the highest sequence id that is known to be persisted. The result lags behind the pushed
        sequence id while records wait for their flush, and then reaches it.
        """
        if self.offset < high_watermark:
            return self.sequence_id
        if self._awaited_offset < high_watermark:
            return self._awaited_sequence
        return self._persisted_sequence

    def offset_to_wait_for(self, sequence_id: int, high_watermark: int) -> int:
        """Return the offset to persist before a pushed sequence id is persisted; NO_OFFSET if it is."""
        if sequence_id <= self.persisted_sequence(high_watermark):
            return NO_OFFSET
        return self._awaited_offset if sequence_id <= self._awaited_sequence else self.offset

    def restore(self, sequence_id: int, offset: int, epoch: int) -> None:
        """Take over the values of a snapshot, all of them persisted."""
        self.sequence_id = self._awaited_sequence = self._persisted_sequence = sequence_id
        self.offset = self._awaited_offset = offset
        self.epoch = epoch

    def state(self, high_watermark: int) -> NameState:
        """Return the state of the name when all records below `high_watermark` are persisted."""
        return NameState(
            self.name,
            self.persisted_sequence(high_watermark),
            self.sequence_id,
            self.epoch,
            self.offset,
            self.last_active_ms,
            bool(self.open_sequences),
            self.dropped_records,
        )


# The verdicts of the rule of names about the records of one candidate batch.


class NameAdvance(NamedTuple):
    """The change that a batch makes to one name. `sequence_id` is the highest new sequence id of the name,
    `position` the offset_delta of that record, `epoch` the name epoch, and `duplicates` the number of the
    name's records that are duplicates.
    """

    name: bytes
    sequence_id: int
    position: int
    epoch: int
    duplicates: int = 0


@final
class NamesAccepted(msgspec.Struct, frozen=True):
    """The batch may be appended without the records at the positions `duplicates`.

    The log folds in `advances` after the write. The duplicates are decided when all offsets up to
    `wait_for_offset` (inclusive; -1: none) are persisted. Until then a failed flush can still lose the
    originals and take the partition offline.
    """

    advances: Sequence[NameAdvance]
    duplicates: Sequence[int]
    wait_for_offset: int


class NameRejectionReason(enum.Enum):
    FENCED = "fenced"
    UNDECIDED = "undecided"
    LIMIT_REACHED = "limit reached"
    FORGETTING = "forgetting"
    PARTIAL = "partial"


@final
class NamesRejected(msgspec.Struct, frozen=True):
    """The batch must not be appended. `message` is a sentence for the client and the log."""

    reason: NameRejectionReason
    message: str


NamesVerdict = NamesAccepted | NamesRejected


VERSION: Final = 1
_NAME: Final = struct.Struct(">h")
_ENTRY: Final = struct.Struct(">qqqqi")
_HELD: Final = struct.Struct(">qq")


class CorruptNames(Exception):
    """The bytes are no snapshot of names that this version can read; the message says why."""


_ENVELOPE: Final = Envelope(b"SQNM", VERSION, VERSION, "snapshot of names", CorruptNames)
newer_version = _ENVELOPE.newer_version


def encode(names: Collection[WrittenName], log_end_offset: int) -> bytes:
    """Return the snapshot of `names` for a log that ends at `log_end_offset` (exclusive)."""
    parts = [_ENVELOPE.head(log_end_offset, len(names))]
    for name, sequence_id, epoch, offset, last_active_ms, held in names:
        parts.append(_NAME.pack(len(name)))
        parts.append(name)
        parts.append(_ENTRY.pack(sequence_id, epoch, offset, last_active_ms, len(held)))
        parts.extend(_HELD.pack(*pair) for pair in held)
    return _ENVELOPE.seal(b"".join(parts))


def decode(data: bytes) -> tuple[list[WrittenName], int]:
    """Return the names in `data` and its log end offset. Raises CorruptNames, also for a later version."""
    _, log_end_offset, count = _ENVELOPE.check(data)
    position = HEAD_BYTES
    names: list[WrittenName] = []
    try:
        for _ in range(count):
            position = _decode_entry(data, position, names)
    except (struct.error, ValueError) as error:
        raise _ENVELOPE.miscounted() from error
    if position != len(data) - CRC_BYTES or len({entry[0] for entry in names}) != len(names):
        raise _ENVELOPE.miscounted()
    return names, log_end_offset


def _decode_entry(data: bytes, position: int, names: list[WrittenName]) -> int:
    (size,) = _NAME.unpack_from(data, position)
    position += _NAME.size
    name = data[position : position + size]
    if size < 0 or len(name) != size:
        raise _ENVELOPE.miscounted()
    sequence_id, epoch, offset, last_active_ms, held_count = _ENTRY.unpack_from(data, position + size)
    position += size + _ENTRY.size
    if held_count < 0:
        raise _ENVELOPE.miscounted()
    held = []
    for _ in range(held_count):
        held.append(_HELD.unpack_from(data, position))
        position += _HELD.size
    if len({producer_id for producer_id, _ in held}) != held_count:
        raise _ENVELOPE.miscounted()
    names.append((name, sequence_id, epoch, offset, last_active_ms, tuple(held)))
    return position
