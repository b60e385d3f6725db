"""A worker's end of the stream to the process that supervises it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from gateway.workers.messages import (
    Alive,
    BadFrame,
    Change,
    Commit,
    Frames,
    FromWorker,
    Ping,
    Refused,
    encode,
    from_supervisor,
)

logger = logging.getLogger(__name__)

GONE: Final = "the process that supervises this worker is gone"


class SupervisorLink(asyncio.Protocol):
    """Sends commits, keeps the changes that came until the journal takes them, and answers pings."""

    def __init__(self) -> None:
        """Begin without a connection."""
        self.changes: deque[Change] = deque()
        """The changes that are not folded in yet, in the order of the log. The supervisor sends no more than the log has."""
        self.when_changed: Callable[[], None] = lambda: None
        self._frames = Frames(from_supervisor)
        self._transport: asyncio.WriteTransport | None = None
        self._verdicts: dict[int, asyncio.Future[Refused | None]] = {}
        self._numbers = 0
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, connection: socket.socket) -> SupervisorLink:
        """Return the link over a connected socket, which stays open for the end of the process."""
        connection.setblocking(False)
        link = cls()
        await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=connection.dup())
        return link

    async def lost(self) -> str:
        """Wait until the supervisor is gone; return a sentence that says so."""
        return await asyncio.shield(self._lost)

    def send(self, message: FromWorker) -> None:
        """Send a message; a supervisor that is gone gets none."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    async def commit(self, end_offset: int, records: list[bytes]) -> Refused | None:
        """Ask for a change of the log, which ends at `end_offset`; return None once the change is among `changes`, or why it is not."""
        if self._lost.done():
            return Refused(0, GONE)
        self._numbers += 1
        verdict: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
        self._verdicts[self._numbers] = verdict
        self.send(Commit(self._numbers, end_offset, records))
        return await verdict

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = GONE if exc is None else f"{GONE}: {exc}"
        for number, verdict in self._verdicts.items():
            if not verdict.done():
                verdict.set_result(Refused(number, reason))
        self._verdicts.clear()
        if not self._lost.done():
            self._lost.set_result(reason)

    def data_received(self, data: bytes) -> None:
        is_changed = False
        try:
            for message in self._frames.feed(data):
                if isinstance(message, Ping):
                    self.send(Alive())
                elif isinstance(message, Change):
                    is_changed = True
                    self.changes.append(message)
                    self._decide(message.number, None)
                else:
                    self._decide(message.number, message)
        except BadFrame as error:
            logger.error("the supervisor sends what this worker does not understand: %s", error)  # noqa: TRY400
            self.close()
        if is_changed:
            self.when_changed()

    def _decide(self, number: int, refused: Refused | None) -> None:
        verdict = self._verdicts.pop(number, None)
        if verdict is not None and not verdict.done():
            verdict.set_result(refused)
