"""Logins over real sockets: their order, refusals that come late, limits before the login, and sessions that
end.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.wire import encode
from tests.system.server.test_connections import eventually
from tests.system.server.test_slow_readers import receive_exactly
from tests.system.server.test_tls import ask, create

DEADLINE_S = 120.0
ILLEGAL_SASL_STATE, UNSUPPORTED_MECHANISM, FAILED = 34, 33, 58
RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0wrong"
LISTENER = "listener.name.sasl_plaintext."
SESSION_MS = 3_000


class Guarded:
    """A gateway with a listener on which clients log in."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.port = free_port()
        self.users = folder / "users"
        self.write_users("alice:secret\nbob:secret\n")
        own = {
            "sasl.enabled.mechanisms": "PLAIN",
            f"{LISTENER}plain.seqgate.sasl.plain.users.file": str(self.users),
        }
        self.gateway = GatewayProcess(
            folder / "data",
            settings={**own, **{name.replace("_", "."): value for name, value in settings.items()}},
            also_listen=[f"SASL_PLAINTEXT://127.0.0.1:{self.port}"],
        )

    def write_users(self, text: str) -> None:
        new = self.users.with_suffix(".new")
        new.touch(0o600)
        new.write_text(text)
        new.rename(self.users)

    @contextlib.contextmanager
    def client(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S) as connected:
            yield connected


