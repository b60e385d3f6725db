"""The audit log: each refusal at once, its repeats once a minute, and no more than a bounded number of lines."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.runtime.loop import audit as audit_module
from seqgate.gateway.runtime.loop.audit import (
    INTERVAL_S,
    KINDS,
    LONGEST_TEXT,
    AuditLog,
    DeniedRight,
    FailedLogin,
    Requester,
)
from seqgate.gateway.runtime.loop.log_output import AUDIT, JSON, TEXT, begin_audit, handler_for, set_level

ALICE = Requester("User:alice", "192.0.2.7", "EXTERNAL", "app-1", "Fetch")


def refusal(resource: str = "orders") -> DeniedRight:
    return DeniedRight(*ALICE, "READ", "TOPIC", resource)


class Timers(asyncio.SelectorEventLoop):
    """A loop that runs what `call_later` was given when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[Callable[..., object]] = []

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, **_: Any) -> Any:  # type: ignore[override]
        assert delay == INTERVAL_S
        self.due.append(callback)
        return super().call_later(10**6, callback, *args)

    def pass_interval(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


@pytest.fixture
def timers() -> Iterator[Timers]:
    loop = Timers()
    yield loop
    loop.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [json.loads(record.getMessage()) for record in caplog.records if record.name == AUDIT]
    caplog.clear()
    return found


def test_a_refusal_is_written_at_once_and_its_repeats_are_counted(
    timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    log = AuditLog(timers, is_on=True)
    for _ in range(4):
        log.refused(refusal())
    line = {
        "event": "refused",
        "principal": "User:alice",
        "address": "192.0.2.7",
        "listener": "EXTERNAL",
        "client_id": "app-1",
        "request": "Fetch",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource": "orders",
        "count": 1,
    }
    assert lines(caplog) == [line]
    timers.pass_interval()
    assert lines(caplog) == [{**line, "count": 3}]
    assert not timers.due
    log.refused(refusal())
    assert lines(caplog) == [line]
    timers.pass_interval()
    assert lines(caplog) == []


def test_long_texts_of_clients_are_not_remembered(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    log = AuditLog(timers, is_on=True)
    for end in "ab":
        client = ALICE._replace(client_id="c" * 32_000 + end)
        log.refused(refusal("r" * 32_000 + end)._replace(**client._asdict()))
    (line,) = lines(caplog)
    assert line["resource"] == "r" * LONGEST_TEXT + "…"
    assert line["client_id"] == "c" * LONGEST_TEXT + "…"
    timers.pass_interval()
    assert lines(caplog) == [line]


def test_a_flood_is_counted_only(
    timers: Timers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    monkeypatch.setattr(audit_module, "KINDS", 10)
    log = AuditLog(timers, is_on=True)
    for number in range(50):
        log.refused(refusal(f"topic-{number}"))
    assert len(lines(caplog)) == 10
    assert len(log._refusals.counts) == 10
    timers.pass_interval()
    assert lines(caplog) == [{"event": "refused", "others": 40}]


def test_failed_logins_are_counted_apart_from_refusals(
    timers: Timers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    monkeypatch.setattr(audit_module, "KINDS", 2)
    log = AuditLog(timers, is_on=True)
    failed = FailedLogin("User:alice", "192.0.2.7", "EXTERNAL", "PLAIN", "x" * 600)
    for login in (failed, failed, failed._replace(principal=None), failed._replace(address="192.0.2.8")):
        log.login_failed(login)
    log.refused(refusal())
    known, unknown, refused = lines(caplog)
    line = {
        "event": "login_failed",
        "principal": "User:alice",
        "address": "192.0.2.7",
        "listener": "EXTERNAL",
        "mechanism": "PLAIN",
        "reason": "x" * 512 + "…",
        "count": 1,
    }
    assert known == line
    assert unknown == {**line, "principal": None}
    assert refused["event"] == "refused"
    timers.pass_interval()
    assert lines(caplog) == [line, {"event": "login_failed", "others": 1}]


def test_what_was_counted_is_written_at_the_end(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    log = AuditLog(timers, is_on=True)
    log.refused(refusal())
    log.refused(refusal())
    log.close()
    log.close()
    assert [line["count"] for line in lines(caplog)] == [1, 1]


def test_texts_of_clients_are_cut_and_harmless(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    log = AuditLog(timers, is_on=True)
    log.refused(refusal("a\n\u2028\x7f%s" + "x" * 30_000))
    log.changed(ALICE, "created topic", ["y" * 600], others=3)
    assert all(record.getMessage().isprintable() for record in caplog.records)
    refused, changed = lines(caplog)
    assert refused["resource"] == "a\n\u2028\x7f%s" + "x" * 506 + "…"
    assert (changed["action"], changed["resources"], changed["others"]) == (
        "created topic",
        ["y" * 512 + "…"],
        3,
    )


def test_nothing_is_written_where_it_is_off(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    log = AuditLog(timers, is_on=False)
    log.refused(refusal())
    log.changed(ALICE, "created topic", ["t"])
    log.login_failed(FailedLogin(None, "192.0.2.7", "EXTERNAL", "PLAIN", "why"))
    log.close()
    assert lines(caplog) == []
    assert not timers.due


def record(line: dict[str, object]) -> logging.LogRecord:
    made = logging.LogRecord(AUDIT, logging.INFO, "file.py", 1, json.dumps(line), (), None)
    made.created = 1_795_372_352.4179
    return made


LINE: dict[str, object] = {"event": "refused", "resource": "x" * 3000}


@pytest.mark.parametrize("line_format", [TEXT, JSON])
def test_among_other_lines_it_stays_whole(tmp_path: Path, line_format: str) -> None:
    handler = handler_for(line_format, str(tmp_path / "log"), lambda: 0.0)
    for _ in range(KINDS):
        handler.handle(record(LINE))
    handler.close()
    written = (tmp_path / "log").read_text().splitlines()
    assert len(written) == KINDS
    assert json.loads(written[-1][written[-1].index("{") :]).items() >= LINE.items()


def test_a_file_of_its_own_has_objects_with_their_time(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    audit = logging.getLogger(AUDIT)
    begin_audit(str(path))
    try:
        begin_audit(str(path))
        audit.handle(record(LINE))
        path.rename(tmp_path / "audit.1")
        audit.handle(record(LINE))
        set_level(AUDIT, "DEBUG")
        set_level(AUDIT, None)
        assert audit.level == logging.INFO
    finally:
        for handler in audit.handlers[:]:
            audit.removeHandler(handler)
            handler.close()
        audit.propagate = True
        audit.setLevel(logging.NOTSET)
    for file in (path, tmp_path / "audit.1"):
        (written,) = file.read_text().splitlines()
        assert json.loads(written) == {"time": "2026-11-22T18:32:32.417Z", **LINE}
        assert file.stat().st_mode & 0o777 == 0o600
