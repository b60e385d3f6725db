from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.operation import StoppedGateway
from seqgate.gateway.admin.operations import answer_stopped
from seqgate.gateway.admin.repair import repair_directory
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.stored import create_metadata, locked, partition_directories
from seqgate.gateway.admin.transactions.list_and_describe import ListTransactionsRequest
from seqgate.gateway.admin.users import (
    AddUserRequest,
    ListUsersRequest,
    RemoveUserRequest,
    change_user_stopped,
    list_users_stopped,
)
from seqgate.gateway.cli import app
from seqgate.gateway.config import Config, load_config
from seqgate.gateway.runtime.topics.metadata_log import open_metadata_log
from seqgate.log import LogDirectory, Storage
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN
from seqgate.log.rebuilding import BUCKET_SESSION


def test_directories_of_a_topic(tmp_path: Path) -> None:
    for name in ("t-10", "t-2", "t-2.0a1b-delete", "t-x", "t-x-3", "other-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "t-4").write_bytes(b"")
    assert {path.name for path in partition_directories(tmp_path, "t")} == {"t-2", "t-10"}


def test_a_cache_of_a_bucket_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / BUCKET_SESSION).write_text("{}")
    storage = Storage()
    with (
        pytest.raises(ControlError, match="is a cache of a bucket, which would never get the change"),
        locked(storage, tmp_path),
    ):
        pytest.fail("the command would change the cache")
    (tmp_path / BUCKET_SESSION).unlink()
    with locked(storage, tmp_path):
        pass


def test_no_command_changes_a_cache_of_a_bucket(tmp_path: Path) -> None:
    data_dir, config = tmp_path / "cache", Config()
    assert create_metadata(data_dir, config.int("node.id"))
    (data_dir / BUCKET_SESSION).write_bytes(b"{}")
    content = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}
    with pytest.raises(ControlError, match="cache of a bucket"):
        change_user_stopped(StoppedGateway(data_dir, config, 0), RemoveUserRequest("ann"))
    with pytest.raises(ControlError, match="cache of a bucket"):
        repair_directory(data_dir, config, apply=True, now_ms=0)
    for request in (ListUsersRequest(), ListTransactionsRequest()):
        with pytest.raises(ControlError, match="cache of a bucket, which has the state"):
            answer_stopped(data_dir, config, 0, request)
    assert {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()} == content


def test_no_user_is_added_where_a_bucket_will_have_them(tmp_path: Path) -> None:
    config = load_config(overrides=[f"seqgate.cluster=file://{tmp_path}"])
    with pytest.raises(ControlError, match=r"seqgate\.cluster is set"):
        change_user_stopped(StoppedGateway(tmp_path / "data", config, 0), AddUserRequest("ann", []))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_change_leaves_a_clean_stop_clean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, was_clean: bool
) -> None:
    data_dir, config = tmp_path / "data", Config()
    assert create_metadata(data_dir, config.int("node.id"))
    if not was_clean:
        (data_dir / CLEAN_SHUTDOWN).unlink()
    where = ("--data-dir", str(data_dir))
    added = CliRunner().invoke(app, ["users", "add", "ann", "--password-file", "-", *where], input="pencil\n")
    assert added.exit_code == 0
    # A refused change ends as cleanly.
    with pytest.raises(ControlError, match="there is no user bob"):
        change_user_stopped(StoppedGateway(data_dir, config, 0), RemoveUserRequest("bob"))
    with caplog.at_level(logging.WARNING):
        directory = LogDirectory.open(data_dir, Storage(), node_id=config.int("node.id"), now_ms=lambda: 0)
        assert directory.was_clean == was_clean
        log = open_metadata_log(directory)
        end_offset, durable_end_offset = log.log_end_offset, log.recovery_point
        directory.close()
    assert (end_offset > 0, durable_end_offset) == (True, end_offset)
    assert not caplog.records
    (user,) = list_users_stopped(StoppedGateway(data_dir, config, 0), ListUsersRequest()).users
    assert user.user == "ann"
