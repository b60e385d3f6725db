"""`seqgate users` on a running gateway, by its control socket and the Kafka protocol, and before its first
start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate

BOTH = [
    {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
    {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
]


def users(*where: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = seqgate("users", "list", "--json", *where).json["users"]
    return found


def add(user: str, *arguments: str | Path) -> None:
    seqgate("users", "add", user, "--password-file", "-", *arguments, stdin=b"pencil\n")


@pytest.mark.parametrize("how", ["socket", "protocol"])
def test_users_are_added_listed_and_removed(gateway: GatewayProcess, how: str) -> None:
    where: tuple[str | Path, ...] = ("--data-dir", gateway.data_dir)
    if how == "protocol":
        where = ("--bootstrap", gateway.bootstrap)
    add("ann", "--iterations", "8192", *where)
    add("bob", "--mechanism", "SCRAM-SHA-512", *where)
    assert users(*where) == [
        {"user": "ann", "credentials": BOTH},
        {"user": "bob", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]},
    ]
    table = seqgate("users", "list", *where).stdout
    assert "SCRAM-SHA-256" in table
    assert table.endswith("2 users.\n")
    asked = seqgate("users", "remove", "ann", "--mechanism", "SCRAM-SHA-256", *where, code=1).stdout
    assert "User ann could not log in with SCRAM-SHA-256 any more." in asked
    removed = seqgate("users", "remove", "ann", "--mechanism", "SCRAM-SHA-256", "--yes", *where)
    again = seqgate("users", "remove", "ann", "--mechanism", "SCRAM-SHA-256", "--dry-run", *where, code=1)
    assert "user ann has no credential for SCRAM-SHA-256" in again.stderr
    assert removed.stdout == "User ann can't log in with SCRAM-SHA-256 any more.\n"
    seqgate("users", "remove", "ann", "--yes", *where)
    seqgate("users", "remove", "bob", "--yes", *where)
    assert users(*where) == []
    assert "there is no user bob" in seqgate("users", "remove", "bob", *where, code=1).stderr


def test_the_first_user_is_added_before_the_first_start(tmp_path: Path) -> None:
    where = ("--data-dir", tmp_path / "data")
    file = tmp_path / "password"
    file.write_text("pencil\n")
    added = seqgate("users", "add", "ann", "--password-file", file, *where).stdout.splitlines()
    assert added == [
        "Created the data directory.",
        "User ann can log in with SCRAM-SHA-256 and SCRAM-SHA-512.",
    ]
    assert [user["user"] for user in users(*where)] == ["ann"]
    with GatewayProcess(tmp_path / "data"):
        assert [user["user"] for user in users(*where)] == ["ann"]


def test_wrong_options_are_explained(tmp_path: Path) -> None:
    assert "--mechanism must be" in (
        seqgate("users", "add", "ann", "--mechanism", "PLAIN", "--data-dir", tmp_path, code=2).stderr
    )
    assert "the password must not be empty" in (
        seqgate("users", "add", "ann", "--data-dir", tmp_path, stdin=b"\n", code=2).stderr
    )
    assert list(tmp_path.iterdir()) == []
