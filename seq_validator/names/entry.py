"""What is remembered of one producer name in one partition."""

from __future__ import annotations

from typing import NamedTuple

NO_SEQUENCE_ID = -1
NO_NAME_EPOCH = -1
NO_OFFSET = -1
MAX_SEQUENCE_ID = 2**63 - 1


class NamedRecord(NamedTuple):
    """What a record says of itself. `position` tells it from the other records of its batch: its offset_delta.

    `epoch` is that of the name, NO_NAME_EPOCH where the record has none.
    """

    position: int
    name: bytes
    sequence_id: int
    epoch: int


class NameState(NamedTuple):
    """What is known of a name: its highest sequence ids, -1 where there is none.

    `pushed` is written, or decided by a marker that is; `persisted` is below the high watermark as well. `offset` is where
    what was pushed lies: its record, or the marker that committed it. `is_pending` tells of an open transaction with further ones.
    `dropped_records` counts those that were acknowledged and not stored since the name was taken up; -1: nobody knows.
    """

    name: bytes
    persisted_sequence: int
    pushed_sequence: int
    epoch: int
    offset: int
    last_active_ms: int
    is_pending: bool
    dropped_records: int = -1


class NameEntry:
    """One name of one partition.

    Three marks (sequence id, offset) are kept, so that what is persisted can be told however many batches are written
    before the first of them is: the pushed one; one that was pushed when `persisted` last moved; and the persisted one, which
    needs no offset. Each is at or above the next.
    """

    __slots__ = (
        "_awaited_offset",
        "_awaited_sequence",
        "_persisted_sequence",
        "dropped_records",
        "epoch",
        "last_active_ms",
        "name",
        "offset",
        "open_sequences",
        "sequence_id",
    )

    def __init__(self, name: bytes, last_active_ms: int) -> None:
        """Begin with a name of which no record counts yet."""
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
        """The highest sequence id in the open transaction of each producer id."""

    def push(self, sequence_id: int, offset: int, high_watermark: int) -> None:
        """Count a sequence id whose record, or marker, lies at `offset`; one that is not the highest changes nothing."""
        if sequence_id <= self.sequence_id:
            return
        if self._awaited_offset < high_watermark:
            self._persisted_sequence = self._awaited_sequence
            self._awaited_sequence, self._awaited_offset = self.sequence_id, self.offset
        self.sequence_id, self.offset = sequence_id, offset

    def persisted_sequence(self, high_watermark: int) -> int:
        """The highest sequence id that is known to be persisted: of what is pushed all, once the flushes are over."""
        if self.offset < high_watermark:
            return self.sequence_id
        if self._awaited_offset < high_watermark:
            return self._awaited_sequence
        return self._persisted_sequence

    def offset_to_wait_for(self, sequence_id: int, high_watermark: int) -> int:
        """The offset that must be persisted for a pushed sequence id to be; NO_OFFSET when it is."""
        if sequence_id <= self.persisted_sequence(high_watermark):
            return NO_OFFSET
        return self._awaited_offset if sequence_id <= self._awaited_sequence else self.offset

    def idle_ms(self, now_ms: int) -> int:
        """Since it was last active; one of a time to come, as the clock was set back, counts as active now."""
        self.last_active_ms = min(self.last_active_ms, now_ms)
        return now_ms - self.last_active_ms

    def restore(self, sequence_id: int, offset: int, epoch: int) -> None:
        """Take over what was written down; all of it is persisted."""
        self.sequence_id = self._awaited_sequence = self._persisted_sequence = sequence_id
        self.offset = self._awaited_offset = offset
        self.epoch = epoch

    def state(self, high_watermark: int) -> NameState:
        """What is known of the name when all below `high_watermark` is persisted."""
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
