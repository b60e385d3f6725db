"""Connects a load of the benchmark: in the clear, with TLS, or with TLS and a login."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.wire import Plain, decode, encode


class Client:
    """The settings of a client of a secured listener; a client without a user does not log in."""

    def __init__(self, trusted: str, user: str | None = None, password: str = "") -> None:
        self.trusted, self.user, self.password = trusted, user, password

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps([self.trusted, self.user, self.password]))
        return path

    @classmethod
    def read(cls, path: Path) -> Client:
        return cls(*json.loads(path.read_text()))

    @cached_property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.trusted)

    def write_properties(self, path: Path) -> Path:
        """Write the settings of a Java client."""
        path.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        return path

    def _properties(self) -> dict[str, str]:
        tls = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.trusted}
        if self.user is None:
            return {"security.protocol": "SSL", **tls}
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="{self.user}" password="{self.password}";',
            **tls,
        }


def connected(address: tuple[str, int], client: Client | None) -> socket.socket:
    """Return a connection that is ready for requests."""
    opened = socket.create_connection(address)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if client is None:
        return opened
    secured = client.context.wrap_socket(opened, server_hostname=address[0])
    if client.user is not None:
        _call(secured, "sasl_handshake", 1, mechanism="PLAIN")
        token = f"\0{client.user}\0{client.password}".encode()
        _call(secured, "sasl_authenticate", 2, auth_bytes=token)
    return secured


def greet(connection: socket.socket) -> None:
    """Ask for the versions of the broker, as the first request of a client does."""
    _call(connection, "api_versions", 3, client_software_name="bench", client_software_version="1")


def _call(connection: socket.socket, api: str, version: int, **request: Any) -> None:
    frame = encode(api, version, request)
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    answer: Plain = decode(
        api, version, _exactly(connection, *struct.unpack(">i", _exactly(connection, 4)))
    ).fields
    assert answer["error_code"] == 0, answer


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        data = connection.recv(size - len(received))
        assert data, "the broker closed the connection"
        received += data
    return bytes(received)
