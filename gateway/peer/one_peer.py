"""One other gateway: its connection, which is opened when it is needed, and the requests that wait for room on it."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any, Final

from gateway.config import Config
from gateway.peer.address import PeerAddress
from gateway.peer.dialling import Line, dial
from gateway.peer.errors import PeerUnavailable

logger = logging.getLogger(__name__)

MOST_IN_FLIGHT: Final = 100
"""Requests without an answer on one connection; further ones wait. A gateway carries out as many of one connection at once."""
MOST_WAITING: Final = 10_000
"""Requests to one gateway that have no answer yet; further ones are refused with PeerUnavailable."""
SILENCE_S: Final = 10.0
"""A connection without any answer for this time is closed when a request on it times out."""
IDLE_SHARE: Final = 0.75
"""The share of `connections.max.idle.ms` after which an idle connection is replaced. The other gateway would close it soon."""
FIRST_DELAY_S: Final = 0.05
MOST_DELAY_S: Final = 1.0
"""Delays between attempts to connect double from the first to the most: Kafka's reconnect.backoff.ms and its maximum."""
_DOUBLINGS: Final = 10


def _is_cancelled() -> bool:
    """Return whether somebody cancels the current task."""
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


class OnePeer:
    """Asks the gateway at one address, by one connection at a time. A request during the delay after a failed attempt is refused at once."""

    def __init__(self, config: Config, node_id: int, address: PeerAddress, client_id: bytes) -> None:
        self.address = address
        self._config = config
        self._node_id = node_id
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._line: Line | None = None
        self._dialling: asyncio.Task[Line] | None = None
        self._room = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._waiting = 0
        self._failures = 0
        self._next_attempt_s = 0.0
        self._failed_because = ""
        self._closed_because: str | None = None

    async def ask(self, request: Any, timeout_s: float) -> Any:
        """Return the answer to a request. Raises PeerUnavailable."""
        name = f"broker {self._node_id} at {self.address.host}:{self.address.port}"
        if self._waiting >= MOST_WAITING:
            raise PeerUnavailable(f"{name}: {MOST_WAITING} requests wait for it already")
        self._waiting += 1
        try:
            return await self._ask(request, timeout_s)
        except PeerUnavailable as error:
            raise PeerUnavailable(f"{name}: {error}") from None
        finally:
            self._waiting -= 1

    async def close(self, reason: str) -> None:
        """Close the connection; its requests raise PeerUnavailable with this reason."""
        self._closed_because = reason
        dialling = self._dialling
        if dialling is not None:
            dialling.cancel()
            await asyncio.gather(dialling, return_exceptions=True)
        if self._line is not None:
            self._line.connection.close(reason)
            await self._line.connection.finished()

    async def _ask(self, request: Any, timeout_s: float) -> Any:
        line: Line | None = None
        try:
            async with asyncio.timeout(timeout_s), self._room:
                line = await self._ready()
                if not line.knows(request):
                    name = type(request).__name__
                    raise PeerUnavailable(f"it does not know version {request.__version__} of {name}")
                return await line.connection.send(request)
        except TimeoutError:
            if line is not None and line.connection.silent_s() >= min(SILENCE_S, timeout_s):
                line.connection.close("it does not answer")
            raise PeerUnavailable(f"no answer within {timeout_s:g} s") from None

    async def _ready(self) -> Line:
        """Return an open connection. Raises PeerUnavailable."""
        if self._closed_because is not None:
            raise PeerUnavailable(self._closed_because)
        if self._line is not None:
            if not self._is_idle(self._line) and self._line.connection.closed_because is None:
                return self._line
            self._line.connection.close("the connection was idle")
            self._line = None
        if self._dialling is None:
            if self._loop.time() < self._next_attempt_s:
                raise PeerUnavailable(self._failed_because)
            self._dialling = self._loop.create_task(self._dial())
            # The error of an attempt whose callers have given up has nobody left to take it.
            self._dialling.add_done_callback(lambda done: done.cancelled() or done.exception())
        dialling = self._dialling
        try:
            return await asyncio.shield(dialling)
        except asyncio.CancelledError:
            if not dialling.cancelled() or _is_cancelled():
                raise
            raise PeerUnavailable("the connection was not opened any more") from None

    def _is_idle(self, line: Line) -> bool:
        idle_s = IDLE_SHARE * self._config.int("connections.max.idle.ms") / 1000
        return not line.connection.in_flight and self._loop.time() >= line.connection.heard_s + idle_s

    async def _dial(self) -> Line:
        try:
            line = await dial(self._config, self.address, self._client_id)
        except PeerUnavailable as error:
            self._note_failure(str(error))
            raise
        finally:
            self._dialling = None
        if self._failures:
            logger.info("connected to broker %d at %s:%d again", self._node_id, *self.address)
        self._failures = 0
        self._failed_because = ""
        self._line = line
        return line

    def _note_failure(self, reason: str) -> None:
        """Delay the next attempt, and log a new reason once."""
        if reason != self._failed_because:
            logger.warning("broker %d at %s:%d can't be asked: %s", self._node_id, *self.address, reason)
        self._failed_because = reason
        delay_s = min(MOST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self._failures, _DOUBLINGS))
        self._failures += 1
        self._next_attempt_s = self._loop.time() + delay_s * (1 - random.random() / 2)
