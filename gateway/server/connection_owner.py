"""The interface of a server that its connections use."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol, TypeVar

from gateway.runtime.partitions.cold_reads import ColdReads
from gateway.server.dispatcher import Dispatcher
from gateway.server.limits import ConnectionLimits
from gateway.server.outbox import Outbox
from gateway.server.request_memory import RequestMemory
from gateway.server.unread_answers import UnreadAnswers

Owned_contra = TypeVar("Owned_contra", contravariant=True)


class ConnectionOwner(Protocol[Owned_contra]):
    """What all connections of a server share: limits, buffers, memory, and the way in and out."""

    loop: asyncio.AbstractEventLoop
    limits: ConnectionLimits
    dispatcher: Dispatcher
    memory: RequestMemory
    outbox: Outbox
    unread: UnreadAnswers
    cold_reads: ColdReads | None
    receive_buffer: memoryview
    """The buffer that all sockets are read into."""
    received: memoryview
    """The same bytes, read-only."""

    def suit_peer(self, connected: socket.socket, peer_host: str) -> None:
        """Set the options of a socket that suit where its peer is."""

    def admit(self, connection: Owned_contra) -> bool:
        """Count a new connection and return True, or return False when it exceeds a limit."""

    def dismiss(self, connection: Owned_contra) -> None:
        """Stop counting a connection that is gone."""

    def count_held(self, more_bytes: int) -> None:
        """Count bytes that a connection keeps until it may begin more requests; negative when it gives bytes back."""
