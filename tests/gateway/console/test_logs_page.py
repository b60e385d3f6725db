"""The log of the gateway, and its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.guarded_gateway import PASSWORD, guarded_gateway
from tests.support.metrics_stub import MetricsStub, metrics_stub

STATUS_OF_NODE = 1


@pytest.fixture
def stub() -> Iterator[MetricsStub]:
    with metrics_stub() as listener:
        yield listener


def line(number: int, message: str = "hello", error: str | None = None) -> dict[str, Any]:
    return {
        "number": number,
        "time_ms": 1_700_000_000_000 + number,
        "level": "INFO",
        "logger": "seqgate.test",
        "message": message,
        "error": error,
    }


def test_without_the_listener_the_pages_say_how_to_get_it(console: ConsoleClient) -> None:
    for path in ("/logs", "/logs/tasks"):
        assert "seqgate.metrics.listener=127.0.0.1:9644" in text_of(console.page(path))
    assert "--metrics" in console.data("/api/logs", status=400)["error"]


def test_the_lines_of_a_real_gateway(tmp_path: Path) -> None:
    listener = f"127.0.0.1:{free_port()}"
    with (
        GatewayProcess(tmp_path / "data", settings={"seqgate.metrics.listener": listener}) as gateway,
        console_client(gateway.bootstrap, metrics_url=f"http://{listener}") as console,
    ):
        assert f"The log of node {STATUS_OF_NODE} at http://{listener}" in text_of(console.page("/logs"))
        found = console.data("/api/logs?after=0")["lines"]
        assert [row["number"] for row in found] == sorted(row["number"] for row in found)
        assert {"number", "time_ms", "level", "logger", "message", "error"} == set(found[0])
        newest = found[-1]["number"]
        assert console.data(f"/api/logs?after={newest}") == {"lines": [], "restarted": False}
        assert console.data(f"/api/logs?after={newest + 1000}")["restarted"]
        assert "files wait for deletion" in text_of(console.page("/logs/tasks"))
        assert "level" in console.page("/logs?level=nonsense&filter=%3Cscript%3E")
        assert "<script>" not in console.page("/logs?filter=%3Cscript%3E").partition("<main")[2]


def test_a_text_of_a_client_pretends_to_be_no_line(stub: MetricsStub, shared_gateway: GatewayProcess) -> None:
    stub.views["log-lines"] = {
        "lines": [line(1, "a\n2026-01-01 ERROR fake \u202e<b>"), line(2, error="Traceback\n  x\x1b[0m\n")],
        "kept": 1000,
    }
    with console_client(shared_gateway.bootstrap, metrics_url=stub.url) as console:
        first, second = console.data("/api/logs?after=0")["lines"]
    assert first["message"] == "a\\n2026-01-01 ERROR fake \\u202e<b>"
    assert second["error"] == "Traceback\n  x\\x1b[0m"
    assert ("log-lines", {"after": "0", "limit": "1000"}) in stub.asked


def test_a_gateway_that_started_again_gives_its_first_lines(
    stub: MetricsStub, shared_gateway: GatewayProcess
) -> None:
    with console_client(shared_gateway.bootstrap, metrics_url=stub.url) as console:
        stub.views["log-lines"] = {"lines": [], "kept": 1000}
        assert console.data("/api/logs?after=7") == {"lines": [], "restarted": True}
        assert console.data("/api/logs?after=0") == {"lines": [], "restarted": False}


def test_tasks_are_listed_and_their_failures(stub: MetricsStub, shared_gateway: GatewayProcess) -> None:
    task = {"begun_ms": 1_700_000_000_000, "age_ms": 61_000, "done": 3, "total": 9, "ended": False}
    stub.views["tasks"] = {
        "tasks": [
            {**task, "number": 1, "name": "sweep", "failure": None},
            {**task, "number": 2, "name": "<i>", "ended": True, "failure": "<b>disk</b> is full"},
        ],
        "files_to_delete": 1,
    }
    with console_client(shared_gateway.bootstrap, metrics_url=stub.url) as console:
        page = console.page("/logs/tasks")
    assert "sweep under way 3 of 9" in text_of(page)
    assert "failed <b>disk</b> is full" in text_of(page)
    assert "<b>" not in page.partition("<main")[2]
    assert "1 file waits for deletion" in text_of(page)


def test_a_person_without_the_right_sees_no_log(tmp_path: Path) -> None:
    listener = f"127.0.0.1:{free_port()}"
    with (
        guarded_gateway(tmp_path, **{"seqgate.metrics.listener": listener}) as guarded,
        console_client(guarded.login, metrics_url=f"http://{listener}") as console,
    ):
        console.send("/login", {"username": "bob", "password": PASSWORD, "to": "/topics"})
        assert "User bob lacks the right to describe the cluster" in text_of(console.page("/logs"))
        assert "lacks the right" in console.data("/api/logs?after=0", status=400)["error"]
        assert "lacks the right" in text_of(console.page("/logs/tasks"))
