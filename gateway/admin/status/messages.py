"""The request for the status of a gateway, and what `seqgate status --json` prints."""

from __future__ import annotations

import msgspec

from gateway.admin.damage.messages import CutRow, DamagedRow
from gateway.admin.names.messages import NameCounters
from gateway.admin.producers.messages import ProducerCounters
from gateway.admin.request import Request


class OfflinePartition(msgspec.Struct, frozen=True):
    """A partition that a failed write or flush took out of service."""

    topic: str
    partition: int
    reason: str


class Certificate(msgspec.Struct, frozen=True):
    """The certificate that a listener shows; `warning` says what is wrong with its age, None while it is valid for long enough."""

    listener: str
    valid_until_ms: int
    warning: str | None


class BucketCache(msgspec.Struct, frozen=True):
    """The local cache of the bucket. `max_bytes` is None where only the disk limits `local_bytes`.

    `blocks_fetched` counts blocks of 1 MiB that came from the bucket since the start, `blocks_waited_for` those of them that nobody had
    fetched before they were read.
    """

    local_bytes: int
    max_bytes: int | None
    blocks_fetched: int
    blocks_waited_for: int
    bytes_evicted: int


class BucketUploads(msgspec.Struct, frozen=True):
    """What only the write-ahead log has, and the last round of uploads.

    `wal_objects` are not deleted yet, `wal_bytes` are in no manifest yet, and the oldest of them came `oldest_ms` ago. `error` is why the
    last round ended early or left partitions out. `running_ms` is how long the present round has run; None between two rounds.
    """

    wal_objects: int
    wal_bytes: int
    oldest_ms: int | None
    round_ended_ms_ago: int | None
    round_took_ms: int
    error: str | None
    running_ms: int | None


class BucketState(msgspec.Struct, frozen=True):
    """The bucket of a gateway: the calls since the gateway started, the local cache, and what waits for the bucket.

    `lists` counts pages, `failures` calls that failed or were refused. `unwritten_bytes` of records are not durable yet; at
    `unwritten_max_bytes` producers are refused (`is_behind`), until half of them are durable. `us_dollars` is the price of the requests by Amazon's list for S3 Standard in us-east-1; storage and traffic come on top.
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
    cache: BucketCache | None
    uploads: BucketUploads | None


class Status(msgspec.Struct, frozen=True):
    """The state of a running gateway. Counters of events start at zero with the gateway; the others count the present.

    `listeners` are the addresses that the gateway advertises to clients, `bound` those that the gateway
    listens on. `is_disk_short`: the disk has less than `min_free_bytes` free, and producers are refused;
    `disk_refusals` counts the batches refused for that. `bucket` is None for a gateway without `--cluster`.
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
    certificates: list[Certificate]
    flush_rounds: int
    flush_failures: int
    producer_id_store: str
    producer_ids_left: int
    producer_id_store_error: str | None
    counters: ProducerCounters
    names: NameCounters
    bucket: BucketState | None


class StatusRequest(Request[Status], tag="status"):
    """The state of the gateway."""
