"""What the control socket answers about transactions, and what `seqgate transactions … --json` prints.

Times are milliseconds since the Unix epoch. What nobody knows is None.
"""

from __future__ import annotations

import msgspec

from gateway.control.results import PendingOffset


class TransactionRow(msgspec.Struct, frozen=True):
    """A transactional id, its producer, and the transaction that is under way.

    Without one `start_ms` and `age_ms` are None and `partition_count` is 0. `last_update_ms` is when the id was last
    heard of, `timeout_ms` how long its transactions may take.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_ms: int
    start_ms: int | None
    age_ms: int | None
    partition_count: int


class TransactionPage(msgspec.Struct, frozen=True):
    """Some of the transactional ids; `complete` when no other comes after the last row.

    `offline_partitions` are those of `__transaction_state` that are out of service: their ids are not told.
    """

    transactions: list[TransactionRow]
    complete: bool
    offline_partitions: list[int]


class TransactionPartition(msgspec.Struct, frozen=True):
    """A partition that takes part. `first_offset` is that of the transaction's first record here, None without one.

    Whoever reads committed records only waits at `last_stable_offset`, others at `high_watermark`; None when the
    partition is gone, or no gateway runs.
    """

    topic: str
    partition: int
    first_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None


class TransactionDescription(TransactionRow, frozen=True):
    """A transactional id with some of its partitions; `complete` when no other comes after the last row.

    `pending_offsets` are those of groups that its transaction holds, told with the first partitions only, and at most
    10,000 of `pending_offset_count`.
    """

    partitions: list[TransactionPartition]
    pending_offsets: list[PendingOffset]
    pending_offset_count: int
    complete: bool


class HangingTransaction(msgspec.Struct, frozen=True):
    """A transaction that a partition has open from `first_offset` on; `reason` is one of the words in
    `gateway.control.hanging`.

    `age_ms` is the time since the producer last wrote here, by the gateway's clock; `last_timestamp` is that of its
    newest record.
    """

    broker_id: int
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_timestamp: int
    age_ms: int
    transactional_id: str | None
    reason: str


class HangingPage(msgspec.Struct, frozen=True):
    """Some of the hanging transactions; `complete` when no other comes after the last row.

    While `offline_partitions` of `__transaction_state` are out of service, an unknown producer may be known there:
    its transactions are not told.
    """

    hanging: list[HangingTransaction]
    complete: bool
    offline_partitions: list[int]


class FencedBy(msgspec.Struct, frozen=True):
    """Who the producer of a transactional id is since it was fenced; whoever was it before is refused."""

    producer_id: int
    producer_epoch: int


class TransactionAbort(msgspec.Struct, frozen=True):
    """An abort, `executed` or only worked out, with the transaction as it was before.

    `partitions` are at most 10,000 of `partition_count`. Of what one partition alone has open, nobody may know the
    `transactional_id` or when it began, and no producer is fenced.
    """

    executed: bool
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    start_ms: int | None
    age_ms: int
    partitions: list[TransactionPartition]
    partition_count: int
    pending_offset_count: int
    fenced_by: FencedBy | None
