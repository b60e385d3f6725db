"""`seqgate producers`: the active producers of each partition.

The requests and rows, the command, and the two answers: any cluster's over the Kafka protocol, and the
gateway's on the control socket.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from seqgate.gateway.admin.commands import Output, asks, stop
from seqgate.gateway.admin.operation import LiveGateway, check_led_here, existing_topic, partitions_after
from seqgate.gateway.admin.options import Asker, OnlyPartition, OnlyTopic, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import ClusterAnswers, PagedRequest
from seqgate.gateway.admin.tables import (
    Block,
    ClientOrNone,
    Column,
    PartitionNumber,
    TopicName,
    counted,
    duration,
    number,
    table,
)
from seqgate.gateway.security.principals import ClientIdentity

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.coordinator.places import TopicPartition
    from seqgate.gateway.runtime.partitions.partition import Partition
    from seqgate.gateway.runtime.partitions.producer_clients import ProducerClients
    from seqgate.gateway.runtime.partitions.registry import Partitions
    from seqgate.gateway.runtime.services import PartitionServices
    from seqgate.seq_validator import ProducerEntry

# The request for active producers, and what `seqgate producers --json` prints.


class ProducerCounters(msgspec.Struct, frozen=True):
    """Counters of producers and their batches; all but `remembered` start at zero with the gateway.

    `duplicates`: batches answered with the offset of the original. `rejections`: batches refused for their
    sequence or epoch. `evictions`: producers evicted to make room for new ones. `refusals`: new producers
    refused because there was no room for them. `remembered`: producers that partitions track now.
    """

    duplicates: int
    rejections: int
    evictions: int
    refusals: int
    remembered: int


class ProducerRow(msgspec.Struct, frozen=True):
    """A producer in one partition: what DescribeProducers answers, and what only the gateway knows.

    `age_ms` is the time since the producer's last append, by the gateway's clock; `last_timestamp` is the
    timestamp of its newest record. `retained_batches` counts the batches whose retry the gateway still
    answers with their first offset. Over the Kafka protocol `last_offset`, `age_ms` and `retained_batches`
    are None: nobody tells them. `client` is None where nobody knows it.
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
    client: ClientOrNone = None


class ProducerPage(msgspec.Struct, frozen=True):
    """Some of the producers; `complete`: no producer comes after the last row."""

    producers: list[ProducerRow]
    complete: bool
    counters: ProducerCounters | None


class ListProducersRequest(PagedRequest[ProducerPage], tag="producers"):
    """The active producers by topic, partition and id, from the first one after `after` on. `after` is topic,
    partition and producer id of the last row of the page before. `within_ms`: only those that wrote in so
    many milliseconds; `idle_ms`: only those that have not written for longer.
    """

    asks_every_worker = True
    network_right = "DESCRIBE"
    is_partial = True
    rows = "producers"
    key = "topic partition producer_id"
    topic: str | None = None
    partition: int | None = None
    after: tuple[str, int, int] | None = None
    within_ms: int | None = None
    idle_ms: int | None = None


# The command.


