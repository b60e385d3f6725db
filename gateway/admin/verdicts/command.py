"""`seqgate verdicts`: the newest batches that were not stored, and why."""

from __future__ import annotations

from typing import Final

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, asks, option, stop
from seqgate.gateway.admin.options import OnlyPartition, OnlyTopic, Opened, gateway
from seqgate.gateway.admin.tables import table
from seqgate.gateway.admin.verdicts.messages import ListVerdictsRequest, VerdictRow

SHOWN: Final = 100
"""Verdicts that the command shows unless --limit says otherwise."""


@asks(gateway)
def verdicts(
    opened: Opened[Client],
    topic: OnlyTopic = None,
    partition: OnlyPartition = None,
    producer_id: int | None = option("--producer-id", "ID", "Only this producer.", show_default="all", min=0),
    limit: int = option(
        "--limit", "N", "At most this many verdicts.", show_default=True, min=1, default=SHOWN
    ),
) -> Output:
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
    with opened as client:
        page = client.ask(request)
    rows = sorted(page.verdicts, key=lambda row: -row.time_ms)[:limit]
    columns = "time_ms place producer_id producer_epoch sequences base_offset outcome client_id message"
    empty = "Every batch since the start was stored, or too many others were refused since."
    text = table(VerdictRow, rows, columns) if rows else empty
    return Output({"verdicts": rows, "kept": page.kept}, [text])
