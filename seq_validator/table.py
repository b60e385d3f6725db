"""The producers of one partition: judge first, append, then update."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from seq_validator import snapshot
from seq_validator.entry import NO_PRODUCER_EPOCH, NO_TRANSACTION, ProducerEntry, RetainedBatch
from seq_validator.limit import ProducerLimit
from seq_validator.rule import judge_known, judge_marker
from seq_validator.sequence import MAX_SEQUENCE, NO_SEQUENCE
from seq_validator.verdict import ACCEPTED, Rejected, RejectionReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seq_validator.entry import ProducerBatch
    from seq_validator.verdict import Accepted, Verdict

DEFAULT_RETAINED_BATCHES: Final = 5
_new_tuple = tuple.__new__


class ProducerTable:
    """The state of all producers of one partition.

    A batch is first judged, which changes nothing; only after it has been written is it folded in with `update`. All
    times are milliseconds of the gateway's own clock. The entries are kept longest idle first.
    """

    __slots__ = ("_entries", "_limit", "_retained_batches")

    def __init__(
        self, *, retained_batches: int = DEFAULT_RETAINED_BATCHES, limit: ProducerLimit | None = None
    ) -> None:
        """Begin empty, remembering `retained_batches` per producer and counting on `limit` (none: unbounded).

        Raises ValueError when `retained_batches` is below 1.
        """
        if retained_batches < 1:
            message = f"retained_batches is at least 1, not {retained_batches}"
            raise ValueError(message)
        self._retained_batches = retained_batches
        self._limit = ProducerLimit() if limit is None else limit
        self._entries: OrderedDict[int, ProducerEntry] = OrderedDict()

    def judge(self, batch: ProducerBatch, now_ms: int, begins_at_zero: bool = False) -> Verdict:
        """Decide whether `batch`, which has a producer id, may be appended. Changes no producer's state.

        The first batch of an unknown producer is accepted whatever its sequence (Kafka 4, KIP-360), unless the
        limit is reached and every producer was active within its minimum idle time; with `begins_at_zero` it must be
        0, as Kafka demands in transactions of version 2 (KIP-890). What a coordinator writes (no
        sequence) is not refused for want of room.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is not None:
            if (
                batch.base_sequence == entry.next_sequence
                and batch.producer_epoch == entry.producer_epoch
                and entry.current_transaction_first_offset < 0
            ):
                return ACCEPTED
            return judge_known(entry, batch)
        if batch.producer_epoch < NO_PRODUCER_EPOCH:
            return Rejected(
                RejectionReason.INVALID_PRODUCER_EPOCH,
                f"Producer {batch.producer_id} sent epoch {batch.producer_epoch}, which no producer can have.",
            )
        if begins_at_zero and batch.base_sequence > 0:
            return Rejected(
                RejectionReason.OUT_OF_ORDER_SEQUENCE,
                f"Producer {batch.producer_id} is unknown here and begins with sequence {batch.base_sequence}, not 0.",
            )
        if batch.base_sequence != NO_SEQUENCE and self._limit.refuses(self, now_ms):
            return Rejected(
                RejectionReason.PRODUCER_LIMIT_REACHED,
                f"No room to remember producer {batch.producer_id}: {len(self)} producers in this partition (at most "
                f"{self._limit.max_per_partition}), {len(self._limit)} in all (at most {self._limit.max_in_all}), and "
                f"none has been idle for {self._limit.min_idle_ms} ms. Retry later.",
            )
        return ACCEPTED

    def update(self, batch: ProducerBatch, base_offset: int, now_ms: int) -> None:
        """Fold in a batch that was appended at `base_offset`.

        Also replays a log: the batch is taken as it is, since it was judged before it was written. A new producer
        may push out the longest idle ones; on replay, when nobody is idle yet, the limit is exceeded instead.
        After a transactional batch `continue_transaction` is to be called too.
        """
        producer_id = batch.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._begin(producer_id, batch.producer_epoch, now_ms)
        else:
            self._entries.move_to_end(producer_id)
            self._limit.touch(entry)
            entry.last_active_ms = now_ms
            if batch.producer_epoch != entry.producer_epoch:
                entry.producer_epoch = batch.producer_epoch
                entry.batches.clear()
        last_sequence = batch.last_sequence
        # The NamedTuple's own constructor costs three times as much, and this runs for every batch.
        entry.batches.append(
            _new_tuple(
                RetainedBatch,
                (
                    batch.base_sequence,
                    last_sequence,
                    base_offset,
                    base_offset + batch.last_offset_delta,
                    batch.max_timestamp,
                ),
            )
        )
        entry.next_sequence = (last_sequence + 1) & MAX_SEQUENCE

    def continue_transaction(self, producer_id: int, base_offset: int) -> bool:
        """Count a batch at `base_offset`, already folded in, to its producer's transaction; True when it begins one."""
        entry = self._entries[producer_id]
        if entry.current_transaction_first_offset >= 0:
            return False
        entry.current_transaction_first_offset = base_offset
        return True

    def judge_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> Accepted | Rejected:
        """Decide whether a marker with these epochs may be appended. Changes no producer's state."""
        entry = self._entries.get(producer_id)
        return ACCEPTED if entry is None else judge_marker(entry, producer_epoch, coordinator_epoch)

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
        """Fold in a marker appended at `offset`; return the first offset of the transaction it ends, -1 for none.

        An epoch other than the known one begins anew at sequence 0; with the same epoch the sequence goes on. A
        producer that was unknown is remembered from here on, so that what it sends late with an older epoch is
        refused. Source: Kafka's `ProducerAppendInfo.appendEndTxnMarker`.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._begin(producer_id, producer_epoch, now_ms)
            entry.begin_epoch(producer_epoch)
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

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for `expiration_ms` or longer; return how many. Costs O(forgotten + open transactions).

        Idle is measured by the gateway's clock, not by record timestamps as in Kafka: old records sent today are
        activity. As in Kafka a producer with an open transaction stays: its marker must find it.
        """
        expired = []
        for entry in self._entries.values():
            if now_ms - entry.last_active_ms < expiration_ms:
                break
            if not entry.has_open_transaction:
                expired.append(entry)
        for entry in expired:
            self.forget(entry)
        return len(expired)

    def clear(self) -> None:
        """Forget all producers and give their room back to the limit; also to be called when a partition goes."""
        for entry in self._entries.values():
            self._limit.leave(entry)
        self._entries.clear()

    def forget(self, entry: ProducerEntry) -> None:
        """Forget one producer of this table."""
        del self._entries[entry.producer_id]
        self._limit.leave(entry)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of `producer_id`, or None when the producer is unknown."""
        return self._entries.get(producer_id)

    def longest_idle(self) -> ProducerEntry | None:
        """Return the entry that has been idle longest and has no open transaction; None when there is none."""
        return next((entry for entry in self._entries.values() if not entry.has_open_transaction), None)

    def entries(self) -> list[ProducerEntry]:
        """Return all entries, the longest idle first."""
        return list(self._entries.values())

    def __len__(self) -> int:
        """Return the number of producers remembered."""
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        """Iterate over the entries, the longest idle first; the table must not change meanwhile."""
        return iter(self._entries.values())

    def snapshot(self, log_end_offset: int) -> bytes:
        """Return the whole state as bytes, as it is when the log ends at `log_end_offset` (exclusive)."""
        return snapshot.encode(self._entries.values(), log_end_offset)

    @classmethod
    def restore(
        cls,
        data: bytes,
        *,
        retained_batches: int = DEFAULT_RETAINED_BATCHES,
        limit: ProducerLimit | None = None,
    ) -> tuple[ProducerTable, int]:
        """Return the table held in the bytes of `snapshot`, and the log end offset it belongs to.

        With a narrower window than the snapshot's the newest batches are kept. Raises CorruptSnapshot.
        """
        entries, log_end_offset = snapshot.decode(data, retained_batches)
        table = cls(retained_batches=retained_batches, limit=limit)
        for entry in entries:
            table._entries[entry.producer_id] = entry
            table._limit.enter_restored(table, entry)
        return table, log_end_offset

    def _begin(self, producer_id: int, producer_epoch: int, now_ms: int) -> ProducerEntry:
        self._limit.make_room(self, now_ms)
        entry = ProducerEntry(
            producer_id, producer_epoch, retained_batches=self._retained_batches, last_active_ms=now_ms
        )
        self._entries[producer_id] = entry
        self._limit.enter(self, entry)
        return entry
