"""The log of the gateway, and its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.guarded_gateway import PASSWORD, guarded_gateway, seqgate_apart
from tests.support.metrics_stub import MetricsStub, metrics_stub

NODE = 1


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


@pytest.mark.usefixtures("foreign_brokers")
def test_of_other_brokers_the_pages_say_what_is_missing(console: ConsoleClient) -> None:
    for path in ("/logs", "/logs/tasks", "/limits", "/backlog?topic=orders"):
        assert "The brokers of this cluster are others, such as Apache Kafka." in text_of(console.page(path))
    assert "only a Seqgate gateway tells this" in console.data("/api/logs", status=400)["error"]


def test_the_lines_of_a_real_gateway(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data") as gateway, console_client(gateway.bootstrap) as console:
        assert "The log of the gateway, the newest line first. It keeps its newest 1,000 lines" in text_of(
            console.page("/logs")
        )
        told = console.data("/api/logs?after=")
        found = told["lines"]
        assert [row["number"] for row in found] == sorted(row["number"] for row in found)
        assert {"node", "number", "time_ms", "level", "logger", "message", "error"} == set(found[0])
        assert told["after"] == f"{NODE}:{found[-1]['number']}"
        again = console.data(f"/api/logs?after={told['after']}&started={told['started']}")
        assert again == {**told, "lines": []}
        assert (told["restarted"], told["silent"], told["is_several"]) == ([], [], False)
        # the process of these numbers has ended; the lines of the next one begin again
        later = console.data(f"/api/logs?after={told['after']}&started={NODE}:7")
        assert later == {**told, "restarted": [NODE]}
        assert "after must have numbers by node id" in console.data("/api/logs?after=7", status=400)["error"]
        assert "files wait for deletion" in text_of(console.page("/logs/tasks"))
        assert "level" in console.page("/logs?level=nonsense&filter=%3Cscript%3E")
        assert "<script>" not in console.page("/logs?filter=%3Cscript%3E").partition("<main")[2]


@pytest.mark.usefixtures("foreign_brokers")
def test_a_text_of_a_client_pretends_to_be_no_line(stub: MetricsStub, shared_gateway: GatewayProcess) -> None:
    stub.views["log-lines"] = {
        "lines": [line(1, "a\n2026-01-01 ERROR fake \u202e<b>"), line(2, error="Traceback\n  x\x1b[0m\n")],
        "kept": 1000,
    }
    with console_client(shared_gateway.bootstrap, metrics_url=stub.url) as console:
        first, second = console.data("/api/logs?after=")["lines"]
    assert first["message"] == "a\\n2026-01-01 ERROR fake \\u202e<b>"
    assert second["error"] == "Traceback\n  x\\x1b[0m"
    assert ("log-lines", {"limit": "1000", "after": "0"}) in stub.asked


@pytest.mark.usefixtures("foreign_brokers")
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
    assert "Node" not in text_of(page)
    assert "failed <b>disk</b> is full" in text_of(page)
    assert "<b>" not in page.partition("<main")[2]
    assert "1 file waits for deletion" in text_of(page)


def test_a_person_without_the_right_sees_no_log(tmp_path: Path) -> None:
    listener = f"127.0.0.1:{free_port()}"
    with (
        guarded_gateway(tmp_path, **{"seqgate.metrics.listener": listener}) as guarded,
        console_client(guarded.login, metrics_url=f"http://{listener}") as measured,
        console_client(guarded.login) as console,
    ):
        for each in (measured, console):
            each.send("/login", {"username": "bob", "password": PASSWORD, "to": "/topics"})
            for path in ("/logs", "/logs/tasks", "/limits", "/backlog?topic=secrets"):
                assert "lacks the right to" in text_of(each.page(path)), path
            assert "lacks the right" in each.data("/api/logs", status=400)["error"]
        assert "--operation alter --cluster" in text_of(console.page("/logs"))
        give = ("acls", "add", "--allow-principal", "User:bob", "--operation", "describe", "--cluster")
        seqgate_apart(*give, "--data-dir", guarded.process.data_dir)
        assert "files wait for deletion" in text_of(console.page("/logs/tasks"))
        assert "lacks the right to alter the cluster" in text_of(console.page("/logs"))
        # the listener on this machine asks for less, and the page says why its gateway alone is shown
        assert "These lines come from --metrics" in text_of(measured.page("/logs"))
        assert measured.data("/api/logs")["lines"]
