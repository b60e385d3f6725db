"""Copies a whole metadata log into a bucket that has none: at an import, and at the first start of this release on an older bucket.

The copy consists of pieces, and all but the last say that more follow. So a copy that ended early is known, and goes on where it ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from gateway.cluster.metadata.change import CHANGE, PIECE, CorruptChange, decode_change
from gateway.cluster.metadata.shared_log import SharedLog
from gateway.cluster.wal.sessions import SHARED_METADATA_SINCE, SharedLogContent
from log import CorruptRecord
from log.format.record_batch import BatchHeader
from log.format.records import Record, build_batch, iterate_records

PIECE_BYTES: Final = 4 * 1024 * 1024
"""The size from which a piece takes no more batches."""

Batches = Iterable[tuple[BatchHeader, memoryview]]


def is_copied(content: SharedLogContent) -> bool:
    """Return whether `meta/` has the whole metadata: no older release has used the bucket, or its metadata was copied.

    Raises CorruptChange, IncompatibleFormat.
    """
    if content.changes:
        seq, last = content.changes[-1]
        return decode_change(last, seq).kind != PIECE
    if content.base is not None:
        return True
    return all(known.cluster_version >= SHARED_METADATA_SINCE for known in content.sessions)


async def copy_log(shared: SharedLog, batches: Batches) -> None:
    """Write the batches of a metadata log, from its beginning, into the shared log, but for those that it has.

    Waits until the store answers. Raises CorruptChange if the shared log is no beginning of this log, CorruptRecord,
    CorruptRegistration, IncompatibleFormat, Refused.
    """
    left = deque(batches)
    end_offset = left[-1][0].last_offset + 1 if left else 0
    while shared.next_offset < end_offset:
        batch, piece_end = _piece(left, shared.next_offset)
        made = await shared.create(batch, CHANGE if piece_end == end_offset else PIECE)
        for entry in await shared.read() if made is None else [made]:
            shared.take(entry)
    if shared.next_offset != end_offset:
        raise CorruptChange(
            f"the metadata in the bucket ends at {shared.next_offset}, and the log that was copied at {end_offset}."
        )


def _piece(left: deque[tuple[BatchHeader, memoryview]], first_offset: int) -> tuple[bytes, int]:
    """Return one batch of the records from `first_offset` on, and the offset after it. Drops the batches before from `left`.

    Raises CorruptRecord.
    """
    while left[0][0].last_offset < first_offset:
        left.popleft()
    records: list[Record] = []
    end_offset, size = first_offset, 0
    for header, batch in left:
        if header.base_offset != end_offset:
            raise CorruptRecord(f"the metadata log has no batch that begins at the offset {end_offset}")
        records += iterate_records(batch)
        end_offset = header.last_offset + 1
        size += header.size_bytes
        if size >= PIECE_BYTES:
            break
    if len(records) != end_offset - first_offset:
        raise CorruptRecord(
            f"the metadata log lacks records between the offsets {first_offset} and {end_offset}"
        )
    return build_batch(records), end_offset
