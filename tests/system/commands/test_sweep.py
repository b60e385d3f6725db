"""`seqgate sweep` and `seqgate tasks`, on a running gateway and on a data directory that no gateway uses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.system.commands.clients import create_topic, produce
from tests.system.commands.conftest import seqgate

TOO_OLD_S = 1_600_000_000


@pytest.fixture
def data(gateway: GatewayProcess) -> Path:
    """The data directory of a gateway with one topic, and with one leak of each kind that file names reveal."""
    create_topic(gateway.bootstrap, "orders", 1)
    assert produce(gateway.bootstrap, "orders", 0, 77, 0, 3) == (0, 0)
    assert leaks(gateway.data_dir, "--min-age", "0s") == ("running", {}), "a healthy gateway has none"
    plant(gateway.data_dir)
    return gateway.data_dir


def plant(data: Path) -> None:
    (data / "gone-0").mkdir()
    planted = [data / "gone-0", data / "orders-0" / "00000000000000000009.index", data / "notes.txt"]
    for path in planted[1:]:
        path.write_bytes(b"x")
    for path in planted:
        os.utime(path, (TOO_OLD_S, TOO_OLD_S))


LEAKS = {
    "gone-0": "partition without a topic",
    "orders-0/00000000000000000009.index": "index without a segment",
    "notes.txt": "unknown",
}


def leaks(data: Path, *options: str) -> tuple[str, dict[str, Any]]:
    done = seqgate("sweep", "--json", "--data-dir", data, *options, code=None)
    page = json.loads(done.stdout)
    assert done.code == (1 if any(not leak["removed"] for leak in page["leaks"]) else 0)
    return page["gateway"], {leak["place"]: leak for leak in page["leaks"]}


def kinds(found: dict[str, Any]) -> dict[str, str]:
    return {place: leak["kind"] for place, leak in found.items()}


def test_reports_then_removes(data: Path, gateway: GatewayProcess) -> None:
    assert (leaks(data)[0], kinds(leaks(data)[1])) == ("running", LEAKS)
    told = seqgate("sweep", "--data-dir", data, code=1)
    assert all(kind in told.stdout for kind in LEAKS.values())
    _, found = leaks(data, "--yes", "--dry-run")
    assert not any(leak["removed"] for leak in found.values())
    _, found = leaks(data, "--yes")
    assert {place for place, leak in found.items() if leak["removed"]} == set(LEAKS) - {"notes.txt"}
    _, found = leaks(data, "--remove", "--unknown")
    assert kinds(found) == {"notes.txt": "unknown"}
    assert "No orphaned" in seqgate("sweep", "--data-dir", data).stdout
    tasks = seqgate("tasks", "--json", "--data-dir", data).json
    assert {(task["name"], task["ended"], task["failure"]) for task in tasks["tasks"]} == {
        ("sweep", True, None)
    }
    assert "sweep" in seqgate("tasks", "--data-dir", data).stdout
    while seqgate("tasks", "--json", "--data-dir", data).json["files_to_delete"]:
        pass
    gateway.stop()
    assert leaks(data, "--min-age", "0s") == ("stopped", {})


def test_of_a_stopped_gateway(data: Path, gateway: GatewayProcess) -> None:
    gateway.stop()
    assert (leaks(data)[0], kinds(leaks(data)[1])) == ("stopped", LEAKS)
    _, found = leaks(data, "--remove", "--unknown")
    assert all(leak["removed"] for leak in found.values())
    assert leaks(data) == ("stopped", {})
    assert "only files" in seqgate("sweep", "--data-dir", data).stdout


def test_what_can_not_be(tmp_path: Path) -> None:
    assert "no data directory" in seqgate("sweep", "--data-dir", tmp_path, code=1).stderr
    assert (
        "not a length of time" in seqgate("sweep", "--min-age", "soon", "--data-dir", tmp_path, code=2).stderr
    )
