"""A model of a deduplicating log: the batches that the log was given. What the log must store and remember is
computed from this list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.models.names import NO_PRODUCER, Claim, NameState, Refusal, judge

APPLICATIONS = (b"app", "λog".encode(), b"z")


class Item(NamedTuple):
    """One record as an application sends it; `name` is empty for a record without name headers. No two
    records have the same `value`.
    """

    name: bytes
    sequence_id: int
    epoch: int
    value: bytes
    key: bytes


class StoredItem(NamedTuple):
    """A record of the log."""

    offset: int
    item: Item

    def of_epoch(self, name: bytes, epoch: int) -> StoredItem:
        """Return the item with its name epoch lowered to at most `epoch`, or unchanged if it has another name
        than `name`.
        """
        item = self.item
        return self if item.name != name else self._replace(item=item._replace(epoch=min(item.epoch, epoch)))


@dataclass
class StoredBatch:
    """A batch of the log. `counts`: deduplication was on when the batch arrived; otherwise none of its
    records is a duplicate.
    """

    base_offset: int
    last_offset: int
    items: list[StoredItem]
    producer_id: int = NO_PRODUCER
    base_sequence: int = -1
    is_transactional: bool = False
    commits: bool | None = None
    """Whether a marker commits."""
    counts: bool = True


@dataclass
class Forgetting:
    """An eviction or expiry of a name, and the log end offset at that moment."""

    name: bytes
    offset: int
    epoch: int
    is_open: bool = False
    """Whether the partition was loaded since the eviction. If the eviction was not durable by then, the name
    is known again.
    """
    is_written: bool = False
    """Whether the eviction is durable, so that the name may be added again."""


@dataclass
class KnownName:
    """The state of a name, as the batches determine it."""

    pushed: list[tuple[int, int]] = field(default_factory=list)
    """Pairs (sequence id, the offset from which on it counts), both ascending."""
    epoch: int = -1
    open_sequences: dict[int, int] = field(default_factory=dict)
    first_open: dict[int, int] = field(default_factory=dict)
    """The first offset of the name in the open transaction of each producer, and in ended transactions."""

    @property
    def sequence_id(self) -> int:
        return self.pushed[-1][0] if self.pushed else -1

    def push(self, sequence_id: int, offset: int) -> None:
        if sequence_id > self.sequence_id:
            self.pushed.append((sequence_id, offset))

    def open_from(self, producer_id: int) -> int:
        """Return the first offset of the name in the producer's open transaction; beyond all offsets without
        one.
        """
        return self.first_open[producer_id] if producer_id in self.open_sequences else 1 << 62

    def persisted(self, high_watermark: int) -> int:
        return max((sequence for sequence, offset in self.pushed if offset < high_watermark), default=-1)

    def decided_at(self, sequence_id: int) -> int:
        """Return the offset from which on all sequence ids up to the highest count."""
        return min(offset for sequence, offset in self.pushed if sequence >= sequence_id)


@dataclass
class Decided:
    """The correct outcome for a batch."""

    refusal: str | None = None
    kept: list[int] = field(default_factory=list)
    """The positions of the new records."""
    waits_for: int = -1
    """The highest offset of the stored records whose duplicates the batch contains."""
    names: dict[bytes, int] = field(default_factory=dict)
    """The name epochs in the batch."""
    repeated: dict[bytes, int] = field(default_factory=dict)
    """The name epochs of names for which the batch has only duplicates."""
    unheard: dict[bytes, int] = field(default_factory=dict)
    """The names in `repeated` whose name epoch is in no stored record, with that epoch."""


class History:
    """All batches that a log accepted, deleted ones included."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.start_offset: int | None = None
        """The offset from which on names are remembered."""
        self.forgotten: list[Forgetting] = []
        """The evictions and expiries, in order."""
        self.epochs: dict[bytes, int] = {}
        """The highest name epoch that the log has seen, even if no stored record has it."""
        self.promised_epochs: dict[bytes, int] = {}
        """The highest name epoch of acknowledged duplicates, even if no stored record has it."""

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def cut(self, log_end_offset: int) -> None:
        """Note that the log was cut at this offset: later batches do not count."""
        self.batches = [batch for batch in self.batches if batch.last_offset < log_end_offset]
        for one in self.forgotten:
            one.offset = min(one.offset, self.end_offset)

    def forget(self, names: Iterable[bytes], offset: int) -> None:
        """Note that names were evicted or expired when the log ended at this offset."""
        for name in names:
            self.forgotten.append(Forgetting(name, offset, self.epochs.pop(name, -1)))

    def loaded(self) -> None:
        """Note that the partition was loaded: an evicted name that has not returned since may be known again."""
        for one in self.forgotten:
            one.is_written = True
            one.is_open = not any(
                batch.counts and batch.base_offset >= one.offset and item.name == one.name
                for batch in self.batches
                for _, item in batch.items
            )

    def settle_forgotten(self, is_known: Callable[[bytes, KnownName | None], bool]) -> int:
        """Compare the known names with the evicted ones; return how many are known again."""
        before = len(self.forgotten)
        for one in [one for one in reversed(self.forgotten) if one.is_open]:
            one.is_open = False
            if not is_known(one.name, self.known().get(one.name)):
                self.forgotten.remove(one)
                self.epochs[one.name] = max(one.epoch, self.epochs.get(one.name, -1))
        return before - len(self.forgotten)

    def known(self) -> dict[bytes, KnownName]:
        """Return the names that must be remembered."""
        names: dict[bytes, KnownName] = {}
        start_offset = self.end_offset if self.start_offset is None else self.start_offset
        forgotten = sorted(self.forgotten, key=lambda one: one.offset, reverse=True)
        for batch in self.batches:
            while forgotten and forgotten[-1].offset <= batch.base_offset:
                names.pop(forgotten.pop().name, None)
            if batch.base_offset < start_offset:
                continue
            if batch.commits is not None:
                for name in names.values():
                    sequence_id = name.open_sequences.pop(batch.producer_id, None)
                    if sequence_id is not None and batch.commits:
                        name.push(sequence_id, batch.base_offset)
            for offset, item in batch.items:
                if not item.name:
                    continue
                name = names.setdefault(item.name, KnownName())
                name.epoch = max(name.epoch, item.epoch)
                if batch.is_transactional:
                    held = name.open_sequences
                    if batch.producer_id not in held:
                        name.first_open[batch.producer_id] = batch.base_offset
                    held[batch.producer_id] = max(item.sequence_id, held.get(batch.producer_id, -1))
                else:
                    name.push(item.sequence_id, offset)
        for one in forgotten:
            names.pop(one.name, None)
        return names

    def judge(self, items: list[Item], transaction_of: int) -> Decided:
        """Return the correct outcome for a batch while deduplication is on."""
        known = self.known()
        states = {
            name: NameState(
                one.sequence_id, max(one.epoch, self.epochs.get(name, -1)), dict(one.open_sequences)
            )
            for name, one in known.items()
        }
        for name, epoch in self.epochs.items():
            states.setdefault(name, NameState(epoch=epoch))
        claims = [
            Claim(position, item.name, item.sequence_id, item.epoch)
            for position, item in enumerate(items)
            if item.name
        ]
        judged = judge(states, claims, transaction_of)
        if isinstance(judged, Refusal):
            return Decided(judged.value)
        epochs = {name: state.epoch for name, state in judged.names.items()}
        repeated = {name: epochs[name] for name in judged.repeated}
        waits_for = -1
        for position in judged.duplicates:
            of_name = known.get(items[position].name, KnownName())
            if items[position].sequence_id <= of_name.sequence_id:
                waits_for = max(waits_for, of_name.decided_at(items[position].sequence_id))
        return Decided(
            kept=[position for position in range(len(items)) if position not in judged.duplicates],
            waits_for=waits_for,
            names=epochs,
            repeated=repeated,
            unheard={
                name: epoch for name, epoch in repeated.items() if epoch > known.get(name, KnownName()).epoch
            },
        )

    def committed(self, *, only_counted: bool = False) -> list[tuple[bytes, int, int]]:
        """Return (name, how often the name was evicted before, sequence id) of each committed record, deleted
        ones included.
        """
        aborted: set[int] = set()
        decided: dict[int, list[StoredBatch]] = {}
        for batch in self.batches:
            if batch.commits is None and batch.is_transactional:
                decided.setdefault(batch.producer_id, []).append(batch)
            elif batch.commits is not None:
                of_the_transaction = decided.pop(batch.producer_id, [])
                if not batch.commits:
                    aborted |= {id(one) for one in of_the_transaction}
        undecided = {id(one) for open_ones in decided.values() for one in open_ones}
        return [
            (item.name, self._times_forgotten(item.name, batch.base_offset), item.sequence_id)
            for batch in self.batches
            if id(batch) not in aborted | undecided and (batch.counts or not only_counted)
            for _, item in batch.items
            if item.name
        ]

    def _times_forgotten(self, name: bytes, before: int) -> int:
        return sum(one.name == name and one.offset <= before for one in self.forgotten)

    def last_offset_of(self, name: bytes) -> int:
        """Return the offset of the last record of a name that came while deduplication was on."""
        return max(
            (
                offset
                for batch in self.batches
                if batch.counts
                for offset, item in batch.items
                if item.name == name
            ),
            default=-1,
        )

    def aborted(self) -> set[int]:
        """Return the base offsets of the batches in aborted transactions."""
        return {
            offset
            for batch in self.batches
            if batch.commits is False
            for offset in self.of_transaction(batch)
        }

    def of_transaction(self, ending: StoredBatch) -> set[int]:
        """Return the base offsets of a batch and of its transaction's marker, without which nobody knows
        whether the batch counts.
        """
        found = {ending.base_offset}
        if ending.commits is not None:
            for batch in reversed(self.batches):
                if batch.producer_id == ending.producer_id and batch.base_offset < ending.base_offset:
                    if batch.commits is not None:
                        break
                    found.add(batch.base_offset)
        return found

    def next_index(self, name: bytes, transaction_of: int) -> int:
        """Return how many items of an application are in the log without a gap, as far as the producer can
        know.
        """
        known = self.known().get(name, KnownName())
        highest = max(known.sequence_id, known.open_sequences.get(transaction_of, -1))
        return (highest + 1) if highest >= 0 else 0
