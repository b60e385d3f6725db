"""`seqgate names`: the sequence ids of producer names that topics with deduplication remember."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Output, argument, asks, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import OnlyPartition, Opened, gateway
from seqgate.gateway.admin.request import PagedRequest
from seqgate.gateway.admin.status.messages import NameCounters
from seqgate.gateway.admin.tables import (
    NONE,
    Block,
    Column,
    PartitionNumber,
    TopicName,
    counted,
    duration,
    known,
    table,
)


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
    `seqgate help deduplication`. Exits with 1 when the gateway can't list the names of a partition.
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


# The request for producer names, and what `seqgate names --json` prints.


Position = tuple[str, int, bytes | None]
"""Topic, partition, and the name after which a page begins there; None: the page begins with the first name.
"""


class NameRow(msgspec.Struct, frozen=True):
    """A producer name in one partition. `name` is its text, with escapes for what is not UTF-8; `name_base64`
    are its bytes.

    `persisted_sequence` is the highest persisted sequence id, `pushed_sequence` the highest written one,
    `epoch` the epoch of the name; each is −1 if there is none. `is_pending`: an open transaction holds
    further records of the name. `age_ms` is the time since the last record of the name. `dropped_records`
    counts records that were acknowledged and not stored since the gateway started or the partition was
    reopened; −1 where the gateway is stopped.
    """

    topic: TopicName
    partition: PartitionNumber
    name: Annotated[str, Column("name")]
    name_base64: bytes
    persisted_sequence: Annotated[int, Column("persisted", known)]
    pushed_sequence: Annotated[int, Column("pushed", known)]
    epoch: Annotated[int, Column("epoch", known)]
    last_active_ms: int
    age_ms: Annotated[int, Column("last\nactive", duration)]
    is_pending: bool
    dropped_records: Annotated[int, Column("dropped", known)]

    @property
    def pending(self) -> Annotated[str, Column("pending")]:
        """Whether a transaction with further records of the name is open, as a word."""
        return "yes" if self.is_pending else NONE


class UntoldPartition(msgspec.Struct, frozen=True):
    """A partition whose names the gateway can't list."""

    topic: str
    partition: int
    reason: str


class NamePage(msgspec.Struct, frozen=True):
    """Some of the names, by topic, partition and name. `next` is where the next page begins, None after the
    last page. `counters` is None where the gateway is stopped.
    """

    names: list[NameRow]
    untold: list[UntoldPartition]
    counters: NameCounters | None
    next: Position | None


class NamesRequest(PagedRequest[NamePage], tag="names"):
    """The producer names that partitions remember, or one of the names, by topic, partition and name. `begin`
    is the `next` of the page before.
    """

    is_spread = True
    rows = "names untold"
    topic: str | None = None
    partition: int | None = None
    name: bytes | None = None
    begin: Position | None = None

    def next_page(self, answer: NamePage) -> NamesRequest | None:
        """Return the request for the names from `next` on."""
        return None if answer.next is None else msgspec.structs.replace(self, begin=answer.next)


class NameListing(msgspec.Struct, frozen=True):
    """All requested names. `gateway` is "running" or "stopped"; a stopped gateway has no counters."""

    gateway: str
    names: list[NameRow]
    untold: list[UntoldPartition]
    counters: NameCounters | None
