"""Creates, lists, verifies and restores backups, for the commands."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from seqgate import __version__
from seqgate.gateway.admin.backup.command import (
    BackupRow,
    CreatedBackup,
    DamagedFile,
    Restored,
    StageBackupRequest,
    Verified,
)
from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.operations import answer_stopped
from seqgate.gateway.admin.pids import MovedNextId, MoveNextRequest
from seqgate.gateway.admin.request import ControlError, NotRunning, in_words
from seqgate.gateway.admin.stored import locked, metadata_directory, read_image
from seqgate.gateway.backup import creation
from seqgate.gateway.backup import repository as restoring
from seqgate.gateway.backup.pace import Pace
from seqgate.gateway.backup.repository import BackupError, BackupManifest, Repository, damage_of, open_backup
from seqgate.gateway.config import Config, load_config
from seqgate.gateway.metadata.records import UnknownRecordError
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE
from seqgate.gateway.workers.shared_directory import make_staged_whole
from seqgate.log import DirectoryLocked, IncompatibleFormat, LogError, Storage
from seqgate.log.rebuilding import BUCKET_SESSION
from seqgate.log.staging import STAGING_LOCK, Staged, read_staged, remove_staging, stage_stopped

LEAST_GAP: Final = 1_000_000_000_000
"""The fewest producer ids between those that a backup knows and those that the restored gateway hands out."""
IDS_PER_MS: Final = 1_000
"""Producer ids for each millisecond of the clock: a later restore of a backup begins above an earlier one."""
_FAILURES = (BackupError, IncompatibleFormat, LogError, OSError, UnknownRecordError)


def create(
    data_dir: Path,
    request: StageBackupRequest,
    target: Path,
    pace: Pace,
    *,
    is_full: bool,
    keep: int | None,
    timeout_s: float | None = None,
) -> CreatedBackup:
    """Back a data directory up into `target`; a running gateway gets the request, and has `timeout_s` for its
    answer, by default STAGE_TIMEOUT_S. Raises ControlError.
    """
    storage = Storage()
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise ControlError(f"{target} is in the data directory; name a directory on another disk")
    repository = Repository(storage, str(target))
    try:
        repository.create()
        try:
            with staged_in(storage, data_dir, request, timeout_s or STAGE_TIMEOUT_S) as staged:
                created = creation.create(
                    storage,
                    str(data_dir),
                    staged,
                    repository,
                    pace,
                    release=__version__,
                    is_full=is_full,
                    keep=keep,
                )
        finally:
            repository.close()
    except _FAILURES as error:
        raise ControlError(f"the backup failed: {in_words(error)}") from error
    return CreatedBackup(backup_row(created.path, created.manifest), created.removed)


def list_backups(target: Path) -> list[BackupRow]:
    """Return the backups of a directory, the oldest first, unusable ones included. Raises ControlError."""
    storage = Storage()
    repository = Repository(storage, str(target))
    rows = []
    try:
        for name in sorted([*repository.names(), *repository.partial()]):
            path = f"{target}/{name}"
            try:
                rows.append(backup_row(path, open_backup(storage, path)))
            except BackupError as error:
                rows.append(BackupRow(path, complaint=str(error)))
    except OSError as error:
        raise ControlError(f"{target} can't be listed: {in_words(error)}") from error
    return rows


def found_backup(place: Path) -> Path:
    """Return a backup, or the newest complete one of a directory that has backups."""
    if (place / restoring.NAME).exists():
        return place
    try:
        names = Repository(Storage(), str(place)).names()
    except OSError:
        return place  # its opening says what is wrong
    return place / names[-1] if names else place


def verify(backup: Path, pace: Callable[[int], Pace]) -> Verified:
    """Read a backup whole and compare it with its manifest. Raises ControlError."""
    storage = Storage()
    try:
        manifest = open_backup(storage, str(backup))
        found = damage_of(storage, str(backup), manifest, pace(manifest.size_bytes))
        damaged = [DamagedFile(damage.path, damage.reason) for damage in found]
    except _FAILURES as error:
        raise ControlError(in_words(error)) from error
    return Verified(backup_row(str(backup), manifest), damaged)


def restore(backup: Path, data_dir: Path, pace: Callable[[int], Pace]) -> Restored:
    """Copy a backup into an empty data directory, and move its producer ids. Raises ControlError."""
    storage = Storage()
    next_id: int | None = None

    def prepare() -> None:
        nonlocal next_id
        next_id = _move_ids(data_dir, load_config(overrides=[f"node.id={manifest.node_id}"]))

    try:
        manifest = open_backup(storage, str(backup))
        restoring.restore(storage, str(backup), manifest, str(data_dir), pace(manifest.size_bytes), prepare)
    except _FAILURES as error:
        raise ControlError(f"nothing is restored: {in_words(error)}") from error
    return Restored(backup_row(str(backup), manifest), str(data_dir.absolute()), next_id)


def _move_ids(data_dir: Path, config: Config) -> int | None:
    """Let the restored gateway hand out no id that the original has handed out since the backup. Raises
    ControlError. Returns the next id; None where the ids come from Redis, which knows them all.
    """
    image = read_image(metadata_directory(data_dir))
    if not image.producer_id_blocks and (data_dir / SEEN_FILE).exists():
        return None
    now_ms = time.time_ns() // 1_000_000
    wanted = max(image.next_producer_id + LEAST_GAP, now_ms * IDS_PER_MS)
    moved: MovedNextId = answer_stopped(data_dir, config, now_ms, MoveNextRequest(wanted))
    return moved.current


def backup_row(path: str, manifest: BackupManifest) -> BackupRow:
    """Return the row of a backup."""
    return BackupRow(
        path=path,
        taken_ms=manifest.taken_ms,
        is_live=manifest.is_live,
        cluster_id=manifest.cluster_id,
        directory_id=manifest.directory_id,
        node_id=manifest.node_id,
        release=manifest.release,
        partitions=manifest.partitions,
        files=len(manifest.files),
        size_bytes=manifest.size_bytes,
        copied_bytes=manifest.copied_bytes,
    )


# Stages the files that a backup copies: the running gateway does it, or the command itself where no gateway
# runs.

STAGE_TIMEOUT_S: Final = 600.0
"""How long a gateway may take to give second names to the files of all partitions."""


@contextlib.contextmanager
def staged_in(
    storage: Storage, data_dir: Path, request: StageBackupRequest, timeout_s: float
) -> Iterator[Staged]:
    """Yield what a directory, or its running gateway, has staged; then remove it. Raises ControlError."""
    metadata_directory(data_dir)
    if storage.exists(str(data_dir / BUCKET_SESSION)):
        raise ControlError(
            f"{data_dir} is a cache of a bucket, which has the records: name the bucket with --cluster "
            "ADDRESS"
        )
    lock = str(data_dir / STAGING_LOCK)
    try:
        storage.lock(lock)
        _give_to_owner(data_dir, lock)
    except DirectoryLocked as error:
        raise ControlError(f"another backup of {data_dir} is under way; wait until it ends") from error
    except OSError as error:
        raise ControlError(f"{data_dir} can't be locked: {in_words(error)}") from error
    try:
        _stage(storage, data_dir, request, timeout_s)
        yield read_staged(storage, str(data_dir))
    finally:
        with contextlib.suppress(OSError):
            # The gateway, or the next backup, removes what can't be removed now.
            remove_staging(storage, str(data_dir))
        storage.unlock(lock)


def _give_to_owner(data_dir: Path, lock: str) -> None:
    """Let the gateway lock a file that root has created. Raises OSError."""
    owner = data_dir.stat()
    if os.geteuid() == 0:
        os.chown(lock, owner.st_uid, owner.st_gid)


def _stage(storage: Storage, data_dir: Path, request: StageBackupRequest, timeout_s: float) -> None:
    try:
        ask(data_dir, request, timeout_s=timeout_s)
    except NotRunning:
        _stage_here(storage, data_dir)
    make_staged_whole(storage, data_dir, lambda: time.time_ns() // 1_000_000)


def _stage_here(storage: Storage, data_dir: Path) -> None:
    """Stage the files of a directory that no gateway has open. The gateway may start once they are linked."""
    with locked(storage, data_dir):
        try:
            stage_stopped(storage, str(data_dir), time.time_ns() // 1_000_000, (SEEN_FILE,))
        except (IncompatibleFormat, LogError, OSError) as error:
            raise ControlError(f"{data_dir} can't be backed up: {in_words(error)}") from error