def handshake(connected: socket.socket, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return ask(connected, "sasl_handshake", version, {"mechanism": mechanism})


def send_token(connected: socket.socket, token: bytes, version: int = 2) -> Any:
    return ask(connected, "sasl_authenticate", version, {"auth_bytes": token})


def log_in(connected: socket.socket, token: bytes = RIGHT) -> Any:
    assert handshake(connected) == {"error_code": 0, "mechanisms": ["PLAIN"]}
    return send_token(connected, token)


def versions(connected: socket.socket) -> Any:
    return ask(connected, "api_versions", 0, {})


def is_closed(connected: socket.socket) -> bool:
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    found = Guarded(tmp_path_factory.mktemp("guarded"), sasl_server_max_receive_size="4096")
    with found.gateway:
        yield found


@pytest.fixture(scope="module")
def expiring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Return a gateway whose sessions end."""
    found = Guarded(tmp_path_factory.mktemp("expiring"))
    found.gateway.settings[f"{LISTENER}plain.connections.max.reauth.ms"] = str(SESSION_MS)
    with found.gateway:
        yield found


def test_a_client_that_logged_in_is_served_under_its_name(guarded: Guarded) -> None:
    with guarded.client() as client:
        assert versions(client)["error_code"] == 0
        assert log_in(client) == {
            "error_code": 0,
            "error_message": "",
            "auth_bytes": b"",
            "session_lifetime": 0,
        }
        create(client, "named")
        assert handshake(client) == {"error_code": ILLEGAL_SASL_STATE, "mechanisms": []}
        assert send_token(client, RIGHT)["error_code"] == ILLEGAL_SASL_STATE
        assert versions(client)["error_code"] == 0
    eventually(lambda: "by User:alice at" in guarded.gateway.stderr_text(), "the name")


def test_a_wrong_password_is_answered_late_and_nobody_else_waits(guarded: Guarded) -> None:
    with guarded.client() as wrong, guarded.client() as right:
        handshake(wrong)
        handshake(right)
        payload = encode("sasl_authenticate", 2, {"auth_bytes": WRONG})
        begun_s = time.monotonic()
        wrong.sendall(struct.pack(">i", len(payload)) + payload)
        assert send_token(right, RIGHT)["error_code"] == 0
        answer = receive_exactly(wrong, int.from_bytes(receive_exactly(wrong, 4), "big"))
        assert time.monotonic() - begun_s >= 0.09
        assert b"Invalid username or password" in answer
        assert is_closed(wrong)
    assert "secret" not in guarded.gateway.stderr_text()


@pytest.mark.parametrize("api", ["metadata", "sasl_authenticate"])
def test_other_requests_before_the_handshake_close(guarded: Guarded, api: str) -> None:
    fields: dict[str, object] = {"topics": []} if api == "metadata" else {"auth_bytes": RIGHT}
    with guarded.client() as client:
        payload = encode(api, 0, fields)
        client.sendall(struct.pack(">i", len(payload)) + payload)
        assert is_closed(client)


def test_a_second_question_for_versions_closes(guarded: Guarded) -> None:
    with guarded.client() as client:
        versions(client)
        payload = encode("api_versions", 0, {})
        client.sendall(struct.pack(">i", len(payload)) + payload)
        assert is_closed(client)


def test_requests_after_the_handshake_are_refused_and_close(guarded: Guarded) -> None:
    for again in (handshake, versions):
        with guarded.client() as client:
            handshake(client)
            assert again(client)["error_code"] == ILLEGAL_SASL_STATE
            assert is_closed(client)


def test_requests_of_other_apis_after_the_handshake_are_refused_in_their_form(guarded: Guarded) -> None:
    with guarded.client() as client:
        handshake(client)
        answer = ask(client, "delete_groups", 2, {"groups_names": ["a"]})
        assert answer["results"] == [{"group_id": "a", "error_code": ILLEGAL_SASL_STATE}]
        assert is_closed(client)


@pytest.mark.parametrize("names", [["x" * 200] * 6, None])
def test_large_and_malformed_requests_after_the_handshake_close(
    guarded: Guarded, names: list[str] | None
) -> None:
    with guarded.client() as client:
        handshake(client)
        payload = encode("delete_groups", 2, {"groups_names": names or ["a"]})
        payload = payload if names else payload[:-3]
        client.sendall(struct.pack(">i", len(payload)) + payload)
        assert is_closed(client)


def test_an_unknown_mechanism_is_refused_with_those_of_the_listener(guarded: Guarded) -> None:
    with guarded.client() as client:
        assert handshake(client, "plain") == {"error_code": UNSUPPORTED_MECHANISM, "mechanisms": ["PLAIN"]}
        assert is_closed(client)


def test_after_a_handshake_of_version_0_tokens_come_bare(guarded: Guarded) -> None:
    with guarded.client() as client:
        assert handshake(client, version=0)["error_code"] == 0
        client.sendall(struct.pack(">i", len(RIGHT)) + RIGHT)
        assert receive_exactly(client, 4) == b"\0\0\0\0"
        create(client, "bare")
    with guarded.client() as client:
        handshake(client, version=0)
        client.sendall(struct.pack(">i", len(WRONG)) + WRONG)
        assert is_closed(client)


def test_a_login_may_be_pipelined(guarded: Guarded) -> None:
    requests = [
        encode("sasl_handshake", 1, {"mechanism": "PLAIN"}),
        encode("sasl_authenticate", 1, {"auth_bytes": RIGHT}),
        encode("api_versions", 0, {}),
    ]
    with guarded.client() as client:
        client.sendall(b"".join(struct.pack(">i", len(payload)) + payload for payload in requests))
        for _ in requests:
            size = int.from_bytes(receive_exactly(client, 4), "big")
            assert receive_exactly(client, size)[4:6] == b"\0\0"


@pytest.mark.parametrize("size", [-1, 0, 4097])
def test_frames_of_a_wrong_size_close_before_the_login_only(guarded: Guarded, size: int) -> None:
    with guarded.client() as client:
        client.sendall(struct.pack(">i", size))
        assert is_closed(client)
    with guarded.client() as client:
        log_in(client)
        create(client, "long" + "x" * 200 + str(size))
        assert ask(client, "metadata", 1, {"topics": [{"name": "y" * 249}] * 40})["topics"]


def test_a_replaced_file_of_users_counts_for_the_next_login(guarded: Guarded) -> None:
    with guarded.client() as client:
        assert log_in(client, b"\0carol\0c")["error_code"] == FAILED
    guarded.write_users("alice:secret\nbob:secret\ncarol:c\n")
    with guarded.client() as client:
        assert log_in(client, b"\0carol\0c")["error_code"] == 0


@pytest.mark.parametrize("api", ["sasl_handshake", "sasl_authenticate"])
def test_a_plaintext_listener_refuses_logins_and_stays_open(guarded: Guarded, api: str) -> None:
    host, _, port = guarded.gateway.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as client:
        refused = handshake(client) if api == "sasl_handshake" else send_token(client, RIGHT)
        assert refused["error_code"] == ILLEGAL_SASL_STATE
        assert versions(client)["error_code"] == 0


def test_a_session_ends_at_the_next_request(expiring: Guarded) -> None:
    with expiring.client() as client:
        assert log_in(client)["session_lifetime"] == SESSION_MS
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < SESSION_MS / 2000:
            assert versions(client)["error_code"] == 0
        eventually(lambda: not _is_served(client), "the end of the session")
        assert time.monotonic() - begun_s >= SESSION_MS / 1000 - 0.1


def _is_served(client: socket.socket) -> bool:
    try:
        return bool(versions(client)["error_code"] == 0)
    except (AssertionError, ConnectionError):
        return False


def test_a_client_logs_in_again_on_its_connection(expiring: Guarded) -> None:
    with expiring.client() as client:
        log_in(client)
        assert log_in(client)["session_lifetime"] == SESSION_MS
        assert handshake(client) == {"error_code": ILLEGAL_SASL_STATE, "mechanisms": []}
        assert versions(client)["error_code"] == 0


@pytest.mark.parametrize("token", [WRONG, b"\0bob\0secret"])
def test_a_client_stays_who_it_is(expiring: Guarded, token: bytes) -> None:
    with expiring.client() as client:
        log_in(client)
        assert log_in(client, token)["error_code"] == FAILED
        assert is_closed(client)


def test_a_thousand_logins_that_never_end_hinder_nobody_and_are_closed(tmp_path: Path) -> None:
    found = Guarded(tmp_path, seqgate_sasl_login_timeout_ms="8000")
    with found.gateway, contextlib.ExitStack() as opened:
        halves = (b"", struct.pack(">i", 500_000), struct.pack(">i", 500_000) + b"\0" * 9_000)
        held = [opened.enter_context(found.client()) for _ in range(1_000)]
        for number, client in enumerate(held):
            client.sendall(halves[number % len(halves)])
        with found.client() as client:
            assert log_in(client)["error_code"] == 0
            create(client, "between")
            assert all(is_closed(waiting) for waiting in held)
            assert versions(client)["error_code"] == 0
    assert "did not log in within 8000 ms" in found.gateway.stderr_text()
