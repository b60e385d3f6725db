"""`seqgate status`: the state of a running gateway, or of a cluster."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from seqgate import __version__, core
from seqgate.gateway.admin.client import Client, summed
from seqgate.gateway.admin.commands import Output, asks
from seqgate.gateway.admin.names import NameCounters, name_counters
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_cluster
from seqgate.gateway.admin.producers import ProducerCounters, producer_counters
from seqgate.gateway.admin.repair import CutRow, DamagedRow
from seqgate.gateway.admin.request import ControlError, Request
from seqgate.gateway.admin.tables import UNKNOWN, Column, Table, count, counted, duration, moment, shown
from seqgate.gateway.cluster.cache.local_caches import CacheState
from seqgate.gateway.cluster.uploads.progress import UploadProgress
from seqgate.gateway.sizes import size_in_words

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway
    from seqgate.gateway.admin.remote.broker import BrokerAddress
    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.admin.server import Traffic
    from seqgate.gateway.runtime.partitions.registry import Partitions
    from seqgate.gateway.runtime.services import NodeServices, Services

# The request for the status of a gateway, and what `seqgate status --json` prints.


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
    `core` says whether the core is compiled or interpreted. `producers` counts each producer id once, in
    however many partitions of a process it is tracked. `free_bytes` are those of the fullest disk with a data
    directory; None if unknown.
    `is_lease_over`: other gateways may lead the partitions by now, so clients are refused.
    `led_partitions` counts the partitions that this process leads. `workers` has a row for each of several
    workers; then counters are the sums of all, and `pid` and `node_id` are those of the first one that
    answers. `missing_workers` has a sentence about each that does not answer; what it counts is missing.
    """

    version: str
    core: str
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
    is_lease_over: bool = False
    free_bytes: int | None = None


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
    network_right = "DESCRIBE"


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


# The command.


@asks(gateway_or_cluster)
def status(opened: Opened[Asker]) -> Output:
    """Show the status of a running gateway, or of the cluster at --bootstrap.

    All workers and all gateways of a cluster are asked: each has a row, and what they count is summed, so
    that a producer of two of them counts twice.

    Exits with 1 when something is wrong: no gateway runs, one of several does not answer, producers are
    refused because the disk is short of room, a partition is offline, stored batches are damaged, sound
    records were cut off a log, the store of producer ids does not answer, the certificate of a listener
    expires within 14 days, the lease of a gateway is over, producers are refused because the bucket lags
    behind, or the last round of uploads failed or left partitions out.

    Over the Kafka protocol these are wrong: no controller, a broker that does not answer, a log directory
    that is offline, partitions without a leader, and partitions whose replicas are not all in sync. Each
    broker answers within 5 s.
    """
    with opened as client:
        if not isinstance(client, Client):
            found = cluster_status(client.cluster)
            text = Table((Column("cluster"), Column("")), cluster_rows(found))
            return Output(found, [text], code=0 if found.is_well else 1)
        answer = joined_status(*client.ask_each(StatusRequest()))
    wrong = list(_troubles(answer))
    text = Table((Column("gateway"), Column("")), [*_rows(answer), *wrong])
    return Output(answer, [text], code=1 if wrong else 0)


