"""`seqgate verdicts`: the newest batches that were not stored, and why."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from seqgate.gateway.admin.options import AsJson, ConfigFile, DataDir, OnlyPartition, OnlyTopic, asking, stop
from seqgate.gateway.admin.printing import Column, moment, print_json, print_lines, print_table, shown
from seqgate.gateway.admin.verdicts.messages import ListVerdictsRequest, VerdictRow

NONE: Final = "-"
SHOWN: Final = 100
"""Verdicts that the command shows unless --limit says otherwise."""


def verdicts(
    topic: OnlyTopic = None,
    partition: OnlyPartition = None,
    producer_id: Annotated[
        int | None,
        typer.Option("--producer-id", metavar="ID", help="Only this producer.", min=0, show_default="all"),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", help="At most this many verdicts.", min=1)
    ] = SHOWN,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest batches that the gateway did not store, and why.

    A duplicate was answered with the offset of its original: its producer had sent it before. Every other batch was refused with an
    error of Kafka. The gateway keeps the newest 10,000 verdicts in memory, and none over a restart.

    \b
    Columns:
      sequences        the sequences of the first and the last record of the batch
      offset           the offset of the duplicate's original
      outcome          "duplicate", or Kafka's error
      why              the sentence that the client got
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partition is not None and topic is None:
        raise stop("--partition needs --topic", code=2)
    request = ListVerdictsRequest(topic=topic, partition=partition, producer_id=producer_id, limit=limit)
    with asking(config_file, data_dir) as client:
        pages = client.ask_all(request)
    rows = sorted((row for page in pages for row in page.verdicts), key=lambda row: -row.time_ms)[:limit]
    if as_json:
        print_json({"verdicts": rows, "kept": pages[-1].kept})
    elif rows:
        _print(rows)
    else:
        print_lines("Every batch since the start was stored, or too many others were refused since.")


def _print(rows: list[VerdictRow]) -> None:
    print_table(
        [
            Column("time"),
            Column("partition"),
            Column("producer", number=True),
            Column("epoch", number=True),
            Column("sequences", number=True),
            Column("offset", number=True),
            Column("outcome"),
            Column("client"),
            Column("why"),
        ],
        [
            (
                moment(row.time_ms),
                f"{row.topic}-{row.partition}",
                _number(row.producer_id),
                _number(row.producer_epoch),
                NONE if row.base_sequence < 0 else f"{row.base_sequence}-{row.last_sequence}",
                _number(row.base_offset),
                row.outcome,
                shown(row.client_id, 40) or NONE,
                shown(row.message),
            )
            for row in rows
        ],
    )


def _number(value: int) -> str:
    return NONE if value < 0 else str(value)
