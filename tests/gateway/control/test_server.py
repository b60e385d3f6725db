"""The control socket: who may ask, how much, and for how long."""

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

from gateway.control import client, server
from gateway.control.address import LONGEST_PATH_BYTES, SOCKET_NAME, short_path
from gateway.control.client import ask
from gateway.control.errors import ControlError, NotRunning
from gateway.control.messages import (
    MAX_REQUEST_BYTES,
    ClaimBlockRequest,
    ListBlocksRequest,
    ListTasksRequest,
    MoveNextRequest,
    StatusRequest,
)
from gateway.control.results import BlockPage, Status
from gateway.control.server import ControlServer
from gateway.control.sweep_results import TaskPage
from tests.gateway.control.fakes import FakeServices, FakeStore, fake_allocator, fake_source


def control_server(directory: Path, store: FakeStore | None = None) -> ControlServer:
    store = store or FakeStore()
    services: Any = FakeServices(fake_allocator(store), {"a": 1})
    return ControlServer(services, directory, source=fake_source(store))


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Path]:
    """The directory of a control server that answers."""
    control = control_server(tmp_path)
    assert await control.start()
    yield tmp_path
    await control.stop()


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
    status = await asyncio.to_thread(ask, running, StatusRequest(), Status)
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
        (b'{"operation":"pids.claim","size":0,"owner":"x"}\n', "at least one"),
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
    with pytest.raises(ControlError, match="at least one"):
        await asyncio.to_thread(ask, running, ClaimBlockRequest(0, "x"), Status)


async def test_a_silent_client_is_sent_away(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_unix_connection(str(running / SOCKET_NAME))
    assert b"no request came" in await reader.read()
    writer.close()


async def test_more_clients_than_allowed_are_told_so(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CLIENTS", 2)
    silent = [await asyncio.open_unix_connection(str(running / SOCKET_NAME)) for _ in range(2)]
    with pytest.raises(ControlError, match="try again"):
        await asyncio.to_thread(ask, running, StatusRequest(), Status)
    for _, writer in silent:
        writer.close()


async def test_an_operation_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "OPERATION_TIMEOUT_S", 0.05)
    store = FakeStore()
    control = control_server(tmp_path, store)

    may_go_on = asyncio.Event()

    async def hang(producer_id: int) -> int:
        await may_go_on.wait()
        return producer_id

    monkeypatch.setattr(store, "move_next", hang)
    await control.start()
    with pytest.raises(ControlError, match="not done within"):
        await asyncio.to_thread(ask, tmp_path, MoveNextRequest(5), Status)
    page = await asyncio.to_thread(ask, tmp_path, ListTasksRequest(), TaskPage)
    hanging = next(task for task in page.tasks if task.name == "seqgate pids.move")
    assert not hanging.ended
    may_go_on.set()
    async with asyncio.timeout(10):
        while hanging.number in [
            task.number for task in control._operations.services.tasks if task.ended_ms is None
        ]:
            await asyncio.sleep(0)
    await control.stop()


async def test_a_bug_is_told_and_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FakeStore()
    control = control_server(tmp_path, store)

    async def broken() -> Any:
        raise RuntimeError("a bug")

    await control.start()
    with monkeypatch.context() as patched:
        patched.setattr(store, "blocks", broken)
        with pytest.raises(ControlError, match="failed to answer: a bug"):
            await asyncio.to_thread(ask, tmp_path, ListBlocksRequest(), BlockPage)
    assert (await asyncio.to_thread(ask, tmp_path, ListBlocksRequest(), BlockPage)).total == 0
    await control.stop()


async def test_an_answer_of_another_version_is_told(running: Path) -> None:
    with pytest.raises(ControlError, match="another version"):
        await asyncio.to_thread(ask, running, StatusRequest(), BlockPage)


async def test_stop_drops_clients_and_takes_the_socket_away(tmp_path: Path) -> None:
    control = control_server(tmp_path)
    await control.start()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_NAME))
    while not control._clients:
        await asyncio.sleep(0)
    await control.stop()
    assert await reader.read() == b""
    writer.close()
    assert not (tmp_path / SOCKET_NAME).exists()
    with pytest.raises(NotRunning):
        ask(tmp_path, StatusRequest(), Status)


async def test_a_dead_gateways_socket_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET_NAME))
    with pytest.raises(NotRunning):
        ask(tmp_path, StatusRequest(), Status)
    control = control_server(tmp_path)
    assert await control.start()
    assert (await asyncio.to_thread(ask, tmp_path, StatusRequest(), Status)).pid == os.getpid()
    await control.stop()


async def test_paths_longer_than_the_kernel_takes_work(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["a-long-name-of-a-directory" for _ in range(12)])
    directory.mkdir(parents=True)
    assert len(os.fsencode(directory)) > 3 * LONGEST_PATH_BYTES
    control = control_server(directory)
    assert await control.start()
    assert stat.S_IMODE((directory / SOCKET_NAME).stat().st_mode) == 0o600
    assert (await asyncio.to_thread(ask, directory, StatusRequest(), Status)).pid == os.getpid()
    await control.stop()
    with pytest.raises(NotRunning):
        ask(directory, StatusRequest(), Status)


async def test_a_gateway_runs_without_the_socket(tmp_path: Path) -> None:
    control = control_server(tmp_path / "missing")
    assert not await control.start()
    await control.stop()


def test_no_directory_is_no_gateway(tmp_path: Path) -> None:
    with pytest.raises(NotRunning):
        ask(tmp_path / "missing", StatusRequest(), Status)
    with pytest.raises(NotRunning):
        ask(tmp_path.joinpath(*["missing" for _ in range(30)]), StatusRequest(), Status)


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
            await asyncio.to_thread(ask, tmp_path, StatusRequest(), Status, timeout_s=0.05)


async def test_a_gateway_that_hangs_up_is_told(tmp_path: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    dying = await asyncio.start_unix_server(hang_up, str(tmp_path / SOCKET_NAME))
    with pytest.raises(ControlError, match="hung up"):
        await asyncio.to_thread(ask, tmp_path, StatusRequest(), Status)
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
        await asyncio.to_thread(ask, tmp_path, StatusRequest(), Status)
    endless.close()
