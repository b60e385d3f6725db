"""Requests, connections and logins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from seqgate import __version__, core
from seqgate.gateway.handlers import APIS
from seqgate.gateway.metrics.health import each_complaint
from seqgate.gateway.metrics.metric import Samples, Sources, Subject

requests: Final = Subject("Requests and connections")
REQUESTS: Final = requests.counter(
    "seqgate_requests_total", "Requests since the start, by API, without the messages of logins.", "api"
)
DURATION: Final = requests.histogram(
    "seqgate_request_duration_seconds",
    "Time from the whole request to its answer, with the time for which a Produce waits for its flush and a "
    "Fetch for records. Of repeated Produce and OffsetCommit requests ten a second are timed, and each "
    "counts for those before it, too.",
    "api",
)
CONNECTIONS: Final = requests.gauge("seqgate_connections", "Open connections of clients.")
REFUSED_CONNECTIONS: Final = requests.counter(
    "seqgate_refused_connections_total", "Connections refused because they exceeded a limit."
)
FAILED_LOGINS: Final = requests.counter("seqgate_failed_logins_total", "Logins that failed.")
DROPPED_READERS: Final = requests.counter(
    "seqgate_dropped_readers_total",
    "Connections closed because all unread answers together had too many bytes "
    "(seqgate.response.backlog.max.bytes).",
)
EVICTED_SESSIONS: Final = requests.counter(
    "seqgate_fetch_sessions_evicted_total", "Fetch sessions that made room for other fetch sessions."
)
_NAMES: Final = {api.key: api.name for api in APIS}


@requests.reads
def _read(sources: Sources) -> Samples:
    server = sources.server
    refused, _, failed_logins = server.counts
    if sources.requests is not None:
        counts = sources.requests.counts()
        for key, name in _NAMES.items():
            if counts.get(key):
                yield REQUESTS.at(counts[key], name)
        for key, durations in list(sources.requests.durations.items()):
            yield DURATION.at(durations, _NAMES[key])
    yield CONNECTIONS.at(len(server))
    yield REFUSED_CONNECTIONS.at(refused)
    yield FAILED_LOGINS.at(failed_logins)
    yield DROPPED_READERS.at(server.unread.dropped)
    yield EVICTED_SESSIONS.at(sources.services.partitions.fetch_sessions.evictions)


# What is known of the clients that push metrics of their own (KIP-714). The pushed series themselves are in
# `seqgate.gateway.metrics.table`.

clients: Final = Subject("Metrics of clients")
CLIENTS: Final = clients.gauge("seqgate_telemetry_clients", "Clients that asked for subscriptions lately.")
SERIES: Final = clients.gauge(
    "seqgate_telemetry_series", "Series that clients have pushed and that are shown."
)
PUSHES: Final = clients.counter("seqgate_telemetry_pushes_total", "Pushes of clients that were accepted.")
REFUSED: Final = clients.counter(
    "seqgate_telemetry_refused_pushes_total",
    "Pushes of clients that were refused, by Kafka's error.",
    "error",
)
DROPPED: Final = clients.counter(
    "seqgate_telemetry_dropped_points_total",
    "Pushed measurements that were dropped: of series beyond a limit, of kinds that are not kept, or without "
    "a value.",
)


@clients.reads
def _read_clients(sources: Sources) -> Samples:
    telemetry = sources.services.telemetry
    yield CLIENTS.at(telemetry.known_clients)
    yield SERIES.at(telemetry.series_count)
    yield PUSHES.at(telemetry.counters.pushes)
    for error, count in list(telemetry.counters.refused.items()):
        yield REFUSED.at(count, error)
    yield DROPPED.at(telemetry.counters.dropped_points)


# The gateway itself: its version, uptime and readiness, the delay of its event loop, and the certificates of
# its listeners.

gateway: Final = Subject("The gateway")
NODE: Final = gateway.info(
    "seqgate_node_info",
    "The version of the gateway, its node id and its cluster id, and whether its core is compiled or "
    "interpreted; the value is always 1.",
    "version",
    "node_id",
    "cluster_id",
    "core",
)
UPTIME: Final = gateway.gauge("seqgate_uptime_seconds", "Time since the start.")
READY: Final = gateway.gauge(
    "seqgate_ready", "1 while the gateway can take writes, as /readyz tells; otherwise 0."
)
DELAY: Final = gateway.histogram(
    "seqgate_event_loop_delay_seconds",
    "By how much the event loop was late, measured ten times a second: the time that every request may have "
    "waited for its turn.",
)
CERTIFICATE: Final = gateway.gauge(
    "seqgate_certificate_expires_timestamp_seconds",
    "Time at which the certificate of a TLS listener expires, in seconds since 1970.",
    "listener",
)


@gateway.reads
def _read_node(sources: Sources) -> Samples:
    node = sources.services.node
    yield NODE.at(1, __version__, str(node.node_id), node.cluster_id, core.kind())
    yield UPTIME.at(sources.gateway.uptime_s())
    is_ready = True
    for complaint in each_complaint(sources.gateway):
        is_ready &= complaint is None
        yield None
    yield READY.at(is_ready)
    if sources.requests is not None:
        yield DELAY.at(sources.loop_delay.durations)
    for name, listener in node.tls_listeners.items():
        yield CERTIFICATE.at(listener.valid_until_ms / 1000, name)


# The limits of memory and tables, and how near the gateway is to each. docs/limits.md says what happens at a
# limit.

limits: Final = Subject("Limits")
USED: Final = limits.gauge(
    "seqgate_limit_used", "What counts towards a limit now. The label is the setting of the limit.", "setting"
)
MOST: Final = limits.gauge(
    "seqgate_limit_max", "The limit. A setting without a limit has no value here.", "setting"
)
_UNLIMITED: Final = 2**31 - 1
"""The highest value of a setting of type INT: no limit."""


@limits.reads
def _read_limits(sources: Sources) -> Samples:
    for setting, used, most in _limits(sources):
        yield USED.at(used, setting)
        if 0 < most != _UNLIMITED and most < sys.maxsize:
            yield MOST.at(most, setting)


def _limits(sources: Sources) -> Iterator[tuple[str, int, int]]:
    """Yield setting, use and limit of each table and buffer that all clients share."""
    services, server = sources.services, sources.server
    config, partitions = services.node.config, services.partitions
    environment = partitions.log_directory.environment
    producers = environment.producer_limit
    held = services.upkeep.backlog.held
    yield "max.connections", len(server), config.int("max.connections")
    yield "queued.max.request.bytes", server.memory.used_bytes, server.memory.limit_bytes
    yield "seqgate.response.backlog.max.bytes", server.unread.total_bytes, server.unread.limit_bytes
    yield "seqgate.max.partitions", len(partitions.registry), config.int("seqgate.max.partitions")
    if producers is not None:
        yield "seqgate.producer.max", len(producers), producers.max_in_all
    names = environment.name_budget
    yield "seqgate.deduplication.names.max", names.in_all, names.max_in_all
    delayed = environment.delayed_limit
    yield "seqgate.delayed.records.max", delayed.in_all, delayed.max_in_all
    sessions = partitions.fetch_sessions
    yield "max.incremental.fetch.session.cache.slots", len(sessions), sessions.slots
    yield "seqgate.backlog.hold.max.requests", len(held), held.max_requests
    yield "seqgate.backlog.hold.max.bytes", held.held_bytes, held.max_bytes
    handles = environment.storage.descriptors
    yield "seqgate.log.max.open.files", len(handles), handles.limit
    unwritten = partitions.flusher.unwritten
    if unwritten is not None:
        yield (
            "seqgate.cluster.unwritten.max.bytes",
            unwritten.size_bytes,
            config.int("seqgate.cluster.unwritten.max.bytes"),
        )
