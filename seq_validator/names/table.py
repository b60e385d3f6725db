"""The producer names of one partition: judge first, append, then update.

An application chooses its name and the sequence id of each record: a file offset, or the position in a
database's log. Sequence ids may leave gaps, but must grow. So a sequence id at or below the highest of its
name marks a duplicate.
Source: Pulsar's PIP-6 (guaranteed message deduplication), whose `highestSequencedPushed` and
`highestSequencedPersisted` are the marks of an entry.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from seqgate.seq_validator.entry import NO_OFFSET, Activity
from seqgate.seq_validator.names.entry import (
    NO_SEQUENCE_ID,
    NameAdvance,
    NamedRecord,
    NameEntry,
    NameRejectionReason,
    NamesAccepted,
    NamesRejected,
    NameState,
    NamesVerdict,
)


class NameBudget:
    """The budget of names that all partitions share. The bounds may be changed while the budget is in use.

    A record of a live application whose name was evicted could be stored a second time. So the limits never
    evict a name that was active within `min_idle_ms`, nor a name with an open transaction: the new name is
    refused instead, with a retriable error.

    `in_all` and `max_in_all` count a name once per partition. The other numbers count since the budget was
    made: `evictions`, `expired` names, `refusals` of new names, and `dropped_records`, which were
    acknowledged and not stored.
    """

    __slots__ = ("dropped_records", "evictions", "expired", "in_all", "max_in_all", "min_idle_ms", "refusals")

    def __init__(self, *, max_in_all: int = sys.maxsize, min_idle_ms: int = 0) -> None:
        self.max_in_all = max_in_all
        self.min_idle_ms = min_idle_ms
        self.in_all = 0
        self.evictions = 0
        self.expired = 0
        self.refusals = 0
        self.dropped_records = 0


class _TopicName(Activity):
    """One name of a topic, with the tables of the partitions that track the name."""

    __slots__ = ("tables",)

    def __init__(self) -> None:
        self.last_active_ms = 0
        self.tables: dict[NameTable, None] = {}


class TopicNames:
    """The names that the partitions of one topic track, the longest idle first."""

    __slots__ = ("__weakref__", "_is_sorted", "_names", "budget", "is_whole", "max_names")

    def __init__(self, budget: NameBudget, max_names: int = sys.maxsize) -> None:
        """Begin without names. `max_names` may be changed while the object is in use."""
        self.budget = budget
        self.max_names = max_names
        self.is_whole = True
        """True when all partitions of the topic that may track names are loaded. Otherwise an eviction
        could hit a name that is active in a partition that is not loaded.
        """
        self._names: OrderedDict[bytes, _TopicName] = OrderedDict()
        self._is_sorted = True

    def __len__(self) -> int:
        return len(self._names)

    def make_room(self, names: Collection[bytes], newcomers: Collection[bytes], now_ms: int) -> None:
        """Count `names`, those of a batch, as active, and evict the longest idle when there are too many.
        `newcomers` are the names of the batch that the partition does not track.
        """
        for name in names:
            if name in self._names:
                self.touch(name, now_ms)
        for name in self._to_evict(*self._surplus(newcomers), now_ms):
            self.budget.evictions += 1
            for table in list(self._names[name].tables):
                table.forget(name)

    def enter(self, table: NameTable, name: bytes, now_ms: int) -> None:
        """Count a name that the partition of `table` begins to track now."""
        self._enter(table, name).last_active_ms = now_ms
        self._names.move_to_end(name)

    def enter_restored(self, table: NameTable, name: bytes, last_active_ms: int) -> None:
        """Count a name that is restored after a start, with the time of its last activity."""
        known = self._enter(table, name)
        known.last_active_ms = max(known.last_active_ms, last_active_ms)
        self._is_sorted = self.is_whole = False

    def _enter(self, table: NameTable, name: bytes) -> _TopicName:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = _TopicName()
        known.tables[table] = None
        self.budget.in_all += 1
        return known

    def touch(self, name: bytes, now_ms: int) -> None:
        self._names[name].last_active_ms = now_ms
        self._names.move_to_end(name)

    def idle_ms(self, name: bytes, now_ms: int) -> int:
        """Return the milliseconds since the name was active in any partition."""
        return self._names[name].idle_ms(now_ms)

    def leave(self, table: NameTable, name: bytes) -> None:
        """Stop counting a name that the partition of `table` forgot."""
        tables = self._names[name].tables
        del tables[table]
        if not tables:
            del self._names[name]
        self.budget.in_all -= 1

    def must_be_whole(self, newcomers: Collection[bytes]) -> bool:
        """Return True when `newcomers` would evict names, and not all partitions of the topic are loaded."""
        return not self.is_whole and any(self._surplus(newcomers))

    def refusal(self, newcomers: Collection[bytes], now_ms: int) -> str | None:
        """Return why there is no room for `newcomers`, and count the refusal; None when there is room."""
        budget = self.budget
        surplus, surplus_in_all = self._surplus(newcomers)
        idle = self._to_evict(surplus, surplus_in_all, now_ms)
        if len(idle) < surplus:
            counted = f"{len(self._names)} names of the topic are tracked (at most {self.max_names})"
        elif sum(len(self._names[name].tables) for name in idle) < surplus_in_all:
            counted = f"{budget.in_all} names are tracked in all partitions (at most {budget.max_in_all})"
        else:
            return None
        budget.refusals += 1
        return f"{counted}, and too few names of the topic have been idle for {budget.min_idle_ms} ms"

    def _surplus(self, newcomers: Collection[bytes]) -> tuple[int, int]:
        """Return how many names are too many with `newcomers`: in the topic, and summed over partitions."""
        in_topic = sum(name not in self._names for name in newcomers)
        surplus = len(self._names) + in_topic - self.max_names if in_topic else 0
        return max(0, surplus), max(0, self.budget.in_all + len(newcomers) - self.budget.max_in_all)

    def _to_evict(self, surplus: int, surplus_in_all: int, now_ms: int) -> list[bytes]:
        """Return the longest idle names whose eviction covers both surpluses, or all evictable ones."""
        found: list[bytes] = []
        if surplus or surplus_in_all:
            for name in self._evictable(now_ms):
                found.append(name)
                surplus -= 1
                surplus_in_all -= len(self._names[name].tables)
                if surplus <= 0 and surplus_in_all <= 0:
                    break
        return found

    def _evictable(self, now_ms: int) -> Iterator[bytes]:
        """Yield the names that may be evicted, the longest idle first."""
        if not self._is_sorted:
            order = sorted(self._names.items(), key=lambda item: item[1].last_active_ms)
            self._names = OrderedDict(order)
            self._is_sorted = True
        for name, known in self._names.items():
            if known.idle_ms(now_ms) < self.budget.min_idle_ms:
                return
            if not any(table.is_pending(name) for table in known.tables):
                yield name


NO_PRODUCER = -1
"""The `transaction_of` of a batch outside of transactions."""
WrittenName = tuple[bytes, int, int, int, int, tuple[tuple[int, int], ...]]
"""A name in a snapshot: (name, sequence_id, epoch, offset, last_active_ms, ((producer_id, sequence_id) of
open transactions, …)).
"""


class NameTable:
    """The state of all names of one partition.

    The log first calls `judge`, which changes nothing, writes the batch, and then folds the batch in with
    `update`. Times are milliseconds of the gateway's own clock.

    A forgotten name may come back only after a durable snapshot without the name. Otherwise a crash would
    bring back the name's old highest sequence id, and later records below it would count as duplicates.
    """

    __slots__ = ("_entries", "_forgotten", "_open", "_raised", "_times_captured", "_topic")

    def __init__(self, topic: TopicNames | None = None) -> None:
        """Begin empty. Count the names in `topic`, which limits them (None: no limit)."""
        self._topic = TopicNames(NameBudget()) if topic is None else topic
        self._entries: OrderedDict[bytes, NameEntry] = OrderedDict()
        self._open: dict[int, dict[NameEntry, None]] = {}
        self._forgotten: dict[bytes, int] = {}
        """Names forgotten since the last durable snapshot, with the captures made before that."""
        self._raised: dict[bytes, int] = {}
        """The names whose epoch is in no stored record or durable snapshot, with the captures before it."""
        self._times_captured = 0

    def __len__(self) -> int:
        return len(self._entries)

    def judge(
        self,
        records: Iterable[NamedRecord],
        now_ms: int,
        *,
        high_watermark: int,
        transaction_of: int = NO_PRODUCER,
    ) -> NamesVerdict:
        """Decide which records of a batch are new. Changes no name's state. `records` are in the order of the
        batch; `transaction_of` is the producer id of a transactional batch.
        """
        duplicates: list[int] = []
        judged: dict[bytes, JudgedName] = {}
        current = None
        for position, name, sequence_id, epoch in records:
            if current is None or name != current.name:
                current = judged.get(name)
                if current is None:
                    current = judged[name] = JudgedName(name, self._entries.get(name), transaction_of)
                    if current.is_held_by_another:
                        return undecided(name)
            if epoch < current.epoch:
                return fenced(name, epoch, current.epoch)
            current.epoch = epoch
            if sequence_id > current.highest:
                current.highest, current.position, current.stored_epoch = sequence_id, position, epoch
            else:
                duplicates.append(position)
                current.note_duplicate(sequence_id)
        newcomers = [name for name, known in judged.items() if known.entry is None]
        if newcomers:
            forgotten = next((name for name in newcomers if name in self._forgotten), None)
            if forgotten is not None:
                return NamesRejected(
                    NameRejectionReason.FORGETTING,
                    f"The producer name {printable(forgotten)} was removed a moment ago, and no snapshot "
                    "without the name is durable yet. Retry later.",
                )
            if self._topic.must_be_whole(newcomers):
                return NamesRejected(
                    NameRejectionReason.PARTIAL,
                    f"The new producer name {printable(newcomers[0])} would evict another name, and the "
                    "gateway first loads the topic's other partitions to see whether that name is active "
                    "there. Retry later.",
                )
            reason = self._topic.refusal(newcomers, now_ms)
            if reason is not None:
                message = (
                    f"There is no room to track the producer name {printable(newcomers[0])}: {reason}. "
                    "Retry later."
                )
                return NamesRejected(NameRejectionReason.LIMIT_REACHED, message)
        return NamesAccepted(
            [known.advance() for known in judged.values()],
            duplicates,
            max((known.offset_to_wait_for(high_watermark) for known in judged.values()), default=NO_OFFSET),
        )

    def update(
        self,
        advances: Sequence[NameAdvance],
        base_offset: int,
        now_ms: int,
        *,
        high_watermark: int,
        transaction_of: int = NO_PRODUCER,
        is_replay: bool = False,
    ) -> None:
        """Fold in a batch appended at `base_offset`; on replay, with the advances from `advances_of`.

        A new name evicts the longest idle names of the topic when there is no room. The table exceeds the
        limit when no name is idle, and on replay. A replay can't tell which names were idle then, and the
        snapshot records the evictions.
        """
        newcomers = [advance.name for advance in advances if advance.name not in self._entries]
        if is_replay:
            self._topic.is_whole = False
        elif newcomers:
            # One call for all names, so that a new name does not evict a known name of the same batch.
            self._topic.make_room([advance.name for advance in advances], newcomers, now_ms)
        for name, sequence_id, position, epoch, duplicates in advances:
            entry = self._touched(name, now_ms)
            entry.epoch = max(entry.epoch, epoch)
            entry.dropped_records += duplicates
            if sequence_id == NO_SEQUENCE_ID:
                continue
            if transaction_of == NO_PRODUCER:
                entry.push(sequence_id, base_offset + position, high_watermark)
            else:
                held = entry.open_sequences
                held[transaction_of] = max(sequence_id, held.get(transaction_of, NO_SEQUENCE_ID))
                self._open.setdefault(transaction_of, {})[entry] = None

    def raises_epochs(self, advances: Iterable[NameAdvance]) -> bool:
        """Return whether a name with only duplicates gets an epoch that is not durable. Changes nothing.

        No stored record has such an epoch. So the batch must not be acknowledged before a snapshot with the
        epoch is durable. Otherwise a crash would lose the epoch, and a fenced writer would write again.
        """
        for advance in advances:
            entry = self._entries.get(advance.name)
            if entry is None or advance.sequence_id != NO_SEQUENCE_ID:
                continue
            if advance.epoch > entry.epoch or entry.name in self._raised:
                return True
        return False

    def raise_epochs(self, advances: Iterable[NameAdvance]) -> None:
        """Raise the epochs of names of which a batch has only duplicates."""
        for advance in advances:
            entry = self._entries.get(advance.name)
            if entry is None or advance.sequence_id != NO_SEQUENCE_ID:
                continue
            if advance.epoch > entry.epoch:
                entry.epoch = advance.epoch
                self._raised[entry.name] = self._times_captured

    def touch(self, advances: Iterable[NameAdvance], now_ms: int) -> None:
        """Count a batch of duplicates, of which nothing is stored, as activity of its names."""
        for advance in advances:
            entry = self._touched(advance.name, now_ms)
            entry.dropped_records += advance.duplicates

    def end_transaction(
        self, producer_id: int, *, commit: bool, marker_offset: int, high_watermark: int
    ) -> None:
        """Fold in a marker: push the sequence ids of the transaction on commit, discard them on abort."""
        for entry in self._open.pop(producer_id, ()):
            sequence_id = entry.open_sequences.pop(producer_id)
            if commit:
                entry.push(sequence_id, marker_offset, high_watermark)

    def open_transactions(self) -> list[int]:
        """Return the producer ids whose open transaction has records of names."""
        return list(self._open)

    def is_pending(self, name: bytes) -> bool:
        """Return True when an open transaction has records of the name."""
        entry = self._entries.get(name)
        return entry is not None and bool(entry.open_sequences)

    def state(self, name: bytes, high_watermark: int) -> NameState | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.state(high_watermark)

    def states(self, high_watermark: int) -> list[NameState]:
        """Return the state of every name, the longest idle first."""
        return [entry.state(high_watermark) for entry in self._entries.values()]

    def has_idle(self, now_ms: int, expiration_ms: int) -> bool:
        """Return True when `expire` would forget a name."""
        return next(self._idle(now_ms, expiration_ms), None) is not None

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget names that were idle for `expiration_ms` or longer in all partitions; return their number.

        A name with an open transaction stays. A name that is active in another partition stays too: its
        application is alive, and may send a record again that this partition has.
        """
        expired = list(self._idle(now_ms, expiration_ms))
        for name in expired:
            self.forget(name)
        self._topic.budget.expired += len(expired)
        return len(expired)

    def _idle(self, now_ms: int, expiration_ms: int) -> Iterator[bytes]:
        for entry in self._entries.values():
            if entry.idle_ms(now_ms) < expiration_ms:
                break
            if not entry.open_sequences and self._topic.idle_ms(entry.name, now_ms) >= expiration_ms:
                yield entry.name

    def forget(self, name: bytes) -> None:
        """Forget one name, which has no open transaction."""
        del self._entries[name]
        self._topic.leave(self, name)
        self._forgotten[name] = self._times_captured
        self._raised.pop(name, None)

    def forget_surplus(self, most: int, most_in_all: int) -> int:
        """Forget the longest idle names until at most `most` are here and `most_in_all` in all.

        A log can hold more names than the limit allows when it was written while names were not tracked.
        Those go whatever their idle time, even in an open transaction. Returns the number of forgotten names.
        """
        budget = self._topic.budget
        surplus = max(len(self._entries) - most, budget.in_all - most_in_all, 0)
        entries = list(islice(self._entries.values(), surplus))
        for entry in entries:
            for producer_id in entry.open_sequences:
                held = self._open[producer_id]
                del held[entry]
                if not held:
                    del self._open[producer_id]
            del self._entries[entry.name]
            self._topic.leave(self, entry.name)
        budget.evictions += len(entries)
        return len(entries)

    @property
    def has_forgotten(self) -> bool:
        """True when a name was forgotten and no durable snapshot without the name exists yet."""
        return bool(self._forgotten)

    def clear(self) -> None:
        """Forget all names and give their room back. Call this too when a partition is closed or deleted."""
        if self._entries:
            self._topic.is_whole = False
        for name in self._entries:
            self._topic.leave(self, name)
        self._entries.clear()
        self._forgotten.clear()
        self._raised.clear()
        self._open.clear()

    def is_written(self, times: int) -> None:
        """Note that the capture with the number `times` is durable as a snapshot."""
        self._forgotten = {name: before for name, before in self._forgotten.items() if before >= times}
        self._raised = {name: before for name, before in self._raised.items() if before >= times}

    def written(self) -> tuple[list[WrittenName], int]:
        """Return all names for a capture, with their pushed sequence ids, and the number of the capture. The
        snapshot is written after the log is flushed, so the pushed sequence ids are persisted by then.
        """
        self._times_captured += 1
        names = [
            (
                entry.name,
                entry.sequence_id,
                entry.epoch,
                entry.offset,
                entry.last_active_ms,
                tuple(entry.open_sequences.items()) if entry.open_sequences else (),
            )
            for entry in self._entries.values()
        ]
        return names, self._times_captured

    def restore(self, written: Iterable[WrittenName]) -> None:
        """Take over the names of a snapshot into an empty table."""
        for name, sequence_id, epoch, offset, last_active_ms, held in written:
            entry = self._entries[name] = NameEntry(name, last_active_ms)
            entry.restore(sequence_id, offset, epoch)
            entry.open_sequences.update(held)
            for producer_id, _ in held:
                self._open.setdefault(producer_id, {})[entry] = None
            self._topic.enter_restored(self, name, last_active_ms)

    def _touched(self, name: bytes, now_ms: int) -> NameEntry:
        entry = self._entries.get(name)
        if entry is None:
            self._topic.enter(self, name, now_ms)
            entry = self._entries[name] = NameEntry(name, now_ms)
        else:
            entry.last_active_ms = now_ms
            self._entries.move_to_end(name)
            self._topic.touch(name, now_ms)
        return entry


