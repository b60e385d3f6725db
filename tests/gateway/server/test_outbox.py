"""Sending answers: when one connection ends, the others still get their answers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from seqgate.gateway.server.connection import Outbox


class FakeTransport:
    """A transport like uvloop's: a write after its end raises."""

    def __init__(self) -> None:
        self.closed = False
        self.written: list[bytes] = []

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")
        self.written.append(data)


async def test_a_connection_that_went_away_costs_the_others_nothing() -> None:
    outbox = Outbox(asyncio.get_running_loop())
    gone, first, last = FakeTransport(), FakeTransport(), FakeTransport()
    for transport, answer in ((first, b"1"), (gone, b"2"), (last, b"3"), (first, b"4")):
        outbox.write(cast("Any", transport), answer)
    gone.closed = True
    outbox.flush()
    assert (first.written, gone.written, last.written) == ([b"1", b"4"], [], [b"3"])
