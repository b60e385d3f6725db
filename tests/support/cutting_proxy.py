"""A proxy that cuts all connections when a request of one API arrives, as if the endpoint died.

The endpoint must advertise the proxy's address. The proxy notes the requests of one client id, and which of
them were answered.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from types import TracebackType
from typing import Self

KEY_AND_CLIENT_ID = struct.Struct(">h2x4xh")
_NOT_NOTED = -1


class CuttingProxy:
    """Relays from `port` to `upstream` until `cut_at` arrives for the `times`-th time; `open` relays again.

    `answered` has the API keys of answered requests since the cut.
    """

    def __init__(self, port: int, upstream: int, *, client_id: str, cut_at: int, times: int) -> None:
        self.was_cut = threading.Event()
        self.answered: list[int] = []
        self._port = port
        self._upstream = upstream
        self._client_id = client_id.encode()
        self._cut_at = cut_at
        self._times = times
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self._pending: list[deque[int]] = []

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def unanswered(self) -> list[int]:
        """The API keys of noted requests that open connections wait for; an ended connection waits for
        nothing.
        """
        with self._lock:
            return [key for pending in self._pending for key in pending if key != _NOT_NOTED]

    def open(self) -> None:
        """Accept connections, at first or again after the cut."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen()
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _close(self) -> None:
        """Refuse new connections, and end those there are."""
        with self._lock:
            ended, self._connections = self._connections, []
            if self._listener is not None:
                ended.append(self._listener)
                self._listener = None
        for one in ended:
            _end(one)
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                there = socket.create_connection(("127.0.0.1", self._upstream))
                with self._lock:
                    self._connections += [client, there]
                    pending: deque[int] = deque()
                    self._pending.append(pending)
                for relay, *sockets in (
                    (self._pass_requests, client, there),
                    (self._pass_answers, there, client),
                ):
                    threading.Thread(target=relay, args=(*sockets, pending), daemon=True).start()

    def _pass_requests(self, client: socket.socket, there: socket.socket, pending: deque[int]) -> None:
        with contextlib.suppress(OSError):
            while True:
                frame = _frame(client)
                key, client_id_bytes = KEY_AND_CLIENT_ID.unpack_from(frame, 4)
                start = 4 + KEY_AND_CLIENT_ID.size
                is_noted = frame[start : start + client_id_bytes] == self._client_id
                if is_noted and self._is_cut(key):
                    break
                with self._lock:
                    pending.append(key if is_noted else _NOT_NOTED)
                there.sendall(frame)
        self._forget(pending)
        _end(there)

    def _pass_answers(self, there: socket.socket, client: socket.socket, pending: deque[int]) -> None:
        with contextlib.suppress(OSError):
            while True:
                frame = _frame(there)
                client.sendall(frame)
                with self._lock:
                    key = pending.popleft()
                if key != _NOT_NOTED and self.was_cut.is_set():
                    self.answered.append(key)
        self._forget(pending)
        _end(client)

    def _forget(self, pending: deque[int]) -> None:
        with self._lock:
            self._pending = [other for other in self._pending if other is not pending]

    def _is_cut(self, key: int) -> bool:
        if self.was_cut.is_set() or key != self._cut_at:
            return False
        self._times -= 1
        if self._times:
            return False
        self._close()
        self.was_cut.set()
        return True


def _frame(reader: socket.socket) -> bytes:
    head = _exactly(reader, 4)
    return head + _exactly(reader, int.from_bytes(head, "big"))


def _exactly(reader: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = reader.recv(size - len(received))
        if not part:
            raise ConnectionError("the connection has ended")
        received += part
    return bytes(received)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
