"""Backups as files: what a manifest may say, and the pace."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.backup.pace import Pace
from seqgate.gateway.backup.repository import (
    NAME,
    PARTIAL,
    BackupError,
    BackupManifest,
    CopiedFile,
    Repository,
    encode,
    read,
)
from seqgate.log import Storage
from tests.log.support import NOW_MS


@pytest.mark.parametrize("path", ["../etc/passwd", "a/../../b", "/etc/passwd", "a/b/c", "", "a//b"])
def test_no_manifest_leads_out_of_the_data_directory(tmp_path: Path, path: str) -> None:
    content = encode(manifest_of(path))
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(BackupError, match="not in the data directory"):
        read(Storage(), str(tmp_path))


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    content = msgspec.json.encode({"version": 3, "anything": []})
    sealed = {"sha256": hashlib.sha256(content).hexdigest(), "manifest": msgspec.Raw(content)}
    (tmp_path / NAME).write_bytes(msgspec.json.encode(sealed))
    with pytest.raises(BackupError, match="has version 3; this release reads versions up to 2"):
        read(Storage(), str(tmp_path))


def manifest_of(path: str) -> BackupManifest:
    return BackupManifest(
        release="1",
        cluster_id="c",
        directory_id="d",
        node_id="1",
        directory_version="4",
        taken_ms=NOW_MS,
        is_live=True,
        partitions=1,
        copied_bytes=1,
        files=[CopiedFile(path, 1, "", 1, 1)],
    )


def test_the_pace_waits_for_as_long_as_the_rate_asks() -> None:
    now = [100.0]
    slept: list[float] = []
    reports: list[int] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(1_000, reports.append, lambda: now[0], sleep)
    for _ in range(4):
        pace.spend(500)
    assert slept == [0.5] * 4
    assert reports == [1_000, 1_500, 2_000]
    now[0] += 10
    pace.spend(500)
    assert len(slept) == 4, "a disk that was slower than the rate is not slowed down further"


class _Recording(Storage):
    """Notes the names of the directory that are durable when a tree is removed."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: list[str] = []
        self.at_removal: list[list[str]] = []

    def fsync_directory(self, path: str) -> None:
        super().fsync_directory(path)
        self.durable = sorted(self.list_directory(path))

    def remove_tree(self, path: str) -> None:
        self.at_removal.append(self.durable)
        super().remove_tree(path)


def test_no_power_cut_leaves_half_of_a_removed_backup_under_its_name(tmp_path: Path) -> None:
    manifest, names = manifest_of("log"), [f"2026013{day}T000000Z" for day in range(2)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).write_bytes(encode(manifest))
    storage = _Recording()
    assert Repository(storage, str(tmp_path)).remove_oldest_of_same_directory(1, manifest) == names[:1]
    assert storage.at_removal == [[names[0] + PARTIAL, names[1]]]
    assert [path.name for path in tmp_path.iterdir()] == names[1:]
