"""The JSON output of `seqgate status --bootstrap … --json`: the state of a cluster, as its brokers report it."""

from __future__ import annotations

import msgspec


class LogDir(msgspec.Struct, frozen=True):
    """A log directory of a broker. `used_bytes` are those of its partitions; sizes of the disk are None where unknown."""

    path: str
    error: str | None
    used_bytes: int
    total_bytes: int | None
    free_bytes: int | None


class Broker(msgspec.Struct, frozen=True):
    """A broker. `error` is why it gave no answer; the rest is then empty. `apis` maps API keys to [first, last version]."""

    node_id: int
    address: str
    rack: str | None
    error: str | None
    log_dirs: list[LogDir]
    apis: dict[int, tuple[int, int]]


class TroubledPartition(msgspec.Struct, frozen=True):
    """A partition without a leader, or one whose replicas are not all in sync."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


class ClusterStatus(msgspec.Struct, frozen=True):
    """The state of a cluster. `features` are the finalized levels by feature. `is_well` is False when something is wrong."""

    cluster_id: str
    controller: int | None
    brokers: list[Broker]
    topics: int
    internal_topics: int
    partitions: int
    offline: list[TroubledPartition]
    under_replicated: list[TroubledPartition]
    features: dict[str, int]
    is_well: bool
