"""`seqgate producers`: the active producers of each partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from seqgate.gateway.admin.commands import Output, asks, stop
from seqgate.gateway.admin.options import Asker, OnlyPartition, OnlyTopic, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import PagedRequest
from seqgate.gateway.admin.status.messages import ProducerCounters
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
                       not written since the gateway started, or newer ones are remembered in its place

    The same as Kafka's DescribeProducers answers (kafka-transactions.sh describe-producers), with offset,
    age and batches.
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
        yield f"  {counted(counters.evictions, 'idle producer')} forgotten to make room for a new one"
        yield f"  {counted(counters.refusals, 'new producer')} refused for want of room"


# The request for active producers, and what `seqgate producers --json` prints.


class ProducerRow(msgspec.Struct, frozen=True):
    """A producer in one partition: what DescribeProducers answers, and what only the gateway knows.

    `age_ms` is the time since the producer's last append, by the gateway's clock; `last_timestamp` is the
    timestamp of its newest record. `retained_batches` counts the batches whose retry the gateway still
    answers with their first offset. `client` is None where nobody knows it.
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
    partition and producer id of the last row of the page before.
    """

    is_spread = True
    rows = "producers"
    key = "topic partition producer_id"
    topic: str | None = None
    partition: int | None = None
    after: tuple[str, int, int] | None = None
