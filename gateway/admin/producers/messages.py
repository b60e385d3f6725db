"""The request for active producers, and what `seqgate producers --json` prints."""

from __future__ import annotations

from typing import Annotated

import msgspec

from seqgate.gateway.admin.request import PagedRequest
from seqgate.gateway.admin.tables import Column, PartitionNumber, TopicName, duration, number


class ProducerRow(msgspec.Struct, frozen=True):
    """A producer in one partition: what DescribeProducers answers, and what only the gateway knows.

    `age_ms` is the time since the producer's last append, by the gateway's clock; `last_timestamp` is the
    timestamp of its newest record. `retained_batches` counts the batches whose retry the gateway still
    answers with their first offset.
    """

    topic: TopicName
    partition: PartitionNumber
    producer_id: Annotated[int, Column("producer\nid", number)]
    producer_epoch: Annotated[int, Column("epoch", number)]
    last_sequence: Annotated[int, Column("last\nsequence", number)]
    last_offset: Annotated[int | None, Column("last\noffset", number)]
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    age_ms: Annotated[int | None, Column("age", duration)]
    retained_batches: Annotated[int | None, Column("batches", number)]


class ProducerCounters(msgspec.Struct, frozen=True):
    """Counters of producers and their batches; all but `remembered` start at zero with the gateway.

    `duplicates`: batches answered with the offset of the original. `rejections`: batches refused for their
    sequence or epoch. `evictions`: producers evicted to make room for new ones. `refusals`: new producers
    refused because there was no room for them. `remembered`: producers that partitions remember now.
    """

    duplicates: int
    rejections: int
    evictions: int
    refusals: int
    remembered: int


class ProducerPage(msgspec.Struct, frozen=True):
    """Some of the producers; `complete`: no producer comes after the last row."""

    producers: list[ProducerRow]
    complete: bool
    counters: ProducerCounters | None


class ListProducersRequest(PagedRequest[ProducerPage], tag="producers"):
    """The active producers by topic, partition and id, from the first one after `after` on. `after` is topic,
    partition and producer id of the last row of the page before.
    """

    is_spread = True
    rows = "producers"
    key = "topic partition producer_id"
    topic: str | None = None
    partition: int | None = None
    after: tuple[str, int, int] | None = None
