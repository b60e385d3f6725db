"""The producers of a partition: judge first, append, then update. `ProducerLimit` bounds their number."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from seqgate.seq_validator import snapshot
from seqgate.seq_validator.entry import (
    FIRST_DERIVED_ID,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TRANSACTION,
    ProducerBatch,
    ProducerEntry,
    RetainedBatch,
)
from seqgate.seq_validator.refused import RefusedBefore
from seqgate.seq_validator.rule import (
    ACCEPTED,
    Accepted,
    Rejected,
    RejectionReason,
    Verdict,
    judge_known,
    judge_marker,
)


class ProducerLimit:
    """A budget of tracked producers. The three bounds may be changed while the limit is in use.

    All tables of a gateway share one limit. It keeps every entry of every table in one ordered dictionary,
    the longest idle first; an append moves its entry to the end. So finding the longest idle producer of the
    gateway and keeping the order both cost O(1), whatever the number of tables. Restored entries arrive table
    by table. The limit sorts all entries by activity once, when it next needs the order.

    A retry of a live producer that was evicted could be accepted a second time. So the limit never evicts a
    producer that was active within `min_idle_ms`: the new producer is refused instead, with a retriable
    error. The limit never evicts a producer with an open transaction either. Otherwise its marker would find
    nothing to end, and readers would wait for ever.

    `max_per_partition` and `max_in_all` are counts of producers. `min_idle_ms` is the time in milliseconds
    for which a producer must have been idle before it may be evicted for a new one. `evictions`,
    `expirations` and `refusals` count since the limit was made.
    """

    def __init__(
        self, *, max_per_partition: int = sys.maxsize, max_in_all: int = sys.maxsize, min_idle_ms: int = 0
    ) -> None:
        """Begin without producers. Raises ValueError when a maximum is below 1 or the idle time below 0."""
        if max_per_partition < 1:
            raise ValueError(f"max_per_partition must be at least 1, not {max_per_partition}")
        if max_in_all < 1:
            raise ValueError(f"max_in_all must be at least 1, not {max_in_all}")
        if min_idle_ms < 0:
            raise ValueError(f"min_idle_ms must be at least 0, not {min_idle_ms}")
        self.max_per_partition = max_per_partition
        self.max_in_all = max_in_all
        self.min_idle_ms = min_idle_ms
        self.evictions = self.expirations = 0
        self.refusals = 0
        self.producers: OrderedDict[ProducerEntry, ProducerTable] = OrderedDict()
        """The tracked producers, the longest idle first. The owner may rebuild the table in place."""
        self._sorted = True
        # The bound method is kept, because the table calls it for every appended batch.
        self.touch = self.producers.move_to_end

    def __len__(self) -> int:
        """Return the number of tracked producers, over all tables."""
        return len(self.producers)

    def enter(self, table: ProducerTable, entry: ProducerEntry) -> None:
        self.producers[entry] = table

    def enter_restored(self, table: ProducerTable, entry: ProducerEntry) -> None:
        """Count a new entry of `table` that was last active in the past."""
        self.producers[entry] = table
        self._sorted = False

    def leave(self, entry: ProducerEntry) -> None:
        """Stop counting an entry that its table forgot."""
        del self.producers[entry]

    def refuses(self, table: ProducerTable, now_ms: int) -> bool:
        """Return True, and count a refusal, if `table` has no room for a producer and none can be evicted."""
        if len(table) >= self.max_per_partition:
            longest_idle = table.longest_idle()
        elif len(self.producers) >= self.max_in_all:
            longest_idle = self._longest_idle()
        else:
            return False
        if longest_idle is not None and self._is_idle(longest_idle, now_ms):
            return False
        self.refusals += 1
        return True

    def make_room(self, table: ProducerTable, now_ms: int) -> None:
        """Evict the longest idle producers until `table` has room for one more, or no producer is idle."""
        while len(table) >= self.max_per_partition:
            longest_idle = table.longest_idle()
            if longest_idle is None or not self._is_idle(longest_idle, now_ms):
                break
            self._evict(table, longest_idle)
        while len(self.producers) >= self.max_in_all:
            longest_idle = self._longest_idle()
            if longest_idle is None or not self._is_idle(longest_idle, now_ms):
                break
            self._evict(self.producers[longest_idle], longest_idle)

    def _evict(self, table: ProducerTable, entry: ProducerEntry) -> None:
        table.forget(entry)
        self.evictions += 1

    def _is_idle(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.idle_ms(now_ms) >= self.min_idle_ms

    def _longest_idle(self) -> ProducerEntry | None:
        if not self._sorted:
            order = sorted(self.producers.items(), key=lambda item: item[0].last_active_ms)
            self.producers.clear()
            self.producers.update(order)
            self._sorted = True
        return next((entry for entry in self.producers if not entry.has_open_transaction), None)


DEFAULT_RETAINED_BATCHES: Final = 5
_new_tuple = tuple.__new__


class ProducerTable:
    """The state of all producers of one partition.

    The log first calls `judge`, which changes nothing, writes the batch, and folds it in with `update`. All
    times are milliseconds of the gateway's own clock. The entries are ordered longest idle first.
    """

    __slots__ = ("_entries", "_limit", "_retained_batches")

    def __init__(
        self, *, retained_batches: int = DEFAULT_RETAINED_BATCHES, limit: ProducerLimit | None = None
    ) -> None:
        """Begin empty. Retain `retained_batches` of each of the producers that `limit` allows (None: all).
        Raises ValueError when `retained_batches` is below 1.
        """
        if retained_batches < 1:
            raise ValueError(f"retained_batches must be at least 1, not {retained_batches}")
        self._retained_batches = retained_batches
        self._limit = ProducerLimit() if limit is None else limit
        self._entries: OrderedDict[int, ProducerEntry] = OrderedDict()

    def judge(
        self,
        batch: ProducerBatch,
        now_ms: int,
        begins_at_zero: bool = False,
        before: RefusedBefore | None = None,
    ) -> Verdict:
        """Decide whether `batch`, which has a producer id, may be appended. Changes no producer's state.

        An unknown producer may begin with any sequence (Kafka 4, KIP-360), but not behind a refused batch
        that `before` knows (`seqgate.seq_validator.refused`). With `begins_at_zero` an unknown producer must
        begin with sequence 0, as Kafka demands in transactions of version 2 (KIP-890). An unknown producer is
        rejected when the limit is reached and no producer can be evicted; a coordinator's batch (no sequence)
        is accepted even then.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is not None:
            if (
                batch.base_sequence == entry.next_sequence
                and batch.producer_epoch == entry.producer_epoch
                and entry.current_transaction_first_offset < 0
            ):
                return ACCEPTED
            verdict = judge_known(entry, batch)
            is_gap = isinstance(verdict, Rejected) and verdict.reason is RejectionReason.OUT_OF_ORDER_SEQUENCE
            if before is not None and is_gap:
                return before.rejection_behind(batch) or verdict
            return verdict
        if batch.producer_epoch < NO_PRODUCER_EPOCH:
            return Rejected(
                RejectionReason.INVALID_PRODUCER_EPOCH,
                f"Producer {batch.producer_id} sent producer epoch {batch.producer_epoch}; it must be at "
                f"least {NO_PRODUCER_EPOCH}.",
            )
        if before is not None:
            rejection = before.rejection(batch)
            if rejection is not None:
                return rejection
        if begins_at_zero and batch.base_sequence > 0:
            return Rejected(
                RejectionReason.OUT_OF_ORDER_SEQUENCE,
                f"Producer {batch.producer_id} is unknown in this partition and sent sequence "
                f"{batch.base_sequence}; it must begin with sequence 0.",
            )
        if batch.base_sequence != NO_SEQUENCE and self._limit.refuses(self, now_ms):
            return Rejected(
                RejectionReason.PRODUCER_LIMIT_REACHED,
                f"There is no room to remember producer {batch.producer_id}: {len(self)} producers are "
                f"remembered in this partition (at most {self._limit.max_per_partition}), {len(self._limit)} "
                f"in all (at most {self._limit.max_in_all}), and none has been idle for "
                f"{self._limit.min_idle_ms} ms. Retry later.",
            )
        return ACCEPTED

    def update(self, batch: ProducerBatch, base_offset: int, now_ms: int) -> None:
        """Fold in a batch that was appended at `base_offset`, live or on replay.

        The batch is not judged again. A new producer evicts the longest idle producers when there is no room;
        on replay, when no producer is idle yet, the table exceeds the limit instead. After a transactional
        batch, call `continue_transaction` too.
        """
        producer_id = batch.producer_id
        last_sequence = batch.last_sequence
        next_sequence = (last_sequence + 1) & MAX_SEQUENCE
        # The NamedTuple's own constructor costs three times as much, and this line runs for every batch.
        retained = _new_tuple(
            RetainedBatch,
            (
                batch.base_sequence,
                last_sequence,
                base_offset,
                base_offset + batch.last_offset_delta,
                batch.max_timestamp,
            ),
        )
        entry = self._entries.get(producer_id)
        if entry is None:
            self._begin(ProducerEntry(producer_id, batch.producer_epoch, now_ms, [retained], next_sequence))
            return
        self._entries.move_to_end(producer_id)
        self._limit.touch(entry)
        entry.last_active_ms = now_ms
        entry.next_sequence = next_sequence
        if batch.producer_epoch != entry.producer_epoch:
            entry.producer_epoch = batch.producer_epoch
            entry.batches = [retained]
            return
        batches = entry.batches
        batches.append(retained)
        if len(batches) > self._retained_batches:
            del batches[0]

    def continue_transaction(self, producer_id: int, base_offset: int) -> bool:
        """Add the batch at `base_offset`, already folded in, to its transaction; True when it begins one."""
        entry = self._entries[producer_id]
        if entry.current_transaction_first_offset >= 0:
            return False
        entry.current_transaction_first_offset = base_offset
        return True

    def judge_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int = 0
    ) -> Accepted | Rejected:
        """Decide whether a marker with these epochs may be appended. Changes no producer's state."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return ACCEPTED
        return judge_marker(entry, producer_epoch, coordinator_epoch, transaction_version)

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
        now_ms: int,
    ) -> int:
        """Fold in a marker appended at `offset`; return the ended transaction's first offset, or -1.

        With another producer epoch the sequence begins again at 0; with the same epoch the sequence
        continues. An unknown producer is remembered from now on, so that its late batches of an older epoch
        are rejected. Source: Kafka's `ProducerAppendInfo.appendEndTxnMarker`.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = ProducerEntry(producer_id, producer_epoch, now_ms, [], 0)
            self._begin(entry)
        else:
            self._entries.move_to_end(producer_id)
            self._limit.touch(entry)
            entry.last_active_ms = now_ms
            if producer_epoch != entry.producer_epoch:
                entry.begin_epoch(producer_epoch)
        first_offset = entry.current_transaction_first_offset
        entry.current_transaction_first_offset = NO_TRANSACTION
        entry.coordinator_epoch = coordinator_epoch
        entry.marker_offset = offset
        entry.marker_timestamp = timestamp
        return first_offset

    def doubt(self, before_offset: int) -> int:
        """Refuse the next batch of every producer that has no known batch or marker at or after
        `before_offset`; return their number.

        The log has a damaged batch that ends at this offset and may belong to any of these producers. Their
        remembered batches are still recognized as duplicates, and a new epoch begins at sequence 0.
        """
        doubted = [
            entry
            for entry in self._entries.values()
            if max(entry.last_offset, entry.marker_offset) < before_offset
        ]
        for entry in doubted:
            entry.doubt()
        return len(doubted)

    def expire(self, now_ms: int, expiration_ms: int, derived_from: int = sys.maxsize) -> int:
        """Forget producers that were idle for `expiration_ms` or longer; return their number.

        Derived producers (FIRST_DERIVED_ID) stay as long as their newest batch is at or after the offset
        `derived_from`: a gateway may repeat the batch after any time.

        Costs O(forgotten + open transactions + derived producers). Idle time is measured by the gateway's
        clock, not by record timestamps as in Kafka: old records that are sent today count as activity. As in
        Kafka, a producer with an open transaction stays, because its marker needs the entry.
        """
        expired = []
        for entry in self._entries.values():
            if entry.idle_ms(now_ms) < expiration_ms:
                break
            is_kept = entry.producer_id >= FIRST_DERIVED_ID and entry.last_offset >= derived_from
            if not (is_kept or entry.has_open_transaction):
                expired.append(entry)
        for entry in expired:
            self.forget(entry)
        self._limit.expirations += len(expired)
        return len(expired)

    def clear(self) -> None:
        """Forget all and give their room back. Call this also for a partition that is closed or deleted."""
        for entry in self._entries.values():
            self._limit.leave(entry)
        self._entries.clear()

    def forget(self, entry: ProducerEntry) -> None:
        del self._entries[entry.producer_id]
        self._limit.leave(entry)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def longest_idle(self) -> ProducerEntry | None:
        """Return the longest idle entry without an open transaction; None when there is no such entry."""
        return next((entry for entry in self._entries.values() if not entry.has_open_transaction), None)

    def in_transaction(self) -> list[ProducerEntry]:
        """Return the entries with an open transaction, the longest idle first."""
        return [
            entry
            for entry in self._entries.values()
            if entry.current_transaction_first_offset != NO_TRANSACTION
        ]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        """Iterate over the entries, the longest idle first. The table must not change meanwhile."""
        return iter(self._entries.values())

    def snapshot(self, log_end_offset: int) -> bytes:
        """Return the whole state as the bytes of a snapshot at `log_end_offset` (exclusive)."""
        return snapshot.encode(self._entries.values(), log_end_offset)

    @classmethod
    def restore(
        cls,
        data: bytes,
        *,
        retained_batches: int = DEFAULT_RETAINED_BATCHES,
        limit: ProducerLimit | None = None,
    ) -> tuple[ProducerTable, int]:
        """Return the table in `data`, the bytes of a snapshot, and the snapshot's log end offset. The table
        keeps the newest `retained_batches` of each producer. Raises CorruptSnapshot.
        """
        entries, log_end_offset = snapshot.decode(data, retained_batches)
        table = cls(retained_batches=retained_batches, limit=limit)
        for entry in entries:
            table._entries[entry.producer_id] = entry
            table._limit.enter_restored(table, entry)
        return table, log_end_offset

    def _begin(self, entry: ProducerEntry) -> None:
        """Remember a producer that is active now; evict the longest idle producers if there is no room."""
        entries, limit = self._entries, self._limit
        if len(entries) >= limit.max_per_partition or len(limit.producers) >= limit.max_in_all:
            limit.make_room(self, entry.last_active_ms)
        entries[entry.producer_id] = entry
        limit.enter(self, entry)
