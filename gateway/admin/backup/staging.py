"""Stages the files that a backup copies: the running gateway does it, or the command itself where no gateway runs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.admin.backup.messages import StageBackupRequest
from gateway.admin.client import ask
from gateway.admin.request import ControlError, NotRunning
from gateway.admin.stored import locked, metadata_directory
from gateway.admin.system_errors import in_words
from gateway.runtime.topics.producer_ids import SEEN_FILE
from log import DirectoryLocked, IncompatibleFormat, LogError, Storage
from log.rebuilding import BUCKET_SESSION
from log.staging import STAGING_LOCK, Staged, read_staged, remove_staging, stage_stopped

STAGE_TIMEOUT_S: Final = 600.0
"""How long a gateway may take to give second names to the files of all partitions."""


@contextlib.contextmanager
def staged_in(storage: Storage, data_dir: Path, request: StageBackupRequest) -> Iterator[Staged]:
    """Yield what is staged in a data directory, and remove it afterwards; a running gateway gets the request. Raises ControlError."""
    metadata_directory(data_dir)
    if storage.exists(str(data_dir / BUCKET_SESSION)):
        raise ControlError(
            f"{data_dir} is a cache of a bucket, which has the records: back up the bucket, with its own versions and replication"
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
        _stage(storage, data_dir, request)
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


def _stage(storage: Storage, data_dir: Path, request: StageBackupRequest) -> None:
    try:
        ask(data_dir, request, timeout_s=STAGE_TIMEOUT_S)
    except NotRunning:
        _stage_here(storage, data_dir)


def _stage_here(storage: Storage, data_dir: Path) -> None:
    """Stage the files of a directory that no gateway has open. The gateway may start as soon as they are linked."""
    with locked(storage, data_dir):
        try:
            stage_stopped(storage, str(data_dir), time.time_ns() // 1_000_000, (SEEN_FILE,))
        except (IncompatibleFormat, LogError, OSError) as error:
            raise ControlError(f"{data_dir} can't be backed up: {in_words(error)}") from error