def advances_of(records: Sequence[NamedRecord]) -> list[NameAdvance]:
    """Return for each name in a stored batch its highest sequence id and epoch."""
    advances: dict[bytes, NameAdvance] = {}
    for position, name, sequence_id, epoch in records:
        known = advances.get(name)
        if known is None:
            advances[name] = NameAdvance(name, sequence_id, position, epoch)
        elif sequence_id > known.sequence_id:
            advances[name] = NameAdvance(name, sequence_id, position, max(epoch, known.epoch))
        elif epoch > known.epoch:
            advances[name] = known._replace(epoch=epoch)
    return list(advances.values())


# The candidate state of producer names while one batch is judged, and the verdicts that refuse a batch.


class JudgedName:
    """The candidate state of one name while `judge` walks the records of one batch."""

    __slots__ = (
        "_duplicates",
        "_highest_duplicate",
        "entry",
        "epoch",
        "highest",
        "is_held_by_another",
        "name",
        "position",
        "stored_epoch",
    )

    def __init__(self, name: bytes, entry: NameEntry | None, transaction_of: int) -> None:
        self.name = name
        self.entry = entry
        self.position = -1
        self._duplicates = 0
        self._highest_duplicate = NO_SEQUENCE_ID
        self.is_held_by_another = False
        self.highest, self.epoch, self.stored_epoch = NO_SEQUENCE_ID, -1, -1
        if entry is not None:
            self.highest, self.epoch = entry.sequence_id, entry.epoch
            held = entry.open_sequences
            if held:
                self.is_held_by_another = len(held) > 1 or transaction_of not in held
                self.highest = max(self.highest, held.get(transaction_of, NO_SEQUENCE_ID))

    def note_duplicate(self, sequence_id: int) -> None:
        """Count a duplicate of a record of this batch or transaction, or of an earlier record."""
        self._duplicates += 1
        if self.entry is not None and self._highest_duplicate < sequence_id <= self.entry.sequence_id:
            self._highest_duplicate = sequence_id

    def offset_to_wait_for(self, high_watermark: int) -> int:
        """Return the offset to persist to decide duplicates of earlier records; NO_OFFSET for none."""
        if self.entry is None or self._highest_duplicate == NO_SEQUENCE_ID:
            return NO_OFFSET
        return self.entry.offset_to_wait_for(self._highest_duplicate, high_watermark)

    def advance(self) -> NameAdvance:
        """Return the advance of the name; without a sequence id when it has only duplicates.

        The advance has the epoch of the highest new record. A higher epoch of a later duplicate is not in a
        stored record, and counts when the application sends a new record with that epoch.
        """
        if self.position < 0:
            return NameAdvance(self.name, NO_SEQUENCE_ID, -1, self.epoch, self._duplicates)
        return NameAdvance(self.name, self.highest, self.position, self.stored_epoch, self._duplicates)


def undecided(name: bytes) -> NamesRejected:
    """Return the verdict for a name that another producer has in an open transaction."""
    return NamesRejected(
        NameRejectionReason.UNDECIDED,
        f"Another producer has an open transaction with records of the producer name {printable(name)}. "
        "Retry when the transaction has ended.",
    )


def fenced(name: bytes, epoch: int, known_epoch: int) -> NamesRejected:
    """Return the verdict for a record whose name epoch is older than the newest known one."""
    given = "no epoch" if epoch < 0 else f"epoch {epoch}"
    return NamesRejected(
        NameRejectionReason.FENCED,
        f"A record of the producer name {printable(name)} has {given}; the newest known is {known_epoch}. A "
        "newer life of the application sends under this name.",
    )


def printable(name: bytes) -> str:
    """Return a name for a message; bytes that are not UTF-8 or can't be printed are escaped."""
    return repr(name.decode("utf-8", "backslashreplace"))
