"""A refused start names the port or directory as the user did, and who has it. An ended backend drops clients."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import re
import socket
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import NoReturn

import pytest
import uvloop

from seqgate.gateway import running
from seqgate.gateway.admin.restart.live import Passed
from seqgate.gateway.backends.backend import DiskBackend, Ended, StartFailed
from seqgate.gateway.config import Listener, load_config
from seqgate.gateway.console_process import LISTEN, ConsoleProcess
from seqgate.gateway.running import Announcement, OwnProcess, check_data_directory, check_listener
from seqgate.gateway.serving import announce, command_name
from seqgate.log import DirectoryLocked, Storage
from tests.support.wire import Closed, Wire


def test_a_port_that_is_taken_names_the_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = f"^can't listen on 127.0.0.1:{port}: Address already in use \\(pid {os.getpid()}\\)$"
        with pytest.raises(StartFailed, match=refused):
            check_listener(Listener("PLAINTEXT", "127.0.0.1", port))


def test_a_data_directory_that_is_taken_names_the_process(tmp_path: Path) -> None:
    holder = Storage()
    holder.lock(str(tmp_path / ".lock"))
    taken = re.escape(f"{tmp_path} is in use by another process (pid {os.getpid()}); stop that one first")
    with pytest.raises(DirectoryLocked, match=taken):
        Storage().lock(str(tmp_path / ".lock"))
    holder.unlock(str(tmp_path / ".lock"))


def test_a_data_directory_that_can_be_none_is_named_before_any_file_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    check_data_directory(load_config(overrides=[f"log.dirs={file}"]))
    file.touch()
    with pytest.raises(StartFailed, match=f"^the data directory {file} is a file; "):
        check_data_directory(load_config(overrides=[f"log.dirs={file}"]))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(
        StartFailed, match=f"^the data directory {tmp_path} can't be read and written by this"
    ):
        check_data_directory(load_config(overrides=[f"log.dirs={tmp_path}"]))


def test_the_guide_names_the_command_as_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "my venv" / "seqgate"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "serve"])
    assert command_name() == f"'{script}'"
    monkeypatch.setenv("PATH", str(script.parent))
    assert command_name() == "seqgate"
    monkeypatch.setattr(sys, "argv", ["/somewhere/seqgate/__main__.py"])
    assert command_name() == f"{sys.executable} -m seqgate"


async def test_the_guide_says_where_the_console_is(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ConsoleProcess("127.0.0.1:9092", "http://127.0.0.1:9644", "history", "127.0.0.1:31099")
    await chosen.choose_address()
    bound = ["127.0.0.1:9092"]
    announce(Announcement(bound, bound, "data", console=chosen), guide=True)
    assert "http://127.0.0.1:31099\n" in capsys.readouterr().out  # no word of another port
    chosen.taken = LISTEN
    announce(Announcement(bound, bound, "data", console=chosen), guide=True)
    assert f"http://127.0.0.1:31099 ({LISTEN} is taken)\n" in capsys.readouterr().out
    await chosen.stop()
    own = ConsoleProcess("127.0.0.1:9092", "http://127.0.0.1:9644", "history", "127.0.0.1:0")
    announce(Announcement(bound, bound, "data", console=own), guide=True)
    assert "console" not in capsys.readouterr().out  # the console itself says its port


def test_a_gateway_whose_backend_has_ended_begins_no_request_while_its_event_loop_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The event loop waits for its threads as it ends, and a request that begins then finds none."""
    ready: Future[Announcement] = Future()
    must_end, is_asked = Event(), Event()

    async def ended(_: DiskBackend) -> NoReturn:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, must_end.wait)
        loop.run_in_executor(None, is_asked.wait)
        raise Ended("a test says so")

    def ask_until_closed(wire: Wire) -> None:
        while True:
            wire.call("list_transactions", 0, state_filters=[], producer_id_filters=[])
            must_end.set()

    def ask() -> None:
        try:
            bootstrap = ready.result().told[0]
            with Wire(bootstrap) as wire, pytest.raises((Closed, ConnectionError)):
                ask_until_closed(wire)
            with pytest.raises(ConnectionRefusedError):
                Wire(bootstrap)
        finally:
            must_end.set()
            is_asked.set()

    monkeypatch.setattr(DiskBackend, "ended", ended)
    # the handlers of this process are those of pytest
    monkeypatch.setattr(running, "signals_taken", lambda *_: contextlib.nullcontext())
    caplog.set_level(logging.INFO)
    config = load_config(overrides=[f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0"])
    own = OwnProcess(Passed(), [], str(tmp_path))
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        try:
            with pytest.raises(Ended, match="a test says so"):
                uvloop.run(running._serve(config, own, ready.set_result))
        finally:
            gc.unfreeze()
        asking.result()
    told = [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert [line.getMessage() for line in told] == ["dropping all 1 connections: the gateway ends at once"]
