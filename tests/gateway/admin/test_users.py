from __future__ import annotations

import asyncio
import io
import json
import shutil
import uuid
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.operations import answer_stopped
from seqgate.gateway.admin.request import ControlError, Request
from seqgate.gateway.admin.stored import create_metadata
from seqgate.gateway.admin.users import (
    AddUserRequest,
    ChangedUser,
    CredentialRow,
    ListUsersRequest,
    RemoveUserRequest,
    UserRow,
    credential_for,
    read_password,
)
from seqgate.gateway.cli import app
from seqgate.gateway.config import load_config
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from seqgate.log import Storage
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN
from seqgate.log.files.checkpoints import encode_partition_metadata
from seqgate.log.files.file_names import PARTITION_METADATA
from seqgate.log.stopped import LOCK
from tests.gateway.admin.answers import all_pages
from tests.gateway.admin.answers import answer as live_answer
from tests.gateway.handlers.support import NOW_MS, open_node

A = TypeVar("A")
SHA_256, SHA_512 = (hashing.mechanism for hashing in ScramHash)
BOTH = [SHA_256, SHA_512]
ROWS = [CredentialRow(SHA_256, 4096), CredentialRow(SHA_512, 4096)]


def adding(user: str, *hashes: ScramHash) -> AddUserRequest:
    return AddUserRequest(user, [credential_for(each, "pencil", 4096) for each in hashes or ScramHash])


async def stopped_answer(data_dir: Path, request: Request[A]) -> A:
    """Return the answer. A thread finds it, because changes run an event loop of their own."""
    config = load_config(overrides=[f"log.dirs={data_dir}"])
    result: A = await asyncio.to_thread(answer_stopped, data_dir, config, NOW_MS, request)
    return result


async def test_users_of_a_running_gateway(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        assert await live_answer(node, adding("bob")) == ChangedUser("bob", BOTH)
        assert await live_answer(node, adding("ann", ScramHash.SHA_512)) == ChangedUser("ann", [SHA_512])
        pages = await all_pages(node, ListUsersRequest(limit=1))
        assert [row for page in pages for row in page.users] == [
            UserRow("ann", [CredentialRow(SHA_512, 4096)]),
            UserRow("bob", ROWS),
        ]
        assert await live_answer(node, RemoveUserRequest("bob", [SHA_256])) == ChangedUser("bob", [SHA_256])
        assert await live_answer(node, RemoveUserRequest("bob")) == ChangedUser("bob", [SHA_512])
        assert list(node.services.topics.metadata_log.image.users.by_name) == ["ann"]


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (RemoveUserRequest("nobody"), "there is no user nobody"),
        (RemoveUserRequest("ann", [SHA_256]), "user ann has no credential for SCRAM-SHA-256"),
        (RemoveUserRequest("ann", ["PLAIN"]), "there is no mechanism PLAIN; the mechanisms with"),
        (adding(""), "Username must not be empty"),
        (AddUserRequest("ann", [msgspec.structs.replace(adding("x").credentials[0], iterations=1)]), "4096"),
        (adding("carl"), "1 users have credentials, as many as seqgate.scram.users.max allows"),
    ],
)
async def test_a_refusal_is_a_sentence(tmp_path: Path, request_: Request[Any], sentence: str) -> None:
    async with open_node(tmp_path, "seqgate.scram.users.max=1") as node:
        await live_answer(node, adding("ann", ScramHash.SHA_512))
        with pytest.raises(ControlError, match=sentence):
            await live_answer(node, request_)
        assert list(node.services.topics.metadata_log.image.users.by_name["ann"]) == [ScramHash.SHA_512]


