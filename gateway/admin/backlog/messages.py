"""The request for the backlogs of a topic, and what `seqgate backlog --json` prints."""

from __future__ import annotations

import msgspec

from seqgate.gateway.admin.request import PagedRequest


class BacklogReader(msgspec.Struct, frozen=True):
    """A group that reads a partition. `offset` is its committed offset, or the start offset of a share group.

    `backlog_bytes` lie between `offset` and the log end. `skipped` counts the records that the group was
    moved over unread since the gateway started, by the setting that skipped them.
    """

    group: str
    is_share: bool
    offset: int
    backlog_bytes: int
    skipped: dict[str, int]


class PartitionBacklog(msgspec.Struct, frozen=True):
    """The backlog of a partition's slowest group; `slowest` is None when no group reads the partition.

    `age_ms` is the age of the first record that the slowest group has not read, None without such a record or
    its timestamp. `exceeded` is the setting that the backlog exceeds. `verdict` says what happens to
    producers: `open`, `holding` or `refusing`, or `elsewhere` where another gateway leads the partition and
    measures its backlog. `refused` counts batches since the gateway started.
    """

    topic: str
    partition: int
    backlog_bytes: int = 0
    age_ms: int | None = None
    slowest: str | None = None
    exceeded: str | None = None
    verdict: str = "open"
    refused: int = 0
    readers: list[BacklogReader] = []


class BacklogPage(msgspec.Struct, frozen=True):
    """The settings of a topic, −1 for no limit, and some of its partitions; `complete`: no partition comes
    after them.

    `waiting_requests` and `waiting_bytes` count requests to all topics.
    """

    topic: str
    quota_bytes: int
    quota_ms: int
    policy: str
    ttl_ms: int
    waiting_requests: int
    waiting_bytes: int
    partitions: list[PartitionBacklog]
    complete: bool


class BacklogRequest(PagedRequest[BacklogPage], tag="backlog"):
    """The backlogs of a topic, with its partitions from the first one after `after` on.

    A page ends when it has `limit` groups.
    """

    is_spread = True
    rows = "partitions"
    key = "partition"
    topic: str
    after: int | None = None
