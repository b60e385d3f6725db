"""Replaces `load.c` on machines without a C compiler: the same arguments, plan and output, at a higher cost.

It also speaks TLS and logs in, which `load.c` does not: a last argument is the file that `Client.write`
wrote.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import ssl
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from tests.performance.secured_client import Client, connected
from tests.support.batches import read_batches

PLAN_HEAD = struct.Struct("<5I")
CRC_AT, CRC_FROM, LAST_OFFSET_DELTA_AT, BASE_SEQUENCE_AT, TAGS_AFTER_BATCH = 17, 21, 23, 53, 3
SILENCE_S = 30.0
TICK_S = 0.001
SEQUENCE_HEADER = b"dedup.sequence\x26"
DIGITS = 19


@dataclass
class Connection:
    frame: bytearray
    patch_at: int
    answer_at: int
    records: int
    offset_at: int
    socket: socket.socket
    due_s: float = 0.0
    correlation_id: int = 0
    base_sequence: int = 0
    fetch_offset: int = 0
    session_id: int = 0
    session_epoch: int = 0
    unsent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    started: deque[float] = field(default_factory=deque)
    digits_at: list[int] = field(default_factory=list)
    next_sequence: int = 1

    def find_digits(self) -> None:
        at = self.frame.find(SEQUENCE_HEADER)
        while at >= 0:
            self.digits_at.append(at + len(SEQUENCE_HEADER))
            at = self.frame.find(SEQUENCE_HEADER, at + 1)

    def take(self) -> None:
        """Read what has arrived. TLS keeps bytes that the selector does not see, so read until there are
        none.
        """
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                data = self.socket.recv(1 << 20)
                if not data:
                    raise SystemExit("the broker closed a connection")
                self.received += data
                if not isinstance(self.socket, ssl.SSLSocket):
                    return

    def next_frame(self, kind: str) -> bytes:
        struct.pack_into(">i", self.frame, 8, self.correlation_id)
        self.correlation_id += 1
        if kind == "ask":
            return bytes(self.frame)
        if kind == "fetch":
            struct.pack_into(">ii", self.frame, self.patch_at, self.session_id, self.session_epoch)
            struct.pack_into(">q", self.frame, self.offset_at, self.fetch_offset)
            return bytes(self.frame)
        for at in self.digits_at:
            self.frame[at : at + DIGITS] = b"%0*d" % (DIGITS, self.next_sequence)
            self.next_sequence += 1
        at = self.patch_at
        struct.pack_into(">i", self.frame, at + BASE_SEQUENCE_AT, self.base_sequence)
        checked = memoryview(self.frame)[at + CRC_FROM : len(self.frame) - TAGS_AFTER_BATCH]
        struct.pack_into(">I", self.frame, at + CRC_AT, crc32c(checked))
        (last_offset_delta,) = struct.unpack_from(">I", self.frame, at + LAST_OFFSET_DELTA_AT)
        self.base_sequence = (self.base_sequence + last_offset_delta + 1) & 0x7FFFFFFF
        return bytes(self.frame)


class Load:
    def __init__(
        self,
        kind: str,
        host: str,
        port: str,
        plan: str,
        seconds: str,
        limit: str,
        depth: str,
        rate: str,
        client: str | None = None,
    ) -> None:
        self._client = Client.read(Path(client)) if client else None
        self._kind = kind
        self._fetching = kind == "fetch"
        self._limit = int(limit)
        self._depth = int(depth)
        self._rate = float(rate)
        self._seconds = float(seconds)
        self._selector = selectors.DefaultSelector()
        self._connections = self._read(Path(plan).read_bytes(), (host, int(port)))
        self._interval_s = len(self._connections) / self._rate if self._rate else 0.0
        self._begun = self._records = self._errors = self._first_error = self._answer_bytes = 0
        self._latencies: list[float] = []

    def _read(self, plan: bytes, address: tuple[str, int]) -> list[Connection]:
        connections = []
        at = 0
        while at < len(plan):
            size, patch_at, answer_at, records, offset_at = PLAN_HEAD.unpack_from(plan, at)
            at += PLAN_HEAD.size
            opened = connected(address, self._client)
            opened.setblocking(False)
            frame = bytearray(plan[at : at + size])
            connection = Connection(frame, patch_at, answer_at, records, offset_at, opened)
            if self._kind == "produce":
                connection.find_digits()
            self._selector.register(opened, selectors.EVENT_READ, connection)
            connections.append(connection)
            at += size
        return connections

    def run(self) -> int:
        start = time.monotonic()
        self._deadline = start + self._seconds
        for number, connection in enumerate(self._connections):
            connection.due_s = start + number * self._interval_s / len(self._connections)
            self._push(connection)
        heard = start
        while len(self._latencies) < self._begun or self._is_paced_on():
            ready = self._selector.select(TICK_S if self._rate else SILENCE_S)
            for connection in self._connections if self._rate else ():
                self._push(connection)
            heard = time.monotonic() if ready else heard
            if time.monotonic() - heard >= SILENCE_S and len(self._latencies) < self._begun:
                print(f"no answer for {SILENCE_S} s", file=sys.stderr)
                return 4
            for key, events in ready:
                if events & selectors.EVENT_READ:
                    self._pull(key.data)
                self._push(key.data)
        self._tell(time.monotonic() - start)
        return 5 if self._errors else 0

    def _is_paced_on(self) -> bool:
        return bool(self._rate) and self._begun != (self._limit or -1) and time.monotonic() < self._deadline

    def _push(self, connection: Connection) -> None:
        now = time.monotonic()
        while (
            len(connection.started) < self._depth
            and connection.due_s <= now < self._deadline
            and self._begun != (self._limit or -1)
        ):
            connection.due_s += self._interval_s
            connection.started.append(now)
            connection.unsent += connection.next_frame(self._kind)
            self._begun += 1
        if connection.unsent:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                del connection.unsent[: connection.socket.send(connection.unsent)]
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
            self._selector.modify(connection.socket, events, connection)

    def _pull(self, connection: Connection) -> None:
        connection.take()
        received = connection.received
        while len(received) >= 4 and len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
            answer = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            self._latencies.append(time.monotonic() - connection.started.popleft())
            self._answer_bytes += 4 + size
            code = (
                self._take_fetched(connection, answer)
                if self._fetching
                else self._take_produced(connection, answer)
            )
            if code and not self._errors:
                self._first_error = code
            self._errors += bool(code)

    def _take_produced(self, connection: Connection, answer: bytes) -> int:
        (code,) = struct.unpack_from(">h", answer, connection.answer_at)
        self._records += 0 if code else connection.records
        return int(code)

    def _take_fetched(self, connection: Connection, answer: bytes) -> int:
        code, session_id = struct.unpack_from(">hi", answer, 9)
        if code:
            return int(code)
        connection.session_id = session_id
        connection.session_epoch += bool(session_id)
        at = connection.answer_at
        if answer[15] < 2 or answer[at] < 2:
            connection.fetch_offset = 0
            return 0
        code, high_watermark = struct.unpack_from(">hq", answer, at + 5)
        at += 1 + 4 + 2 + 8 + 8 + 8 + 1 + 4
        while answer[at] & 0x80:
            at += 1
        before = connection.fetch_offset
        for batch in read_batches(answer[at + 1 :])[0]:
            connection.fetch_offset = batch.base_offset + batch.last_offset_delta + 1
        self._records += connection.fetch_offset - before
        if connection.fetch_offset >= high_watermark:
            connection.fetch_offset = 0
        return int(code)

    def _tell(self, seconds: float) -> None:
        ordered = sorted(self._latencies)
        quantiles = {
            f"{name}_ms": round(ordered[int(part * (len(ordered) - 1))] * 1000, 3) if ordered else 0.0
            for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        }
        counts = {"requests": len(ordered), "records": self._records, "answer_bytes": self._answer_bytes}
        errors = {"errors": self._errors, "first_error": self._first_error}
        print(json.dumps({**counts, **errors, "seconds": seconds, **quantiles}))


if __name__ == "__main__":
    sys.exit(Load(*sys.argv[1:]).run())
