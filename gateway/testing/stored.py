"""What a broker holds: its records as a reader of committed records sees them, and its producers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kio.serial import entity_reader

from seqgate.gateway.protocol.messages import is_flexible, response_type
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log.format.records import iterate_records, read_end_marker

_CHUNK_BYTES: Final = 1 << 20


class StoredRecord(NamedTuple):
    """A record, as consumers with `isolation.level=read_committed` get it. `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    producer_id: int


class StoredProducer(NamedTuple):
    """A producer that a partition tracks. Its next batch begins after `last_sequence`."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    has_open_transaction: bool


def committed_records(partition: Partition) -> list[StoredRecord]:
    """Return the records of a partition that are decided and not aborted, by offset."""
    log = partition.log
    found: list[StoredRecord] = []
    undecided: dict[int, list[StoredRecord]] = {}
    for batch, view in log.batches(log.log_start_offset, log.last_stable_offset, _CHUNK_BYTES):
        if batch.base_offset >= log.last_stable_offset:
            break
        if batch.is_control:
            marker = read_end_marker(view)
            of_transaction = undecided.pop(batch.producer_id, [])
            if marker is not None and marker.is_commit:
                found += of_transaction
            continue
        records = [
            StoredRecord(
                partition.topic,
                partition.index,
                record.offset,
                record.key,
                record.value,
                record.headers,
                record.timestamp,
                batch.producer_id,
            )
            for record in iterate_records(view)
            if record.offset >= log.log_start_offset
        ]
        if batch.is_transactional:
            undecided.setdefault(batch.producer_id, []).extend(records)
        else:
            found += records
    return sorted(found, key=lambda record: record.offset)


def producers_of(partition: Partition) -> Iterator[StoredProducer]:
    for entry in partition.log.producers:
        yield StoredProducer(
            partition.topic,
            partition.index,
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.has_open_transaction,
        )


# Finds the records in the answer to a fetch.

_FETCH: Final = 1
_HEADER_BYTES: Final = 8


def fetched_records(frame: bytes, version: int) -> Iterator[tuple[str | UUID, int, int]]:
    """Yield topic (name or id), start and end of the records of each partition that has some."""
    position = _HEADER_BYTES + (1 if is_flexible(_FETCH, version) else 0)
    answer, _ = entity_reader(response_type(_FETCH, version))(frame, position)
    for topic in answer.responses:
        for partition in topic.partitions:
            records = partition.records
            if records:
                position = frame.index(records, position)
                yield getattr(topic, "topic", None) or topic.topic_id, position, position + len(records)
                position += len(records)


# Finds and explains how stored records differ from those that were sent: lost, doubled, unexpected,
# reordered.

Value = bytes | None
_NAMED: Final = 10
"""Records that an explanation names; it counts the others."""


class Reordered(NamedTuple):
    """A record that is stored after `before`, although it was sent earlier. Both are in one partition."""

    record: StoredRecord
    before: StoredRecord

    def __str__(self) -> str:
        record, before = self.record, self.before
        return (
            f"reordered: {shown(record.value)} was sent before {shown(before.value)}, and is stored after it "
            f"({record.topic}-{record.partition}, offsets {record.offset} and {before.offset})"
        )


class Differences(NamedTuple):
    """The faults of stored records. `lost` and `doubled` name a value once for each record."""

    lost: Sequence[Value]
    doubled: Sequence[Value]
    unexpected: Sequence[Value]
    reordered: Sequence[Reordered]
    """The records that stand too late, in each partition."""


def differences(stored: Sequence[StoredRecord], expected: Iterable[Value]) -> Differences:
    """Return how stored records differ from the values that were sent, which are `expected` in their order.
    In each partition the records must have this order.
    """
    wanted = list(expected)
    have = Counter(record.value for record in stored)
    want = Counter(wanted)
    return Differences(
        lost=list((want - have).elements()),
        doubled=list(Counter({value: have[value] - want[value] for value in want}).elements()),
        unexpected=[value for value in have.elements() if value not in want],
        reordered=list(_reordered(stored, wanted)),
    )


def explain_differences(stored: Sequence[StoredRecord], expected: Iterable[Value]) -> str | None:
    """Return a sentence that names what is wrong with the values of stored records, None if nothing is."""
    wrong = differences(stored, expected)
    complaints = [
        _named("lost", wrong.lost),
        _named("doubled", wrong.doubled),
        _named("unexpected", wrong.unexpected),
        *map(str, wrong.reordered),
    ]
    return "; ".join(filter(None, complaints)) or None


def _reordered(stored: Sequence[StoredRecord], wanted: Sequence[Value]) -> Iterator[Reordered]:
    """Yield each record that stands after one that was sent later."""
    times = Counter(wanted)
    # A value that was sent twice has no one place in the order.
    sent = {value: number for number, value in enumerate(wanted) if times[value] == 1}
    newest: dict[tuple[str, int], StoredRecord] = {}
    seen: set[tuple[str, int, Value]] = set()
    for record in sorted(stored, key=lambda each: (each.topic, each.partition, each.offset)):
        place = record.topic, record.partition
        if record.value not in sent or (*place, record.value) in seen:
            continue
        seen.add((*place, record.value))
        before = newest.get(place)
        if before is not None and sent[record.value] < sent[before.value]:
            yield Reordered(record, before)
        else:
            newest[place] = record


def _named(word: str, values: Sequence[Value]) -> str:
    if not values:
        return ""
    named = ", ".join(map(shown, values[:_NAMED]))
    more = f" and {len(values) - _NAMED} more" if len(values) > _NAMED else ""
    return f"{len(values)} {word}: {named}{more}"


def shown(value: Value) -> str:
    """Return a value for people, cut after 60 bytes."""
    if value is None:
        return "null"
    return repr(value if len(value) <= 60 else value[:60] + b"...")[1:]
