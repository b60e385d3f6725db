"""Nothing that a test run has started outlives the run, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gateway_process import REPOSITORY

LIMIT_S = 120.0
SERVER = """
import signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("up", flush=True)
time.sleep(3600)
"""
COMMAND = f"""
import subprocess, sys, time
server = subprocess.Popen([sys.executable, "-c", {SERVER!r}], stdout=subprocess.PIPE, start_new_session=True)
assert server.stdout.readline()
print(server.pid, flush=True)
if sys.argv[1] == "ends":
    sys.exit(7)
time.sleep(3600)
"""
"""A run that leaves a server in a session of its own, which ignores every signal that can be ignored."""


def interrupt(run: subprocess.Popen[str]) -> None:
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does


def terminate(run: subprocess.Popen[str]) -> None:
    run.terminate()


@pytest.mark.parametrize(
    ("end", "how", "code"),
    [
        (lambda _: None, "ends", 7),
        (interrupt, "stays", 128 + signal.SIGINT),
        (terminate, "stays", 128 + signal.SIGTERM),
    ],
    ids=["its own end", "Ctrl-C", "SIGTERM"],
)
def test_nothing_is_left(end: Callable[[subprocess.Popen[str]], None], how: str, code: int) -> None:
    command = [sys.executable, "-m", "tests.support.reaper", sys.executable, "-c", COMMAND, how]
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            assert run.stdout is not None
            server = int(run.stdout.readline())
            end(run)
            _, errors = run.communicate(timeout=LIMIT_S)
        finally:
            run.kill()
    assert run.returncode == code, errors
    assert "ending 1 processes that were left" in errors
    deadline_s = time.monotonic() + LIMIT_S
    while Path(f"/proc/{server}").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
