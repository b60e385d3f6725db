"""Groups that this gateway coordinates, and how far they are behind."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.group.stored_groups import Group
from seqgate.gateway.metrics.metric import Samples, Sources, Subject
from seqgate.gateway.runtime.partitions.registry import Partitions

OTHERS: Final = "(other groups)"
LONGEST_ID: Final = 256
"""Characters of a group id that is a label; a group with a longer id has no series of its own."""
groups: Final = Subject("Groups")
GROUPS: Final = groups.gauge(
    "seqgate_groups", "Groups that this gateway coordinates, by type and state.", "type", "state"
)
MEMBERS: Final = groups.gauge("seqgate_group_members", "Members of all groups that this gateway coordinates.")
OFFSETS: Final = groups.gauge(
    "seqgate_group_offsets", "Committed offsets of all groups that this gateway coordinates."
)
LAG: Final = groups.gauge(
    "seqgate_group_lag_records",
    "Records between a group's committed offsets and the ends of the partitions that are open here. The "
    "groups with the largest lag have series of their own, up to seqgate.metrics.groups.max; the others "
    "share one. Share groups have no committed offsets.",
    "group",
)
SHARE_SESSIONS: Final = groups.gauge("seqgate_share_sessions", "Share sessions of members of share groups.")
LETTERS: Final = groups.counter(
    "seqgate_dead_letters_total", "Dead letters of share groups that were written."
)
LOST_LETTERS: Final = groups.counter(
    "seqgate_dead_letters_lost_total",
    "Records of share groups that died without a letter, because the group's topic can't have it.",
)
WRITING_LETTERS: Final = groups.gauge(
    "seqgate_dead_letter_partitions",
    "Partitions of share groups whose dead letters are being written, or wait.",
)
HELD: Final = groups.gauge(
    "seqgate_backlog_held_requests", "Produce requests that wait until a backlog is below its quota."
)
HELD_BYTES: Final = groups.gauge(
    "seqgate_backlog_held_bytes", "Bytes of the Produce requests that wait for a backlog."
)
HELD_TIMED_OUT: Final = groups.counter(
    "seqgate_backlog_held_timed_out_total",
    "Produce requests that waited for a backlog in vain and were refused.",
)
BACKLOG_REFUSALS: Final = groups.counter(
    "seqgate_backlog_refused_batches_total",
    "Batches refused because a backlog is over its quota, at once or after their request waited in vain.",
)


@groups.reads
def _read(sources: Sources) -> Samples:
    services = sources.services
    states: Counter[tuple[str, str]] = Counter()
    lags = _Lags(services.node.config.int("seqgate.metrics.groups.max"))
    members = offsets = 0
    for loaded in services.coordinators.groups.shards:
        if not loaded.is_current:
            continue
        shard = loaded.shard
        offsets += len(shard.offsets)
        for group in list(shard.all_groups()):  # groups come and go between two slices
            states[group.type, group.state_text] += 1
            members += len(group.members)
            yield None
            if isinstance(group, ShareGroup):
                continue
            lag = 0
            for behind in _each_lag(services.partitions.registry, shard, group):
                lag += behind
                yield None
            lags.add(group.group_id, lag)
    for (kind, state), count in states.items():
        yield GROUPS.at(count, kind, state)
    yield MEMBERS.at(members)
    yield OFFSETS.at(offsets)
    yield from lags.samples()
    yield SHARE_SESSIONS.at(len(services.coordinators.shares.sessions))
    letters = services.coordinators.letters
    yield LETTERS.at(letters.written.total())
    yield LOST_LETTERS.at(letters.lost.total())
    yield WRITING_LETTERS.at(len(letters))
    held = services.upkeep.backlog.held
    yield HELD.at(len(held))
    yield HELD_BYTES.at(held.held_bytes)
    yield HELD_TIMED_OUT.at(held.timed_out)
    yield BACKLOG_REFUSALS.at(services.partitions.counters.backlog_refusals)


def _each_lag(partitions: Partitions, shard: GroupShard, group: Group) -> Iterator[int]:
    """Yield for each committed offset how many records are behind it; 0 if it is not open here."""
    for (topic, index), committed in list(shard.offsets.of(group.group_id).items()):
        found = partitions.by_name.get(topic)
        partition = None if found is None else found.peek(index)
        yield 0 if partition is None else max(0, partition.log.high_watermark - committed.offset)


class _Lags:
    """The largest lags with their groups, and the sum of all others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._largest: list[tuple[int, str]] = []
        """A heap; the smallest of the largest lags is the first."""
        self._others = 0
        self._has_others = False

    def add(self, group_id: str, lag: int) -> None:
        # A client chooses the id. A second series of the name OTHERS would make the whole scrape invalid.
        if not self._most or len(group_id) > LONGEST_ID or group_id == OTHERS:
            self._count_other(lag)
        elif len(self._largest) < self._most:
            heapq.heappush(self._largest, (lag, group_id))
        else:
            self._count_other(heapq.heappushpop(self._largest, (lag, group_id))[0])

    def _count_other(self, lag: int) -> None:
        self._others += lag
        self._has_others = True

    def samples(self) -> Samples:
        """Yield the largest lags, the largest first, and then the others."""
        for lag, group_id in sorted(self._largest, reverse=True):
            yield LAG.at(lag, group_id)
        if self._has_others:
            yield LAG.at(self._others, OTHERS)


