"""Finding damage in a data directory that no gateway has open, and giving it up.

Finding needs no lock and changes nothing. Giving up takes the lock and recovers the logs first, as a start of
the gateway does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from seqgate.gateway.admin.repair.damage import DamagedRow, Repair
from seqgate.gateway.admin.request import ControlError, in_words
from seqgate.gateway.admin.stored import check_is_no_cache, locked, metadata_directory
from seqgate.gateway.config import Config
from seqgate.gateway.runtime.topics.topic_lifecycle import topic_policy
from seqgate.gateway.workers.shared_directory import recover_whole
from seqgate.log import (
    DirectoryLocked,
    IncompatibleFormat,
    LogDirectory,
    LogError,
    Storage,
    parse_partition_directory,
)
from seqgate.log.stopped import DamagedPartition, give_up, scan_directory


def repair(data_dir: Path, config: Config, *, apply: bool, now_ms: int) -> Repair:
    """Return the damage below the recovery points; with `apply` cut it from the logs. Raises ControlError."""
    metadata_directory(data_dir)
    storage = Storage()
    try:
        if not apply:
            return _described(scan_directory(storage, str(data_dir)), given_up=False)
        check_is_no_cache(storage, data_dir)
        _recover(storage, data_dir, config, lambda: now_ms)
        with locked(storage, data_dir):
            damaged = list(scan_directory(storage, str(data_dir)))
            for partition in damaged:
                give_up(storage, str(data_dir), partition, now_ms)
        return _described(damaged, given_up=True)
    except (IncompatibleFormat, LogError, OSError) as error:
        raise ControlError(f"{data_dir} can't be repaired: {in_words(error)}") from error


def _recover(storage: Storage, data_dir: Path, config: Config, now_ms: Callable[[], int]) -> None:
    """Recover the logs as a start does, and stop with all durable. Raises ControlError, LogError, OSError."""
    try:
        recover_whole(storage, data_dir, config.int("node.id"), now_ms, for_repair=True)
        directory = LogDirectory.open(
            data_dir,
            storage,
            node_id=config.int("node.id"),
            now_ms=now_ms,
            config=topic_policy(config, {}).log_config,
        )
    except DirectoryLocked as error:
        raise ControlError(f"a gateway runs on {data_dir}; stop it first") from error
    directory.close(clean=True)


def _described(damaged: Iterable[DamagedPartition], *, given_up: bool) -> Repair:
    rows = []
    for partition in damaged:
        key = parse_partition_directory(partition.name)
        assert key is not None
        rows += [DamagedRow.of(*key, found) for found in partition.ranges]
    return Repair(rows, sum(row.offsets for row in rows), given_up)
