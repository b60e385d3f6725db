"""The answer of a charged request: the quota of its client is charged, whether the client waits or hangs up,
and every answer is sent.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.server.dispatcher import ChargedAnswer
from tests.gateway.handlers.support import FakePeer
from tests.gateway.server.quota_client import limit, serving
from tests.support.wire import encode


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_client_pays_for_its_work_also_when_it_hangs_up(tmp_path: Path, hangs_up: bool) -> None:
    async with serving(tmp_path) as client:
        await limit(client.node, "request_percentage", 0.001)
        seconds = iter(range(10**6))
        client.node.services.node.quotas.seconds = lambda: next(seconds)
        asked = encode("metadata", 9, {"topics": []})
        begun = client.dispatcher.begin(memoryview(asked), client.peer)
        assert isinstance(begun, Deferred)
        if hangs_up:
            begun.abandon()
        while client.dispatcher.running:
            await asyncio.sleep(0)
        client.peer.muted_ms.clear()
        client.node.services.node.quotas.seconds = lambda: 0.0
        answer = await client.ask("metadata", 9, topics=[])
        assert answer["throttle_time"] == 1000


def test_the_last_answer_of_a_connection_is_sent() -> None:
    counted: list[int] = []
    charge: Any = SimpleNamespace(throttle_ms=0, count_time=lambda: counted.append(1))
    begun = Deferred()
    charged = ChargedAnswer(charge, FakePeer(), 3, 9).of(begun)
    assert isinstance(charged, Deferred)
    begun.resolve_last(b"good bye")
    assert (charged.answer, charged.failed) == (b"good bye", True)
    assert counted == [1]


def test_a_late_produce_without_an_answer_sends_nothing() -> None:
    """A held or recompressed batch with acks=0 is resolved with no bytes, into which a throttle time must not
    be written.
    """
    charge: Any = SimpleNamespace(throttle_ms=500, count_time=lambda: None)
    peer = FakePeer()
    begun = Deferred()
    charged = ChargedAnswer(charge, peer, 0, 9).of(begun)
    assert isinstance(charged, Deferred)
    begun.follow(None)
    assert charged.answer == b""
    assert set(peer.muted_ms) == {500}