# Transactions that this gateway coordinates.

transactions: Final = Subject("Transactions")
IDS: Final = transactions.gauge(
    "seqgate_transactional_ids", "Transactional ids that this gateway coordinates."
)
OPEN: Final = transactions.gauge("seqgate_transactions_open", "Transactions that are open.")
ENDING: Final = transactions.gauge(
    "seqgate_transactions_ending",
    "Transactions that are decided and still wait for markers in their partitions.",
)
OLDEST: Final = transactions.gauge(
    "seqgate_transactions_oldest_seconds",
    "Age of the longest open transaction; readers of committed records wait for its end. 0 without one.",
)
TIMED_OUT: Final = transactions.counter(
    "seqgate_transactions_timed_out_total", "Transactions aborted because they were open too long."
)


@transactions.reads
def _read_transactions(sources: Sources) -> Samples:
    coordinator = sources.services.coordinators.transactions
    now_ms = sources.services.node.clock.now_ms()
    ids = open_count = ending = 0
    oldest_ms = now_ms
    for loaded in coordinator.shards:
        shard = loaded.shard
        ids += len(shard.transactions)
        open_count += len(shard.open)
        ending += len(shard.decided)
        for transactional_id in list(shard.open):
            transaction = shard.transactions.get(transactional_id)
            if transaction is not None:
                oldest_ms = min(oldest_ms, transaction.start_ms)
            yield None
    yield IDS.at(ids)
    yield OPEN.at(open_count)
    yield ENDING.at(ending)
    yield OLDEST.at((now_ms - oldest_ms) / 1000)
    yield TIMED_OUT.at(coordinator.endings.timed_out)


# Producers, their batches, producer names, and the blocks of producer ids.

producers: Final = Subject("Producers")
KNOWN: Final = producers.gauge(
    "seqgate_producers", "Producers that partitions track, each counted in each of its partitions."
)
EVICTED: Final = producers.counter(
    "seqgate_producers_evicted_total", "Idle producers that made room for new ones."
)
EXPIRED: Final = producers.counter(
    "seqgate_producers_expired_total", "Producers expired after producer.id.expiration.ms without a batch."
)
REFUSED: Final = producers.counter(
    "seqgate_producers_refused_total", "New producers refused because there was no room for them."
)
DUPLICATES: Final = producers.counter(
    "seqgate_producer_duplicate_batches_total",
    "Batches that were answered with the offset of their original, because a client sent them again.",
)
REFUSED_BATCHES: Final = producers.counter(
    "seqgate_producer_refused_batches_total",
    "Refused batches, by Kafka's error: a gap is out_of_order_sequence_number, a fenced producer "
    "invalid_producer_epoch.",
    "error",
)
NAMES: Final = producers.gauge(
    "seqgate_producer_names", "Producer names that partitions track for deduplication."
)
NAMES_DROPPED: Final = producers.counter(
    "seqgate_producer_names_dropped_records_total",
    "Records dropped because their producer name had sent them before.",
)
NAMES_EVICTED: Final = producers.counter(
    "seqgate_producer_names_evicted_total", "Idle producer names that made room for new ones."
)
NAMES_EXPIRED: Final = producers.counter(
    "seqgate_producer_names_expired_total", "Producer names expired after their idle time."
)
NAMES_REFUSED: Final = producers.counter(
    "seqgate_producer_names_refused_total", "New producer names refused because there was no room for them."
)
IDS_LEFT: Final = producers.gauge(
    "seqgate_producer_ids_left", "Producer ids left in the blocks that this gateway has claimed."
)
BLOCK_SIZE: Final = producers.gauge(
    "seqgate_producer_id_block_size", "Producer ids in a block (seqgate.producer.id.block.size)."
)
BLOCKS: Final = producers.counter(
    "seqgate_producer_id_blocks_claimed_total", "Blocks of producer ids claimed since the start."
)
FAILED_CLAIMS: Final = producers.counter(
    "seqgate_producer_id_claims_failed_total", "Attempts to claim a block of producer ids that failed."
)
_FROM_ZERO: Final[frozenset[int]] = frozenset(
    (ErrorCode.out_of_order_sequence_number, ErrorCode.invalid_producer_epoch)
)
"""The errors with a series from zero: Prometheus does not see growth that begins above zero."""


@producers.reads
def _read_producers(sources: Sources) -> Samples:
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
