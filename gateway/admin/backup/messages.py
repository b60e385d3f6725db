"""The request to stage a backup, and what the `seqgate backup` commands print with `--json`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from seqgate.gateway.admin.request import Request
from seqgate.gateway.admin.tables import Column, count, moment, size_in_words


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

    path: Annotated[str, Column("backup")]
    taken_ms: Annotated[int, Column("state of", moment)] = -1
    is_live: bool = False
    cluster_id: str = ""
    directory_id: str = ""
    node_id: str = ""
    release: str = ""
    partitions: Annotated[int, Column("partitions", count)] = 0
    files: Annotated[int, Column("files", count)] = 0
    size_bytes: Annotated[int, Column("size", size_in_words)] = 0
    copied_bytes: Annotated[int, Column("copied", size_in_words)] = 0
    complaint: str | None = None

    @property
    def note(self) -> Annotated[str, Column("")]:
        """The remark on a backup that can't be used."""
        return "" if self.complaint is None else "not usable"


class CreatedBackup(msgspec.Struct, frozen=True):
    """A new backup, and the names of older ones that `--keep` removed."""

    backup: BackupRow
    removed: list[str]


class DamagedFile(msgspec.Struct, frozen=True):
    """A file that is not as the manifest says; its path is below the data of the backup."""

    path: Annotated[str, Column("file")]
    reason: Annotated[str, Column("reason")]


class Verified(msgspec.Struct, frozen=True):
    """A backup that was read whole, and what is damaged in it."""

    backup: BackupRow
    damaged: list[DamagedFile]


class Restored(msgspec.Struct, frozen=True):
    """A restored data directory. `next_producer_id` is the first id to hand out, None if Redis has them."""

    backup: BackupRow
    data_dir: str
    next_producer_id: int | None
