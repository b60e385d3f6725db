"""Requests and logins on a listener with SASL, counted and timed."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.support.gateway_process import free_port
from tests.support.metrics_text import Values
from tests.system.metrics.scene import LISTENER, await_values
from tests.system.server.test_logins import RIGHT, WRONG, Guarded, ask, handshake


def log_in(connected: socket.socket, message: bytes) -> None:
    assert not handshake(connected)["error_code"]
    ask(connected, "sasl_authenticate", 2, {"auth_bytes": message})


def test_logins(tmp_path: Path) -> None:
    port = free_port()
    guarded = Guarded(tmp_path)
    guarded.gateway.settings[LISTENER] = f"127.0.0.1:{port}"
    with guarded.gateway:
        with guarded.client() as connected:
            log_in(connected, RIGHT)
            for _ in range(3):
                ask(connected, "metadata", 9, {"topics": [], "allow_auto_topic_creation": False})
        with guarded.client() as connected:
            log_in(connected, WRONG)

        def is_counted(values: Values) -> bool:
            return values.of("seqgate_failed_logins_total") == 1

        values = await_values(port, is_counted, "the failed login")
        assert values.of("seqgate_requests_total", api="Metadata") == 3
        assert values.of("seqgate_request_duration_seconds_count", api="Metadata") == 3
        assert not {"SaslHandshake", "SaslAuthenticate"} & values.by("seqgate_requests_total", "api").keys()
