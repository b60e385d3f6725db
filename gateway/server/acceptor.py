"""The listening sockets of one listener, which can stop accepting connections for a while.

Meanwhile connections wait in the backlog of the system (`socket.listen.backlog.size`), where they cost the gateway nothing. uvloop can't
pause its servers, but a closed server leaves its sockets open if this process has duplicates of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Time (s) after which a listener that failed to accept connections again makes the next attempt."""
MakeProtocol = Callable[[], asyncio.BaseProtocol]


class Acceptor:
    """Accepts connections on the addresses of one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make_protocol: MakeProtocol, backlog: int) -> None:
        self._loop = loop
        self._make_protocol = make_protocol
        self._backlog = backlog
        self._serving: list[asyncio.Server] = []
        self._former: WeakSet[asyncio.Server] = WeakSet()
        """The closed servers that still have connections."""
        self._held: list[socket.socket] = []
        """The sockets while the listener accepts no connections."""
        self._resuming: asyncio.TimerHandle | asyncio.Task[None] | None = None

    async def open(self, host: str | None, port: int) -> tuple[socket.socket, ...]:
        """Begin to accept; return the listening sockets. Raises OSError when the address can't be bound."""
        bound = await self._loop.create_server(
            self._make_protocol, host, port, backlog=self._backlog, reuse_address=True
        )
        self._serving.append(bound)
        return bound.sockets

    def hold(self, seconds: float) -> None:
        """Accept no connections for this time. A pause that has begun stays as it is."""
        if not self._serving or self._held:
            return
        bound = [each for server in self._serving for each in server.sockets]
        try:
            for each in bound:
                self._held.append(socket.socket(fileno=os.dup(each.fileno())))
        except OSError as error:  # No file handle is left, so no connection can be accepted anyway.
            logger.warning("a listener can't hold new connections back: %s", error.strerror)
            self._close_held()
            return
        self._close_servers()
        self._resuming = self._loop.call_later(seconds, self._resume)

    @property
    def is_holding(self) -> bool:
        """Whether the listener accepts no connections for now, so that new ones wait."""
        return bool(self._held)

    def close(self) -> None:
        """Stop accepting connections for good."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._close_servers()
        self._close_held()

    async def wait_closed(self) -> None:
        """Wait until all connections have ended, after `close`."""
        for server in list(self._former):
            await server.wait_closed()

    def _close_servers(self) -> None:
        for server in self._serving:
            server.close()
            self._former.add(server)
        self._serving.clear()

    def _close_held(self) -> None:
        for held in self._held:
            held.close()
        self._held.clear()

    def _resume(self) -> None:
        self._resuming = self._loop.create_task(self._accept_again())

    async def _accept_again(self) -> None:
        while self._held:
            try:
                server = await self._loop.create_server(
                    self._make_protocol, sock=self._held[0], backlog=self._backlog
                )
            except OSError as error:
                logger.warning("a listener can't accept connections again yet: %s", error.strerror)
                self._resuming = self._loop.call_later(RETRY_S, self._resume)
                return
            del self._held[0]
            self._serving.append(server)
