from __future__ import annotations

import logging
from pathlib import Path

import pytest

from seqgate.gateway.security.principals import LoginSettingsError
from seqgate.gateway.security.sasl import users_file
from seqgate.gateway.security.sasl.users_file import LARGEST_FILE_BYTES, UsersFile, digest, parse_users


def write(path: Path, text: str, mode: int = 0o600) -> str:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(mode)
    new.rename(path)
    return str(path)


def test_lines_have_a_name_and_a_password() -> None:
    assert parse_users("# people\n\nalice:a:b\r\nbob: b \n") == {"alice": "a:b", "bob": " b "}


@pytest.mark.parametrize("text", ["alice", ":hunter2", "alice:", "a:hunter2\na:hunter2"])
def test_a_malformed_line_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(ValueError, match=r"^line . ") as refused:
        parse_users(text)
    assert "hunter2" not in str(refused.value)


async def test_a_replaced_file_counts_for_the_next_login(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    users = UsersFile(write(path, "alice:a"))
    assert await users.digests() == {"alice": digest("a")}
    write(path, "bob:b")
    with caplog.at_level(logging.INFO):
        assert await users.digests() == {"bob": digest("b")}
    assert "read the users of PLAIN again" in caplog.text


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [("bob:b", 0o640, "run chmod 600"), ("bob", 0o600, "line 1 must have the form"), ("", 0o200, "")],
)
async def test_a_replaced_file_of_no_use_changes_nothing_and_is_logged_once(
    tmp_path: Path, text: str, mode: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    users = UsersFile(write(path, "alice:a"))
    if reason:
        write(path, text, mode)
    else:
        path.unlink()
    for _ in range(2):
        assert await users.digests() == {"alice": digest("a")}
    assert reason in caplog.text
    assert caplog.text.count("the users that were read before stay valid") == 1


@pytest.mark.parametrize("failure", [LoginSettingsError("Too many open files"), RuntimeError("no thread")])
async def test_a_replaced_file_that_could_not_be_read_once_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(_: Path) -> dict[str, bytes]:
        raise failure

    path = tmp_path / "users"
    users = UsersFile(write(path, "alice:a"))
    write(path, "bob:b")
    monkeypatch.setattr(users_file, "RETRY_S", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(users_file, "read_users", fail)
        assert await users.digests() == {"alice": digest("a")}
    assert await users.digests() == {"bob": digest("b")}


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoginSettingsError, match="run chmod 600"):
        UsersFile(write(tmp_path / "users", "alice:a", 0o604))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoginSettingsError, match="can't be read: No such file"):
        UsersFile(str(tmp_path / "users"))


def test_a_huge_file_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoginSettingsError, match="has more than"):
        UsersFile(write(tmp_path / "users", "x" * (LARGEST_FILE_BYTES + 1)))
    (tmp_path / "users").write_bytes(b"a:\xff")
    with pytest.raises(LoginSettingsError, match="is not UTF-8"):
        UsersFile(str(tmp_path / "users"))
