"""Reads and writes snapshots of the producers: `<20 digits>.snapshot`, named by their log_end_offset.

The bytes are in seq_validator's format. A whole snapshot is renamed to its final name. A power cut may still
tear the file, which its checksum reveals. Then an earlier one and a longer replay give the same state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from seqgate.log.config import LogConfig
from seqgate.log.environment import LogEnvironment
from seqgate.log.files.file_names import SNAPSHOT_SUFFIX, offset_name, offsets_of
from seqgate.seq_validator import CorruptSnapshot, ProducerTable

KEPT_SNAPSHOTS: Final = 3
"""Snapshots of durable data kept per partition; older ones are deleted when a new one is written."""
_logger = logging.getLogger(__name__)


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among these file names, ascending."""
    return offsets_of(names, SNAPSHOT_SUFFIX)


def write_snapshot(
    environment: LogEnvironment,
    directory: str,
    producers: ProducerTable,
    log_end_offset: int,
    recovery_point: int,
) -> str:
    """Write the snapshot and delete old ones. Return the path, not durable yet. The newest KEPT_SNAPSHOTS of
    durable data stay, and all later ones, which a crash may take away. Raises OSError.
    """
    storage = environment.storage
    name = offset_name(log_end_offset, SNAPSHOT_SUFFIX)
    path = storage.replace(f"{directory}/{name}", producers.snapshot(log_end_offset))
    if storage.keeps_deleted:
        return path
    offsets = snapshot_offsets(storage.list_directory(directory))
    for offset in [offset for offset in offsets if offset <= recovery_point][:-KEPT_SNAPSHOTS]:
        storage.delete(f"{directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}")
    return path


def restore_newest(
    environment: LogEnvironment,
    directory: str,
    config: LogConfig,
    offsets: list[int],
    *,
    log_from: int = 0,
    is_counted: bool = True,
) -> tuple[ProducerTable, int | None]:
    """Return the newest readable snapshot's table and offset; an empty table and None without one.

    Raises OSError when the disk can't read a newer snapshot and the log, which begins at `log_from`, can't
    make up for it. An older snapshot would then lack producers, and their retries would be stored twice.
    Unless `is_counted`, the producers do not count against the limit of tracked producers.
    """
    unread: OSError | None = None
    limit = environment.producer_limit if is_counted else None
    for offset in reversed(offsets):
        path = f"{directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            table, log_end_offset = ProducerTable.restore(
                environment.storage.read_file(path), retained_batches=config.retained_batches, limit=limit
            )
        except (CorruptSnapshot, OSError) as error:
            _logger.warning("%s is not used: %s", path, error)
            unread = unread or (error if isinstance(error, OSError) else None)
            continue
        if log_end_offset == offset:
            if unread is not None and offset < log_from:
                table.clear()
                raise unread
            return table, offset
        _logger.warning("%s is not used: its content belongs to offset %d", path, log_end_offset)
        table.clear()
    if unread is not None and log_from:
        raise unread
    return ProducerTable(retained_batches=config.retained_batches, limit=limit), None
