"""Snapshots of a partition's producer state: `<20 digits>.snapshot`, named by the log_end_offset they belong to.

The bytes are seq_validator's. A snapshot is renamed into place whole; its checksum tells when a power cut left it torn,
and then the one before it plus a longer replay of the log gives the same state.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from log.files.file_names import SNAPSHOT_SUFFIX, TEMPORARY_SUFFIX, offset_name, offsets_of
from seq_validator import CorruptSnapshot, ProducerTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log.config import LogConfig
    from log.environment import LogEnvironment

KEPT_SNAPSHOTS: Final = 3
_logger = logging.getLogger(__name__)


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among these file names, ascending."""
    return offsets_of(names, SNAPSHOT_SUFFIX)


def write_snapshot(
    environment: LogEnvironment,
    directory: str,
    producers: ProducerTable,
    log_end_offset: int,
    recovery_point: int,
) -> str:
    """Write the snapshot and drop old ones; return its path, not yet durable. Raises OSError.

    The newest three that belong to durable data are kept, and all later ones: a crash may take their data, and they
    with it.
    """
    storage = environment.storage
    path = f"{directory}/{offset_name(log_end_offset, SNAPSHOT_SUFFIX)}"
    storage.write_file(path + TEMPORARY_SUFFIX, producers.snapshot(log_end_offset))
    storage.rename(path + TEMPORARY_SUFFIX, path)
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
    """The table of the newest readable snapshot and its offset; an empty table and None when there is none.

    What an older snapshot lacks is in the log only from `log_from` on. So an older one does not stand in for a newer one
    that the disk does not give now, which raises its OSError: else retries of what it remembers would be taken for new.
    Unless `is_counted` its producers do not count against the budget of remembered ones.
    """
    unread: OSError | None = None
    limit = environment.producer_limit if is_counted else None
    for offset in reversed(offsets):
        path = f"{directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            table, log_end_offset = ProducerTable.restore(
                environment.storage.read_file(path),
                retained_batches=config.retained_batches,
                limit=limit,
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
        _logger.warning("%s is not used: it says it belongs to offset %d", path, log_end_offset)
        table.clear()
    if unread is not None and log_from:
        raise unread
    return ProducerTable(retained_batches=config.retained_batches, limit=limit), None
