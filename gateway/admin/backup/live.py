"""The staging of a backup by a running gateway."""

from __future__ import annotations

from seqgate.gateway.admin.backup.messages import StageBackupRequest, StagedBackup
from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.request import ControlError, in_words
from seqgate.gateway.runtime.upkeep.backup_staging import StagingRefused


async def stage(gateway: LiveGateway, _: StageBackupRequest) -> StagedBackup:
    """Stage the files of the data directory. Raises ControlError."""
    services = gateway.services
    backups = services.upkeep.backups
    if backups is None:
        raise ControlError(_why_not(is_whole=services.partitions.log_directory.share.is_whole))
    try:
        staged = await backups.begin()
    except StagingRefused as error:
        cause = error.__cause__
        reason = in_words(cause) if isinstance(cause, Exception) else str(error)
        raise ControlError(f"the backup can't begin: {reason}") from error
    return StagedBackup(staged.taken_ms, staged.partitions)


def _why_not(*, is_whole: bool) -> str:
    if is_whole:
        return (
            "this gateway keeps its records in a bucket, and its data directory is a cache: back up the "
            "bucket, with its own versions "
            "and replication"
        )
    return (
        "several workers have this data directory, and nobody can stop them at one moment: stop the command, "
        "and make the backup of the "
        "stopped directory, or start it without --workers"
    )
