"""The interface of a server that its connections use."""

from __future__ import annotations

import socket
from typing import Protocol, TypeVar

from gateway.runtime.partitions.cold_reads import ColdReads
from gateway.server.dispatcher import Requests
from gateway.server.intake import Buffers
from gateway.server.limits import ConnectionLimits
from gateway.server.outbox import Outbox
from gateway.server.unread_answers import UnreadAnswers

Owned_contra = TypeVar("Owned_contra", contravariant=True)


class ConnectionOwner(Buffers, Protocol[Owned_contra]):
    """The parts that all connections of a server share: limits, buffers, memory, and the admission of new
    connections.
    """

    limits: ConnectionLimits
    dispatcher: Requests
    outbox: Outbox
    unread: UnreadAnswers
    cold_reads: ColdReads | None

    def suit_peer(self, connected: socket.socket, peer_host: str) -> None:
        """Set the socket options that suit the address of the peer."""

    def admit(self, connection: Owned_contra) -> float | None:
        """Count a new connection; return None, or the time (s) after which to close it because it exceeds a limit."""

    def dismiss(self, connection: Owned_contra) -> None:
        """Stop counting a connection that is gone."""
