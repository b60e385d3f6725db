"""The files in a data directory that belong to no partition, and the check of their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.compaction.cleaned_transactions import CLEANER_OFFSETS
from log.directory.stored_logs import CLEAN_SHUTDOWN, STORED_LOGS, check_stored_logs
from log.errors import IncompatibleFormat
from log.files.checkpoints import check_checkpoint
from log.files.versions import META
from log.segments.damage_register import DAMAGED_BATCHES

if TYPE_CHECKING:
    from log.files.storage import Storage

LOCK: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
BUCKET_SESSION: Final = "bucket-session"
"""Says whose cache the directory is, where the records are durable in a bucket."""
RESIDENCY: Final = "residency"
"""Says which blocks of segment files are absent, because only a bucket has them. A clean stop writes it."""
WORKERS: Final = "workers"
"""The directory with the files of each worker, while several processes have the data directory; see `log.sharing`."""
STAGING: Final = ".backup"
"""The directory with second names of all files that a backup copies; see `log.staging`."""
STAGING_LOCK: Final = ".backup.lock"
"""The file that a `seqgate backup` command locks while it needs STAGING."""
KNOWN_NAMES: Final = frozenset(
    {
        WORKERS,
        f"{WORKERS}.new",
        f"{WORKERS}.old",
        LOCK,
        META,
        CLEAN_SHUTDOWN,
        STORED_LOGS,
        RECOVERY_POINTS,
        CLEANER_OFFSETS,
        DAMAGED_BATCHES,
        BUCKET_SESSION,
        RESIDENCY,
        STAGING,
        STAGING_LOCK,
    }
)
"""Files of the data directory itself. A sweep reports any other file as a leak."""


def check_versions(storage: Storage, root: str) -> None:
    """Check that this release reads the files of the directory, before it changes any. Raises IncompatibleFormat, OSError."""
    check_stored_logs(storage, root)
    for name in (RECOVERY_POINTS, CLEANER_OFFSETS):
        path = f"{root}/{name}"
        if storage.exists(path):
            check_checkpoint(storage.read_file(path), path)


def check_is_whole(storage: Storage, root: str) -> None:
    """Check that no worker has files of its own in the directory. Raises IncompatibleFormat."""
    if storage.exists(f"{root}/{WORKERS}"):
        raise IncompatibleFormat(
            f"several workers had {root} last and were killed; start a gateway on it, and stop the gateway, first"
        )
