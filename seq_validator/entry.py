"""One producer's state in one partition."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, Protocol

from seq_validator.sequence import NO_SEQUENCE, following

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
NO_TRANSACTION: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1


class ProducerBatch(Protocol):
    """What the rule reads of a record batch's header. Any object with these fields will do.

    `last_sequence` is inclusive and wraps: it is lower than `base_sequence` when the batch itself crosses 2**31 - 1.
    Both are -1 in what a coordinator writes for a producer: such a batch has an epoch, but no place in a sequence.
    `max_timestamp` is in milliseconds.
    """

    @property
    def producer_id(self) -> int:
        """The 64-bit id; a batch without one (below 0) is never shown to this package."""

    @property
    def producer_epoch(self) -> int:
        """The 16-bit epoch."""

    @property
    def base_sequence(self) -> int:
        """The first record's sequence."""

    @property
    def last_sequence(self) -> int:
        """The last record's sequence."""

    @property
    def last_offset_delta(self) -> int:
        """The last record's offset less the first one's."""

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp among the records."""

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""


class RetainedBatch(NamedTuple):
    """An appended batch that a retry can still be matched with. All `last_*` are inclusive."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """What a partition remembers of one producer. For readers of a table it is read-only.

    `batches` holds the newest appended batches of the current `producer_epoch`, oldest first; only a marker that
    brought a new epoch leaves none. `next_sequence` is the only base_sequence that continues them. `last_active_ms` is
    when the gateway last appended for this producer by its own clock; record timestamps (`last_timestamp`) can be years
    old and say nothing of activity. `coordinator_epoch` is that of the newest marker, -1 before the first;
    `current_transaction_first_offset` is -1 while no transaction is open.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_active_ms",
        "marker_offset",
        "marker_timestamp",
        "next_sequence",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self, producer_id: int, producer_epoch: int, *, retained_batches: int, last_active_ms: int
    ) -> None:
        """Begin without batches; the table adds the first one at once."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: deque[RetainedBatch] = deque(maxlen=retained_batches)
        self.next_sequence = NO_SEQUENCE
        self.last_active_ms = last_active_ms
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.current_transaction_first_offset = NO_TRANSACTION
        self.marker_offset = NO_OFFSET
        self.marker_timestamp = NO_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        """The newest batch's last sequence, inclusive; -1 without batches."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The newest batch's last offset, inclusive; -1 without batches. Markers do not count."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_timestamp(self) -> int:
        """The maximum timestamp in milliseconds of what was appended last for it, batch or marker."""
        if self.marker_offset > self.last_offset:
            return self.marker_timestamp
        return self.batches[-1].timestamp if self.batches else NO_TIMESTAMP

    @property
    def has_open_transaction(self) -> bool:
        """Whether records of it wait for their marker."""
        return self.current_transaction_first_offset != NO_TRANSACTION

    def __repr__(self) -> str:
        """Show the fields that decide what is accepted next."""
        return (
            f"ProducerEntry(producer_id={self.producer_id}, producer_epoch={self.producer_epoch}, "
            f"next_sequence={self.next_sequence}, batches={list(self.batches)})"
        )

    def retain(self, batch: RetainedBatch) -> None:
        """Add the newest batch; the oldest one falls out of a full window."""
        self.batches.append(batch)
        self.next_sequence = following(batch.last_sequence)

    def begin_epoch(self, producer_epoch: int) -> None:
        """Go on under another epoch: nothing of the old one can be repeated, and the sequence begins at 0."""
        self.producer_epoch = producer_epoch
        self.batches.clear()
        self.next_sequence = 0
