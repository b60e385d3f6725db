"""`seqgate producers`: the active producers of each partition."""

from __future__ import annotations

from typing import Final

from seqgate.gateway.admin.options import (
    AsJson,
    CommandConfig,
    ConfigFile,
    DataDir,
    OnlyPartition,
    OnlyTopic,
    OtherCluster,
    asking_either,
    stop,
)
from seqgate.gateway.admin.printing import Column, counted, duration, print_json, print_lines, print_table
from seqgate.gateway.admin.producers.messages import ListProducersRequest, ProducerCounters, ProducerRow

NONE: Final = "-"


def producers(
    topic: OnlyTopic = None,
    partition: OnlyPartition = None,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the active producers of each partition.

    Lists the producer state of every partition in a running gateway, and counts duplicate and refused batches.

    \b
    Columns:
      epoch            the producer's epoch; a higher one fences the producer
      last sequence    the last sequence of its newest batch here; the next batch must follow it
      last offset      the last offset of that batch
      age              time since the producer wrote here
      batches          newest batches whose retry is answered with their first offset

    The same as Kafka's DescribeProducers answers (kafka-transactions.sh describe-producers), with offset, age and batches.
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partition is not None and topic is None:
        raise stop("--partition needs --topic", code=2)
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        pages = client.ask_all(ListProducersRequest(topic, partition))
    rows = [row for page in pages for row in page.producers]
    counters = pages[-1].counters
    if as_json:
        print_json({"producers": rows, "counters": counters})
        return
    _print_producers(rows)
    if counters is not None:
        print_lines(*_about(counters))


def _print_producers(rows: list[ProducerRow]) -> None:

    headings = ("parti-\ntion", "producer\nid", "epoch", "last\nsequence", "last\noffset", "age", "batches")
    columns = [
        Column("topic"),
        *(Column(heading, number=True) for heading in headings),
    ]
    print_table(
        columns,
        [
            (
                row.topic,
                str(row.partition),
                str(row.producer_id),
                str(row.producer_epoch),
                str(row.last_sequence),
                NONE if row.last_offset is None else str(row.last_offset),
                NONE if row.age_ms is None else duration(row.age_ms),
                NONE if row.retained_batches is None else str(row.retained_batches),
            )
            for row in rows
        ],
    )


def _about(counters: ProducerCounters) -> list[str]:

    return [
        "Since the gateway started:",
        f"  {counted(counters.duplicates, 'duplicate')} answered with the offset of the original",
        f"  {counted(counters.rejections, 'batch', 'batches')} refused for sequence or epoch",
        f"  {counted(counters.evictions, 'idle producer')} forgotten to make room for a new one",
        f"  {counted(counters.refusals, 'new producer')} refused for want of room",
    ]
