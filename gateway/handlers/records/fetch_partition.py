"""Finds one partition of a fetch, and reads from it.

The right of one fetch to read its topics: a consumer needs READ on each topic, a follower CLUSTER_ACTION on
the cluster.

A topic is asked for once in a request, when it is first read. A right that is taken away while the fetch
waits therefore counts from the next fetch on, as in Kafka. Source: Kafka's KafkaApis.handleFetchRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.protocol.fetch_codec import FetchPosition, FetchRequest, FetchRow, TopicKey
from seqgate.gateway.runtime.partitions.fetch_sessions import PartitionKey
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import FileRegion, LogError, OffsetOutOfRange, PartitionLog

if TYPE_CHECKING:
    from seqgate.gateway.handlers.records.fetch import FetchContext


SENT_BY_THE_KERNEL_BYTES = 64 << 10
"""Runs of records of at least this size are sent with sendfile, which then costs less than reading and
writing them.
"""


def resolve(
    context: RequestContext[PartitionServices], fetch_context: FetchContext, key: PartitionKey
) -> tuple[Partition | None, ErrorCode]:
    """Return a partition that the client may read; None and the error where it can't be read."""
    topic_key, index = key
    if fetch_context.rights is not None and fetch_context.rights.denies(topic_key):
        return None, ErrorCode.topic_authorization_failed
    topic = context.services.registry.by_key.get(topic_key)
    if topic is None:
        if isinstance(topic_key, bytes):
            return None, _error_of_a_deleted(context, fetch_context, key)
        return None, ErrorCode.unknown_topic_or_partition
    partition = topic.get(index)
    return partition, ErrorCode.none if partition is not None else topic.error_without(index)


def _error_of_a_deleted(
    context: RequestContext[PartitionServices], fetch_context: FetchContext, key: PartitionKey
) -> ErrorCode:
    """Return the error for a topic id that no topic has.

    A fetch session knows the name that the id had. It answers as for this name, and INCONSISTENT_TOPIC_ID if
    another topic has the name now. Source: Kafka's CachedPartition.maybeResolveUnknownName,
    KafkaApis.handleFetchRequest, ReplicaManager.readFromLog.
    """
    name = fetch_context.known_name(key)
    if name is None:
        return ErrorCode.unknown_topic_id
    if fetch_context.rights is not None and fetch_context.rights.denies(name):
        return ErrorCode.topic_authorization_failed
    topic = context.services.registry.by_name.get(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition
    return topic.refusal(key[1]) or ErrorCode.inconsistent_topic_id


def error_of_a_follower(partition: Partition, wanted: FetchPosition) -> ErrorCode:
    """Return the error for a fetch with a replica id. No partition has followers.

    Source: Kafka's Partition.followerReplicaOrThrow.
    """
    if wanted.current_leader_epoch < 0:
        return ErrorCode.not_leader_or_follower
    error = partition.check_leader_epoch(wanted.current_leader_epoch)
    return ErrorCode.unknown_leader_epoch if error is ErrorCode.none else error


def read_partition(
    partition: Partition,
    wanted: FetchPosition,
    left: int,
    *,
    min_one_batch: bool,
    committed_only: bool,
) -> FetchRow:
    """Return the row of a partition, with records of at most `left` bytes.

    Where there are records, a limit below 0 gets UNKNOWN_SERVER_ERROR, as from Kafka's LogSegment.read.
    """
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
        max_bytes = min(wanted.partition_max_bytes, left)
        region = log.find(
            wanted.fetch_offset,
            max(0, max_bytes),
            upper_bound=upper_bound,
            min_one_batch=min_one_batch or max_bytes < 0,
        )
        if max_bytes < 0 and region is not None:
            return error_row(partition.index, ErrorCode.unknown_server_error)
        if committed_only:
            aborted = log.aborted_in(wanted.fetch_offset, region)
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


# The row of one partition in the answer to a fetch.

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

    As in Kafka, a partition that is unknown or denied has an empty list of aborted transactions, any other a
    null.
    """
    return FetchRow(index, int(error), -1, -1, -1, () if error in REFUSED else None, b"")


class FetchRights:
    """Decides for the topics of one fetch; exists only where there is an authorizer."""

    __slots__ = ("_context", "_decided", "_is_refused_follower", "_reads_as_follower")

    def __init__(self, context: RequestContext[PartitionServices], request: FetchRequest) -> None:
        self._context = context
        self._decided: dict[TopicKey, bool] = {}
        self._reads_as_follower = request.replica_id >= 0
        self._is_refused_follower = self._reads_as_follower and not context.may_cluster(
            Operation.CLUSTER_ACTION
        )

    def denies(self, key: TopicKey) -> bool:
        """Return whether the client may not read the topic, whether it exists or not.

        An id that nobody has is not denied to a consumer; it is asked for again once a topic has it.
        """
        if self._reads_as_follower:
            return self._is_refused_follower
        decided = self._decided.get(key)
        if decided is None:
            name = self._context.services.registry.name_of(key)
            if name is None:
                return False
            decided = self._decided[key] = not self._context.may_topic(Operation.READ, name)
        return decided
