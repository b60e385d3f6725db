"""A proxy before an S3 store that answers badly: before or after the store has carried out a request, never,
or late.

It runs in a thread of its own. A test plans what happens to the next requests of a method; other requests
pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.gateway_process import free_port

_HEAD_LIMIT = 1 << 20


class Fault(enum.Enum):
    """The fault that the proxy injects into one request."""

    NONE = "none"
    BUSY_BEFORE = "503 before the store gets the request"
    BUSY_AFTER = "503 after the store has carried it out"
    CONFLICT_BEFORE = "409 before"
    CONFLICT_AFTER = "409 after"
    RESET_BEFORE = "the connection is reset before"
    RESET_AFTER = "the connection is reset after"
    SILENT_BEFORE = "no answer, and the store gets nothing"
    SILENT_AFTER = "no answer, though the store has carried it out"
    LATE = "503 at once; the store gets the request when the test releases it"
    CUT_ANSWER = "half of the answer, and a reset"
    FLIPPED_BODY = "the store gets the request with one bit of the body flipped"
    STRANGE_404 = "404 with a page that is not the store's"
    STRANGE_403 = "403 without a body"


_BEFORE = {
    Fault.BUSY_BEFORE,
    Fault.CONFLICT_BEFORE,
    Fault.RESET_BEFORE,
    Fault.SILENT_BEFORE,
    Fault.LATE,
    Fault.STRANGE_404,
    Fault.STRANGE_403,
}
AFTER = {Fault.BUSY_AFTER, Fault.CONFLICT_AFTER, Fault.RESET_AFTER, Fault.SILENT_AFTER}
"""The faults after which the store has carried out the request."""


class Answer(NamedTuple):
    """An answer in place of the store's, which gets nothing."""

    status: str
    body: bytes = b""
    headers: tuple[str, ...] = ()

    @staticmethod
    def error(status: str, code: str, message: str = "") -> Answer:
        """Return an error as S3 answers it."""
        return Answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())


_BUSY = Answer.error("503 Slow Down", "SlowDown", "Please reduce your request rate.")
_CONFLICT = Answer.error("409 Conflict", "ConditionalRequestConflict", "A conflicting operation occurred.")
_ANSWERS = {
    Fault.BUSY_BEFORE: _BUSY,
    Fault.BUSY_AFTER: _BUSY,
    Fault.LATE: _BUSY,
    Fault.CONFLICT_BEFORE: _CONFLICT,
    Fault.CONFLICT_AFTER: _CONFLICT,
    Fault.STRANGE_404: Answer("404 Not Found", b"<html>There is nothing here.</html>"),
    Fault.STRANGE_403: Answer("403 Forbidden"),
}


class FaultProxy:
    """The proxy as a context manager. It relays from `port` to `upstream`; each connection has one request."""

    def __init__(self, upstream: int, draw: Callable[[str], Fault] | None = None) -> None:
        """`upstream` is the store's port. `draw` returns what happens to a request of this method for which
        nothing is planned.
        """
        self.port = free_port()
        self.requests: list[str] = []
        """The methods of all requests that came, in order."""
        self.last_head = ""
        """The request line and the headers of the last request, in lower case."""
        self._upstream = upstream
        self._draw = draw or (lambda _method: Fault.NONE)
        self._planned: defaultdict[str, deque[Fault | Answer]] = defaultdict(deque)
        self._held: list[bytes] = []
        self._at_the_store: set[asyncio.Future[bytes]] = set()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._is_open = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(self._run()), daemon=True
        )

    def plan(self, method: str, *faults: Fault | Answer) -> None:
        """Let the next requests of a method (PUT, GET, DELETE) meet these faults or answers."""
        with self._lock:
            self._planned[method].extend(faults)

    def forget_plans(self) -> None:
        """Let all further requests pass."""
        with self._lock:
            self._planned.clear()

    def release(self) -> None:
        """Send the requests that LATE holds to the store, and return when it has carried them out."""
        with self._lock:
            held, self._held = self._held, []
        for request in held:
            asyncio.run_coroutine_threadsafe(self._ask(request), self._loop).result()

    def settle(self) -> None:
        """Return when the store has carried out every request that has come so far and that it gets."""
        asyncio.run_coroutine_threadsafe(self._settled(), self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_open.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=_HEAD_LIMIT)
        self._is_open.set()
        await self._ended.wait()
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            method, request = await _request(reader)
            fault = self._next(method)
            self.last_head = request.partition(b"\r\n\r\n")[0].decode().lower()
            if fault is Fault.FLIPPED_BODY:
                request = _flipped(request)
            if fault is Fault.LATE:
                with self._lock:
                    self._held.append(request)
            is_kept = isinstance(fault, Answer) or fault in _BEFORE
            answer = b"" if is_kept else await self._ask(request)
            if isinstance(fault, Answer) or fault in _ANSWERS:
                answer = _message(fault if isinstance(fault, Answer) else _ANSWERS[fault])
            if fault in {Fault.SILENT_BEFORE, Fault.SILENT_AFTER}:
                await reader.read()  # until the client gives up
            elif fault in {Fault.RESET_BEFORE, Fault.RESET_AFTER}:
                writer.transport.abort()
            elif fault is Fault.CUT_ANSWER:
                writer.write(answer[:-1])
                await writer.drain()
            else:
                writer.write(answer)
                await writer.drain()
        writer.close()

    def _next(self, method: str) -> Fault | Answer:
        with self._lock:
            self.requests.append(method)
            planned = self._planned[method]
            return planned.popleft() if planned else self._draw(method)

    async def _settled(self) -> None:
        await asyncio.gather(*self._at_the_store, return_exceptions=True)

    async def _ask(self, request: bytes) -> bytes:
        """Send a request to the store, and return its answer once the store has closed the connection."""
        asking = asyncio.ensure_future(self._answer(request))
        self._at_the_store.add(asking)
        asking.add_done_callback(self._at_the_store.discard)
        return await asking

    async def _answer(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return a request's method and bytes, with the wish that the store closes the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head[:-4].split(b"\r\n")
    size_bytes = 0
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            size_bytes = int(value)
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    body = await reader.readexactly(size_bytes)
    method = lines[0].split(b" ", 1)[0].decode()
    return method, b"\r\n".join([*kept, b"Connection: close", b"", body])


def _flipped(request: bytes) -> bytes:
    """Return the request with one bit flipped in the middle of its body."""
    body_at = request.index(b"\r\n\r\n") + 4
    middle = (body_at + len(request)) // 2
    return request[:middle] + bytes([request[middle] ^ 1]) + request[middle + 1 :]


def _message(answer: Answer) -> bytes:
    size = f"Content-Length: {len(answer.body)}"
    head = (f"HTTP/1.1 {answer.status}", size, "Connection: close", *answer.headers, "", "")
    return "\r\n".join(head).encode() + answer.body
