"""Writes offset, leader epoch and timestamp type into the head of a batch before the log stores the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from seqgate.log.format.record_batch import (
    CORRECTED,
    PATCHED,
    REWRITABLE,
    REWRITABLE_BYTES,
    TIMESTAMP_TYPE_FLAG,
    stamped_head,
)

if TYPE_CHECKING:
    from seqgate.log.config import LogConfig
    from seqgate.log.format.record_batch import BatchHeader

_MAX_TIMESTAMP: Final = slice(35, 43)


def stamp(
    batch: BatchHeader, view: memoryview, config: LogConfig, now_ms: int
) -> tuple[bytes, memoryview, int]:
    """Return (head, rest, log_append_time_ms) of a batch; log_append_time_ms is -1 where the producer's
    timestamps count.

    The topic sets the timestamp type, whatever the producer wrote. Where the records were decoded,
    `batch.max_timestamp` is their largest timestamp, and replaces a wrong one in the bytes.
    """
    size_bytes = batch.size_bytes
    if config.message_timestamp_type != "CreateTime" and batch.record_count:
        head = stamped_head(batch, view, batch.attributes | TIMESTAMP_TYPE_FLAG, now_ms)
        return head, view[PATCHED.size : size_bytes], now_ms
    if (
        batch.attributes & TIMESTAMP_TYPE_FLAG
        or batch.crc == CORRECTED
        or (
            config.deep_validation
            and view[_MAX_TIMESTAMP] != batch.max_timestamp.to_bytes(8, "big", signed=True)
        )
    ):
        head = stamped_head(batch, view, batch.attributes & ~TIMESTAMP_TYPE_FLAG, batch.max_timestamp)
        return head, view[PATCHED.size : size_bytes], -1
    head = REWRITABLE.pack(batch.base_offset, batch.batch_length, batch.partition_leader_epoch)
    return head, view[REWRITABLE_BYTES:size_bytes], -1
