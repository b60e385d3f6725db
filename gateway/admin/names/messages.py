"""The request for producer names, and what `seqgate names --json` prints."""

from __future__ import annotations

from typing import Annotated

import msgspec

from seqgate.gateway.admin.request import PagedRequest
from seqgate.gateway.admin.tables import NONE, Column, PartitionNumber, TopicName, duration, known

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


class NameCounters(msgspec.Struct, frozen=True):
    """Counters of producer names; all but `remembered` start at zero with the gateway.

    `remembered`: names remembered now, each counted once per partition. `dropped_records`: records
    acknowledged and not stored. `evicted`: names evicted to make room for new ones. `expired`: names evicted
    because they were idle for too long. `refused`: batches refused because there was no room for a new name.
    """

    remembered: int
    dropped_records: int
    evicted: int
    expired: int
    refused: int


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
