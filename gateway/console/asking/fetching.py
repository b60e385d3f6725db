"""Fetches records of a topic with one request for each leader, without a group. Raises ControlError.

kafka-python's consumer hides what a batch says about its producer, and takes longer to start than to read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from seqgate.gateway.admin.remote.cluster import Cluster, ask_broker, refusal
from seqgate.gateway.console.asking.topics import TopicPlaces
from seqgate.log import CorruptRecord, LogError
from seqgate.log.format.record_batch import MAGIC, BatchHeader, crc_matches, whole_batches
from seqgate.log.format.records import iterate_records, read_end_marker

TIMEOUT_S: Final = 20.0
PLAIN_BYTES: Final = 128 << 20
"""The largest plain content of a compressed batch; a larger one is reported as unreadable."""
_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class ReadRecord(NamedTuple):
    """A record and its batch's producer. `marker` is commit or abort at the end of a transaction."""

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    is_transactional: bool
    is_log_append_time: bool
    compression: str
    marker: str | None = None


@dataclass(slots=True)
class Stretch:
    """The batches of one partition in one answer. `problems` tell of batches that can't be read."""

    partition: int
    position: int
    next_offset: int
    end_offset: int
    log_start_offset: int = 0
    size_bytes: int = 0
    batches: list[tuple[BatchHeader, memoryview]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def records(self) -> Iterator[ReadRecord]:
        """Yield the records; one batch at a time is plain, because a few compressed bytes can hold very many."""
        for header, batch in self.batches:
            try:
                for record in _records(self.partition, header, batch):
                    if record.offset >= self.position:
                        yield record
            except LogError as error:
                self.problems.append(
                    f"offset {header.base_offset} of partition {self.partition} is unreadable: {error}"
                )


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one fetch. A first batch that is larger comes whole all the same (KIP-74)."""

    answer_bytes: int = 8 << 20
    partition_bytes: int = 2 << 20
    wait_ms: int = 0


def fetch(
    cluster: Cluster, topic: TopicPlaces, positions: Mapping[int, int], limits: Limits, *, committed: bool
) -> dict[int, Stretch]:
    """Return what follows `positions`, by partition, without partitions that have no leader; `committed`
    leaves out records of open and aborted transactions.
    """
    found: dict[int, Stretch] = {}
    for leader, partitions in topic.by_leader(positions).items():
        wanted = tuple(
            FetchPartition(
                partition=i32(partition),
                fetch_offset=i64(positions[partition]),
                partition_max_bytes=i32(limits.partition_bytes),
            )
            for partition in partitions
        )
        request = FetchRequest(
            max_wait=i32Timedelta.parse(dt.timedelta(milliseconds=limits.wait_ms)),
            min_bytes=i32(1),
            max_bytes=i32(limits.answer_bytes),
            isolation_level=i8(1 if committed else 0),
            topics=(FetchTopic(topic=TopicName(topic.name), partitions=wanted),),
            forgotten_topics_data=(),
        )
        answer = ask_broker(cluster.reached.other(*leader), request, FetchResponse, timeout_s=TIMEOUT_S)
        for row in (row for one in answer.responses for row in one.partitions):
            partition = int(row.partition_index)
            found[partition] = _stretch(partition, positions[partition], row, committed=committed)
    return found


def _stretch(partition: int, position: int, row: Any, *, committed: bool) -> Stretch:
    stretch = Stretch(partition, position, next_offset=position, end_offset=position)
    refused = refusal(row.error_code.value)
    if refused is not None:
        stretch.problems.append(f"partition {partition} can't be read: {refused}")
        return stretch
    stretch.end_offset = int(row.last_stable_offset if committed else row.high_watermark)
    stretch.log_start_offset = int(row.log_start_offset)
    data = memoryview(row.records or b"")
    stretch.size_bytes = len(data)
    aborted = _Aborted(row.aborted_transactions or ()) if committed else None
    for start, header in whole_batches(data):
        batch = data[start : start + header.size_bytes]
        stretch.next_offset = header.base_offset + 1
        if header.magic != MAGIC:
            stretch.problems.append(
                f"partition {partition} has records in an old format at offset {header.base_offset}"
            )
            continue
        stretch.next_offset = header.last_offset + 1
        if aborted is None or not aborted.hides(header, batch):
            stretch.batches.append((header, batch))
    return stretch


def _records(partition: int, header: BatchHeader, batch: memoryview) -> Iterator[ReadRecord]:
    """Yield the records of a batch. Raises LogError on damage."""
    marker = read_end_marker(batch) if header.is_control else None
    if not crc_matches(header, batch):
        raise CorruptRecord("its checksum is wrong")
    for record in iterate_records(batch, limit_bytes=PLAIN_BYTES):
        sequence = header.base_sequence
        if sequence >= 0:
            sequence = (sequence + record.offset - header.base_offset) & 0x7FFFFFFF
        yield ReadRecord(
            partition=partition,
            offset=record.offset,
            time_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            sequence=sequence,
            leader_epoch=header.partition_leader_epoch,
            is_transactional=header.is_transactional,
            is_log_append_time=header.is_log_append_time,
            compression=_COMPRESSIONS[header.compression],
            marker=None if marker is None else "commit" if marker.is_commit else "abort",
        )


class _Aborted:
    """The aborted transactions of a stretch, as a consumer of committed records skips them."""

    def __init__(self, transactions: Sequence[Any]) -> None:
        self._coming = sorted(transactions, key=lambda row: int(row.first_offset), reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether a consumer of committed records does not get a batch."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._open.add(int(self._coming.pop().producer_id))
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None and not marker.is_commit:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
