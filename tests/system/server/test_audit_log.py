"""The audit log of a process: a file of its own, private, with counted repeats once the process has ended."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.pids import ClaimBlockRequest
from seqgate.gateway.admin.status import StatusRequest
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire
from tests.system.server.test_connections import eventually
from tests.system.server.test_logins import FAILED, WRONG, Guarded, log_in
from tests.system.server.test_tls import Secured

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
        ask(tmp_path / "data", ClaimBlockRequest(10, "test"))
        first, changed = map(json.loads, path.read_text().splitlines())
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
    assert (changed["request"], changed["client_id"]) == ("pids.claim", f"pid {os.getpid()}")
    assert first.items() <= again.items()
    assert "nobody may do anything" in gateway.stderr_text()


def test_a_failed_login_is_written_without_what_may_be_a_password(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    guarded = Guarded(tmp_path, authorizer_class_name=AUTHORIZER, seqgate_audit_file=str(path))
    with guarded.gateway:
        for token in (WRONG, WRONG, b"\0secret\0alice"):
            with guarded.client() as client:
                assert log_in(client, token)["error_code"] == FAILED
        assert ask(tmp_path / "data", StatusRequest()).failed_logins == 3
        guarded.gateway.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    reason = "Authentication failed: Invalid username or password"
    assert [(line["event"], line["principal"], line["count"]) for line in lines] == [
        ("login_failed", "User:alice", 1),
        ("login_failed", None, 1),
        ("login_failed", "User:alice", 1),
    ]
    assert {(line["address"], line["listener"], line["mechanism"], line["reason"]) for line in lines} == {
        ("127.0.0.1", "SASL_PLAINTEXT", "PLAIN", reason)
    }
    assert "secret" not in path.read_text()


def test_a_certificate_that_is_refused_is_written(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    secured = Secured(
        tmp_path,
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^CN=(w.*?),.*$/$1/U",
        authorizer_class_name=AUTHORIZER,
        seqgate_audit_file=str(path),
    )
    with secured.gateway:
        foreign = Authority("Others").client("ann").write_pem(tmp_path / "foreign.pem")
        unmapped = secured.authority.client("ann").write_pem(tmp_path / "unmapped.pem")
        for shown in (None, foreign, unmapped):
            with contextlib.suppress(OSError), secured.client(shown) as client:
                assert not client.recv(1)
        with secured.connect() as client:
            client.sendall(b"no TLS at all")
            assert not client.recv(1)
        eventually(lambda: len(path.read_text().splitlines()) >= 3, "the refusals")
        assert ask(tmp_path / "data", StatusRequest()).failed_logins == 3
        secured.gateway.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line["principal"], line["mechanism"], line["listener"]) for line in lines] == [
        ("login_failed", None, "TLS", "SSL")
    ] * 3
    assert lines[0]["reason"] == "it showed no certificate, which ssl.client.auth=required asks for"
    assert lines[1]["reason"].startswith("its certificate is not accepted: ")
    assert lines[2]["reason"].startswith("no rule of ssl.principal.mapping.rules matches the subject 'CN=ann")


def test_a_file_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    settings = {"seqgate.audit.file": str(tmp_path / "missing" / "audit.log")}
    gateway = GatewayProcess(tmp_path / "data", settings=settings)
    with pytest.raises(AssertionError, match=r"seqgate.audit.file .* can't be written to: No such file"):
        gateway.start()
