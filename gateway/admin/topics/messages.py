"""The JSON output of `seqgate topics … --json`."""

from __future__ import annotations

from typing import Final

import msgspec


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in a list. `replication_factor` is 0 for a topic whose partitions are not known."""

    topic: str
    topic_id: str
    partitions: int
    replication_factor: int
    is_internal: bool


class PartitionRow(msgspec.Struct, frozen=True):
    """A partition of a topic. `leader` is None where no broker leads it; then its offsets are None."""

    partition: int
    leader: int | None
    replicas: list[int]
    in_sync_replicas: list[int]
    log_start_offset: int | None
    log_end_offset: int | None


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic with its partitions, and the configurations that are set on the topic."""

    topic: str
    topic_id: str
    is_internal: bool
    configs: dict[str, str | None]
    partitions: list[PartitionRow]


class TopicOutcome(msgspec.Struct, frozen=True):
    """The outcome for one topic, such as `created`; `refused` comes with the cluster's `error`."""

    topic: str
    outcome: str
    partitions: int | None = None
    replication_factor: int | None = None
    error: str | None = None


CREATED: Final = "created"
WOULD_BE_CREATED: Final = "would be created"
EXISTS: Final = "exists already"
ALTERED: Final = "altered"
DELETED: Final = "deleted"
WOULD_BE_DELETED: Final = "would be deleted"
REFUSED: Final = "refused"
