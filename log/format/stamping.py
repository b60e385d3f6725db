"""The first bytes of a batch as the log stores them: with its offset, its leader epoch, and whose time counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.format.record_batch import (
    PATCHED,
    REWRITABLE,
    REWRITABLE_BYTES,
    TIMESTAMP_TYPE_FLAG,
    stamped_head,
)

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.format.record_batch import BatchHeader

_MAX_TIMESTAMP: Final = slice(35, 43)


def stamp(
    batch: BatchHeader, view: memoryview, config: LogConfig, now_ms: int
) -> tuple[bytes, memoryview, int]:
    """Return (head, rest, log_append_time_ms) of a batch whose topic may say whose time counts; -1: the producer's.

    The topic says it, not the producer. Deep validation knows the true largest timestamp where the header has another one.
    """
    size_bytes = batch.size_bytes
    if config.message_timestamp_type != "CreateTime" and batch.record_count:
        head = stamped_head(batch, view, batch.attributes | TIMESTAMP_TYPE_FLAG, now_ms)
        return head, view[PATCHED.size : size_bytes], now_ms
    if batch.attributes & TIMESTAMP_TYPE_FLAG or (
        config.deep_validation and view[_MAX_TIMESTAMP] != batch.max_timestamp.to_bytes(8, "big", signed=True)
    ):
        head = stamped_head(batch, view, batch.attributes & ~TIMESTAMP_TYPE_FLAG, batch.max_timestamp)
        return head, view[PATCHED.size : size_bytes], -1
    head = REWRITABLE.pack(batch.base_offset, batch.batch_length, batch.partition_leader_epoch)
    return head, view[REWRITABLE_BYTES:size_bytes], -1
