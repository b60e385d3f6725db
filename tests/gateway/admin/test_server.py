"""The control socket: which users may connect, how large a request may be, and how long it may take."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seqgate.gateway.admin import client, operations, server
from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.pids import BlockPage, ClaimBlockRequest, ListBlocksRequest, MoveNextRequest
from seqgate.gateway.admin.request import (
    LONGEST_PATH_BYTES,
    MAX_REQUEST_BYTES,
    SOCKET_NAME,
    ControlError,
    NotRunning,
    Request,
    short_path,
)
from seqgate.gateway.admin.server import ControlServer
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.admin.tasks import ListTasksRequest
from seqgate.gateway.runtime.topics.producer_ids import EmbeddedBlockStore
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with one partition, whose data directory is not that of the control sockets."""
    async with open_node(tmp_path / "data") as opened:
        await create(opened, "a")
        yield opened


@pytest.fixture
async def running(node: Node, tmp_path: Path) -> AsyncIterator[Path]:
    """The directory of a running control server."""
    control = ControlServer(node.services, tmp_path)
    assert await control.start()
    yield tmp_path
    await control.stop()


class StatusOfAnotherVersion(Request[BlockPage], tag="status"):
    """A client that asks for the status and expects an answer of another version."""


async def ask_raw(directory: Path, data: bytes) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(str(directory / SOCKET_NAME))
    try:
        writer.write(data)
        if not data.endswith(b"\n"):
            writer.write_eof()
        answer: dict[str, Any] = msgspec.json.decode(await reader.read())
        return answer
    finally:
        writer.close()


async def test_answers_what_is_asked(running: Path) -> None:
    status = await asyncio.to_thread(ask, running, StatusRequest())
    assert status.pid == os.getpid()
    assert status.partitions == 1


async def test_only_the_owner_may_connect(running: Path) -> None:
    mode = (running / SOCKET_NAME).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


async def test_one_request_and_one_answer_are_a_line_each(running: Path) -> None:
    answer = await ask_raw(running, b'{"operation":"pids.list"}\n')
    assert answer["result"]["blocks"] == []
    assert "error" not in answer


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"not json\n", "not understood"),
        (b"\xff\xfe\n", "not understood"),
        (b'{"operation":"explode"}\n', "not understood"),
        (b'{"operation":"status","verbose":true}\n', "not understood"),
        (b'{"operation":"pids.claim","size":"many","owner":"x"}\n', "not understood"),
        (b'{"operation":"pids.claim","size":0,"owner":"x"}\n', "at least 1"),
        (b'{"operation":"status"}', "ends with a newline"),
        (b"", "ends with a newline"),
        (b"x" * (MAX_REQUEST_BYTES + 10) + b"\n", "at most"),
    ],
)
async def test_bad_requests_get_a_sentence_and_the_next_one_its_answer(
    running: Path, line: bytes, words: str
) -> None:
    assert words in (await ask_raw(running, line))["error"]
    assert "result" in await ask_raw(running, b'{"operation":"status"}\n')


async def test_refusals_reach_the_client_as_control_errors(running: Path) -> None:
    with pytest.raises(ControlError, match="at least 1"):
        await asyncio.to_thread(ask, running, ClaimBlockRequest(0, "x"))


