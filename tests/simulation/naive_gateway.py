"""A gateway without files, tasks or faults, and its clients in one loop: it writes sound histories for the
tests of the checkers.

Every call takes effect at once and in order, but answers may be lost, come late, or end in a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.simulation.history import (
    Acknowledged,
    Assigned,
    Fetched,
    FinalRead,
    GatewayCrashed,
    GatewayStarted,
    GivenUp,
    GotProducerId,
    History,
    Marker,
    OffsetsCommitted,
    OffsetsCommitting,
    OffsetsFetched,
    RecordName,
    Sent,
    TopicPartition,
    TransactionEnded,
    TransactionEnding,
)

PARTITIONS = (TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("latest", 2))
COMPACTED = frozenset({"latest"})
GROUP = "readers"
KEYS = (b"a", b"b", b"c")


@dataclass
class _Entry:
    """A record, or a marker that ends a transaction."""

    name: RecordName | None
    producer_id: int = -1
    key: bytes = b""
    marker: Marker | None = None
    fate: bool | None = True
    """Whether the record counts; None while its transaction is open."""


@dataclass
class _Log:
    entries: dict[int, _Entry] = field(default_factory=dict)
    log_start_offset: int = 0
    log_end_offset: int = 0

    def append(self, entry: _Entry) -> int:
        offset = self.log_end_offset
        self.entries[offset] = entry
        self.log_end_offset += 1
        return offset

    @property
    def last_stable_offset(self) -> int:
        undecided = [offset for offset, entry in self.entries.items() if entry.fate is None]
        return max(min(undecided, default=self.log_end_offset), self.log_start_offset)

    def compact(self) -> None:
        """Remove aborted records, and committed records whose key has a later one; keep undecided records."""
        limit = self.last_stable_offset
        latest = {entry.key: offset for offset, entry in self.entries.items() if entry.name and entry.fate}
        for offset, entry in list(self.entries.items()):
            is_last = entry.fate is True and latest.get(entry.key, -1) == offset
            if offset < limit and entry.name is not None and not is_last:
                del self.entries[offset]


@dataclass
class _Producer:
    name: str
    transactional_id: str
    incarnation: int = -1
    producer_id: int = -1
    producer_epoch: int = 0
    transaction: int = 0
    in_transaction: bool = False
    numbers: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class NaiveGateway:
    """Takes random steps and notes them in `history`; the same random numbers write the same history."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.history = History(compacted=COMPACTED)
        self._now_ms = 0
        self._logs = {partition: _Log() for partition in PARTITIONS}
        self._next_producer_id = 1000
        self._committed: dict[TopicPartition, int] = {}
        self._generation = 0
        self._producers = [_Producer("p", ""), _Producer("q", ""), _Producer("t", "tx"), _Producer("u", "ux")]
        for producer in self._producers:
            self._begin(producer)

    def run(self, steps: int) -> History:
        """Take the steps, end everything, and read everything."""
        kinds = [self._send] * 6 + [self._end] * 3 + [self._fetch] * 3
        kinds += [self._commit, self._fetch_offsets, self._crash, self._assign, self._delete, self._compact]
        for _ in range(steps):
            self._chance.choice(kinds)()
        for producer in self._producers:
            if producer.in_transaction:
                self._end_of(producer)
        self._fetch_offsets()
        self._read_all()
        return self.history

    def _tick(self) -> int:
        self._now_ms += self._chance.randint(0, 3)
        return self._now_ms

    # --- producers

    def _begin(self, producer: _Producer) -> None:
        """Begin the next life of a producer.

        A transactional one fences its predecessor and aborts the open transaction.
        """
        asked_at_ms = self._tick()
        if producer.in_transaction:
            self._decide(producer, commit=False)
        producer.incarnation += 1
        producer.transaction = 0
        producer.numbers = {}
        if producer.transactional_id and producer.producer_id >= 0:
            producer.producer_epoch += 1
        else:
            producer.producer_id, producer.producer_epoch = self._next_producer_id, 0
            self._next_producer_id += 1
        self.history.add(
            GotProducerId(
                self._tick() + 1,
                producer.name,
                producer.incarnation,
                producer.producer_id,
                producer.producer_epoch,
                producer.transactional_id,
                asked_at_ms,
            )
        )
        self._now_ms += 2

    def _send(self) -> None:
        producer = self._chance.choice(self._producers)
        partition = self._chance.choice(PARTITIONS)
        if producer.transactional_id and not producer.in_transaction:
            producer.in_transaction = True
            producer.transaction += 1
            producer.offsets = {}
        number = producer.numbers.get(partition, 0)
        producer.numbers[partition] = number + 1
        transaction = producer.transaction if producer.transactional_id else 0
        name = RecordName(producer.name, producer.incarnation, transaction, partition.partition, number)
        key = self._chance.choice(KEYS) if partition.topic in COMPACTED else b""
        self.history.add(Sent(self._tick(), name, partition, key))
        fate = None if transaction else True
        outcome = self._chance.choice(("stored",) * 8 + ("answer lost", "request lost"))
        if outcome != "request lost":
            offset = self._logs[partition].append(_Entry(name, producer.producer_id, key, fate=fate))
            if outcome == "stored":
                self.history.add(Acknowledged(self._tick(), name, partition, offset))
                return
        self.history.add(GivenUp(self._tick(), name, partition, "REQUEST_TIMED_OUT"))
        if producer.in_transaction:
            self._end_of(producer, commit=False)
        if self._chance.random() < 0.5 or not producer.transactional_id:
            self._begin(producer)

    def _end(self) -> None:
        producer = self._chance.choice(self._producers)
        if producer.in_transaction:
            self._end_of(producer, commit=self._chance.random() < 0.7)

    def _end_of(self, producer: _Producer, *, commit: bool = True) -> None:
        """Ask for the end of a transaction. The request, or only its answer, may be lost."""
        if commit and self._chance.random() < 0.5:
            partition = self._chance.choice(PARTITIONS)
            producer.offsets = {partition: self._committed.get(partition, 0) + self._chance.randint(1, 5)}
        names = (producer.name, producer.incarnation, producer.transaction)
        offsets = tuple(producer.offsets.items())
        self.history.add(TransactionEnding(self._tick(), *names, commit, GROUP if offsets else "", offsets))
        outcome = self._chance.choice(("ended",) * 5 + ("answer lost", "request lost"))
        if outcome != "request lost":
            self._decide(producer, commit=commit)
        if outcome == "ended":
            self.history.add(TransactionEnded(self._tick(), *names, commit))
        else:
            self._begin(producer)

    def _decide(self, producer: _Producer, *, commit: bool) -> None:
        for log in self._logs.values():
            open_ones = [
                entry
                for entry in log.entries.values()
                if entry.fate is None and entry.producer_id == producer.producer_id
            ]
            for entry in open_ones:
                entry.fate = commit
            if open_ones:
                marker = Marker(log.log_end_offset, producer.producer_id, producer.producer_epoch, commit)
                log.append(_Entry(None, marker=marker))
        if commit:
            self._committed |= producer.offsets
        producer.in_transaction = False
        producer.producer_epoch += 1

    # --- consumers and groups

    def _fetch(self) -> None:
        partition = self._chance.choice(PARTITIONS)
        log = self._logs[partition]
        read_committed = self._chance.random() < 0.5
        limit = log.last_stable_offset if read_committed else log.log_end_offset
        fetch_offset = self._chance.randint(log.log_start_offset, max(limit, log.log_start_offset))
        next_offset = min(limit, fetch_offset + self._chance.randint(0, 30))
        asked_at_ms = self._tick()
        self._answer("c", partition, read_committed, fetch_offset, next_offset, asked_at_ms)

    def _answer(
        self,
        consumer: str,
        partition: TopicPartition,
        read_committed: bool,
        fetch_offset: int,
        next_offset: int,
        asked_at_ms: int,
    ) -> None:
        log = self._logs[partition]
        entries = [(offset, log.entries.get(offset)) for offset in range(fetch_offset, next_offset)]
        self.history.add(
            Fetched(
                self._tick(),
                consumer,
                partition,
                read_committed,
                fetch_offset,
                next_offset,
                tuple(
                    (offset, entry.name.encode())
                    for offset, entry in entries
                    if entry and entry.name and (entry.fate or not read_committed)
                ),
                high_watermark=log.log_end_offset,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                markers=tuple(entry.marker for _, entry in entries if entry and entry.marker),
                asked_at_ms=asked_at_ms,
            )
        )

    def _commit(self) -> None:
        partition = self._chance.choice(PARTITIONS)
        offsets = ((partition, self._committed.get(partition, 0) + self._chance.randint(0, 3)),)
        asked_at_ms = self._tick()
        self.history.add(OffsetsCommitting(asked_at_ms, GROUP, "m", offsets, self._generation))
        self._now_ms += 1
        outcome = self._chance.choice(("committed",) * 5 + ("answer lost", "request lost"))
        if outcome != "request lost":
            self._committed |= dict(offsets)
        if outcome == "committed":
            self.history.add(OffsetsCommitted(self._tick(), GROUP, "m", offsets, asked_at_ms))
        else:
            self._crash()

    def _fetch_offsets(self) -> None:
        asked_at_ms = self._tick()
        offsets = tuple((partition, self._committed.get(partition, -1)) for partition in PARTITIONS)
        self.history.add(OffsetsFetched(self._tick(), GROUP, offsets, asked_at_ms))

    def _assign(self) -> None:
        self._generation += 1
        owners = {partition: self._chance.choice("mn") for partition in PARTITIONS}
        for member in "mn":
            partitions = frozenset(partition for partition in PARTITIONS if owners[partition] == member)
            self.history.add(Assigned(self._tick(), GROUP, member, self._generation, partitions))

    # --- faults of the gateway

    def _crash(self) -> None:
        self._now_ms += 1
        self.history.add(GatewayCrashed(self._tick(), "kill"))
        self._now_ms += 1
        self.history.add(GatewayStarted(self._tick()))

    def _delete(self) -> None:
        partition = self._chance.choice(PARTITIONS)
        log = self._logs[partition]
        if self._chance.random() < 0.2:
            offset = self._chance.randint(log.log_start_offset, log.last_stable_offset)
            self.history.deleted_before[partition] = offset
            log.log_start_offset = offset
            log.entries = {key: entry for key, entry in log.entries.items() if key >= offset}

    def _compact(self) -> None:
        for partition, log in self._logs.items():
            if partition.topic in COMPACTED:
                log.compact()

    def _read_all(self) -> None:
        self._now_ms += 1
        self.history.add(FinalRead(self._tick()))
        for partition, log in self._logs.items():
            for read_committed in (False, True):
                offset = log.log_start_offset
                while True:
                    next_offset = min(log.log_end_offset, offset + self._chance.randint(1, 40))
                    self._answer("last", partition, read_committed, offset, next_offset, self._now_ms)
                    if next_offset == log.log_end_offset:
                        break
                    offset = next_offset