@asks(gateway_or_cluster)
def producers(opened: Opened[Asker], topic: OnlyTopic = None, partition: OnlyPartition = None) -> Output:
    """Show the active producers of each partition.

    Lists the producer state of every partition in a running gateway, and counts duplicate and refused
    batches.

    \b
    Columns:
      epoch            the producer's epoch; a higher one fences the producer
      last sequence    the last sequence of its newest batch here; the next batch must follow it
      last offset      the last offset of that batch
      age              time since the producer wrote here
      batches          newest batches whose retry is answered with their first offset
      client           client id, address, library and principal of the client that wrote last; `-`: it has
                       not written since the gateway started, or newer ones are tracked in its place

    The same as Kafka's DescribeProducers answers (kafka-transactions.sh describe-producers), with offset,
    age and batches. With --bootstrap these three are unknown, and nothing is counted.
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partition is not None and topic is None:
        raise stop("--partition needs --topic", code=2)
    with opened as client:
        page = client.ask(ListProducersRequest(topic, partition))
    return Output({"producers": page.producers, "counters": page.counters}, _text(page))


def _text(page: ProducerPage) -> Iterator[Block]:
    yield table(
        ProducerRow,
        page.producers,
        "topic partition producer_id producer_epoch last_sequence last_offset age_ms retained_batches client",
    )
    if (counters := page.counters) is not None:
        if any(row.client is None for row in page.producers):
            yield "Clients are unknown that have not written since the gateway started."
        yield "Since the gateway started:"
        yield f"  {counted(counters.duplicates, 'duplicate')} answered with the offset of the original"
        yield f"  {counted(counters.rejections, 'batch', 'batches')} refused for sequence or epoch"
        yield f"  {counted(counters.evictions, 'idle producer')} evicted to make room for a new one"
        yield f"  {counted(counters.refusals, 'new producer')} refused for want of room"


# Over the Kafka protocol: any cluster's answer. Raises ControlError.


def list_producers_remote(cluster: Cluster, request: ListProducersRequest) -> ProducerPage:
    """Return all active producers by topic, partition and id, as DescribeProducers reports them."""
    places = cluster.led_partitions(existing_topic=request.topic, existing_partition=request.partition)
    rows = active_producers(cluster, places)
    rows.sort(key=lambda row: (row.topic, row.partition, row.producer_id))
    return ProducerPage(rows, True, None)


def active_producers(cluster: Cluster, places: Sequence[TopicPartition]) -> list[ProducerRow]:
    """Return the active producers of partitions, in no order."""

    def question(topics: Mapping[str, Sequence[int]]) -> Any:
        rows = [{"name": topic, "partition_indexes": tuple(some)} for topic, some in topics.items()]
        return cluster.request(61, 0, topics=rows)

    return [
        ProducerRow(
            *place,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_offset=None,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_txn_start_offset,
            age_ms=None,
            retained_batches=None,
            client=ClientIdentity.from_json(producer.client),
        )
        for place, row in cluster.ask_leaders(places, question).items()
        for producer in row.active_producers
    ]


OPERATIONS: Final[ClusterAnswers] = {ListProducersRequest: list_producers_remote}


# In the gateway: its answer on the control socket.

ENTRIES_AT_ONCE: Final = 5_000
"""Producers that are compared before requests may run."""


async def list_producers_live(gateway: LiveGateway, request: ListProducersRequest) -> ProducerPage:
    """Return one page of the active producers. Raises ControlError."""
    import asyncio  # noqa: PLC0415 - slow to import

    now_ms = gateway.services.node.clock.now_ms()
    if request.topic is not None and request.partition is not None:
        check_led_here(gateway.services, request.topic, request.partition)
    clients = gateway.services.partitions.counters.clients
    rows: list[ProducerRow] = []
    for partition in list(_wanted(gateway.services.partitions.registry, request)):
        lowest = -1
        if request.after is not None and request.after[:2] == (partition.topic, partition.index):
            lowest = request.after[2]
        entries = await _entries(partition, lowest, request.limit + 1 - len(rows), _times(request, now_ms))
        rows.extend(_row(partition, entry, now_ms, clients) for entry in entries)
        if len(rows) > request.limit:
            break
        # Let requests in between: a gateway may have a hundred thousand partitions.
        await asyncio.sleep(0)
    return ProducerPage(
        rows[: request.limit], len(rows) <= request.limit, producer_counters(gateway.services.partitions)
    )


def producer_counters(partitions: PartitionServices) -> ProducerCounters:
    """Return the counts of tracked, evicted and refused producers, of duplicate and rejected batches."""
    limit = partitions.log_directory.environment.producer_limit
    return ProducerCounters(
        duplicates=partitions.counters.duplicates,
        rejections=partitions.counters.rejections,
        evictions=0 if limit is None else limit.evictions,
        refusals=0 if limit is None else limit.refusals,
        remembered=sum(len(partition.log.producers) for partition in partitions.registry),
    )


def _wanted(partitions: Partitions, request: ListProducersRequest) -> Iterator[Partition]:
    """Yield the requested partitions in order, from the previous page's last one on. Raises ControlError."""
    if request.topic is None:
        topics = [partitions.by_name[name] for name in sorted(partitions.by_name)]
    else:
        topics = [existing_topic(partitions, request.topic, request.partition)]
    return partitions_after(topics, lambda topic: topic.all(), request.partition, request.after)


def _times(request: ListProducersRequest, now_ms: int) -> tuple[float, float]:
    """Return the times of the last write, the earliest and the latest, of the requested producers."""
    earliest = -math.inf if request.within_ms is None else now_ms - request.within_ms
    return earliest, math.inf if request.idle_ms is None else now_ms - request.idle_ms - 1


async def _entries(
    partition: Partition, lowest: int, count: int, times: tuple[float, float]
) -> list[ProducerEntry]:
    """Return the first `count` producers whose ids are above `lowest`, and that wrote last between the two
    times, by id. Let requests in between: a partition may track a million producers.
    """
    from seqgate.gateway.runtime.loop.slices import in_slices  # noqa: PLC0415 - slow to import

    entries = list(partition.log.producers)
    found: list[ProducerEntry] = []
    async for first in in_slices(range(0, len(entries), ENTRIES_AT_ONCE)):
        later = [
            entry
            for entry in entries[first : first + ENTRIES_AT_ONCE]
            if entry.producer_id > lowest and times[0] <= entry.last_active_ms <= times[1]
        ]
        found = heapq.nsmallest(count, chain(found, later), key=lambda entry: entry.producer_id)
    return found


def _row(partition: Partition, entry: ProducerEntry, now_ms: int, clients: ProducerClients) -> ProducerRow:
    return ProducerRow(
        topic=partition.topic,
        partition=partition.index,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_offset=entry.last_offset,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_transaction_first_offset,
        age_ms=max(0, now_ms - entry.last_active_ms),
        retained_batches=len(entry.batches),
        client=clients.find(entry.producer_id, entry.producer_epoch),
    )
