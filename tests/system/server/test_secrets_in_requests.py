"""Secrets that clients send appear in no log line, no line of the audit log and no answer, whatever is wrong
with the request.
"""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.admin.request import SOCKET_NAME
from tests.system.server.test_logins import RIGHT, Guarded, handshake, is_closed, send_token
from tests.system.server.test_tls import ask

SECRET = "Qz7-planted-secret"
RAW = SECRET.encode()
FORMS = (SECRET, base64.b64encode(RAW).decode(), RAW.hex())
SCRAM_SHA_256, UNKNOWN_MECHANISM = 1, 9
BROKER, SET = 4, 0


def wrong_logins(guarded: Guarded) -> list[str]:
    """Return the answers to logins that have the secret in each place but the name of a mechanism."""
    answers = []
    for token in (
        b"\0alice\0" + RAW,
        b"\0" + RAW + b"\0alice",
        RAW + b"\0alice\0secret",
        b"\0alice\0secret\0" + RAW,
        RAW,
        b"\xff" + RAW,
    ):
        with guarded.client() as client:
            handshake(client)
            answers.append(str(send_token(client, token)))
            assert is_closed(client)
    for token in (RAW, b"n,,n=" + RAW + b",r=x", b"n,,n=alice,r=" + RAW):
        with guarded.client() as client:
            handshake(client, "SCRAM-SHA-256")
            answers.append(str(send_token(client, token)))
    with guarded.client() as client:
        client.sendall(RAW)
        assert is_closed(client)
    return answers


def administer(client: socket.socket) -> list[str]:
    """Return the answers to changes, of which some are right and some wrong, with the secret in each."""
    handshake(client)
    assert send_token(client, RIGHT)["error_code"] == 0
    answers = []
    for name, mechanism, iterations in (
        ("ann", SCRAM_SHA_256, 4096),
        ("ann", SCRAM_SHA_256, 1),
        ("ann", UNKNOWN_MECHANISM, 4096),
        ("", SCRAM_SHA_256, 4096),
    ):
        upsertion: dict[str, Any] = {
            "name": name,
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": RAW,
            "salted_password": RAW,
        }
        fields = {"deletions": [], "upsertions": [upsertion]}
        answers.append(str(ask(client, "alter_user_scram_credentials", 0, fields)))
    answers.append(str(ask(client, "describe_user_scram_credentials", 0, {"users": None})))
    for setting in (
        "ssl.key.password",
        "listener.name.x.ssl.key.password",
        "listener.name.x.ssl.keystore.key",
    ):
        for value in (SECRET, f"{SECRET}\0"):
            config = {"name": setting, "config_operation": SET, "value": value}
            resource = {"resource_type": BROKER, "resource_name": "1", "configs": [config]}
            request = {"resources": [resource], "validate_only": False}
            answers.append(str(ask(client, "incremental_alter_configs", 1, request)))
    for api in ("renew_delegation_token", "expire_delegation_token"):
        period = {"renew_period" if api.startswith("renew") else "expiry_time_period": 1}
        answers.append(str(ask(client, api, 2, {"hmac": RAW, **period})))
    return answers


def by_control_socket(directory: Path) -> list[str]:
    """Return the answers of the control socket to users that are wrong, or whose request is."""
    coded = base64.b64encode(RAW).decode()
    credential = {"mechanism": "SCRAM-SHA-256", "iterations": 4096, "salt": coded, "salted_password": coded}
    answers = []
    for request in (
        {"operation": "users.add", "user": "bob", "credentials": [credential]},
        {"operation": "users.add", "user": "bob", "credentials": [{**credential, "iterations": 1}]},
        {"operation": "users.add", "user": "bob", "credentials": [{**credential, "mechanism": "X"}]},
        {"operation": "users.add", "user": "bob", "credentials": [{**credential, "salt": SECRET}]},
        {"operation": "users.add", "user": "bob", "password": SECRET, "credentials": []},
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(directory / SOCKET_NAME))
            client.sendall(json.dumps(request).encode() + b"\n")
            answers.append(client.makefile().read())
    return answers


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_they_appear_nowhere(tmp_path: Path, line_format: str) -> None:
    audit = tmp_path / "audit.log"
    guarded = Guarded(
        tmp_path,
        seqgate_logging_level="DEBUG",
        seqgate_logging_format=line_format,
        seqgate_audit_file=str(audit),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:alice",
        delegation_token_secret_key=SECRET,
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
    )
    with guarded.gateway:
        answers = wrong_logins(guarded)
        with guarded.client() as client:
            answers += administer(client)
        answers += by_control_socket(tmp_path / "data")
        guarded.gateway.stop()
    assert len(answers) == 9 + 4 + 1 + 6 + 2 + 5
    for text in (guarded.gateway.stderr_text(), audit.read_text(), *answers):
        assert text
        for form in FORMS:
            assert form not in text
