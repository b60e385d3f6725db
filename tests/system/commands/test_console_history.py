"""A console that is killed finds its history again at the next start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import REPOSITORY, SOURCES, GatewayProcess
from tests.support.group_members import commit_offsets
from tests.system.commands.conftest import seqgate

TIMEOUT_S = 120
LAG = "/api/groups/lag?group=readers&range=15m"


@contextmanager
def killed_console(bootstrap: str, history: Path) -> Iterator[str]:
    """Yield the address of a console, which is killed afterwards."""
    command = [sys.executable, "-m", "seqgate", "console", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--bootstrap", bootstrap, "--history", str(history)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("seqgate console ready: ").strip().rstrip("/")
        finally:
            process.send_signal(signal.SIGKILL)


def lags(address: str) -> dict[int, float]:
    """Return the lag of the group by time, where it was sampled."""
    with urllib.request.urlopen(f"{address}{LAG}", timeout=TIMEOUT_S) as answer:
        found: Any = json.load(answer)
    pairs = zip(found["times"], found["series"]["lag"], strict=True)
    return {time_ms: lag for time_ms, lag in pairs if lag is not None}


def sampled(address: str, after_ms: int = 0) -> dict[int, float]:
    """Return the lags when there is one after a time."""
    found: dict[int, float] = {}

    def is_sampled() -> bool:
        found.clear()
        found.update(lags(address))
        return max(found, default=0) > after_ms

    await_true(is_sampled, "the console samples the lag", TIMEOUT_S)
    return found


def test_a_killed_console_finds_its_history_again(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with GatewayProcess(tmp_path / "data") as gateway:
        seqgate("topics", "create", "orders", "--bootstrap", gateway.bootstrap)
        commit_offsets(gateway.bootstrap, "readers", "orders", {0: 0})
        with killed_console(gateway.bootstrap, history) as address:
            before = sampled(address)
            sampled(address, after_ms=max(before))  # the samples of `before` are written by then
        with killed_console(gateway.bootstrap, history) as address:
            after = sampled(address, after_ms=max(before))
    assert before.items() <= after.items()
    assert len(after) > len(before)