async def test_a_silent_client_is_sent_away(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_unix_connection(str(running / SOCKET_NAME))
    assert b"no request came" in await reader.read()
    writer.close()


async def test_more_clients_than_allowed_are_told_so(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CLIENTS", 2)
    silent = [await asyncio.open_unix_connection(str(running / SOCKET_NAME)) for _ in range(2)]
    with pytest.raises(ControlError, match="try again"):
        await asyncio.to_thread(ask, running, StatusRequest())
    for _, writer in silent:
        writer.close()


async def test_an_operation_that_hangs_is_given_up(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "OPERATION_TIMEOUT_S", 0.05)
    control = ControlServer(node.services, tmp_path)
    may_go_on = asyncio.Event()

    async def hang(_: EmbeddedBlockStore, producer_id: int) -> int:
        await may_go_on.wait()
        return producer_id

    monkeypatch.setattr(EmbeddedBlockStore, "move_next", hang)
    await control.start()
    with pytest.raises(ControlError, match="not done within"):
        await asyncio.to_thread(ask, tmp_path, MoveNextRequest(5))
    page = await asyncio.to_thread(ask, tmp_path, ListTasksRequest())
    hanging = next(task for task in page.tasks if task.name == "seqgate pids.move")
    assert not hanging.ended
    may_go_on.set()
    async with asyncio.timeout(60):
        while hanging.number in [task.number for task in node.services.node.tasks if task.ended_ms is None]:
            await asyncio.sleep(0)
    await control.stop()


async def test_a_bug_is_told_and_does_not_end_the_server(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: EmbeddedBlockStore) -> Any:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedBlockStore, "blocks", broken)
        with pytest.raises(ControlError, match="failed to answer: a bug"):
            await asyncio.to_thread(ask, running, ListBlocksRequest())
    assert (await asyncio.to_thread(ask, running, ListBlocksRequest())).total == 0


async def test_an_answer_of_another_version_is_told(running: Path) -> None:
    with pytest.raises(ControlError, match="another version"):
        await asyncio.to_thread(ask, running, StatusOfAnotherVersion())


async def test_stop_drops_clients_and_takes_the_socket_away(node: Node, tmp_path: Path) -> None:
    control = ControlServer(node.services, tmp_path)
    await control.start()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
    while not control._clients:
        await asyncio.sleep(0)
    await control.stop()
    assert await reader.read() == b""
    writer.close()
    assert not (tmp_path / SOCKET_NAME).exists()
    with pytest.raises(NotRunning):
        ask(tmp_path, StatusRequest())


async def test_a_dead_gateways_socket_is_replaced(node: Node, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET_NAME))
    with pytest.raises(NotRunning):
        ask(tmp_path, StatusRequest())
    control = ControlServer(node.services, tmp_path)
    assert await control.start()
    assert (await asyncio.to_thread(ask, tmp_path, StatusRequest())).pid == os.getpid()
    await control.stop()


async def test_paths_longer_than_the_kernel_takes_work(node: Node, tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["a-long-name-of-a-directory" for _ in range(12)])
    directory.mkdir(parents=True)
    assert len(os.fsencode(directory)) > 3 * LONGEST_PATH_BYTES
    control = ControlServer(node.services, directory)
    assert await control.start()
    assert stat.S_IMODE((directory / SOCKET_NAME).stat().st_mode) == 0o600
    assert (await asyncio.to_thread(ask, directory, StatusRequest())).pid == os.getpid()
    await control.stop()
    with pytest.raises(NotRunning):
        ask(directory, StatusRequest())


async def test_a_gateway_runs_without_the_socket(node: Node, tmp_path: Path) -> None:
    control = ControlServer(node.services, tmp_path / "missing")
    assert not await control.start()
    await control.stop()


def test_no_directory_is_no_gateway(tmp_path: Path) -> None:
    with pytest.raises(NotRunning):
        ask(tmp_path / "missing", StatusRequest())
    with pytest.raises(NotRunning):
        ask(tmp_path.joinpath(*["missing" for _ in range(30)]), StatusRequest())


def test_descriptors_of_long_paths_are_closed(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 200)
    directory.mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with short_path(directory / SOCKET_NAME) as path:
        assert len(path) < LONGEST_PATH_BYTES
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_a_gateway_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / SOCKET_NAME))
        mute.listen()
        with pytest.raises(ControlError, match="did not answer within"):
            await asyncio.to_thread(ask, tmp_path, StatusRequest(), timeout_s=0.05)


async def test_a_gateway_that_hangs_up_is_told(tmp_path: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    dying = await asyncio.start_unix_server(hang_up, str(tmp_path / SOCKET_NAME))
    with pytest.raises(ControlError, match="hung up"):
        await asyncio.to_thread(ask, tmp_path, StatusRequest())
    dying.close()


async def test_an_answer_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1000)

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 5000)
        await writer.drain()
        await asyncio.sleep(0)
        writer.close()

    endless = await asyncio.start_unix_server(flood, str(tmp_path / SOCKET_NAME))
    with pytest.raises(ControlError, match="longer than"):
        await asyncio.to_thread(ask, tmp_path, StatusRequest())
    endless.close()
