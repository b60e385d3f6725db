"""`seqgate serve --console`: the console runs beside the gateway, and ends with it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import REPOSITORY, SOURCES, free_port
from tests.system.server.test_restart import Repeated
from tests.system.workers.scene import seqgate

TIMEOUT_S = 60


@pytest.fixture
def console_port() -> int:
    return free_port()


@pytest.fixture
def serving(tmp_path: Path, console_port: int) -> Iterator[subprocess.Popen[str]]:
    """A gateway with its console."""
    command = [sys.executable, "-m", "seqgate", "serve", "--listen", f"127.0.0.1:{free_port()}"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data"), "--console-listen", f"127.0.0.1:{console_port}"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def console_address(process: subprocess.Popen[str]) -> str:
    """Return the address that the console prints when it answers."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.fullmatch(r"seqgate console ready: (http://127\.0\.0\.1:\d+/)\n", line)
        if found:
            return found[1]
    raise AssertionError("the console did not start")


def test_the_console_shows_the_gateway_and_ends_with_it(
    serving: subprocess.Popen[str], console_port: int
) -> None:
    address = console_address(serving)
    assert address == f"http://127.0.0.1:{console_port}/"
    with urllib.request.urlopen(f"{address}limits", timeout=TIMEOUT_S) as answer:
        page = answer.read().decode()
    assert "seqgate.max.partitions" in page, "the console reads the gateway's metrics listener"
    children = children_of(serving)
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(TIMEOUT_S) == 0
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []


def test_the_console_of_a_gateway_that_is_killed_ends(
    serving: subprocess.Popen[str], console_port: int
) -> None:
    console_address(serving)
    serving.kill()
    serving.wait(TIMEOUT_S)
    await_true(lambda: is_closed(console_port), "the console ends")


def test_browsers_wait_at_the_console_while_the_gateway_restarts(
    serving: subprocess.Popen[str], console_port: int, tmp_path: Path
) -> None:
    address = console_address(serving)
    (before,) = children_of(serving)

    def dial() -> None:
        socket.create_connection(("127.0.0.1", console_port), TIMEOUT_S).close()

    with Repeated(dial):
        assert "Restarted" in seqgate(tmp_path / "data", "restart")
        assert console_address(serving) == address
    assert before not in children_of(serving), "another process serves the console"
    with urllib.request.urlopen(f"{address}limits", timeout=TIMEOUT_S) as answer:
        assert "seqgate.max.partitions" in answer.read().decode()
    (console,) = children_of(serving)
    os.kill(int(console), signal.SIGKILL)
    await_true(lambda: is_closed(console_port), "nobody waits for a console that has ended")
    seqgate(tmp_path / "data", "restart")
    assert console_address(serving) == address


def children_of(process: subprocess.Popen[str]) -> list[str]:
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def is_closed(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("8081",), "--console-listen 8081: must be HOST:PORT, such as 127.0.0.1:8081"),
        (("127.0.0.1:99999",), "--console-listen 127.0.0.1:99999: port 99999 is not between 0 and 65535"),
        (("127.0.0.1:1", "--test-control", "127.0.0.1:1"), "no effect with --test-control"),
    ],
)
def test_an_address_that_the_console_cannot_take(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    command = [sys.executable, "-m", "seqgate", "serve", "--console-listen", *options]
    command += ["--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 2
    assert told in done.stderr
