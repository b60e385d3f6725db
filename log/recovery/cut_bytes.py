"""Keeps bytes that a start cuts off the end of a log, if sound batches are among them.

A crash may tear the last write, and may lose an earlier page of several writes whose later pages reached the disk. Damage at rest
above the recovery point looks the same, and then acknowledged batches lie behind it. Nothing tells the two apart for sure. So the
log ends before the damage, as after a torn write, and the bytes stay in a file beside the segment, for a person to decide.

`<20 digits>.log.<position>.<time>.cut`: the bytes from that position of the segment file on, and when they were cut (ms).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from log.files.data_file import DataFile
from log.segments.damage import CutBytes, DamagedRange
from log.segments.scan import CHUNK_BYTES, EVERYWHERE, SegmentScan

if TYPE_CHECKING:
    from log.environment import LogEnvironment
    from log.segments.segment import Segment

_logger = logging.getLogger(__name__)
CUT_SUFFIX: Final = ".cut"


class _Sound(NamedTuple):
    """The sound batches among bytes that are about to be cut off."""

    batches: int
    records: int
    first_offset: int
    last_offset: int


def keep_cut_bytes(
    environment: LogEnvironment,
    segment: Segment,
    position: int,
    end: int,
    next_offset: int,
    now_ms: int,
) -> None:
    """Copy the bytes between two positions of a segment file to a durable file, if a sound batch is among them, and register the file.
    Raises OSError.

    Call this before the bytes are cut off. `next_offset` is the offset that would follow at `position`.
    """
    found = _sound_batches(segment, position, end, next_offset)
    if found is None:
        return
    storage = environment.storage
    kept = DataFile(f"{segment.file.path}.{position}.{now_ms}{CUT_SUFFIX}")
    storage.create(kept)
    storage.descriptors.pin(kept)
    try:
        at = position
        while at < end and (data := storage.read(segment.file, min(CHUNK_BYTES, end - at), at)):
            if storage.write(kept, (data,), at - position) != len(data):
                raise OSError(f"{kept.path} can't be written; check that the disk is not full")
            at += len(data)
        environment.durability.sync(data=[kept], directories=[segment.directory])
    finally:
        storage.descriptors.unpin(kept)
        storage.descriptors.release(kept)
    environment.damage.note_cut(
        segment.directory,
        CutBytes(
            kept.path.rpartition("/")[2], end - position, found.records, found.first_offset, found.last_offset
        ),
    )
    _logger.error(
        "%s: the %d bytes from position %d on are cut off, because the batch there is damaged, but %d sound batches with %d records "
        "(offsets %d to %d) follow; if they were acknowledged, damage has lost them, not the crash; the bytes are kept in %s",
        segment.file.path,
        end - position,
        position,
        found.batches,
        found.records,
        found.first_offset,
        found.last_offset,
        kept.path,
    )


def _sound_batches(segment: Segment, position: int, end: int, next_offset: int) -> _Sound | None:
    """Return the sound batches between two positions, found as behind damage; None without any."""
    scan = SegmentScan(
        segment.read_at,
        segment.file.path,
        end,
        segment.base_offset,
        next_offset=next_offset,
        kept_below=EVERYWHERE,
    )
    scan.position = position
    found: _Sound | None = None
    for part in scan:
        if isinstance(part, DamagedRange):
            continue
        batch = part[1]
        before = found or _Sound(0, 0, batch.base_offset, 0)
        found = before._replace(
            batches=before.batches + 1,
            records=before.records + batch.record_count,
            last_offset=batch.last_offset,
        )
    return found
