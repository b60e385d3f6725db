"""The JSON output of `seqgate topics … --json`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from seqgate.gateway.admin.tables import NONE, Column, TopicName, count, number


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in a list. `replication_factor` is 0 for a topic whose partitions are not known."""

    topic: TopicName
    topic_id: Annotated[str, Column("topic id")]
    partitions: Annotated[int, Column("partitions", count)]
    replication_factor: Annotated[int, Column("replicas", number)]
    is_internal: bool


def _nodes(node_ids: list[int]) -> str:
    return ",".join(map(str, node_ids)) or NONE


class PartitionRow(msgspec.Struct, frozen=True):
    """A partition of a topic. `leader` is None where no broker leads it; then its offsets are None."""

    partition: Annotated[int, Column("partition", number)]
    leader: Annotated[int | None, Column("leader", number)]
    replicas: Annotated[list[int], Column("replicas", _nodes)]
    in_sync_replicas: Annotated[list[int], Column("in sync", _nodes)]
    log_start_offset: Annotated[int | None, Column("log start", number)]
    log_end_offset: Annotated[int | None, Column("log end", number)]


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic with its partitions, and the configurations that are set on the topic."""

    topic: TopicName
    topic_id: str
    is_internal: bool
    configs: dict[str, str | None]
    partitions: list[PartitionRow]

    @property
    def partition_count(self) -> Annotated[int, Column("partitions", count)]:
        """The number of partitions."""
        return len(self.partitions)

    @property
    def offsets(self) -> Annotated[int, Column("offsets in use", count)]:
        """The number of offsets between the starts and the ends of the logs."""
        return sum((row.log_end_offset or 0) - (row.log_start_offset or 0) for row in self.partitions)


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
