"""`seqgate names`: the sequence ids of the producer names that topics with message.deduplication.enable
remember.
"""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.names.messages import (
    NameCounters,
    NameListing,
    NameRow,
    NamesRequest,
    UntoldPartition,
)
from seqgate.gateway.admin.options import AsJson, ConfigFile, DataDir, OnlyPartition, asking, stop
from seqgate.gateway.admin.printing import (
    Column,
    counted,
    duration,
    print_json,
    print_lines,
    print_table,
    shown,
)

NONE: Final = -1


def names(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", autocompletion=topic_names, show_default="all")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Only this producer name.", show_default="all"),
    ] = None,
    partition: OnlyPartition = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the last sequence ids of producer names.

    A running gateway lists all remembered producer names of topics with message.deduplication.enable. For a stopped
    gateway, the command lists the names in the last snapshots; after a clean stop these are all names.

    \b
    Columns:
      persisted     highest persisted sequence id: records up to this one are not stored again
      pushed        highest sequence id that is written
      epoch         highest epoch of the name; records of a lower one are refused
      last active   time since the last record of the name
      pending       whether a transaction with further records of the name is open
      dropped       records of the name that were duplicates, and were not stored, since the gateway started

    Any Kafka client sees the same as the committed offset of the group seqgate-name:NAME; see docs/deduplication.md.
    Exits with 1 when the gateway can't list the names of a partition.
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partition is not None and topic is None:
        raise stop("--partition needs TOPIC", code=2)
    request = NamesRequest(topic, partition, None if name is None else os.fsencode(name))
    with asking(config_file, data_dir) as client:
        gateway, pages = client.ask_or_read_all(request)
    listing = NameListing(
        gateway,
        names=[row for page in pages for row in page.names],
        untold=[row for page in pages for row in page.untold],
        counters=pages[-1].counters,
    )
    if as_json:
        print_json(listing)
    else:
        _print_names(listing.names)
        counters = _about_stopped() if listing.counters is None else _about(listing.counters)
        print_lines(*counters, *_about_untold(listing.untold))
    raise typer.Exit(1 if listing.untold else 0)


def _print_names(rows: list[NameRow]) -> None:
    texts = (
        "topic",
        "parti-\ntion",
        "name",
        "persisted",
        "pushed",
        "epoch",
        "last\nactive",
        "pending",
        "dropped",
    )
    numbers = {"parti-\ntion", "persisted", "pushed", "epoch", "last\nactive", "dropped"}
    print_table(
        [Column(text, number=text in numbers) for text in texts],
        [
            (
                row.topic,
                str(row.partition),
                shown(row.name),
                _number(row.persisted_sequence),
                _number(row.pushed_sequence),
                _number(row.epoch),
                duration(row.age_ms),
                "yes" if row.is_pending else "-",
                _number(row.dropped_records),
            )
            for row in rows
        ],
    )


def _number(value: int) -> str:
    return "-" if value == NONE else str(value)


def _about(counters: NameCounters) -> list[str]:
    return [
        (
            f"{counted(counters.remembered, 'entry', 'entries')} remembered, one for each partition that a name "
            "has written to. Since the gateway started:"
        ),
        (
            f"  {counted(counters.dropped_records, 'record')} acknowledged but not stored, because they were "
            "duplicates"
        ),
        f"  {counted(counters.evicted, 'idle name')} forgotten to make room for a new one",
        f"  {counted(counters.expired, 'idle name')} forgotten after message.deduplication.expiration.ms",
        f"  {counted(counters.refused, 'batch', 'batches')} refused for want of room for a new name",
    ]


def _about_stopped() -> list[str]:
    return [
        (
            "The gateway is not running; this is what its data directory holds. Unless it was stopped cleanly, "
            "the highest sequence ids of names may be larger:"
        ),
        "the next start reads that from the log.",
    ]


def _about_untold(untold: list[UntoldPartition]) -> list[str]:
    return [f"Of {row.topic}-{row.partition} the names are unknown: {row.reason}" for row in untold]
