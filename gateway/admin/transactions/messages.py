"""The requests about transactions, and what `seqgate transactions … --json` prints.

Times are milliseconds since the Unix epoch. A value that nobody knows is None.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from seqgate.gateway.admin.request import PagedRequest, Request
from seqgate.gateway.admin.tables import Column, Offset, PartitionNumber, TopicName, count, duration, number

ProducerId: TypeAlias = Annotated[int, Column("producer", number)]
ProducerEpoch: TypeAlias = Annotated[int, Column("epoch", number)]
TransactionalId: TypeAlias = Annotated[str | None, Column("transactional id")]


class PendingOffset(msgspec.Struct, frozen=True):
    """An offset that an open transaction holds; it is committed or dropped with the transaction.

    `transactional_id` is None where nobody knows the producer. A `superseded` offset never takes effect,
    because a later commit has replaced it.
    """

    group: Annotated[str, Column("group")]
    topic: TopicName
    partition: PartitionNumber
    offset: Offset
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: TransactionalId
    superseded: bool

    @property
    def note(self) -> Annotated[str, Column("note")]:
        """The remark on an offset that never takes effect."""
        return "superseded" if self.superseded else ""


class TransactionRow(msgspec.Struct, frozen=True):
    """A transactional id, its producer, and its present transaction.

    Without a transaction `start_ms` and `age_ms` are None and `partition_count` is 0. `last_update_ms` is
    when the state of the id changed last, `timeout_ms` how long its transactions may take.
    """

    transactional_id: Annotated[str, Column("transactional id")]
    state: Annotated[str, Column("state")]
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: Annotated[int, Column("timeout", duration)]
    last_update_ms: int | None
    start_ms: int | None
    age_ms: Annotated[int | None, Column("age", duration)]
    partition_count: Annotated[int, Column("partitions", count)]

    @property
    def is_overdue(self) -> bool:
        """Whether the transaction is open for longer than its timeout."""
        return self.age_ms is not None and self.age_ms > self.timeout_ms


class TransactionPage(msgspec.Struct, frozen=True):
    """Some of the transactional ids; `complete`: no id comes after the last row.

    `offline_partitions` are the partitions of `__transaction_state` that are out of service, and
    `partitions_elsewhere` those that other gateways lead; their ids are missing.
    """

    transactions: list[TransactionRow]
    complete: bool
    offline_partitions: list[int]
    partitions_elsewhere: list[int] = []


class ListTransactionsRequest(PagedRequest[TransactionPage], tag="transactions.list"):
    """The transactional ids that pass every filter given, in order, from the first one after `after` on.
    `longer_than_ms` passes ids whose open transaction is older than that, `pattern` (RE2) the ids that it
    matches whole.
    """

    is_spread = True
    rows = "transactions"
    key = "transactional_id"
    states: list[str] = msgspec.field(default_factory=list)
    producer_ids: list[int] = msgspec.field(default_factory=list)
    longer_than_ms: int | None = None
    pattern: str | None = None
    after: str | None = None


class TransactionListing(msgspec.Struct, frozen=True):
    """All requested transactional ids. `gateway` is "running" or "stopped"; the ids of `offline_partitions`
    and of `partitions_elsewhere` are missing.
    """

    gateway: str
    transactions: list[TransactionRow]
    offline_partitions: list[int]
    partitions_elsewhere: list[int] = []


class TransactionPartition(msgspec.Struct, frozen=True):
    """A partition that a transaction writes to; `first_offset` is the offset of its first record there, None
    without one.

    Readers of committed records wait at `last_stable_offset`, other readers at `high_watermark`. Both are
    None when the partition is gone, another gateway leads it, or the gateway is stopped.
    """

    topic: TopicName
    partition: PartitionNumber
    first_offset: Annotated[int | None, Column("first\noffset", number)]
    last_stable_offset: Annotated[int | None, Column("last\nstable", number)]
    high_watermark: Annotated[int | None, Column("log\nend", number)]


class TransactionDescription(TransactionRow, frozen=True):
    """A transactional id with some of its partitions; `complete`: no partition comes after the last row.

    `pending_offsets` are the offsets of groups that its transaction holds. They come with the first
    partitions only, and are at most 10,000 of `pending_offset_count`.
    """

    partitions: list[TransactionPartition]
    pending_offsets: list[PendingOffset]
    pending_offset_count: int | None
    complete: bool


class DescribeTransactionRequest(PagedRequest[TransactionDescription], tag="transactions.describe"):
    """One transactional id, with its partitions from the first one after `after` (topic, partition) on."""

    rows = "partitions"
    key = "topic partition"
    transactional_id: str
    after: tuple[str, int] | None = None


class HangingTransaction(msgspec.Struct, frozen=True):
    """A transaction that a partition has open from `first_offset` on, and why it counts as hanging.

    `reason` is one of the words in `seqgate.gateway.admin.transactions.messages`. `age_ms` is the time since
    the producer last wrote to the partition, by the gateway's clock; `last_timestamp` is the timestamp of its
    newest record.
    """

    broker_id: int
    topic: TopicName
    partition: PartitionNumber
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    first_offset: Annotated[int, Column("first\noffset", number)]
    last_timestamp: int
    age_ms: Annotated[int, Column("age", duration)]
    transactional_id: TransactionalId
    reason: Annotated[str, Column("reason")]


class HangingPage(msgspec.Struct, frozen=True):
    """Some of the hanging transactions; `complete`: no transaction comes after the last row.

    While `offline_partitions` of `__transaction_state` are out of service, one of them may know an unknown
    producer. The transactions of unknown producers are missing then.
    """

    hanging: list[HangingTransaction]
    complete: bool
    offline_partitions: list[int]


class FindHangingRequest(PagedRequest[HangingPage], tag="transactions.hanging"):
    """The open transactions that no coordinator will end, by topic, partition and producer id. `after` is
    topic, partition and producer id of the last row of the page before.
    """

    is_spread = True
    rows = "hanging"
    key = "topic partition producer_id"
    topic: str | None = None
    partition: int | None = None
    after: tuple[str, int, int] | None = None


class FencedBy(msgspec.Struct, frozen=True):
    """The producer id and epoch that replace a fenced producer; the gateway refuses the old ones."""

    producer_id: int
    producer_epoch: int


class TransactionAbort(msgspec.Struct, frozen=True):
    """An abort, `executed` or only planned, with the transaction as it was before.

    `partitions` are at most 10,000 of `partition_count`. A transaction that only one partition has open may
    have no known `transactional_id` or `start_ms`, and its abort fences no producer.
    """

    executed: bool
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    start_ms: int | None
    age_ms: int
    partitions: list[TransactionPartition]
    partition_count: int
    pending_offset_count: int | None
    fenced_by: FencedBy | None


class AbortTransactionRequest(Request[TransactionAbort], tag="transactions.abort"):
    """Fence a producer and abort its open transaction; without `execute` only report what the abort would do.
    With `start_ms` the gateway aborts only the transaction that began then, not a later one.
    """

    transactional_id: str
    start_ms: int | None = None
    execute: bool = False


class AbortHangingRequest(Request[TransactionAbort], tag="transactions.abort-hanging"):
    """Abort a transaction that a partition has open from `first_offset` on; without `execute` report it."""

    topic: str
    partition: int
    first_offset: int
    execute: bool = False


# The reasons for which an open transaction counts as hanging.

UNKNOWN_PRODUCER: Final = "unknown producer"
NOT_PART: Final = "not part"
OVERDUE: Final = "overdue"
REASONS: Final = (UNKNOWN_PRODUCER, NOT_PART, OVERDUE)
