"""The gateway itself: its version, uptime and readiness, the delay of its event loop, and the certificates of its listeners."""

from __future__ import annotations

from typing import Final

from gateway.admin.status.live import gateway_version
from gateway.metrics.health import each_complaint
from gateway.metrics.metric import Kind, Metric, Samples, Sources, Subject, gauge, histogram

NODE: Final = Metric(
    "seqgate_node_info",
    Kind.INFO,
    "The version of the gateway, its node id and its cluster id; the value is always 1.",
    ("version", "node_id", "cluster_id"),
)
UPTIME: Final = gauge("seqgate_uptime_seconds", "Time since the start.")
READY: Final = gauge("seqgate_ready", "1 while the gateway can take writes, as /readyz tells; otherwise 0.")
DELAY: Final = histogram(
    "seqgate_event_loop_delay_seconds",
    "By how much the event loop was late, measured ten times a second: the time that every request may have waited for its turn.",
)
CERTIFICATE: Final = gauge(
    "seqgate_certificate_expires_timestamp_seconds",
    "Time at which the certificate of a TLS listener expires, in seconds since 1970.",
    "listener",
)


def _read(sources: Sources) -> Samples:
    node = sources.services.node
    yield NODE.at(1, gateway_version(), str(node.node_id), node.cluster_id)
    yield UPTIME.at((node.clock.now_ms() - sources.gateway.started_at_ms) / 1000)
    is_ready = True
    for complaint in each_complaint(sources.gateway):
        is_ready &= complaint is None
        yield None
    yield READY.at(is_ready)
    yield DELAY.at(sources.loop_delay.durations)
    for name, listener in node.tls_listeners.items():
        yield CERTIFICATE.at(listener.valid_until_ms / 1000, name)


SUBJECT: Final = Subject("The gateway", (NODE, UPTIME, READY, DELAY, CERTIFICATE), _read)
