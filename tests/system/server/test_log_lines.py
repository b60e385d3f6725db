"""The log lines of a real gateway: who changed which resource, and which clients speak another protocol."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.system.server.test_connections import create, eventually

TLS_HELLO = bytes.fromhex("1603010200010001fc0303")


def test_json_lines_in_a_file_name_the_client_of_each_change(tmp_path: Path) -> None:
    path = tmp_path / "seqgate.log"
    settings = {"seqgate.logging.file": str(path), "seqgate.logging.format": "json"}
    with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
        create(gateway, "orders")
        eventually(lambda: "created topic" in path.read_text(), "the change is logged")
        assert gateway.stderr_text() == ""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    (change,) = [line["message"] for line in lines if line["logger"] == "seqgate.changes"]
    assert change.startswith("created topic orders (1 partition), by User:ANONYMOUS at 127.0.0.1:")
    assert any("new data directory" in line["message"] for line in lines)


def test_only_errors(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings={"seqgate.logging.level": "ERROR"}) as gateway:
        create(gateway, "orders")
    assert gateway.stderr_text() == ""


def test_a_file_that_cannot_be_written_is_told_before_the_start(tmp_path: Path) -> None:
    settings = {"seqgate.logging.file": str(tmp_path / "missing" / "seqgate.log")}
    gateway = GatewayProcess(tmp_path / "data", settings=settings)
    with pytest.raises(AssertionError, match="can't be written to: No such file or directory"):
        gateway.start()


def test_http_and_tls_are_recognized_with_the_address_of_the_client(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data") as gateway:
        for hello, said in ((b"GET / HTTP/1.1\r\n\r\n", "looks like HTTP"), (TLS_HELLO, "look like TLS")):
            with socket.create_connection(("127.0.0.1", gateway.port)) as stranger:
                host, port = stranger.getsockname()
                stranger.sendall(hello)
                assert stranger.recv(1) == b"", "the connection is closed"
            text = gateway.stderr_text()
            assert f"closing the connection of {host}:{port}: it can't be read: its first bytes" in text
            assert said in text
