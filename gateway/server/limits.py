"""The limits of connections, as set now."""

from __future__ import annotations

from typing import NamedTuple

from gateway.config import Config


class ConnectionLimits(NamedTuple):
    """The limits of connections; `docs/configuration.md` describes the settings of the same names."""

    request_max_bytes: int
    response_backlog_bytes: int
    in_flight_requests: int
    idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    loopback_congestion_control: str | None

    @classmethod
    def of(cls, config: Config) -> ConnectionLimits:
        return cls(
            request_max_bytes=config.int("socket.request.max.bytes"),
            response_backlog_bytes=config.int("seqgate.connection.response.backlog.bytes"),
            in_flight_requests=config.int("seqgate.connection.max.in.flight.requests"),
            idle_ms=config.int("connections.max.idle.ms"),
            send_buffer_bytes=config.int("socket.send.buffer.bytes"),
            receive_buffer_bytes=config.int("socket.receive.buffer.bytes"),
            loopback_congestion_control=config.optional_str("seqgate.loopback.congestion.control"),
        )
