"""Requests handled in tasks, and clients that do not wait for their answers."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering import api as reach
from seqgate.gateway.handlers.answering.api import Api, Deferred
from seqgate.gateway.server.dispatcher import Dispatcher
from tests.gateway.handlers.support import open_node
from tests.support.wire import encode

LIST_GROUPS, VERSION = 16, 4


class Handler:
    """A handler that waits until it is cancelled; `heard` says whether it started, and whether it was
    cancelled.
    """

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def handle(self, context: Any, request: Any) -> Any:
        self.heard.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.heard.append("cancelled")
            raise


@pytest.mark.parametrize("is_eager", [False, True])
@pytest.mark.filterwarnings("error")
async def test_a_client_that_hangs_up_in_the_same_turn(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, *, is_eager: bool
) -> None:
    """The dispatcher begins the client's last pipelined request, and learns only then that the connection is
    lost.
    """
    gc.collect()  # garbage of earlier tests may warn, too
    recwarn.clear()
    handler = Handler()
    api = Api(
        key=LIST_GROUPS,
        versions=(VERSION, VERSION),
        reaches=reach.node,
        handle=handler.handle,
        is_eager=is_eager,
        may_be_given_up=True,
    )
    frame = memoryview(encode("list_groups", VERSION, {"states_filter": []}))
    async with open_node(tmp_path) as node:
        dispatcher = Dispatcher([api], node.services)
        answer = dispatcher.begin(frame, node.peer)
        assert isinstance(answer, Deferred)
        answer.abandon()
        while dispatcher.running:
            await asyncio.sleep(0)
    assert handler.heard == ["begun", "cancelled"]
    del answer
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


async def test_a_large_request_keeps_its_room_until_it_is_decoded(tmp_path: Path) -> None:
    """A request that names too much is counted, too, and its connection closes."""
    names = [f"state-{number}" for number in range(20_000)]
    async with open_node(tmp_path) as node:
        dispatcher = Dispatcher(APIS, node.services)
        answer = dispatcher.begin(memoryview(encode("list_groups", 4, {"states_filter": names})), node.peer)
        assert isinstance(answer, Deferred)
        assert node.peer.holds_room
        while dispatcher.running:
            await asyncio.sleep(0)
        assert not node.peer.holds_room
        assert answer.answer
        groups = [{"group_id": "g", "topics": [{"name": "", "partition_indexes": []}] * 100_000}] * 2
        answer = dispatcher.begin(memoryview(encode("offset_fetch", 8, {"groups": groups})), node.peer)
        assert isinstance(answer, Deferred)
        while dispatcher.running:
            await asyncio.sleep(0)
        assert not node.peer.holds_room
        assert answer.failed


async def test_a_large_request_that_no_thread_can_decode_closes_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    names = [f"state-{number}" for number in range(20_000)]
    async with open_node(tmp_path) as node:
        dispatcher = Dispatcher(APIS, node.services)
        monkeypatch.setattr(asyncio, "to_thread", no_thread)
        answer = dispatcher.begin(memoryview(encode("list_groups", 4, {"states_filter": names})), node.peer)
        assert isinstance(answer, Deferred)
        while dispatcher.running:
            await asyncio.sleep(0)
        assert answer.failed
        assert not node.peer.holds_room
        monkeypatch.undo()
    assert "ListGroups v4 of 127.0.0.1:50312 can't be decoded" in caplog.text


async def test_at_debug_a_request_is_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = memoryview(
        encode("api_versions", 3, {"client_software_name": "x", "client_software_version": "1"})
    )
    async with open_node(tmp_path) as node:
        dispatcher = Dispatcher(APIS, node.services)
        dispatcher.begin(frame, node.peer)
        assert caplog.messages == []
        with caplog.at_level(logging.DEBUG, "seqgate.gateway.server"):
            dispatcher.begin(frame, node.peer)
    assert any(
        message.startswith("127.0.0.1:50312 (client id ") and message.endswith("asks ApiVersions v3")
        for message in caplog.messages
    )
