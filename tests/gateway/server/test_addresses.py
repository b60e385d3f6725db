"""A listener's address is bound before the listener exists."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.config.listeners import parse_listener
from seqgate.gateway.server.server import Server, bound_sockets
from tests.support.gateway_process import free_port


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


@pytest.mark.parametrize("host", ["", "[::]"])
async def test_every_interface_takes_connections_of_both_protocols(host: str) -> None:
    listener = parse_listener(f"PLAINTEXT://{host}:{free_port()}")
    checked = bound_sockets(listener)
    families = {each.family for each in checked}
    for each in checked:
        each.close()
    assert socket.AF_INET in families
    server = Server(asyncio.get_running_loop(), load_config(), cast("Any", None))
    port = await server.listen(listener)
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        if family in families:
            socket.create_connection((address, port), timeout=60).close()
    await server.stop_accepting()
    await server.finish(60)


def test_a_name_is_bound_where_its_second_address_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers have `::1 localhost` in /etc/hosts and IPv6 off: a socket is made there, and can't be bound."""
    rows: list[tuple[Any, ...]] = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    (bound,) = bound_sockets(parse_listener("PLAINTEXT://localhost:0"))
    assert bound.getsockname()[0] == "127.0.0.1"
    bound.close()
    del rows[1]
    with pytest.raises(OSError, match="Cannot assign requested address"):
        bound_sockets(parse_listener("PLAINTEXT://localhost:0"))


def test_a_host_is_bound_once_and_only_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    own = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
    rows: list[tuple[Any, ...]] = [own, own]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    (bound,) = bound_sockets(parse_listener(f"PLAINTEXT://localhost:{port}"))
    bound.listen()
    bound.close()
    rows.append((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port)))
    with pytest.raises(OSError, match="Cannot assign requested address"):
        bound_sockets(parse_listener(f"PLAINTEXT://localhost:{port}"))


def test_a_port_that_only_connections_have_is_free() -> None:
    """A gateway that starts again meets the connections of the one before."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        client = socket.create_connection(address)
        accepted, _ = server.accept()
    accepted.close()
    bind("{}:{}".format(*address))
    client.close()