async def test_the_first_user_is_there_before_the_first_start(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    assert await stopped_answer(data_dir, adding("ann")) == ChangedUser("ann", BOTH, created_data_dir=True)
    assert await stopped_answer(data_dir, adding("bob", ScramHash.SHA_256)) == ChangedUser("bob", [SHA_256])
    page = await stopped_answer(data_dir, ListUsersRequest())
    assert page.users == [UserRow("ann", ROWS), UserRow("bob", [CredentialRow(SHA_256, 4096)])]
    async with open_node(data_dir) as node:
        assert list(node.services.topics.metadata_log.image.users.by_name) == ["ann", "bob"]
        await live_answer(node, adding("carl"))
    assert await stopped_answer(data_dir, RemoveUserRequest("ann")) == ChangedUser("ann", BOTH)
    async with open_node(data_dir) as node:
        assert list(node.services.topics.metadata_log.image.users.by_name) == ["bob", "carl"]


@pytest.mark.parametrize("has_log", [True, False])
async def test_a_user_is_added_after_a_crash_amid_the_first_command(tmp_path: Path, *, has_log: bool) -> None:
    """The crash came before the metadata log, or before its topic id."""
    assert create_metadata(tmp_path, 1)
    log = tmp_path / "__cluster_metadata-0"
    (log / PARTITION_METADATA).unlink()
    if not has_log:
        shutil.rmtree(log)
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    assert (await stopped_answer(tmp_path, adding("ann"))).created_data_dir == (not has_log)
    async with open_node(tmp_path) as node:
        assert list(node.services.topics.metadata_log.image.users.by_name) == ["ann"]


async def test_no_metadata_log_is_created_beside_partitions(tmp_path: Path) -> None:
    assert create_metadata(tmp_path, 1)
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / PARTITION_METADATA).write_bytes(encode_partition_metadata(uuid.UUID(int=7)))
    with pytest.raises(ControlError, match="there are other partitions, such as t-0"):
        await stopped_answer(tmp_path, adding("ann"))


async def test_a_directory_of_something_else_gets_no_user(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(ControlError, match="is no data directory of a gateway"):
        await stopped_answer(tmp_path, adding("ann"))
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


async def test_a_directory_in_use_gets_no_user(tmp_path: Path) -> None:
    await stopped_answer(tmp_path, adding("ann"))
    storage = Storage()
    storage.lock(str(tmp_path / LOCK))
    try:
        with pytest.raises(ControlError, match="is in use"):
            await stopped_answer(tmp_path, adding("bob"))
    finally:
        storage.unlock(str(tmp_path / LOCK))


@pytest.mark.parametrize(
    ("name", "sentence"), [("müller", "no user müller could log in"), ("", "the name of the user is empty")]
)
def test_a_name_with_which_nobody_can_log_in_is_refused(tmp_path: Path, name: str, sentence: str) -> None:
    where = ("--password-file", "-", "--data-dir", str(tmp_path / "data"))
    refused = CliRunner().invoke(app, ["users", "add", name, *where], input="pencil\n")
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert not (tmp_path / "data").exists()


def test_the_text_of_a_request_has_no_secret() -> None:
    request = adding("ann")
    assert str(request.credentials[0].salted_password) not in repr(request)
    decoded = msgspec.json.decode(msgspec.json.encode(request), type=AddUserRequest)
    assert decoded == request
    assert json.loads(msgspec.json.encode(request))["user"] == "ann"


@pytest.mark.parametrize("content", ["pencil", "pencil\n", "pencil\r\nsecond line\n"])
def test_a_password_is_the_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    file = tmp_path / "password"
    file.write_text(content, newline="")
    assert read_password(str(file)) == "pencil"
    for option in ("-", None):
        monkeypatch.setattr("sys.stdin", io.StringIO(content))
        assert read_password(option) == "pencil"


def test_an_empty_or_unreadable_password_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text("\nsecond")
    with pytest.raises(SystemExit):
        read_password(str(file))
    with pytest.raises(SystemExit):
        read_password(str(tmp_path / "missing"))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SystemExit):
        read_password(str(file))
    assert capsys.readouterr().err.splitlines() == [
        "seqgate: the password must not be empty",
        f"seqgate: --password-file: {tmp_path / 'missing'} can't be read: No such file or directory",
        f"seqgate: --password-file: {file} can't be read: it is not UTF-8",
    ]


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_piped_password_is_utf_8(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], errors: str
) -> None:
    for file in ("-", None):
        piped = io.TextIOWrapper(io.BytesIO(b"p\xe4ss\n"), "utf-8", errors)
        monkeypatch.setattr("sys.stdin", piped)
        with pytest.raises(SystemExit):
            read_password(file)
        assert "- can't be read: it is not UTF-8" in capsys.readouterr().err
