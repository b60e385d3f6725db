"""The audit log of a process: a file of its own, private, with counted repeats once the process has ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_refusals_are_written_and_their_repeats_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "seqgate.audit.file": str(path),
        "seqgate.logging.level": "WARN",
    }
    with GatewayProcess(tmp_path / "data", settings=settings) as gateway, Wire(gateway.bootstrap) as wire:
        asked = {"topics": [{"topic_id": None, "name": "orders"}], "allow_auto_topic_creation": True}
        for _ in range(3):
            (topic,) = wire.call("metadata", 12, asked).fields["topics"]
            assert topic["error_code"] == 29
        (first,) = map(json.loads, path.read_text().splitlines())
        gateway.stop()
    assert path.stat().st_mode & 0o777 == 0o600
    again = json.loads(path.read_text().splitlines()[-1])
    assert {name: first.pop(name) for name in ("time", "client_id", "count")}["count"] == 1
    assert first == {
        "event": "refused",
        "principal": "User:ANONYMOUS",
        "address": "127.0.0.1",
        "listener": "PLAINTEXT",
        "request": "Metadata",
        "operation": "DESCRIBE",
        "resource_type": "TOPIC",
        "resource": "orders",
    }
    assert again["count"] == 2
    assert first.items() <= again.items()
    assert "nobody may do anything" in gateway.stderr_text()


def test_a_file_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    settings = {"seqgate.audit.file": str(tmp_path / "missing" / "audit.log")}
    gateway = GatewayProcess(tmp_path / "data", settings=settings)
    with pytest.raises(AssertionError, match=r"seqgate.audit.file .* can't be written to: No such file"):
        gateway.start()
