"""The producer names of one partition: judge first, append, then update.

A name is the application's own, and so is its sequence id: a file offset, the position in a database's log. It may leave
gaps, but grows; so one that is not above the highest of its name was there before. Source: Pulsar's PIP-6 (guaranteed
message deduplication), whose `highestSequencedPushed` and `highestSequencedPersisted` are the marks of an entry.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from seq_validator.names.entry import NO_OFFSET, NO_SEQUENCE_ID, NameEntry, NameState
from seq_validator.names.limit import NameBudget, TopicNames
from seq_validator.names.verdict import (
    NameAdvance,
    NameRejectionReason,
    NamesAccepted,
    NamesRejected,
    NamesVerdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from seq_validator.names.entry import NamedRecord

NO_PRODUCER = -1
"""Of a batch that is not part of a transaction."""
WrittenName = tuple[bytes, int, int, int, int, tuple[tuple[int, int], ...]]
"""(name, sequence_id, epoch, offset, last_active_ms, ((producer_id, sequence_id) of open transactions, …))."""


class NameTable:
    """The state of all names of one partition.

    A batch is first judged, which changes nothing; only after it has been written is it folded in with `update`. Times are
    milliseconds of the gateway's own clock.

    A name that was forgotten is taken up again only when it is written down that it was. Else a crash would bring back its old
    highest sequence id, and what came under it since would count as duplicates.
    """

    __slots__ = ("_entries", "_forgotten", "_open", "_raised", "_times_written", "_topic")

    def __init__(self, topic: TopicNames | None = None) -> None:
        """Begin empty, counting on the names of the topic (none: unbounded)."""
        self._topic = TopicNames(NameBudget()) if topic is None else topic
        self._entries: OrderedDict[bytes, NameEntry] = OrderedDict()
        self._open: dict[int, dict[NameEntry, None]] = {}
        self._forgotten: dict[bytes, int] = {}
        """Names, and how often all was taken to be written down before they were forgotten."""
        self._raised: dict[bytes, int] = {}
        """Names with an epoch that no record tells, and how often all was taken to be written down before it came."""
        self._times_written = 0

    def __len__(self) -> int:
        """How many names are remembered."""
        return len(self._entries)

    def judge(
        self,
        records: Iterable[NamedRecord],
        now_ms: int,
        *,
        high_watermark: int,
        transaction_of: int = NO_PRODUCER,
    ) -> NamesVerdict:
        """Decide which of a batch's records are new. They come in the order of the batch; `transaction_of` is its
        producer id where it is part of a transaction. Changes no name's state.
        """
        duplicates: list[int] = []
        judged: dict[bytes, _JudgedName] = {}
        current = None
        for position, name, sequence_id, epoch in records:
            if current is None or name != current.name:
                current = judged.get(name)
                if current is None:
                    current = judged[name] = _JudgedName(name, self._entries.get(name), transaction_of)
                    if current.is_held_by_another:
                        return _undecided(name)
            if epoch < current.epoch:
                return _fenced(name, epoch, current.epoch)
            current.epoch = epoch
            if sequence_id > current.highest:
                current.highest, current.position, current.stored_epoch = sequence_id, position, epoch
            else:
                duplicates.append(position)
                current.note_duplicate(sequence_id)
        newcomers = [name for name, known in judged.items() if known.entry is None]
        if newcomers:
            if any(name in self._forgotten for name in newcomers):
                return NamesRejected(
                    NameRejectionReason.FORGETTING,
                    "A producer name was forgotten a moment ago, which is being written down. Retry later.",
                )
            if self._topic.must_be_whole(newcomers):
                return NamesRejected(
                    NameRejectionReason.PARTIAL,
                    "Others would be forgotten for a new producer name, and the topic's other partitions may know them "
                    "better: these are looked at. Retry later.",
                )
            reason = self._topic.refusal(newcomers, now_ms)
            if reason is not None:
                message = (
                    f"No room to remember the producer name {_told(newcomers[0])}: {reason}. Retry later."
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
        """Fold in a batch that was appended at `base_offset`. Also replays a log, with what `advances_of` tells.

        A new name may push out the longest idle ones of the topic; where nobody is idle the limit is exceeded instead, and
        by a replay: who was idle then is not known, and who was pushed out is written down.
        """
        newcomers = [advance.name for advance in advances if advance.name not in self._entries]
        if is_replay:
            self._topic.is_whole = False
        elif newcomers:
            # for all of them at once, so that a new one does not push out one that is known
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

    def raise_epochs(self, advances: Iterable[NameAdvance]) -> bool:
        """Take up at once the new epochs of names of which a batch has only duplicates; whether one is not written down.

        No record tells them, so until they are written down the batch must not be acknowledged: a crash would forget them,
        and who was fenced would write again.
        """
        is_unwritten = False
        for advance in advances:
            entry = self._entries.get(advance.name)
            if entry is None or advance.sequence_id != NO_SEQUENCE_ID:
                continue
            if advance.epoch > entry.epoch:
                entry.epoch = advance.epoch
                self._raised[entry.name] = self._times_written
            is_unwritten = is_unwritten or entry.name in self._raised
        return is_unwritten

    def touch(self, advances: Iterable[NameAdvance], now_ms: int) -> None:
        """Count a batch of which nothing is stored as activity of its names, which are known."""
        for advance in advances:
            entry = self._touched(advance.name, now_ms)
            entry.dropped_records += advance.duplicates

    def end_transaction(
        self, producer_id: int, *, commit: bool, marker_offset: int, high_watermark: int
    ) -> None:
        """Fold in a marker: what the producer wrote counts from now on, or never."""
        for entry in self._open.pop(producer_id, ()):
            sequence_id = entry.open_sequences.pop(producer_id)
            if commit:
                entry.push(sequence_id, marker_offset, high_watermark)

    def open_transactions(self) -> list[int]:
        """The producer ids that have an open transaction with records of names."""
        return list(self._open)

    def is_pending(self, name: bytes) -> bool:
        """Whether records of the name are part of an open transaction."""
        entry = self._entries.get(name)
        return entry is not None and bool(entry.open_sequences)

    def state(self, name: bytes, high_watermark: int) -> NameState | None:
        """What is known of a name; None of one that is not remembered."""
        entry = self._entries.get(name)
        return None if entry is None else entry.state(high_watermark)

    def states(self, high_watermark: int) -> list[NameState]:
        """What is known of every name, the longest idle first."""
        return [entry.state(high_watermark) for entry in self._entries.values()]

    def has_idle(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether `expire` would forget a name."""
        return next(self._idle(now_ms, expiration_ms), None) is not None

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget names idle for `expiration_ms` or longer in all partitions; return how many. Those with open transactions stay.

        An application that sends elsewhere lives, and may send again what this partition has.
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
        self._forgotten[name] = self._times_written
        self._raised.pop(name, None)

    def forget_surplus(self, most: int, most_in_all: int) -> int:
        """Forget what was heard of longest ago, until no more than so many names are left here, and in all partitions.

        Of a log that holds more names than may be remembered, as it was written while nobody looked at them. Neither open
        transactions nor the time since then count. Returns how many were forgotten.
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
        """Whether a name was forgotten and that is not written down."""
        return bool(self._forgotten)

    def clear(self) -> None:
        """Forget all names and give their room back; also to be called when a partition goes."""
        if self._entries:
            self._topic.is_whole = False
        for name in self._entries:
            self._topic.leave(self, name)
        self._entries.clear()
        self._forgotten.clear()
        self._raised.clear()
        self._open.clear()

    def is_written(self, times: int) -> None:
        """What `written` gave when it was called for that time is durable."""
        self._forgotten = {name: before for name, before in self._forgotten.items() if before >= times}
        self._raised = {name: before for name, before in self._raised.items() if before >= times}

    def written(self) -> tuple[list[WrittenName], int]:
        """All that is remembered, to be written down, with what is pushed as if it was persisted; and for which time."""
        self._times_written += 1
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
        return names, self._times_written

    def restore(self, written: Iterable[WrittenName]) -> None:
        """Take over, into an empty table, what was written down and is persisted by now."""
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
    """How far the records of a batch that lies in a log take each name."""
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


class _JudgedName:
    """A name while the records of one batch are judged."""

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
        """A record is a duplicate: of one of this batch or transaction, or of what was there before."""
        self._duplicates += 1
        if self.entry is not None and self._highest_duplicate < sequence_id <= self.entry.sequence_id:
            self._highest_duplicate = sequence_id

    def offset_to_wait_for(self, high_watermark: int) -> int:
        """The offset that decides the duplicates of what was there before; NO_OFFSET when all is decided."""
        if self.entry is None or self._highest_duplicate == NO_SEQUENCE_ID:
            return NO_OFFSET
        return self.entry.offset_to_wait_for(self._highest_duplicate, high_watermark)

    def advance(self) -> NameAdvance:
        """How far the batch takes the name; without a sequence id where it has nothing new.

        What is new tells its epoch: the higher one of a duplicate behind it counts when its life sends more.
        """
        if self.position < 0:
            return NameAdvance(self.name, NO_SEQUENCE_ID, -1, self.epoch, self._duplicates)
        return NameAdvance(self.name, self.highest, self.position, self.stored_epoch, self._duplicates)


def _undecided(name: bytes) -> NamesRejected:
    return NamesRejected(
        NameRejectionReason.UNDECIDED,
        f"Another producer has an open transaction with records of the producer name {_told(name)}. Retry when it has ended.",
    )


def _fenced(name: bytes, epoch: int, known_epoch: int) -> NamesRejected:
    given = "no epoch" if epoch < 0 else f"the epoch {epoch}"
    return NamesRejected(
        NameRejectionReason.FENCED,
        f"A record of the producer name {_told(name)} has {given}; the newest known is {known_epoch}.",
    )


def _told(name: bytes) -> str:
    """A name in a sentence; what is not UTF-8, or can't be printed, is escaped."""
    return repr(name.decode("utf-8", "backslashreplace"))
