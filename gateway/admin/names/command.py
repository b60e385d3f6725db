"""`seqgate names`: the sequence ids of producer names that topics with deduplication remember."""

from __future__ import annotations

import os
from collections.abc import Iterator

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, argument, asks, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.names.messages import NameListing, NameRow, NamesRequest
from seqgate.gateway.admin.options import OnlyPartition, Opened, gateway
from seqgate.gateway.admin.tables import Block, counted, table


@asks(gateway)
def names(
    opened: Opened[Client],
    topic: str | None = argument("TOPIC", autocompletion=topic_names, show_default="all", default=None),
    name: str | None = option("--name", "NAME", "Only this producer name.", show_default="all"),
    partition: OnlyPartition = None,
) -> Output:
    """Show the last sequence ids of producer names.

    A running gateway lists all remembered producer names of topics with message.deduplication.enable. For a
    stopped gateway, the command lists the names in the last snapshots; after a clean stop these are all
    names.

    \b
    Columns:
      persisted     highest persisted sequence id: records up to this one are not stored again
      pushed        highest sequence id that is written
      epoch         highest epoch of the name; records of a lower one are refused
      last active   time since the last record of the name
      pending       whether a transaction with further records of the name is open
      dropped       records of the name that were duplicates, and were not stored, since the gateway started

    Any Kafka client sees the same as the committed offset of the group seqgate-name:NAME; see
    docs/deduplication.md. Exits with 1 when the gateway can't list the names of a partition.
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partition is not None and topic is None:
        raise stop("--partition needs TOPIC", code=2)
    request = NamesRequest(topic, partition, None if name is None else os.fsencode(name))
    with opened as client:
        source, page = client.ask_or_read(request)
    listing = NameListing(source, page.names, page.untold, page.counters)
    return Output(listing, _text(listing), code=1 if listing.untold else 0)


def _text(listing: NameListing) -> Iterator[Block]:
    yield table(
        NameRow,
        listing.names,
        "topic partition name persisted_sequence pushed_sequence epoch age_ms pending dropped_records",
    )
    counters = listing.counters
    if counters is None:
        yield (
            "The gateway is not running; this is what its data directory holds. Unless it was stopped "
            "cleanly, the highest sequence ids of names may be larger:"
        )
        yield "the next start reads that from the log."
    else:
        yield (
            f"{counted(counters.remembered, 'entry', 'entries')} remembered, one for each partition that a "
            "name has written to. Since the gateway started:"
        )
        dropped = counted(counters.dropped_records, "record")
        yield f"  {dropped} acknowledged but not stored, because they were duplicates"
        yield f"  {counted(counters.evicted, 'idle name')} forgotten to make room for a new one"
        expired = counted(counters.expired, "idle name")
        yield f"  {expired} forgotten after message.deduplication.expiration.ms"
        refused = counted(counters.refused, "batch", "batches")
        yield f"  {refused} refused for want of room for a new name"
    for row in listing.untold:
        yield f"Of {row.topic}-{row.partition} the names are unknown: {row.reason}"
