"""Producers, their batches, producer names, and the blocks of producer ids."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.metrics.metric import Samples, Sources, Subject, counter, gauge

KNOWN: Final = gauge(
    "seqgate_producers", "Producers that partitions remember, each counted in each of its partitions."
)
EVICTED: Final = counter("seqgate_producers_evicted_total", "Idle producers that made room for new ones.")
EXPIRED: Final = counter(
    "seqgate_producers_expired_total", "Producers forgotten after producer.id.expiration.ms without a batch."
)
REFUSED: Final = counter(
    "seqgate_producers_refused_total", "New producers refused because there was no room for them."
)
DUPLICATES: Final = counter(
    "seqgate_producer_duplicate_batches_total",
    "Batches that were answered with the offset of their original, because a client sent them again.",
)
REFUSED_BATCHES: Final = counter(
    "seqgate_producer_refused_batches_total",
    "Refused batches, by Kafka's error: a gap is out_of_order_sequence_number, a fenced producer invalid_producer_epoch.",
    "error",
)
NAMES: Final = gauge("seqgate_producer_names", "Producer names that partitions remember for deduplication.")
NAMES_DROPPED: Final = counter(
    "seqgate_producer_names_dropped_records_total",
    "Records dropped because their producer name had sent them before.",
)
NAMES_EVICTED: Final = counter(
    "seqgate_producer_names_evicted_total", "Idle producer names that made room for new ones."
)
NAMES_EXPIRED: Final = counter(
    "seqgate_producer_names_expired_total", "Producer names forgotten after their time."
)
NAMES_REFUSED: Final = counter(
    "seqgate_producer_names_refused_total", "New producer names refused because there was no room for them."
)
IDS_LEFT: Final = gauge(
    "seqgate_producer_ids_left", "Producer ids left in the blocks that this gateway has claimed."
)
BLOCK_SIZE: Final = gauge(
    "seqgate_producer_id_block_size", "Producer ids in a block (seqgate.producer.id.block.size)."
)
BLOCKS: Final = counter(
    "seqgate_producer_id_blocks_claimed_total", "Blocks of producer ids claimed since the start."
)
FAILED_CLAIMS: Final = counter(
    "seqgate_producer_id_claims_failed_total", "Attempts to claim a block of producer ids that failed."
)
_FROM_ZERO: Final[frozenset[int]] = frozenset(
    (ErrorCode.out_of_order_sequence_number, ErrorCode.invalid_producer_epoch)
)
"""The errors that have a series before the first refusal. Prometheus does not see the growth of a counter that begins above zero."""


def _read(sources: Sources) -> Samples:
    partitions = sources.services.partitions
    limit = partitions.log_directory.environment.producer_limit
    known = 0
    for partition in partitions.registry:
        known += len(partition.log.producers)
        yield None
    yield KNOWN.at(known)
    yield EVICTED.at(0 if limit is None else limit.evictions)
    yield EXPIRED.at(0 if limit is None else limit.expirations)
    yield REFUSED.at(0 if limit is None else limit.refusals)
    yield DUPLICATES.at(partitions.counters.duplicates)
    refused = partitions.counters.verdicts.refused
    for code in _FROM_ZERO | refused.keys():
        yield REFUSED_BATCHES.at(refused[code], ErrorCode(code).name)
    names = partitions.log_directory.environment.name_budget
    yield NAMES.at(names.in_all)
    yield NAMES_DROPPED.at(names.dropped_records)
    yield NAMES_EVICTED.at(names.evictions)
    yield NAMES_EXPIRED.at(names.expired)
    yield NAMES_REFUSED.at(names.refusals)
    allocator = sources.services.coordinators.producer_ids
    state = allocator.state()
    yield IDS_LEFT.at(state.left + (0 if state.prefetched is None else state.prefetched.size))
    yield BLOCK_SIZE.at(allocator.block_size)
    yield BLOCKS.at(allocator.claimed_blocks)
    yield FAILED_CLAIMS.at(allocator.failed_claims)


SUBJECT: Final = Subject(
    "Producers",
    (
        KNOWN,
        EVICTED,
        EXPIRED,
        REFUSED,
        DUPLICATES,
        REFUSED_BATCHES,
        NAMES,
        NAMES_DROPPED,
        NAMES_EVICTED,
        NAMES_EXPIRED,
        NAMES_REFUSED,
        IDS_LEFT,
        BLOCK_SIZE,
        BLOCKS,
        FAILED_CLAIMS,
    ),
    _read,
)
