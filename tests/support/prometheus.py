"""A real Prometheus, and promtool, both of Debian's package `prometheus`."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from tests.support.gateway_process import free_port
from tests.support.missing import missing

TIMEOUT_S = 60.0


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; skip the test where it is missing, and fail in CI."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is not installed (Debian: apt-get install prometheus; `make peers` does it)")
    return found


def promtool(*arguments: str, cwd: Path) -> str:
    """Return the output of promtool, which must accept what it checks."""
    done = subprocess.run(
        [program("promtool"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A Prometheus in a process of its own, as a context manager; its files lie below `directory`."""

    def __init__(self, directory: Path, config: str) -> None:
        """Prepare the server with the text of its prometheus.yml."""
        self._program = program("prometheus")
        self._directory = directory
        self._config = config
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._opener = build_opener(ProxyHandler({}))

    def __enter__(self) -> Self:
        self._directory.mkdir()
        config = self._directory / "prometheus.yml"
        config.write_text(self._config)
        command = [
            self._program,
            f"--config.file={config}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def get(self, path: str, fields: Mapping[str, str] | None = None) -> Any:
        """Return the data of an answer of the HTTP API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(fields or {})}"
        with self._opener.open(url, timeout=TIMEOUT_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now."""
        found: list[dict[str, Any]] = self.get("query", {"query": expression})["result"]
        return found

    def targets(self) -> list[dict[str, Any]]:
        """Return the states of the targets."""
        found: list[dict[str, Any]] = self.get("targets", {"state": "active"})["activeTargets"]
        return found

    def await_that(self, condition: Callable[[], Any]) -> Any:
        """Poll until `condition` returns something true, and return that."""
        assert self._process is not None
        deadline = time.monotonic() + TIMEOUT_S
        found = None
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                found = condition()
            except OSError as error:  # it does not listen yet
                found, last = None, error
            else:
                last = None
            if found:
                return found
            # The pause between polls of a foreign process, which offers nothing to wait on.
            time.sleep(0.05)
        log = (self._directory / "log").read_text(errors="replace")
        raise AssertionError(
            f"Prometheus did not come to the state in time: {found!r} {last!r}\n{log[-3000:]}"
        )
