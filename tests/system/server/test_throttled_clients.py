"""Clients over a quota: a stop does not wait for throttled clients, and the gateway notices when one hangs
up, although it does not read from it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.status import StatusRequest
from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Plain, Wire
from tests.system.server.test_connections import create, eventually, offset_of, produce

HOUR_MS = 3_600_000


def limit(gateway: GatewayProcess, entity: Plain, key: str, value: float) -> None:
    ops = [{"key": key, "value": value, "remove": False}]
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call(
            "alter_client_quotas", 1, entries=[{"entity": [entity], "ops": ops}], validate_only=False
        )
    assert answer.fields["entries"][0]["error_code"] == 0


@contextmanager
def throttled(directory: Path) -> Iterator[tuple[GatewayProcess, Wire]]:
    """Yield a gateway and a client that it throttles for more than an hour."""
    with GatewayProcess(directory) as gateway:
        create(gateway, "throttled")
        limit(gateway, {"entity_type": "user", "entity_name": "ANONYMOUS"}, "producer_byte_rate", 1)
        with Wire(gateway.bootstrap) as wire:
            answer = wire.call("produce", 9, produce("throttled", Batch(records(1, 4000))))
            assert offset_of(answer) == 0
            assert answer.fields["throttle_time"] > HOUR_MS
            wire.send("metadata", 9, {"topics": []})
            yield gateway, wire


def connections(directory: Path) -> int:
    traffic = ask(directory, StatusRequest()).connections
    assert isinstance(traffic, int)
    return traffic


def test_a_stop_does_not_wait_for_a_throttled_client(tmp_path: Path) -> None:
    with throttled(tmp_path) as (gateway, _):
        gateway.stop()
        assert "still unanswered" not in gateway.stderr_text()


def test_a_throttled_client_that_hangs_up_is_noticed(tmp_path: Path) -> None:
    with throttled(tmp_path) as (_, wire):
        assert connections(tmp_path) == 1
        wire.close()
        eventually(lambda: connections(tmp_path) == 0, "the gateway drops the connection")


def test_connections_over_the_quota_of_their_address_are_closed_late(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        limit(gateway, {"entity_type": "ip", "entity_name": "127.0.0.1"}, "connection_creation_rate", 1)
        host, port = gateway.bootstrap.split(":")
        with ExitStack() as closing:
            opened = [
                closing.enter_context(socket.create_connection((host, int(port)), 10)) for _ in range(14)
            ]
            for refused in opened[-2:]:
                assert refused.recv(1) == b""
            assert refused_connections(tmp_path) >= 2
            opened[0].setblocking(False)
            with pytest.raises(BlockingIOError):
                opened[0].recv(1)
            # a connection that waits for its end does not delay the end of the gateway
            closing.enter_context(socket.create_connection((host, int(port)), 10))
            gateway.stop()
        assert "Traceback" not in gateway.stderr_text()
        assert "connection_creation_rate" in gateway.stderr_text()


def refused_connections(directory: Path) -> int:
    return int(ask(directory, StatusRequest()).refused_connections)
