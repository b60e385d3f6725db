"""Fixtures that run commands, and the servers that the commands use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqgate.gateway.cli import app
from tests.support.gateway_process import REPOSITORY

_SLOW = re.compile(r"^seqgate: (\S+) does not answer; still trying\nseqgate: \1 works again\n", re.MULTILINE)
"""The two lines of a command about a broker that answers late; on a busy machine all do."""


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.stderr
        return self.document

    @property
    def document(self) -> Any:
        """The JSON document that the command printed, whatever its exit code."""
        return json.loads(self.stdout)


def seqgate(*arguments: str | Path, code: int | None = 0, stdin: bytes | None = None) -> Outcome:
    """Run a command, in this process, which saves starting one; `stdin` None: empty."""
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], input=stdin, env={"COLUMNS": "100"}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if code is not None:
        assert result.exit_code == code, result.stderr + result.stdout
    return Outcome(result.exit_code, result.stdout, _SLOW.sub("", result.stderr))


def seqgate_process(*arguments: str | Path) -> Outcome:
    """Run a command as a user does, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "seqgate", *map(str, arguments)],
        cwd=REPOSITORY,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """The address of a Redis server for one test, on a Unix domain socket."""
    from redis import Redis

    path = tmp_path / "redis.sock"
    process = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if b"ready to accept connections" in line.lower():
            break
    with Redis(unix_socket_path=str(path)) as client:
        assert client.ping()
    yield f"unix://{path}"
    process.terminate()
    process.wait(10)
    process.stdout.close()
