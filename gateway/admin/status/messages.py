"""The request for the status of a gateway, and what `seqgate status --json` prints."""

from __future__ import annotations

import msgspec

from seqgate.gateway.admin.names import NameCounters
from seqgate.gateway.admin.producers import ProducerCounters
from seqgate.gateway.admin.repair import CutRow, DamagedRow
from seqgate.gateway.admin.request import Request
from seqgate.gateway.cluster.cache.cache_state import CacheState
from seqgate.gateway.cluster.uploads.progress import UploadProgress


class OfflinePartition(msgspec.Struct, frozen=True):
    """A partition that a failed write or flush took out of service."""

    topic: str
    partition: int
    reason: str


class ListenerCertificate(msgspec.Struct, frozen=True):
    """The certificate of a listener; `warning` says what is wrong with its age, None while it is valid."""

    listener: str
    valid_until_ms: int
    warning: str | None


class BucketState(msgspec.Struct, frozen=True):
    """The bucket of a gateway: the calls since the gateway started, the local cache, and what waits for the
    bucket.

    `lists` counts pages, `failures` calls that failed or were refused. `unwritten_bytes` of records are not
    durable yet; at `unwritten_max_bytes` producers are refused (`is_behind`), until half of them are durable.
    `us_dollars` is the price of the requests by Amazon's list for S3 Standard in us-east-1; storage and
    traffic come on top. `replica_bytes` of records that other gateways lead were read here; None without
    `replica.selector.class`.
    """

    address: str
    puts: int
    gets: int
    lists: int
    deletes: int
    bytes_up: int
    bytes_down: int
    failures: int
    us_dollars: float
    unwritten_bytes: int
    unwritten_max_bytes: int
    is_behind: bool
    cache: CacheState | None
    uploads: UploadProgress | None
    replica_bytes: int | None


class WorkerRow(msgspec.Struct, frozen=True):
    """One of several workers, or of several gateways. `partitions` are those it leads; `requests` counts
    since its start.
    """

    node_id: int
    pid: int
    bound: list[str]
    uptime_ms: int
    partitions: int
    connections: int
    requests: int


class Status(msgspec.Struct, frozen=True):
    """The state of a running gateway. Counters of events start at zero with the gateway; the others count the
    present.

    `listeners` are the addresses that the gateway advertises to clients, `bound` those that the gateway
    listens on. `is_disk_short`: the disk has less than `min_free_bytes` free, and producers are refused;
    `disk_refusals` counts the batches refused for that. `bucket` is None for a gateway without `--cluster`.
    `producers` counts each producer id once, in however many partitions it is remembered.
    `led_partitions` counts the partitions that this process leads. `workers` has a row for each of several
    workers; then counters are the sums of all, and `pid` and `node_id` are those of the first one that
    answers. `missing_workers` has a sentence about each that does not answer; what it counts is missing.
    """

    version: str
    pid: int
    node_id: int
    cluster_id: str
    data_dir: str
    listeners: dict[str, str]
    bound: dict[str, str]
    uptime_ms: int
    topics: int
    internal_topics: int
    partitions: int
    is_disk_short: bool
    min_free_bytes: int
    disk_refusals: int
    offline_partitions: list[OfflinePartition]
    damaged: list[DamagedRow]
    cut: list[CutRow]
    connections: int
    refused_connections: int
    requests: int
    failed_logins: int
    certificates: list[ListenerCertificate]
    flush_rounds: int
    flush_failures: int
    producer_id_store: str
    producer_ids_left: int
    producer_id_store_error: str | None
    counters: ProducerCounters
    names: NameCounters
    bucket: BucketState | None
    led_partitions: int = 0
    producers: int = 0
    workers: list[WorkerRow] = []
    missing_workers: list[str] = []


def worker_row(answer: Status) -> WorkerRow:
    """Return the row of one gateway among several."""
    return WorkerRow(
        answer.node_id,
        answer.pid,
        list(answer.bound.values()),
        answer.uptime_ms,
        answer.led_partitions,
        answer.connections,
        answer.requests,
    )


class StatusRequest(Request[Status], tag="status"):
    """The state of the gateway."""

    is_of_each = True


# The JSON output of `seqgate status --bootstrap … --json`: the state of a cluster, as its brokers report it.


class LogDir(msgspec.Struct, frozen=True):
    """A log directory of a broker. `used_bytes` are its partitions'; sizes of the disk: None if unknown."""

    path: str
    error: str | None
    used_bytes: int
    total_bytes: int | None
    free_bytes: int | None


class BrokerStatus(msgspec.Struct, frozen=True):
    """A broker. `error`: why it gave no answer (the rest is empty). `apis`: key to [first, last version].
    `gateway`: what a gateway says of itself; None where the broker is another, or the asker lacks the right.
    """

    node_id: int
    address: str
    rack: str | None
    error: str | None
    log_dirs: list[LogDir]
    apis: dict[int, tuple[int, int]]
    gateway: WorkerRow | None = None


class TroubledPartition(msgspec.Struct, frozen=True):
    """A partition without a leader, or one whose replicas are not all in sync."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


class ClusterStatus(msgspec.Struct, frozen=True):
    """The state of a cluster. `features` are finalized levels. `is_well` is False when something is wrong."""

    cluster_id: str
    controller: int | None
    brokers: list[BrokerStatus]
    topics: int
    internal_topics: int
    partitions: int
    offline: list[TroubledPartition]
    under_replicated: list[TroubledPartition]
    features: dict[str, int]
    is_well: bool
