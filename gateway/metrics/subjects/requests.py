"""Requests, connections and logins."""

from __future__ import annotations

from typing import Final

from gateway.handlers import APIS
from gateway.metrics.metric import Samples, Sources, Subject, counter, gauge, histogram

REQUESTS: Final = counter(
    "seqgate_requests_total", "Requests since the start, by API, without the messages of logins.", "api"
)
DURATION: Final = histogram(
    "seqgate_request_duration_seconds",
    "Time from the whole request to its answer, with the time for which a Produce waits for its flush and a Fetch for records. "
    "Of repeated Produce and OffsetCommit requests ten a second are timed, and each counts for those before it, too.",
    "api",
)
CONNECTIONS: Final = gauge("seqgate_connections", "Open connections of clients.")
REFUSED_CONNECTIONS: Final = counter(
    "seqgate_refused_connections_total", "Connections refused because they exceeded a limit."
)
FAILED_LOGINS: Final = counter("seqgate_failed_logins_total", "Logins that failed.")
DROPPED_READERS: Final = counter(
    "seqgate_dropped_readers_total",
    "Connections closed because all unread answers together had too many bytes (seqgate.response.backlog.max.bytes).",
)
EVICTED_SESSIONS: Final = counter(
    "seqgate_fetch_sessions_evicted_total", "Fetch sessions that made room for other fetch sessions."
)
_NAMES: Final = {api.key: api.name for api in APIS}


def _read(sources: Sources) -> Samples:
    server = sources.server
    refused, _, failed_logins = server.counts
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


SUBJECT: Final = Subject(
    "Requests and connections",
    (
        REQUESTS,
        DURATION,
        CONNECTIONS,
        REFUSED_CONNECTIONS,
        FAILED_LOGINS,
        DROPPED_READERS,
        EVICTED_SESSIONS,
    ),
    _read,
)
