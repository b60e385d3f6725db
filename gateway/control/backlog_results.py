"""What the control socket answers about backlogs, and what `seqgate backlog --json` prints."""

from __future__ import annotations

import msgspec


class BacklogReader(msgspec.Struct, frozen=True):
    """A group that reads a partition, at `offset`: what it committed, or the start offset of a share group.

    `backlog_bytes` lie before it. `skipped` counts the records that it was moved over unread since the gateway started,
    by the setting that they were skipped for.
    """

    group: str
    is_share: bool
    offset: int
    backlog_bytes: int
    skipped: dict[str, int]


class PartitionBacklog(msgspec.Struct, frozen=True):
    """A partition as its slowest reader finds it; `slowest` is None when nobody reads it.

    `age_ms` is that of the first record that the slowest has not read, None when there is none or it has no timestamp.
    `exceeded` is the setting that is exceeded. `verdict` is what becomes of producers: `open`, `holding` or `refusing`.
    `refused` counts batches since the gateway started.
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
    """The settings of a topic, −1 for no limit, and some of its partitions; `complete` when no other comes after them.

    `waiting_requests` and `waiting_bytes` are of all topics.
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
