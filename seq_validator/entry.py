"""One producer's state in one partition."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, Protocol

from seq_validator.sequence import NO_SEQUENCE, following

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
NO_TRANSACTION: Final = -1


class ProducerBatch(Protocol):
    """What the rule reads of a record batch's header. Any object with these fields will do.

    `last_sequence` is inclusive and wraps: it is lower than `base_sequence` when the batch itself crosses 2**31 - 1.
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


class RetainedBatch(NamedTuple):
    """An appended batch that a retry can still be matched with. All `last_*` are inclusive."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """What a partition remembers of one producer. For readers of a table it is read-only.

    `batches` holds the newest appended batches of the current `producer_epoch`, oldest first, never empty in a table.
    `next_sequence` is the only base_sequence that continues them. `last_active_ms` is when the gateway last appended
    for this producer by its own clock; record timestamps (`last_timestamp`) can be years old and say nothing of
    activity. `coordinator_epoch` and `current_transaction_first_offset` are -1 outside transactions.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_active_ms",
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

    @property
    def last_sequence(self) -> int:
        """The newest batch's last sequence, inclusive."""
        return self.batches[-1].last_sequence

    @property
    def last_offset(self) -> int:
        """The newest batch's last offset, inclusive."""
        return self.batches[-1].last_offset

    @property
    def last_timestamp(self) -> int:
        """The newest batch's maximum timestamp in milliseconds."""
        return self.batches[-1].timestamp

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

    def cut(self, log_end_offset: int) -> None:
        """Forget the batches at or beyond `log_end_offset` (exclusive end of the log)."""
        batches = self.batches
        while batches and batches[-1].last_offset >= log_end_offset:
            batches.pop()
        self.next_sequence = following(batches[-1].last_sequence) if batches else NO_SEQUENCE
