from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.admin.operation import StoppedGateway
from seqgate.gateway.admin.repair import repair_directory
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.stored import create_metadata, locked, partition_directories
from seqgate.gateway.admin.users import RemoveUserRequest, remove_user_stopped
from seqgate.gateway.config import Config
from seqgate.log import Storage
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
        remove_user_stopped(StoppedGateway(data_dir, config, 0), RemoveUserRequest("ann"))
    with pytest.raises(ControlError, match="cache of a bucket"):
        repair_directory(data_dir, config, apply=True, now_ms=0)
    assert {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()} == content
