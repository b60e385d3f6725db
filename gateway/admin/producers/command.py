"""`seqgate producers`: the active producers of each partition."""

from __future__ import annotations

from collections.abc import Iterator

from seqgate.gateway.admin.commands import Output, asks, stop
from seqgate.gateway.admin.options import Asker, OnlyPartition, OnlyTopic, Opened, gateway_or_cluster
from seqgate.gateway.admin.producers.messages import ListProducersRequest, ProducerPage, ProducerRow
from seqgate.gateway.admin.tables import Block, counted, table


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
        "topic partition producer_id producer_epoch last_sequence last_offset age_ms retained_batches",
    )
    if (counters := page.counters) is not None:
        yield "Since the gateway started:"
        yield f"  {counted(counters.duplicates, 'duplicate')} answered with the offset of the original"
        yield f"  {counted(counters.rejections, 'batch', 'batches')} refused for sequence or epoch"
        yield f"  {counted(counters.evictions, 'idle producer')} forgotten to make room for a new one"
        yield f"  {counted(counters.refusals, 'new producer')} refused for want of room"
