"""The history of a run: requests of simulated clients and their answers, in order. Pure values, which the
checkers judge.

A record's value names it, `producer/incarnation/transaction/partition/number`. An incarnation is one life of
a producer (one producer id for idempotent ones). `transaction` is its running number, or 0 outside of
transactions. `partition` is a number that no other partition of any topic has. `number` counts from 0 per
incarnation and partition. No value is sent twice as a new record; a retry sends the same batch again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class RecordName(NamedTuple):
    producer: str
    incarnation: int
    transaction: int
    partition: int
    number: int

    def encode(self) -> bytes:
        return "/".join(map(str, self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> RecordName:
        """Decode a value; zeros may follow. Raises ValueError for a value that `encode` did not write."""
        producer, *numbers = value.rstrip(b"\0").decode().split("/")
        incarnation, transaction, partition, number = map(int, numbers)
        return cls(producer, incarnation, transaction, partition, number)


@dataclass(frozen=True)
class Event:
    """An event of the run; `at_ms` is the virtual time since the simulation began."""

    at_ms: int


@dataclass(frozen=True)
class GotProducerId(Event):
    """InitProducerId was answered; the transactional id is empty for an idempotent producer."""

    producer: str
    incarnation: int
    producer_id: int
    producer_epoch: int
    transactional_id: str = ""
    asked_at_ms: int = 0
    """When the first attempt of the answered request was sent. Other events use the field in the same way."""


@dataclass(frozen=True)
class Sent(Event):
    """A record left its producer for the first time."""

    name: RecordName
    partition: TopicPartition
    key: bytes = b""


@dataclass(frozen=True)
class Acknowledged(Event):
    """A record was acknowledged without an error at this offset; acks=all and acks=1 promise the same."""

    name: RecordName
    partition: TopicPartition
    offset: int


@dataclass(frozen=True)
class GivenUp(Event):
    """The producer gave a record up: it never sends the record again, and the log holds the record at most
    once.
    """

    name: RecordName
    partition: TopicPartition
    error: str


@dataclass(frozen=True)
class Refused(Event):
    """A batch was refused for its sequence or producer epoch: this attempt did not store it.

    `explained`: the producer itself knows a reason, because an earlier batch may be missing or another
    instance has fenced it. A refusal without a reason is a breach.
    """

    producer: str
    incarnation: int
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    base_sequence: int
    error: str
    explained: bool
    first: RecordName | None = None
    """The first record of the batch, if its records have names."""


@dataclass(frozen=True)
class Fenced(Event):
    """The producer learned that another instance has its transactional id; it sends nothing more."""

    producer: str
    incarnation: int
    transactional_id: str


@dataclass(frozen=True)
class Unexpected(Event):
    """A valid request got an answer that it must never get, or no answer in time. A breach by itself."""

    client: str
    sentence: str


@dataclass(frozen=True)
class TransactionEnding(Event):
    """The producer asked for this end of its transaction. `offsets` are the group offsets in the transaction,
    if any.
    """

    producer: str
    incarnation: int
    transaction: int
    commit: bool
    group: str = ""
    offsets: tuple[tuple[TopicPartition, int], ...] = ()


@dataclass(frozen=True)
class TransactionEnded(Event):
    """The coordinator answered that the transaction has ended as requested. Without this event the end is
    unknown.
    """

    producer: str
    incarnation: int
    transaction: int
    commit: bool


class Marker(NamedTuple):
    """The end of a transaction in a partition: a control batch of one record."""

    offset: int
    producer_id: int
    producer_epoch: int
    commit: bool


@dataclass(frozen=True)
class Fetched(Event):
    """A partition's Fetch was answered without an error. `records`: (offset, value) from fetch_offset on.

    `next_offset` is where the consumer continues: one past the last offset of its last batch. Under
    read_committed, `records` leaves out aborted records, by the rule that clients follow. `markers` are the
    control batches in between.
    """

    consumer: str
    partition: TopicPartition
    read_committed: bool
    fetch_offset: int
    next_offset: int
    records: tuple[tuple[int, bytes], ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    markers: tuple[Marker, ...] = ()
    asked_at_ms: int = 0
    elsewhere: bool = False
    """Whether another gateway than the leader was asked. What it tells as the end is the end of what is
    uploaded.
    """


@dataclass(frozen=True)
class OffsetListed(Event):
    """A partition's ListOffsets was answered, for a timestamp or −1 latest, −2 earliest, −3 largest
    timestamp. Offset −1 means none.
    """

    consumer: str
    partition: TopicPartition
    read_committed: bool
    timestamp: int
    offset: int
    asked_at_ms: int = 0


@dataclass(frozen=True)
class FinalRead(Event):
    """The last reading begins: every partition is read from log start to end.

    All other clients have stopped, nothing is in flight.
    """


@dataclass(frozen=True)
class RecordsDeleting(Event):
    """A client asked to delete the records before `offset`, or for retention that may delete them."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True)
class OffsetsCommitting(Event):
    """A group member asked for this commit, outside of transactions."""

    group: str
    member: str
    offsets: tuple[tuple[TopicPartition, int], ...]
    generation: int = -1
    """The generation of a classic group member; −1 for other members."""
    member_epoch: int = -1
    """The epoch of a consumer group member, which may be older than the member's newest one (KIP-1251)."""


@dataclass(frozen=True)
class OffsetsCommitted(Event):
    """The commit was answered without an error."""

    group: str
    member: str
    offsets: tuple[tuple[TopicPartition, int], ...]
    asked_at_ms: int = 0


@dataclass(frozen=True)
class OffsetsFetched(Event):
    """The answer of OffsetFetch (with require_stable); -1 for a partition without a committed offset."""

    group: str
    offsets: tuple[tuple[TopicPartition, int], ...]
    asked_at_ms: int = 0


@dataclass(frozen=True)
class Assigned(Event):
    """A member of a group owns these partitions from now on, in this generation or member epoch."""

    group: str
    member: str
    generation: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class GatewayCrashed(Event):
    """kill -9 ("kill") or a power cut ("power")."""

    kind: str


@dataclass(frozen=True)
class GatewayStarted(Event):
    pass


@dataclass
class History:
    """All events of one run, appended as they happen."""

    events: list[Event] = field(default_factory=list)
    compacted: frozenset[str] = frozenset()
    """Topics from which compaction may remove a record when its key has a later one."""
    recompressed: frozenset[str] = frozenset()
    """The topics that store all batches in one codec, which may change."""
    named: frozenset[str] = frozenset()
    """Topics that deduplicate lines by producer names; dropped lines leave offsets without a record."""
    switched: frozenset[str] = frozenset()
    """The deduplicating topics on which the administrator turns deduplication off and on."""
    deleted_before: dict[TopicPartition, int] = field(default_factory=dict)
    """The offsets (exclusive) below which records may be gone, because DeleteRecords or retention was
    requested.
    """

    def add(self, event: Event) -> None:
        self.events.append(event)
