"""A console in a process of its own, as a user starts it, for tests with a browser."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.gateway_process import REPOSITORY

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 120.0


@contextmanager
def console_process(folder: Path, bootstrap: str, *options: str) -> Iterator[str]:
    """Yield the address of a console for the cluster at `bootstrap`, such as http://127.0.0.1:40123."""
    command = [sys.executable, "-m", "seqgate", "console", "--bootstrap", bootstrap]
    command += ["--listen", "127.0.0.1:0", *options]
    with (folder / "console.stderr").open("ab") as stderr:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield _address(process, folder)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()


def _address(process: subprocess.Popen[str], folder: Path) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
    line = process.stdout.readline() if readable else ""
    prefix = "seqgate console ready: "
    assert line.startswith(prefix), (folder / "console.stderr").read_text()[-4000:]
    return line.removeprefix(prefix).strip().rstrip("/")
