"""`seqgate producers`, `seqgate status` and `seqgate reopen`: what a running gateway tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.options import AsJson, ConfigFile, DataDir, asking, stop

if TYPE_CHECKING:
    from gateway.control.results import ProducerCounters, ProducerRow, Status


def producers(
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.", show_default="all")] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", help="Only this partition of the topic.", min=0, show_default="all"),
    ] = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the active producers of each partition.

    Of a running gateway: what every partition remembers of every producer, and what became of the producers' batches.

    \b
    Columns:
      epoch            the producer's epoch; a higher one fences it off
      last sequence    of its newest batch here; the next batch must follow it
      last offset      where that batch ended
      age              time since it wrote here
      batches          newest batches whose repetition is answered with their first offset

    The same as Kafka's DescribeProducers answers (kafka-transactions.sh describe-producers), with offset, age and batches.
    """  # noqa: D301 - \b keeps the lines of the list apart
    from gateway.commands import printing
    from gateway.control.client import producer_pages

    if partition is not None and topic is None:
        raise stop("--partition needs --topic", code=2)
    with asking(config_file, data_dir) as directory:
        rows: list[ProducerRow] = []
        counters: ProducerCounters | None = None
        for page in producer_pages(directory, topic, partition):
            rows += page.producers
            counters = page.counters
    if as_json:
        printing.print_json({"producers": rows, "counters": counters})
        return
    assert counters is not None
    _print_producers(rows)
    printing.print_lines(*_about(counters))


def status(data_dir: DataDir = None, config_file: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show how a running gateway is. Exits with 1 when no gateway runs or a partition is offline."""
    from gateway.commands import printing
    from gateway.control.client import ask
    from gateway.control.messages import StatusRequest
    from gateway.control.results import Status

    with asking(config_file, data_dir) as directory:
        answer = ask(directory, StatusRequest(), Status)
    if as_json:
        printing.print_json(answer)
    else:
        printing.print_table((printing.Column("gateway"), printing.Column("")), _status_rows(answer))
    raise typer.Exit(1 if answer.offline_partitions else 0)


def reopen(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)],
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Bring an offline partition back.

    A failed write or flush takes a partition offline, the others go on. Once the disk has room and works again, reopening reads its files as after a crash:
    what was acknowledged is there, a torn end is cut off. `seqgate status` lists the offline partitions.
    """
    from gateway.commands import printing
    from gateway.control.client import ask
    from gateway.control.messages import ReopenRequest
    from gateway.control.results import Reopened

    with asking(config_file, data_dir) as directory:
        answer = ask(directory, ReopenRequest(topic, partition), Reopened)
    if as_json:
        printing.print_json(answer)
    else:
        printing.print_lines(
            f"{topic}-{partition} is back: offsets {answer.log_start_offset} up to {answer.log_end_offset}."
        )


def _print_producers(rows: list[ProducerRow]) -> None:
    from gateway.commands import printing

    headings = ("parti-\ntion", "producer\nid", "epoch", "last\nsequence", "last\noffset", "age", "batches")
    columns = [
        printing.Column("topic"),
        *(printing.Column(heading, number=True) for heading in headings),
    ]
    printing.print_table(
        columns,
        [
            (
                row.topic,
                str(row.partition),
                str(row.producer_id),
                str(row.producer_epoch),
                str(row.last_sequence),
                str(row.last_offset),
                printing.duration(row.age_ms),
                str(row.retained_batches),
            )
            for row in rows
        ],
    )


def _about(counters: ProducerCounters) -> list[str]:
    from gateway.commands.printing import counted

    return [
        "Since the gateway started:",
        f"  {counted(counters.duplicates, 'duplicate')} answered with the offset of the original",
        f"  {counted(counters.rejections, 'batch', 'batches')} refused for sequence or epoch",
        f"  {counted(counters.evictions, 'idle producer')} forgotten to make room for a new one",
        f"  {counted(counters.refusals, 'new producer')} refused for want of room",
    ]


def _status_rows(answer: Status) -> list[tuple[str, str]]:
    from gateway.commands.printing import count, duration

    counters = answer.counters
    rows = [
        ("listening on", ", ".join(answer.listeners.values())),
        ("data directory", answer.data_dir),
        ("process", f"{answer.pid}, version {answer.version}, up for {duration(answer.uptime_ms)}"),
        ("node, cluster", f"{answer.node_id}, {answer.cluster_id}"),
        ("topics, partitions", f"{count(answer.topics)}, {count(answer.partitions)}"),
        ("connections", f"{count(answer.connections)} now, {count(answer.refused_connections)} refused"),
        ("requests", count(answer.requests)),
        ("flush rounds", f"{count(answer.flush_rounds)}, {count(answer.flush_failures)} failed"),
        (
            "producer ids left",
            f"{count(answer.producer_ids_left)} claimed ({answer.producer_id_store} store)",
        ),
        ("producers", f"{count(counters.remembered)} active"),
        (
            "batches",
            f"{count(counters.duplicates)} duplicates answered, {count(counters.rejections)} refused",
        ),
        (
            "producer names",
            f"{count(answer.names.remembered)} remembered, {count(answer.names.dropped_records)} records dropped as duplicates",
        ),
    ]
    if answer.producer_id_store_error is not None:
        rows.append(("producer id store", answer.producer_id_store_error))
    rows += [
        ("OFFLINE", f"{partition.topic}-{partition.partition}: {partition.reason}")
        for partition in answer.offline_partitions
    ]
    return rows
