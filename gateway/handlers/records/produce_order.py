"""Keeps an idempotent producer's batches in order behind a refused one: which refusals a connection
remembers.

`seqgate.seq_validator.refused` has the rule. This module decides which refused batches a client sends again,
because only these may hold later ones back:

| refusal | clients | later batches |
| --- | --- | --- |
| a retriable code of Produce (SENT_AGAIN) | send it again | wait for it (NOT_ENOUGH_REPLICAS) |
| MESSAGE_TOO_LARGE with several records | Java, kafka-python split it, send its parts again | wait for it |
| any other code | give the batch up | are stored, as in Kafka |

aiokafka has one batch of a partition in flight, so nothing can overtake, and fails every batch that is out of
order. Today it is the client that asks ApiVersions without the name of its software. The refusals of such a
connection are not tracked.

docs/how-it-works.md lists every way in which a batch can be refused. Source: Kafka's Sender.completeBatch and
canRetry, TransactionManager.canRetry; librdkafka's rd_kafka_handle_idempotent_Produce_error; franz-go's
sink.handleReqRespBatch; kafka-python's Sender._can_split.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import Peer
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log.format.record_batch import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    crc_matches,
    parse_header,
)
from seqgate.seq_validator import RefusalLimit, RefusedBatches, RefusedBefore

SENT_AGAIN: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.replica_not_available,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.concurrent_transactions,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.throttling_quota_exceeded,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    )
)
"""The error codes upon which clients send a batch again with the same sequence."""
_TOO_LARGE: Final = int(ErrorCode.message_too_large)
_OUT_OF_ORDER: Final = int(ErrorCode.out_of_order_sequence_number)
_WHEN_GONE: Final = "refused batches"

Key = str | bytes


def refused_before(peer: Peer, key: Key, partition: Partition, now_ms: int) -> RefusedBefore | None:
    """Return what the sequence rule must know about earlier refusals; None if there were none."""
    if partition.strict_until_ms and now_ms >= partition.strict_until_ms:
        partition.strict_until_ms = 0
    if peer.refused is None and not partition.strict_until_ms:
        return None
    return RefusedBefore((key, partition.index), peer.refused, partition.strict_until_ms > 0)


class Refusals:
    """Notes the refusals of one Produce request on its connection."""

    __slots__ = ("_limit", "_peer")

    def __init__(self, limit: RefusalLimit, peer: Peer) -> None:
        """`limit` counts the refused batches that all connections track."""
        self._limit = limit
        self._peer = peer

    def note(
        self, key: Key, index: int, records: memoryview | None, code: int, *, waits: bool = False
    ) -> None:
        """Note that a batch was refused with `code`, as `note_batch` does; bytes without a whole header are
        ignored. If the checksum is wrong, the header may be the damaged part. Then it is believed only if it
        is that of a producer's very first batch: a producer must never be told that its next batch is out of
        order. A batch without a producer has no order to lose, and no flipped bit makes one out of a
        producer's.
        """
        if records is None or len(records) < HEADER_BYTES:
            return
        batch = parse_header(records)
        if batch.producer_id == NO_PRODUCER_ID or self._peer.is_nameless:
            return
        is_sound = batch.size_bytes == len(records) and crc_matches(batch, records)
        if is_sound or batch.base_sequence == 0:
            self.note_batch(key, index, batch, code, waits=waits)
        if not is_sound and (code in SENT_AGAIN or code == _TOO_LARGE):
            self._memory().refuse_unreadable((key, index))

    def note_batch(self, key: Key, index: int, batch: BatchHeader, code: int, *, waits: bool = False) -> None:
        """Track a refused batch that its client sends again; drop one that its client gives up. Count one
        that only `waits` for an earlier one.
        """
        peer = self._peer
        if batch.producer_id < 0 or peer.is_nameless:
            return
        refused = peer.refused
        if not waits and (code in SENT_AGAIN or (code == _TOO_LARGE and batch.record_count > 1)):
            refused = self._memory()
            refused.refuse((key, index), batch)
        elif refused is None:
            return
        elif waits or code == _OUT_OF_ORDER:
            refused.pass_over((key, index), batch)
        else:
            refused.give_up((key, index), batch)
        _free(peer, refused)

    def _memory(self) -> RefusedBatches:
        refused = self._peer.refused
        if refused is None:
            refused = self._peer.refused = RefusedBatches(self._limit)
            self._peer.when_gone(_WHEN_GONE, refused.close)
        return refused


def note_stored(peer: Peer, key: Key, index: int, records: memoryview) -> None:
    """Forget a producer's refused batch once a batch is taken, also as a duplicate by producer name."""
    refused = peer.refused
    if refused is not None:
        refused.forget((key, index), parse_header(records))
        _free(peer, refused)


def _free(peer: Peer, refused: RefusedBatches) -> None:
    """Return the connection to the fast path of Produce once it remembers nothing."""
    if not refused:
        peer.refused = None
        peer.forget_gone(_WHEN_GONE)
