"""The part of one fetch that another gateway than the leader serves (KIP-392): uploaded records, read from
the bucket.

    asked here     and                                         the answer
    led here       the selector chooses another gateway        no records; preferred_read_replica: that one
    led elsewhere  the records are uploaded                    records
    led elsewhere  they are not, or can't be read here now     no records; preferred_read_replica: the leader
    led elsewhere  so too, and the client has no leader epoch  NOT_LEADER_OR_FOLLOWER
    led elsewhere  the leader does not answer this gateway     NOT_LEADER_OR_FOLLOWER

Kafka's followers answer OFFSET_NOT_AVAILABLE or OFFSET_OUT_OF_RANGE in the third case. Here every reader
comes to the end of what is uploaded sooner or later. Some clients reset their offsets after
OFFSET_OUT_OF_RANGE, and some stay where they are after OFFSET_NOT_AVAILABLE. All that know preferred replicas
go where they are sent. A client without a leader epoch may hold this gateway for the leader, and so must ask
for the metadata.

The epoch of the last record (v12) needs no check: no record that a consumer got is ever taken back.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.cluster.bucket_reads import Bounds, BucketReads, FoundRecords, Loading, NotConfirmed
from seqgate.gateway.cluster.parts.manifest import PartitionKey as StoredKey
from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.handlers.records.fetch import READ_COMMITTED, error_row
from seqgate.gateway.protocol.fetch_codec import FetchPosition, FetchRequest, FetchRow
from seqgate.gateway.runtime.partitions.fetch_sessions import PartitionKey
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.gateway.runtime.topics.brokers import NO_LEADER
from seqgate.gateway.runtime.topics.read_replicas import ReadReplicas, ReplicaReader

FIRST_VERSION: Final = 11
"""The first version with preferred_read_replica."""
LOADED_AT_ONCE: Final = 16
"""Partitions of one fetch for which data is fetched from the bucket at a time; the others follow."""
_NO_BOUNDS: Final = Bounds(-1, -1, -1)


class ReplicaReads:
    """The decisions and reads of one pass over the partitions of a fetch."""

    def __init__(
        self,
        context: RequestContext[PartitionServices],
        reader: ReplicaReader,
        replicas: ReadReplicas,
        reads: BucketReads,
        loading: list[StoredKey],
    ) -> None:
        """Add the partitions whose records are being fetched from the bucket to `loading`."""
        self._context = context
        self._reader = reader
        self._committed_only = reader.committed_only
        self._replicas = replicas
        self._reads = reads
        self._loading = loading

    def row(
        self,
        key: PartitionKey,
        partition: Partition | None,
        error: ErrorCode,
        wanted: FetchPosition,
        left: int,
        *,
        min_one_batch: bool,
    ) -> FetchRow | None:
        """Return the row; None to answer as a single gateway. The partition is given if it is led here."""
        if partition is not None:
            return self._instead(partition, wanted)
        if error is not ErrorCode.not_leader_or_follower:
            return None
        return self._elsewhere(key, wanted, left, min_one_batch=min_one_batch)

    def _instead(self, partition: Partition, wanted: FetchPosition) -> FetchRow | None:
        """Return the row that sends the client to another gateway; None if this one, the leader, serves."""
        if partition.check_leader_epoch(max(-1, wanted.current_leader_epoch)) is not ErrorCode.none:
            return None
        chosen = self._replicas.instead(partition, wanted.fetch_offset, self._reader)
        if chosen is None:
            return None
        log = partition.log
        bounds = Bounds(log.log_start_offset, log.last_stable_offset, log.high_watermark)
        return self._row(partition.index, bounds, b"", (), chosen)

    def _elsewhere(
        self, key: PartitionKey, wanted: FetchPosition, left: int, *, min_one_batch: bool
    ) -> FetchRow | None:
        """Return a row led elsewhere; None without a live leader, or if the client needs metadata."""
        led = self._led(key)
        if led is None:
            return None
        stored, leader, leader_epoch = led
        index, epoch = key[1], wanted.current_leader_epoch
        if 0 <= epoch < leader_epoch:
            return error_row(index, ErrorCode.fenced_leader_epoch)
        if epoch > leader_epoch:
            return error_row(index, ErrorCode.unknown_leader_epoch)
        if len(self._loading) >= LOADED_AT_ONCE:
            return self._row(index, _NO_BOUNDS, b"", ())
        try:
            found = self._reads.read(
                stored,
                wanted.fetch_offset,
                max(0, min(wanted.partition_max_bytes, left)),
                min_one_batch=min_one_batch,
                committed_only=self._committed_only,
            )
        except NotConfirmed:
            return None
        if isinstance(found, FoundRecords):
            return self._row(index, found.bounds, found.records, found.aborted)
        if isinstance(found, Loading):
            self._loading.append(stored)
            return self._row(index, _NO_BOUNDS, b"", ())
        return None if epoch < 0 else self._row(index, _NO_BOUNDS, b"", (), leader)

    def _led(self, key: PartitionKey) -> tuple[StoredKey, int, int] | None:
        """Return the partition, its leader and leader epoch; None without a live leader elsewhere."""
        topic_key, index = key
        topic = self._context.services.registry.by_key.get(topic_key)
        led = None if topic is None else self._context.node.brokers.leader_in(topic.topic_id_bytes, index)
        if topic is None or led is None or led[0] in (NO_LEADER, self._context.node.node_id):
            return None
        return StoredKey(topic.topic_id, index), *led

    def _row(
        self,
        index: int,
        bounds: Bounds,
        records: bytes,
        aborted: list[tuple[int, int]] | tuple[()],
        preferred: int = -1,
    ) -> FetchRow:
        return FetchRow(
            index,
            0,
            bounds.end,
            bounds.stable,
            bounds.log_start,
            aborted if self._committed_only else None,
            records,
            preferred_read_replica=preferred,
        )


def replica_reads(
    context: RequestContext[PartitionServices], request: FetchRequest, loading: list[StoredKey]
) -> ReplicaReads | None:
    """Return what serves this fetch beside the leaders (it adds to `loading`); None where only leaders do."""
    replicas, reads = context.services.replicas, context.services.bucket_reads
    if replicas is None or reads is None or context.api_version < FIRST_VERSION or request.replica_id >= 0:
        return None
    reader = ReplicaReader(
        context.peer_host,
        context.client_id,
        request.rack_id,
        context.listener_name,
        request.isolation_level == READ_COMMITTED,
    )
    return ReplicaReads(context, reader, replicas, reads, loading)
