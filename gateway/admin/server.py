"""Answers requests on the control socket of a running gateway. People ask, so its limits are constants."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.request import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    SOCKET_NAME,
    ControlAnswer,
    short_path,
)
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.tasks import end_tasks

if TYPE_CHECKING:
    from seqgate.gateway.admin.restart.live import Restarts
    from seqgate.gateway.cluster.cache.local_caches import CacheState
    from seqgate.gateway.cluster.objects.objects import Counts

logger = logging.getLogger(__name__)

MAX_CLIENTS: Final = 16
"""Connections at a time; the gateway refuses the request of the next one."""
REQUEST_TIMEOUT_S: Final = 5.0
"""Time for the request to arrive, and for the answer to be read; then the connection is closed."""
_SOCKET_MODE: Final = 0o600
_LEAVES_FILE: Final[dict[str, Any]] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""From Python 3.13 on a closed server removes its file, which a restart leaves to the next process."""


class Traffic(NamedTuple):
    """The counts of the listeners: connections now, and refused connections, requests and failed logins since
    the start. `calls` are those to the bucket that holds the records, `cache` are the counts of its local
    cache; None without a bucket.
    """

    connections: int = 0
    refused_connections: int = 0
    requests: int = 0
    failed_logins: int = 0
    calls: Counts | None = None
    cache: CacheState | None = None


class ControlServer:
    """The control socket of one gateway, at `directory`/control.sock. The caller holds the lock of the data
    directory, so a socket file that exists already belongs to a dead gateway.
    """

    def __init__(
        self,
        services: Services,
        directory: Path,
        *,
        traffic: Callable[[], Traffic] = Traffic,
        seconds: Callable[[], float] = time.monotonic,
        metrics: Callable[[], Awaitable[str]] | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        """Take the gateway's `services` to answer about. `traffic` returns the listeners' counters, `seconds`
        the time of a clock that is never set, `metrics` the text of the metrics; `restarts` restarts the
        process.
        """
        self.path = directory / SOCKET_NAME
        started_s = seconds()
        self.gateway = LiveGateway(
            services, traffic, services.node.clock.now_ms(), lambda: seconds() - started_s, metrics, restarts
        )
        """The gateway as operations see it."""
        self._is_kept = False
        """Whether the socket stays open for the process that takes the place of this one."""
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[Any]] = set()

    async def start(self, inherited: Sequence[socket.socket] = ()) -> bool:
        """Begin to answer; return whether the socket was opened. A gateway runs without it as well."""
        bound = inherited[0] if inherited else socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if not inherited:
                self._bind(bound)
            bound.setblocking(False)
            self._server = await asyncio.start_unix_server(
                self._serve, sock=bound, limit=MAX_REQUEST_BYTES, backlog=MAX_CLIENTS, **_LEAVES_FILE
            )
        except OSError as error:
            bound.close()
            logger.warning("no control socket at %s, `seqgate` commands can't connect: %s", self.path, error)
            return False
        return True

    def _bind(self, bound: socket.socket) -> None:
        self.path.unlink(missing_ok=True)
        with short_path(self.path) as path:
            # Nobody can connect before `listen`, so nobody connects before the mode is set.
            bound.bind(path)
            self.path.chmod(_SOCKET_MODE)

    def duplicates(self) -> list[int]:
        """Return a duplicate of the socket: commands wait there once this process has stopped to answer."""
        self._is_kept = self._server is not None
        return [os.dup(each.fileno()) for each in (() if self._server is None else self._server.sockets)]

    async def stop(self) -> None:
        """Stop answering, and drop the requests in progress."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await end_tasks(*self._clients)
        await self.gateway.close()
        if server is not None and not self._is_kept:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if len(self._clients) > MAX_CLIENTS:
                answer = ControlAnswer(error=f"{MAX_CLIENTS} commands are asking already; try again")
            else:
                answer = await self._answer(reader, writer)
            content = msgspec.json.encode(answer)
            if len(content) >= MAX_ANSWER_BYTES:  # a newline follows
                too_long = ControlAnswer(error="the answer is too long; ask for smaller pages")
                content = msgspec.json.encode(too_long)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                writer.write(content + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The client has left, or the gateway is stopping: nobody reads the answer.
            writer.transport.abort()
        finally:
            self._clients.discard(task)
            writer.close()
            if self.gateway.restarts is not None:
                self.gateway.restarts.begin_ordered()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ControlAnswer:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                line = await reader.readuntil(b"\n")
        except TimeoutError:
            return ControlAnswer(error=f"no request came within {REQUEST_TIMEOUT_S:g} s")
        except asyncio.LimitOverrunError:
            return ControlAnswer(error=f"a request has at most {MAX_REQUEST_BYTES} bytes")
        except asyncio.IncompleteReadError:
            return ControlAnswer(error="a request is one line and ends with a newline")
        # Imported with the first command: a start is mostly imports.
        from seqgate.gateway.admin.operations import answer  # noqa: PLC0415

        return await answer(self.gateway, line, writer.get_extra_info("socket"))
