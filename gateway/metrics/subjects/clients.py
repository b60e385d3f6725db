"""What is known of the clients that push metrics of their own (KIP-714). The pushed series themselves are in `gateway.metrics.exposition`."""

from __future__ import annotations

from typing import Final

from gateway.metrics.metric import Samples, Sources, Subject, counter, gauge

CLIENTS: Final = gauge("seqgate_telemetry_clients", "Clients that asked for subscriptions lately.")
SERIES: Final = gauge("seqgate_telemetry_series", "Series that clients have pushed and that are shown.")
PUSHES: Final = counter("seqgate_telemetry_pushes_total", "Pushes of clients that were accepted.")
REFUSED: Final = counter(
    "seqgate_telemetry_refused_pushes_total",
    "Pushes of clients that were refused, by Kafka's error.",
    "error",
)
DROPPED: Final = counter(
    "seqgate_telemetry_dropped_points_total",
    "Pushed measurements that were dropped: of series beyond a limit, of kinds that are not kept, or without a value.",
)


def _read(sources: Sources) -> Samples:
    telemetry = sources.services.telemetry
    yield CLIENTS.at(telemetry.known_clients)
    yield SERIES.at(telemetry.series_count)
    yield PUSHES.at(telemetry.counters.pushes)
    for error, count in list(telemetry.counters.refused.items()):
        yield REFUSED.at(count, error)
    yield DROPPED.at(telemetry.counters.dropped_points)


SUBJECT: Final = Subject("Metrics of clients", (CLIENTS, SERIES, PUSHES, REFUSED, DROPPED), _read)
