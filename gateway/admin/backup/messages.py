"""The request to stage a backup, and what the `seqgate backup` commands print with `--json`."""

from __future__ import annotations

import msgspec

from seqgate.gateway.admin.request import Request


class StagedBackup(msgspec.Struct, frozen=True):
    """The staged files: the time (ms) of their state, and the number of partitions."""

    taken_ms: int
    partitions: int


class StageBackupRequest(Request[StagedBackup], tag="backup.stage"):
    """Give the files of the data directory second names in `.backup`, as they are now. The asker holds the
    lock `.backup.lock` until it has removed `.backup`.
    """


class BackupRow(msgspec.Struct, frozen=True):
    """A backup. Of `size_bytes` in all, `copied_bytes` were copied and the rest is shared with an earlier
    backup.

    `complaint` says why the backup can't be used; then the numbers are 0. `is_live`: a gateway ran at
    `taken_ms`.
    """

    path: str
    taken_ms: int
    is_live: bool
    cluster_id: str
    directory_id: str
    node_id: str
    release: str
    partitions: int
    files: int
    size_bytes: int
    copied_bytes: int
    complaint: str | None = None


class CreatedBackup(msgspec.Struct, frozen=True):
    """A new backup, and the names of older ones that `--keep` removed."""

    backup: BackupRow
    removed: list[str]


class DamagedFile(msgspec.Struct, frozen=True):
    """A file that is not as the manifest says; its path is below the data of the backup."""

    path: str
    reason: str


class Verified(msgspec.Struct, frozen=True):
    """A backup that was read whole, and what is damaged in it."""

    backup: BackupRow
    damaged: list[DamagedFile]


class Restored(msgspec.Struct, frozen=True):
    """A restored data directory. `next_producer_id` is the first id that its gateway may hand out, None where
    ids come from Redis.
    """

    backup: BackupRow
    data_dir: str
    next_producer_id: int | None