def _rows(answer: Status) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table, but for what is wrong."""
    version = f"{answer.version} ({answer.core} core)"
    yield "listening on", ", ".join(answer.bound.values())
    if answer.bound != answer.listeners:
        yield "tells clients", ", ".join(answer.listeners.values())
    yield "data directory", answer.data_dir
    if answer.free_bytes is not None:
        yield "free on disk", size_in_words(answer.free_bytes)
    if answer.workers:
        yield "version", version
        for row in answer.workers:
            yield f"{_kind(answer)} on node {row.node_id}", _worker(row)
    else:
        yield "process", f"{answer.pid}, version {version}, up for {duration(answer.uptime_ms)}"
    yield "node, cluster", f"{answer.node_id}, {answer.cluster_id}"
    internal = f"({count(answer.internal_topics)} internal)"
    yield "topics, partitions", f"{count(answer.topics)} {internal}, {count(answer.partitions)}"
    yield "connections", f"{count(answer.connections)} now, {count(answer.refused_connections)} refused"
    yield "requests", count(answer.requests)
    if answer.failed_logins:
        yield "failed logins", count(answer.failed_logins)
    for certificate in answer.certificates:
        valid = f"valid until {moment(certificate.valid_until_ms)}"
        yield f"certificate of {certificate.listener}", valid
    if answer.bucket is not None:
        yield from bucket_rows(answer.bucket, answer.uptime_ms)
    yield "flush rounds", f"{count(answer.flush_rounds)}, {count(answer.flush_failures)} failed"
    left = f"{count(answer.producer_ids_left)} claimed ({answer.producer_id_store} store)"
    yield "producer ids left", left
    yield "producers", f"{count(answer.producers)} active"
    counters, names = answer.counters, answer.names
    refused = f"{count(counters.rejections)} refused"
    yield "batches", f"{count(counters.duplicates)} duplicates answered, {refused}"
    dropped = f"{count(names.dropped_records)} records dropped as duplicates"
    yield "producer names", f"{count(names.remembered)} tracked, {dropped}"


def _troubles(answer: Status) -> Iterator[tuple[str, str]]:
    """Yield a row for each thing that is wrong."""
    if answer.is_disk_short:
        refused = counted(answer.disk_refusals, "batch", "batches")
        free = f"less than {size_in_words(answer.min_free_bytes)} free"
        yield "DISK", f"{free}: producers are refused, {refused} so far"
    if answer.producer_id_store_error is not None:
        yield "PRODUCER IDS", answer.producer_id_store_error
    for row in answer.offline_partitions:
        yield "OFFLINE", f"{row.topic}-{row.partition}: {row.reason}"
    for certificate in answer.certificates:
        if certificate.warning:
            yield "CERTIFICATE", f"{certificate.listener}: {certificate.warning}"
    if answer.is_lease_over:
        yield "LEASE", "a gateway's lease is over: clients are refused, others may lead its partitions"
    if answer.bucket is not None:
        yield from _bucket_troubles(answer.bucket)
    for sentence in answer.missing_workers:
        yield _kind(answer).upper(), sentence
    for damaged in answer.damaged:
        yield "DAMAGED", _damage(damaged)
    for cut in answer.cut:
        yield "CUT OFF", cut.sentence


def _kind(answer: Status) -> str:
    return "worker" if answer.bucket is None else "gateway"


def _worker(row: WorkerRow) -> str:
    load = (
        f"{counted(row.partitions, 'partition')}, {counted(row.connections, 'connection')}, "
        f"{counted(row.requests, 'request')}"
    )
    return f"pid {row.pid}, on {', '.join(row.bound)}, up for {duration(row.uptime_ms)}, leads {load}"


def _damage(row: DamagedRow) -> str:
    return (
        f"{row.topic}-{row.partition}: offsets {row.first_offset} to {row.end_offset - 1}, {row.size_bytes} "
        f"bytes at position {row.position} of {row.file}: {row.reason}"
    )


# The rows of `seqgate status` about the bucket.

MONTH_MS: Final = 30 * 24 * 3_600_000
FIRST_ESTIMATE_MS: Final = 10 * 60_000
"""The time after the start from which a month is estimated."""


def bucket_rows(bucket: BucketState, uptime_ms: int) -> Iterator[tuple[str, str]]:
    """Yield the rows about a bucket."""
    kinds = (
        (bucket.puts, "put"),
        (bucket.gets, "get"),
        (bucket.lists, "list"),
        (bucket.deletes, "delete"),
        (bucket.failures, "failure"),
    )
    yield "bucket", bucket.address
    yield "  requests", ", ".join(counted(number, kind) for number, kind in kinds)
    yield "  bytes", f"{count(bucket.bytes_up)} up, {count(bucket.bytes_down)} down"
    a_month = ""
    if uptime_ms >= FIRST_ESTIMATE_MS:  # before that, the requests of the start count most
        a_month = f", ${bucket.us_dollars * MONTH_MS / uptime_ms:,.2f} a month"
    yield "  price", f"${bucket.us_dollars:,.4f} since the start{a_month}, by Amazon's list for S3"
    unwritten = f"{count(bucket.unwritten_bytes)} bytes of at most {count(bucket.unwritten_max_bytes)}"
    yield "  not durable yet", unwritten
    if bucket.uploads is not None:
        yield from _uploads(bucket.uploads)
    if bucket.cache is not None:
        yield "  cache", _cache(bucket.cache)
    if bucket.replica_bytes is not None:
        yield "  read here", f"{count(bucket.replica_bytes)} bytes that other gateways lead"


def _bucket_troubles(bucket: BucketState) -> Iterator[tuple[str, str]]:
    if bucket.is_behind:
        waiting = f"{count(bucket.unwritten_bytes)} bytes are not durable yet"
        yield "BUCKET", f"{waiting}: producers are refused until half of the limit is free; check the store"
    if bucket.uploads is not None and bucket.uploads.error is not None:
        yield "UPLOADS", shown(bucket.uploads.error)


def _uploads(uploads: UploadProgress) -> Iterator[tuple[str, str]]:
    oldest = "" if uploads.oldest_ms is None else f", the oldest for {duration(uploads.oldest_ms)}"
    unsent = f"{count(uploads.wal_bytes)} bytes are only there{oldest}"
    yield "  write-ahead log", f"{counted(uploads.wal_objects, 'object')}; {unsent}"
    if uploads.round_ended_ms_ago is None:
        last = "none has ended yet"
    else:
        ending = "failed" if uploads.error is not None else "succeeded"
        last = f"{ending} {duration(uploads.round_ended_ms_ago)} ago, took {duration(uploads.round_took_ms)}"
    if uploads.running_ms is not None:
        last += f"; one has run for {duration(uploads.running_ms)}"
    yield "  last upload", last


def _cache(cache: CacheState) -> str:
    fetched = f"{counted(cache.blocks_fetched, 'block')} fetched"
    limit = "no limit but the disk" if cache.max_bytes is None else f"limit {count(cache.max_bytes)}"
    return f"{count(cache.local_bytes)} bytes, {limit}; {count(cache.bytes_evicted)} bytes evicted, {fetched}"


# The table of `seqgate status --bootstrap`: what is in order first, then a line for each thing that is wrong.

_SHOWN_APIS: Final = ((0, "Produce"), (1, "Fetch"), (3, "Metadata"))
_SHOWN_PARTITIONS: Final = 20


def cluster_rows(answer: ClusterStatus) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table."""
    yield "cluster", answer.cluster_id
    yield "controller", "-" if answer.controller is None else str(answer.controller)
    internal = f"({count(answer.internal_topics)} internal)"
    yield "topics, partitions", f"{count(answer.topics)} {internal}, {count(answer.partitions)}"
    yield "features", ", ".join(f"{name} {level}" for name, level in answer.features.items()) or "-"
    for broker in answer.brokers:
        yield from _broker_rows(broker)
    if answer.controller is None:
        yield "CONTROLLER", "the cluster has none: topics can be neither created nor altered"
    for heading, troubled in (("OFFLINE", answer.offline), ("UNDER-REPLICATED", answer.under_replicated)):
        for row in troubled[:_SHOWN_PARTITIONS]:
            yield heading, _trouble(row)
        if len(troubled) > _SHOWN_PARTITIONS:
            yield heading, f"and {count(len(troubled) - _SHOWN_PARTITIONS)} more; --json lists all"


