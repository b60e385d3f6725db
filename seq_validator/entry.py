"""The state of one producer in one partition.

Sequence numbers: 32-bit, never negative, wrapping from 2**31 - 1 to 0.

The arithmetic is that of Kafka's `DefaultRecordBatch.incrementSequence`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

NO_PRODUCER_ID: Final = -1
FIRST_DERIVED_ID: Final = 2**62
"""Producer ids from here on are derived by gateways, for batches that they write themselves; none of them is
allocated to a client.
"""
NO_PRODUCER_EPOCH: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
NO_TRANSACTION: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1


class ProducerBatch(Protocol):
    """The fields of a batch header that the sequence rule reads. Any object with these fields will do.

    Callers never pass a batch without a producer id (below 0). `last_sequence` is inclusive and wraps: it is
    lower than `base_sequence` when the batch itself crosses 2**31 - 1. Both sequences are -1 in a batch that
    a coordinator writes for a producer: such a batch has a producer epoch, but no place in the producer's
    sequence. `last_offset_delta` is the last record's offset minus the first one's. `max_timestamp` is the
    largest of the records, in milliseconds.
    """

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...


class RetainedBatch(NamedTuple):
    """An appended batch in the window of its producer, so a retry is recognized. `last_*` are inclusive."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Activity:
    """Something that was last active at a time (ms) of the gateway's clock."""

    __slots__ = ("last_active_ms",)

    last_active_ms: int

    def idle_ms(self, now_ms: int) -> int:
        """Return how long it is idle. A last activity in the future counts as now: the clock was set back."""
        self.last_active_ms = min(self.last_active_ms, now_ms)
        return now_ms - self.last_active_ms


class ProducerEntry(Activity):
    """The state that a partition keeps of one producer. Only its table changes an entry; others read.

    `batches` holds the newest appended batches of the current `producer_epoch`, oldest first; the table
    bounds their number. It is a list, because a deque takes eight times the memory for one batch. `batches`
    is empty only after a marker with a new epoch. `next_sequence` is the only base_sequence that continues
    the sequence; UNKNOWN_SEQUENCE while a damaged batch of the log may belong to this producer.
    `last_active_ms` is the time of the last append for this producer by the gateway's own clock; record
    timestamps (`last_timestamp`) can be years old. `coordinator_epoch` is that of the newest marker, -1
    before the first; `current_transaction_first_offset` is -1 while no transaction is open.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "marker_offset",
        "marker_timestamp",
        "next_sequence",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        last_active_ms: int,
        batches: list[RetainedBatch],
        next_sequence: int,
    ) -> None:
        """Begin with the batches that the table retains, at least one unless a marker comes next."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches = batches
        self.next_sequence = next_sequence
        self.last_active_ms = last_active_ms
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.current_transaction_first_offset = NO_TRANSACTION
        self.marker_offset = NO_OFFSET
        self.marker_timestamp = NO_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest batch, inclusive; -1 without batches."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The last offset of the newest batch, inclusive; -1 without batches. Markers do not count."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_timestamp(self) -> int:
        """The largest timestamp, in ms, of the producer's batch or marker that was appended last."""
        if self.marker_offset > self.last_offset:
            return self.marker_timestamp
        return self.batches[-1].timestamp if self.batches else NO_TIMESTAMP

    @property
    def has_open_transaction(self) -> bool:
        return self.current_transaction_first_offset != NO_TRANSACTION

    def __repr__(self) -> str:
        """Show the fields that decide which batch is accepted next."""
        return (
            f"ProducerEntry(producer_id={self.producer_id}, producer_epoch={self.producer_epoch}, "
            f"next_sequence={self.next_sequence}, batches={list(self.batches)})"
        )

    def doubt(self) -> None:
        """Refuse the next batch of this epoch: a damaged batch may hold it, or the one before it."""
        self.next_sequence = UNKNOWN_SEQUENCE

    def begin_epoch(self, producer_epoch: int) -> None:
        """Begin another producer epoch: forget the batches of the old epoch and expect sequence 0."""
        self.producer_epoch = producer_epoch
        self.batches.clear()
        self.next_sequence = 0


MAX_SEQUENCE: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
UNKNOWN_SEQUENCE: Final = -2
"""The next sequence of a producer that may have written a damaged batch: no batch has it."""


def following(last_sequence: int) -> int:
    """Return the sequence that must follow a batch that ends with `last_sequence`."""
    return (last_sequence + 1) & MAX_SEQUENCE
