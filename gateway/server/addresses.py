"""Checks an address of a listener before the listener exists."""

from __future__ import annotations

import contextlib
import socket

from gateway.config import Listener


def check_address(listener: Listener) -> None:
    """Check that a server can be bound to the address of the listener, by binding and closing a socket. Raises OSError."""
    found = socket.getaddrinfo(
        listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    for family, kind, protocol, _, address in found:
        with contextlib.ExitStack() as closing:
            try:
                probe = closing.enter_context(socket.socket(family, kind, protocol))
            except OSError:
                continue  # The system lacks IPv6. The event loop leaves the address out, too.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