def _broker_rows(broker: BrokerStatus) -> Iterator[tuple[str, str]]:
    rack = "" if broker.rack is None else f", rack {shown(broker.rack)}"
    yield f"broker {broker.node_id}", broker.address + rack
    if broker.error is not None:
        yield "BROKER", f"{broker.node_id}: {broker.error}"
        return
    versions = [
        f"{name} {first}–{last}"
        for key, name in _SHOWN_APIS
        for first, last in [broker.apis.get(key, (0, -1))]
        if last >= 0
    ]
    if broker.gateway is not None:
        yield "  process", _worker(broker.gateway)
    yield "  api versions", f"{len(broker.apis)} APIs: {', '.join(versions)}"
    for directory in broker.log_dirs:
        yield "  log directory", _directory(directory)
    for directory in broker.log_dirs:
        if directory.error is not None:
            yield "LOG DIRECTORY", f"{shown(directory.path)} of broker {broker.node_id}: {directory.error}"


def _directory(directory: LogDir) -> str:
    total = UNKNOWN if directory.total_bytes is None else size_in_words(directory.total_bytes)
    free = UNKNOWN if directory.free_bytes is None else size_in_words(directory.free_bytes)
    used = size_in_words(directory.used_bytes)
    return f"{shown(directory.path)}: {used} of partitions, {free} of {total} free"


def _trouble(row: TroubledPartition) -> str:
    leader = "-" if row.leader is None else row.leader
    replicas = f"replicas {_nodes(row.replicas)}, in sync {_nodes(row.in_sync)}"
    return f"{row.topic}-{row.partition}: leader {leader}, {replicas}"


