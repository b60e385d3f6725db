"""The row of one partition in the answer to a fetch."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.protocol.fetch_codec import FetchRow
from gateway.runtime.partitions.partition import Partition
from log import FileRegion

REFUSED: Final = frozenset(
    {
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.topic_authorization_failed,
    }
)
"""The errors of partitions that are unknown or denied: nothing is read of them."""


def row_of(
    partition: Partition,
    records: bytes | FileRegion,
    aborted_transactions: list[tuple[int, int]] | None,
    diverging: tuple[int, int] | None,
) -> FetchRow:
    """Return the row of a partition that was read."""
    log = partition.log
    return FetchRow(
        partition.index,
        0,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        aborted_transactions,
        records,
        diverging,
    )


def error_row(index: int, error: ErrorCode) -> FetchRow:
    """Return the row of a partition that can't be read.

    As in Kafka, a partition that is unknown or denied has an empty list of aborted transactions, any other a null.
    """
    return FetchRow(index, int(error), -1, -1, -1, () if error in REFUSED else None, b"")
