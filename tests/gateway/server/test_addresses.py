"""The check of a listener's address before the listener exists."""

from __future__ import annotations

import socket

import pytest

from seqgate.gateway.config.listeners import parse_listener
from seqgate.gateway.server.server import check_address


def test_a_free_address_stays_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
    check_address(parse_listener(f"PLAINTEXT://{address}"))
    check_address(parse_listener(f"PLAINTEXT://{address}"))


def test_an_address_that_a_server_has_is_refused() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(OSError, match="Address already in use"),
    ):
        check_address(parse_listener("PLAINTEXT://{}:{}".format(*server.getsockname())))


def test_every_interface_is_free_only_where_each_is() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(OSError, match="Address already in use"),
    ):
        check_address(parse_listener(f"PLAINTEXT://:{server.getsockname()[1]}"))


def test_a_port_that_only_connections_have_is_free() -> None:
    """A gateway that starts again meets the connections of the one before."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        client = socket.create_connection(address)
        accepted, _ = server.accept()
    accepted.close()
    check_address(parse_listener("PLAINTEXT://{}:{}".format(*address)))
    client.close()
