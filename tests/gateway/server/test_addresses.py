"""A listener's address is bound before the listener exists."""

from __future__ import annotations

import socket

import pytest

from seqgate.gateway.config.listeners import parse_listener
from seqgate.gateway.server.server import bound_sockets


def bind(address: str) -> None:
    """Bind the sockets of an address, and close them."""
    for each in bound_sockets(parse_listener(f"PLAINTEXT://{address}")):
        each.close()


def test_a_free_address_stays_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
    bind(address)
    bind(address)


def test_an_address_that_a_server_has_is_refused() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(OSError, match="Address already in use"),
    ):
        bind("{}:{}".format(*server.getsockname()))


def test_every_interface_is_free_only_where_each_is() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(OSError, match="Address already in use"),
    ):
        bind(f":{server.getsockname()[1]}")


def test_a_port_that_only_connections_have_is_free() -> None:
    """A gateway that starts again meets the connections of the one before."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        client = socket.create_connection(address)
        accepted, _ = server.accept()
    accepted.close()
    bind("{}:{}".format(*address))
    client.close()