def _nodes(node_ids: list[int]) -> str:
    return ", ".join(map(str, node_ids)) or "-"


# The bucket of several workers, each of which has a cache and a write-ahead log, as that of one gateway.


def joined_bucket(states: Sequence[BucketState | None]) -> BucketState | None:
    """Return one state: sums of counts and limits, and the worst of the uploads; None without a bucket."""
    known = [state for state in states if state is not None]
    if not known:
        return None
    replica_bytes = [state.replica_bytes for state in known if state.replica_bytes is not None]
    caches = [state.cache for state in known if state.cache is not None]
    counted_together: BucketState = summed(known)
    return msgspec.structs.replace(
        counted_together,
        cache=summed(caches) if caches else None,
        replica_bytes=sum(replica_bytes) if replica_bytes else None,
        uploads=_joined_uploads([state.uploads for state in known if state.uploads is not None]),
    )


def _joined_uploads(uploads: Sequence[UploadProgress]) -> UploadProgress | None:
    if not uploads:
        return None
    ended = [each.round_ended_ms_ago for each in uploads]
    return UploadProgress(
        wal_objects=sum(each.wal_objects for each in uploads),
        wal_bytes=sum(each.wal_bytes for each in uploads),
        oldest_ms=_most(each.oldest_ms for each in uploads),
        round_ended_ms_ago=None if None in ended else _most(ended),
        round_took_ms=max(each.round_took_ms for each in uploads),
        error=next((each.error for each in uploads if each.error is not None), None),
        running_ms=_most(each.running_ms for each in uploads),
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


# The status of several workers as that of one gateway.

_SUMMED: Final = (
    "is_disk_short",
    "is_lease_over",
    "disk_refusals",
    "connections",
    "refused_connections",
    "requests",
    "failed_logins",
    "flush_rounds",
    "flush_failures",
    "producer_ids_left",
    "producers",
    "counters",
    "names",
)


def joined_status(
    here: Sequence[Status], others: Sequence[Status] = (), missing: Sequence[str] = ()
) -> Status:
    """Return one status: what gateways count is summed, and each has a row. That of a single process stays as
    it is. `here` are those of one data directory, `missing` has a sentence about each that gave no answer.
    """
    answers = sorted([*here, *others], key=lambda answer: answer.node_id)
    first = here[0]
    if len(answers) == 1 and not missing:
        return first
    certificates = {row.listener: row for answer in answers for row in answer.certificates}
    return msgspec.structs.replace(
        first,
        **{name: summed([getattr(answer, name) for answer in answers]) for name in _SUMMED},
        listeners=_addresses([answer.listeners for answer in answers]),
        bound=_addresses([answer.bound for answer in answers]),
        data_dir=os.path.commonpath([answer.data_dir for answer in here]),
        uptime_ms=max(answer.uptime_ms for answer in answers),
        offline_partitions=[row for answer in answers for row in answer.offline_partitions],
        damaged=[row for answer in answers for row in answer.damaged],
        cut=[row for answer in answers for row in answer.cut],
        certificates=list(certificates.values()),
        bucket=joined_bucket([answer.bucket for answer in answers]),
        free_bytes=min((each.free_bytes for each in answers if each.free_bytes is not None), default=None),
        producer_id_store_error=next(
            (answer.producer_id_store_error for answer in answers if answer.producer_id_store_error), None
        ),
        workers=[worker_row(answer) for answer in answers],
        missing_workers=list(missing),
    )


def _addresses(of_workers: Sequence[dict[str, str]]) -> dict[str, str]:
    names = dict.fromkeys(name for addresses in of_workers for name in addresses)
    return {
        name: ", ".join(addresses[name] for addresses in of_workers if name in addresses) for name in names
    }


# Over the Kafka protocol: what all brokers of a cluster tell. Raises ControlError.

_BROKER_TIMEOUT_S: Final = 5.0
_BROKERS_AT_ONCE: Final = 50
"""Brokers that are asked at the same time; a cluster has seldom more, and each may let this wait."""
_NOBODY: Final = -1


def cluster_status(cluster: Cluster) -> ClusterStatus:
    """Return the state of a cluster. All brokers are asked at once: one that is silent delays no other."""
    from seqgate.gateway.admin.remote.broker import api_versions  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.broker import metadata as cluster_metadata  # noqa: PLC0415

    metadata = cluster_metadata(cluster.reached, _BROKER_TIMEOUT_S)
    versions = api_versions(cluster.reached, _BROKER_TIMEOUT_S)
    brokers = _brokers(cluster, sorted(metadata.brokers, key=lambda entry: entry.node_id))
    rows = [_partition(topic.name, partition) for topic in metadata.topics for partition in topic.partitions]
    offline = [row for row in rows if row.leader is None]
    under_replicated = [
        row for row in rows if row.leader is not None and len(row.in_sync) < len(row.replicas)
    ]
    controller = None if metadata.controller_id == _NOBODY else int(metadata.controller_id)
    is_well = (
        controller is not None
        and not offline
        and not under_replicated
        and all(
            broker.error is None and all(directory.error is None for directory in broker.log_dirs)
            for broker in brokers
        )
    )
    return ClusterStatus(
        cluster_id=metadata.cluster_id or "",
        controller=controller,
        brokers=brokers,
        topics=len(metadata.topics),
        internal_topics=sum(topic.is_internal for topic in metadata.topics),
        partitions=len(rows),
        offline=offline,
        under_replicated=under_replicated,
        features={str(row.name): int(row.max_version_level) for row in versions.finalized_features},
        is_well=is_well,
    )


def _partition(topic: str, row: Any) -> TroubledPartition:
    return TroubledPartition(
        topic=topic,
        partition=int(row.partition_index),
        leader=None if row.leader_id == _NOBODY else int(row.leader_id),
        replicas=[int(node_id) for node_id in row.replica_nodes],
        in_sync=[int(node_id) for node_id in row.isr_nodes],
    )


def _brokers(cluster: Cluster, entries: Sequence[Any]) -> list[BrokerStatus]:
    found: dict[int, BrokerStatus | Exception] = {}

    def ask(number: int) -> None:
        try:
            found[number] = _broker(cluster, entries[number])
        except Exception as error:  # noqa: BLE001 - raised below, where the caller meets it
            found[number] = error

    for first in range(0, len(entries), _BROKERS_AT_ONCE):
        numbers = range(first, min(first + _BROKERS_AT_ONCE, len(entries)))
        threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    brokers = []
    for number in range(len(entries)):
        told = found[number]
        if isinstance(told, Exception):
            raise told
        brokers.append(told)
    return brokers


def _broker(cluster: Cluster, entry: Any) -> BrokerStatus:
    from seqgate.gateway.admin.remote.broker import api_versions  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.operations import told_by  # noqa: PLC0415

    address = cluster.reached.other(entry.host, int(entry.port))
    node_id = int(entry.node_id)
    error, gateway, log_dirs, apis = cluster.trouble_of(node_id), None, [], {}
    if error is not None:
        error = f"the broker at {address.shown} did not answer: {error}"
    else:
        try:
            apis = {
                int(row.api_key): (int(row.min_version), int(row.max_version))
                for row in api_versions(address, _BROKER_TIMEOUT_S).api_keys
            }
            log_dirs = _log_dirs(cluster, address)
            with contextlib.suppress(ControlError):
                gateway = worker_row(told_by(address, StatusRequest(), _BROKER_TIMEOUT_S))
        except ControlError as failed:
            error = str(failed)
    return BrokerStatus(node_id, address.shown, entry.rack or None, error, log_dirs, apis, gateway)


def _log_dirs(cluster: Cluster, address: BrokerAddress) -> list[LogDir]:
    from seqgate.gateway.admin.remote.broker import ask_broker  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.cluster import check, refusal  # noqa: PLC0415

    answer = ask_broker(address, cluster.request(35, 4, topics=None), timeout_s=_BROKER_TIMEOUT_S)
    check(answer, "the log directories can't be listed: ")
    return [
        LogDir(
            path=found.log_dir,
            error=refusal(found.error_code),
            used_bytes=sum(row.partition_size for topic in found.topics for row in topic.partitions),
            total_bytes=_known(getattr(found, "total_bytes", -1)),
            free_bytes=_known(getattr(found, "usable_bytes", -1)),
        )
        for found in answer.results
    ]


def _known(size_bytes: int) -> int | None:
    return None if size_bytes < 0 else int(size_bytes)


# In the gateway: its answer on the control socket, and to a question of another gateway.


def status_live(gateway: LiveGateway, _: StatusRequest) -> Status:
    """Return the state of the gateway."""
    from seqgate.gateway.metadata.image import INTERNAL_TOPICS  # noqa: PLC0415 - slow to import

    services = gateway.services
    traffic = gateway.traffic()
    state = services.coordinators.producer_ids.state()
    prefetched = 0 if state.prefetched is None else state.prefetched.size
    return Status(
        version=__version__,
        core=core.kind(),
        pid=os.getpid(),
        node_id=services.node.node_id,
        cluster_id=services.node.cluster_id,
        data_dir=str(Path(services.node.config.str("log.dirs")).absolute()),
        listeners={name: endpoint.shown for name, endpoint in services.node.brokers.advertised.items()},
        bound={name: endpoint.shown for name, endpoint in services.node.bound.items()},
        uptime_ms=round(gateway.uptime_s() * 1000),
        topics=len(services.partitions.registry.by_name),
        internal_topics=sum(name in INTERNAL_TOPICS for name in services.partitions.registry.by_name),
        partitions=len(services.partitions.registry),
        is_disk_short=services.upkeep.disk_room.is_disk_short,
        min_free_bytes=services.upkeep.disk_room.min_free_bytes,
        disk_refusals=services.upkeep.disk_room.refused_batches,
        offline_partitions=_offline(services.partitions.registry),
        damaged=[DamagedRow.of(*found) for found in services.partitions.log_directory.known_damage()],
        cut=[CutRow.of(*found) for found in services.partitions.log_directory.known_cut_bytes()],
        connections=traffic.connections,
        refused_connections=traffic.refused_connections,
        requests=traffic.requests,
        failed_logins=traffic.failed_logins,
        certificates=_certificates(services.node),
        flush_rounds=services.partitions.flusher.rounds,
        flush_failures=services.partitions.flusher.failures,
        producer_id_store=gateway.blocks.name,
        producer_ids_left=state.left + prefetched,
        producer_id_store_error=state.last_error,
        counters=producer_counters(services.partitions),
        names=name_counters(services.partitions),
        bucket=bucket_state(services, traffic),
        led_partitions=_led(services),
        producers=len(
            {entry.producer_id for each in services.partitions.registry for entry in each.log.producers}
        ),
        free_bytes=services.upkeep.disk_room.free_bytes,
        is_lease_over=services.partitions.registry.may_be_led_elsewhere,
    )


def _led(services: Services) -> int:
    brokers = services.node.brokers
    topics = services.topics.metadata_log.image.topics_by_id.values()
    return sum(brokers.leads(partition) for topic in topics for partition in topic.partitions.values())


def _certificates(node: NodeServices) -> list[ListenerCertificate]:
    from seqgate.gateway.security.certificates import age_warning  # noqa: PLC0415 - slow to import

    now_ms = node.clock.now_ms()
    return [
        ListenerCertificate(name, listener.valid_until_ms, age_warning(listener.valid_until_ms, now_ms))
        for name, listener in node.tls_listeners.items()
    ]


def _offline(partitions: Partitions) -> list[OfflinePartition]:
    """List the partitions that failed while they were open, then those whose files can't be opened."""
    offline = [
        OfflinePartition(partition.topic, partition.index, partition.log.offline_because or "unknown")
        for partition in partitions
        if partition.log.offline
    ]
    offline += [
        OfflinePartition(topic.name, index, "it can't be opened")
        for topic in partitions.by_name.values()
        for index in topic.failed
    ]
    return offline


# The state of a running gateway's bucket.


def bucket_state(services: Services, traffic: Traffic) -> BucketState | None:
    """Return the state of the bucket; None for a gateway without one."""
    calls, unwritten = traffic.calls, services.partitions.flusher.unwritten
    if calls is None or unwritten is None:
        return None
    config, uploads = services.node.config, services.upkeep.find_uploads()
    reads = services.partitions.bucket_reads
    return BucketState(
        address=config.str("seqgate.cluster"),
        puts=calls.puts,
        gets=calls.gets,
        lists=calls.lists,
        deletes=calls.deletes,
        bytes_up=calls.bytes_up,
        bytes_down=calls.bytes_down,
        failures=calls.failures,
        us_dollars=calls.us_dollars,
        unwritten_bytes=unwritten.size_bytes,
        unwritten_max_bytes=config.int("seqgate.cluster.unwritten.max.bytes"),
        is_behind=unwritten.is_too_much,
        cache=traffic.cache,
        uploads=None if uploads is None else uploads.progress(),
        replica_bytes=None if reads is None else reads.bytes_read,
    )
