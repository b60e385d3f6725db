"""Finds one partition of a fetch, and reads from it."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext
from gateway.handlers.records.fetch_rows import error_row, row_of
from gateway.protocol.fetch_codec import FetchRow
from gateway.protocol.fetch_request import FetchPosition
from gateway.runtime.partitions.fetch_sessions import PartitionKey
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.services import PartitionServices
from log import FileRegion, LogError, OffsetOutOfRange, PartitionLog, lookups

SENT_BY_THE_KERNEL_BYTES = 64 << 10
"""Runs of records of at least this size are sent with sendfile, which then costs less than reading and writing them."""


def resolve(
    context: RequestContext[PartitionServices], key: PartitionKey
) -> tuple[Partition | None, ErrorCode]:
    topic_key, index = key
    partitions = context.services.registry
    if isinstance(topic_key, bytes):
        topic = partitions.by_key.get(topic_key)
        if topic is None:
            return None, ErrorCode.unknown_topic_id
    else:
        topic = partitions.by_name.get(topic_key)
    if topic is None:
        return None, ErrorCode.unknown_topic_or_partition
    partition = topic.get(index)
    return partition, ErrorCode.none if partition is not None else topic.error_without(index)


def read_partition(
    partition: Partition,
    wanted: FetchPosition,
    left: int,
    *,
    min_one_batch: bool,
    committed_only: bool,
) -> FetchRow:
    # Fetch treats every negative epoch as "no epoch" (FetchRequest.optionalEpoch)
    error = partition.check_leader_epoch(max(-1, wanted.current_leader_epoch))
    if error is not ErrorCode.none:
        return error_row(partition.index, error)
    log = partition.log
    upper_bound = log.last_stable_offset if committed_only else log.high_watermark
    aborted: list[tuple[int, int]] | None = [] if committed_only else None
    try:
        diverging = _diverging_epoch(log, wanted)
        if diverging is not None:
            return row_of(partition, b"", None, diverging)
        max_bytes = max(0, min(wanted.partition_max_bytes, left))
        region = log.find(
            wanted.fetch_offset, max_bytes, upper_bound=upper_bound, min_one_batch=min_one_batch
        )
        if committed_only:
            aborted = lookups.aborted_in(log, wanted.fetch_offset, region)
        records = _records(log, region)
    except OffsetOutOfRange:
        return error_row(partition.index, ErrorCode.offset_out_of_range)
    except LogError as failure:
        return error_row(partition.index, ErrorCode(failure.kafka_error_code))
    return row_of(partition, records, aborted, None)


def _records(log: PartitionLog, region: FileRegion | None) -> bytes | FileRegion:
    """Return the records for the answer: few as bytes, many as a region of the file, which the kernel sends."""
    if region is None:
        return b""
    return region.kept() if len(region) >= SENT_BY_THE_KERNEL_BYTES else log.read_region(region)


def _diverging_epoch(log: PartitionLog, wanted: FetchPosition) -> tuple[int, int] | None:
    """Return the epoch and offset at which the reader's log and this log diverge (KIP-595;
    UnifiedLog.endOffsetForEpoch).
    """
    if wanted.last_fetched_epoch < 0:
        return None
    leader_epoch, end_offset = log.epochs.end_offset(wanted.last_fetched_epoch, log.log_end_offset)
    if leader_epoch < 0:
        raise OffsetOutOfRange(f"no records of leader epoch {wanted.last_fetched_epoch} or before")
    if leader_epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return leader_epoch, end_offset
    return None
