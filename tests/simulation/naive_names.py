"""A gateway without files, tasks or faults that stores the lines of named applications once: it writes sound
histories.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.models.names import NO_EPOCH, NO_PRODUCER, Claim, NameState, Refusal, judge
from tests.simulation.events_of_names import (
    DeduplicationSwitched,
    LineAcknowledged,
    LineName,
    LineSent,
    NameFenced,
    NameTold,
)
from tests.simulation.history import (
    Fetched,
    FinalRead,
    GotProducerId,
    History,
    Marker,
    TopicPartition,
    TransactionEnded,
    TransactionEnding,
)

PARTITIONS = (TopicPartition("lines", 0), TopicPartition("lines", 1), TopicPartition("switched", 0))
TOPICS = frozenset({"lines", "switched"})
KEYS = 3


@dataclass
class _Entry:
    line: LineName | None
    marker: Marker | None = None
    fate: bool | None = True
    """Whether the line counts; None while its transaction is open."""


@dataclass
class _Log:
    entries: dict[int, _Entry] = field(default_factory=dict)
    log_start_offset: int = 0
    log_end_offset: int = 0
    names: dict[str, NameState] = field(default_factory=dict)

    def persisted(self, name: str) -> int:
        """Return the highest sequence id of a name that counts."""
        return self.names.get(name, NameState()).highest

    def append(self, entry: _Entry) -> int:
        self.entries[self.log_end_offset] = entry
        self.log_end_offset += 1
        return self.log_end_offset - 1

    @property
    def last_stable_offset(self) -> int:
        undecided = [offset for offset, entry in self.entries.items() if entry.fate is None]
        return max(min(undecided, default=self.log_end_offset), self.log_start_offset)


@dataclass
class _Life:
    name: str
    number: int
    epoch: int
    is_transactional: bool
    next_line: int
    transaction: int = 0
    first_line: int = 0
    is_open: bool = False


@dataclass
class _Application:
    name: str
    gives_epochs: bool
    partitions: tuple[TopicPartition, ...]
    lives: list[_Life] = field(default_factory=list)
    stored: int = 0
    """All lines before this one are stored."""

    def line(self, number: int) -> tuple[TopicPartition, int, bytes]:
        """Return the partition, sequence id and key of a line."""
        return self.partitions[number % len(self.partitions)], 3 * number, f"{number % KEYS}".encode()


class NaiveNames:
    """Takes random steps and notes them in `history`; the same chance writes the same history."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.history = History(named=TOPICS, switched=frozenset({"switched"}))
        self._now_ms = 0
        self._logs = {partition: _Log() for partition in PARTITIONS}
        self._is_off = False
        self._applications = [
            _Application("a", gives_epochs=False, partitions=PARTITIONS[:2]),
            _Application("b", gives_epochs=True, partitions=PARTITIONS[:2]),
            _Application("c", gives_epochs=False, partitions=PARTITIONS[2:]),
        ]
        for application in self._applications:
            self._start(application)

    def run(self, steps: int) -> History:
        """Take random steps, end all transactions, and read all records."""
        kinds = [self._send] * 8 + [self._end] * 2 + [self._restart] + [self._ask] * 2 + [self._fetch] * 3
        kinds += [self._switch, self._delete]
        for _ in range(steps):
            self._chance.choice(kinds)()
        for application in self._applications:
            for life in application.lives:
                if life.is_open:
                    self._decide(application, life, commit=True, ended=True)
        if self._is_off:
            self._switch()
        self._read_all()
        return self.history

    def _tick(self) -> int:
        self._now_ms += self._chance.randint(1, 3)
        return self._now_ms

    # --- applications

    def _start(self, application: _Application) -> None:
        """Begin a new life at a line up to which all lines are known to be stored."""
        number = len(application.lives) + 1
        epoch = number if application.gives_epochs else NO_EPOCH
        start = self._chance.randint(max(0, application.stored - 6), application.stored)
        life = _Life(application.name, number, epoch, self._chance.random() < 0.4, start)
        application.lives.append(life)
        if life.is_transactional:
            got = GotProducerId(self._tick(), f"{life.name}.{number}", 1, 1000 * ord(life.name) + number, 0)
            self.history.add(got)

    def _restart(self) -> None:
        application = self._chance.choice(self._applications)
        life = application.lives[-1]
        if life.is_open:
            self._decide(application, life, commit=self._chance.random() < 0.5, ended=False)
        self._start(application)

    def _send(self) -> None:
        """Send the next line of the last life, or of a zombie."""
        application = self._chance.choice(self._applications)
        is_zombie = self._chance.random() < 0.2 and len(application.lives) > 1
        life = application.lives[-2 if is_zombie else -1]
        partition, sequence, key = application.line(life.next_line)
        log = self._logs[partition]
        if any(other.is_open and other is not life for other in application.lives):
            return  # the line is refused for now
        if life.is_transactional and not life.is_open:
            life.transaction += 1
            life.is_open, life.first_line = True, life.next_line
        line = LineName(life.name, life.number, life.transaction, sequence)
        self.history.add(LineSent(self._tick(), line, partition, life.epoch, key))
        transaction_of = life.number if life.is_open else NO_PRODUCER
        judged = judge(log.names, [Claim(0, life.name, sequence, life.epoch)], transaction_of)
        if isinstance(judged, Refusal):
            assert judged is Refusal.FENCED
            self.history.add(NameFenced(self._tick(), life.name, life.number, life.epoch, partition))
            if life.is_open:
                self._decide(application, life, commit=False, ended=True)
            return
        offset = -1
        if not judged.duplicates or self._is_off_in(partition):
            offset = log.append(_Entry(line, fate=None if life.is_open else True))
        log.names.update(judged.names)
        if self._chance.random() < 0.1:
            return  # the answer is lost, so the line is sent again
        self.history.add(LineAcknowledged(self._tick(), line, partition, offset))
        life.next_line += 1
        if not life.is_open:
            application.stored = max(application.stored, life.next_line)

    def _end(self) -> None:
        application = self._chance.choice(self._applications)
        life = application.lives[-1]
        if life.is_open:
            self._decide(application, life, commit=self._chance.random() < 0.7, ended=True)

    def _decide(self, application: _Application, life: _Life, *, commit: bool, ended: bool) -> None:
        who = f"{life.name}.{life.number}", 1, life.transaction
        self.history.add(TransactionEnding(self._tick(), *who, commit))
        for log in self._logs.values():
            mine = [
                entry
                for entry in log.entries.values()
                if entry.fate is None and entry.line is not None and entry.line.name == life.name
            ]
            for entry in mine:
                entry.fate = commit
            if life.name in log.names:
                log.names[life.name].decide(life.number, commit=commit)
            if mine:
                log.append(_Entry(None, Marker(log.log_end_offset, 7, 0, commit)))
        life.is_open = False
        if ended:
            self.history.add(TransactionEnded(self._tick(), *who, commit))
        if commit and ended:
            application.stored = max(application.stored, life.next_line)
        elif not commit:
            life.next_line = life.first_line

    # --- the gateway and its readers

    def _ask(self) -> None:
        application = self._chance.choice(self._applications)
        asked_at_ms = self._tick()
        found = tuple(
            (
                partition,
                -1 if self._is_off_in(partition) else self._logs[partition].persisted(application.name),
            )
            for partition in application.partitions
        )
        self.history.add(NameTold(self._tick(), application.name, found, asked_at_ms))

    def _is_off_in(self, partition: TopicPartition) -> bool:
        return self._is_off and partition.topic == "switched"

    def _switch(self) -> None:
        self._is_off = not self._is_off
        self.history.add(DeduplicationSwitched(self._tick(), "switched", on=not self._is_off))

    def _delete(self) -> None:
        partition = PARTITIONS[0]
        log = self._logs[partition]
        if self._chance.random() < 0.3:
            log.log_start_offset = self._chance.randint(log.log_start_offset, log.last_stable_offset)
            self.history.deleted_before[partition] = log.log_start_offset
            log.entries = {
                offset: entry for offset, entry in log.entries.items() if offset >= log.log_start_offset
            }

    def _fetch(self) -> None:
        partition = self._chance.choice(PARTITIONS)
        log = self._logs[partition]
        read_committed = self._chance.random() < 0.5
        limit = log.last_stable_offset if read_committed else log.log_end_offset
        begin = self._chance.randint(log.log_start_offset, limit)
        self._answer("c", partition, begin, limit, self._tick(), read_committed=read_committed)

    def _answer(
        self,
        consumer: str,
        partition: TopicPartition,
        begin: int,
        end: int,
        asked_at_ms: int,
        *,
        read_committed: bool,
    ) -> None:
        log = self._logs[partition]
        entries = [(offset, log.entries[offset]) for offset in range(begin, end)]
        records = tuple(
            (offset, entry.line.encode())
            for offset, entry in entries
            if entry.line and (entry.fate or not read_committed)
        )
        markers = tuple(entry.marker for _, entry in entries if entry.marker)
        limits = log.log_end_offset, log.last_stable_offset, log.log_start_offset
        self.history.add(
            Fetched(
                self._tick(),
                consumer,
                partition,
                read_committed,
                begin,
                end,
                records,
                *limits,
                markers,
                asked_at_ms,
            )
        )

    def _read_all(self) -> None:
        self.history.add(FinalRead(self._tick()))
        for application in self._applications:
            asked_at_ms = self._tick()
            found = tuple(
                (partition, self._logs[partition].persisted(application.name))
                for partition in application.partitions
            )
            self.history.add(NameTold(self._tick(), application.name, found, asked_at_ms))
        for partition, log in self._logs.items():
            for read_committed in (False, True):
                begin, end = log.log_start_offset, log.log_end_offset
                self._answer("last", partition, begin, end, self._tick(), read_committed=read_committed)
