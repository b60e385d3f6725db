"""What a broker holds: its records as a reader of committed records sees them, and its producers."""

from __future__ import annotations

from collections.abc import Iterator
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
