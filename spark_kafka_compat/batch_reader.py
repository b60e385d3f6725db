"""Reads the headers of record batches from a Kafka endpoint: producer id, producer epoch, sequences, offsets.

Spark's Kafka source does not show the producer of a batch; its header does (61 bytes, "Record Batch" in
Kafka's protocol guide). Fetch returns batches as stored in the log, so this module decodes no record.
"""

from __future__ import annotations

import difflib
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from seqgate.spark_kafka_compat.logins import PLAIN_CONNECTION, Login
from seqgate.spark_kafka_compat.session import EndpointError, MissingTopicError
from seqgate.spark_kafka_compat.wire import WireConnection, ask_first, error_name, is_retriable

METADATA, LIST_OFFSETS, FETCH = 3, 2, 1
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NO_ERROR, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION = 0, 1, 3
TOPIC_AUTHORIZATION_FAILED = 29
_MAY_READ = 1 << 3
"""The bit of Kafka's `AclOperation.READ` in the operations that a broker reports for a topic (KIP-430)."""
_OPERATIONS_NOT_REPORTED = -(1 << 31)
FETCH_MAX_BYTES = 4 << 20
PATIENCE_S = 30.0

_HEADER = struct.Struct(">qiiBIhiqqqhii")
_LENGTH_BEFORE_BATCH = 12
_CURRENT_MAGIC = 2
_CONTROL = 1 << 5


class BatchRow(NamedTuple):
    """The header of one record batch. `base_sequence` is -1 without idempotence. After compaction
    `record_count` can be smaller than the span of offsets.
    """

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    is_control: bool

    @property
    def sequence_count(self) -> int:
        """The number of sequences of the batch, compacted or not."""
        return self.last_offset - self.base_offset + 1


@dataclass(frozen=True)
class Split:
    """Offsets of a partition, `end_offset` exclusive. A batch belongs to the split of its base offset."""

    bootstrap: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int


def plan_splits(bootstrap: str, topics: Sequence[str], records_per_split: int) -> list[Split]:
    """Return splits of these topics up to their high watermarks, for parallel reads. Raises EndpointError."""
    splits: list[Split] = []
    for topic in topics:
        for partition, (start, end) in sorted(offset_ranges(bootstrap, topic).items()):
            cuts = [*range(start, end, records_per_split), end]
            splits += [Split(bootstrap, topic, partition, low, high, start) for low, high in pairwise(cuts)]
    return splits


def read_split(split: Split) -> Iterator[BatchRow]:
    """Yield the headers of a split's batches in offset order. Raises `EndpointError`, also when records of
    the split were deleted since the split was planned.
    """
    offset = split.start_offset
    deadline = time.monotonic() + PATIENCE_S
    while offset < split.end_offset:
        try:
            with _leader_of(split.bootstrap, split.topic, split.partition) as connection:
                for rows in _fetched(connection, split, offset):
                    yield from rows
                    offset = rows[-1].last_offset + 1
                    deadline = time.monotonic() + PATIENCE_S
        except EndpointError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def offset_ranges(
    bootstrap: str, topic: str, isolation_level: int = READ_UNCOMMITTED
) -> dict[int, tuple[int, int]]:
    """Return log start offset and high watermark (READ_COMMITTED: last stable offset) of each partition."""
    ranges: dict[int, tuple[int, int]] = {}
    for leader, partitions in _leaders(bootstrap, topic).items():
        with WireConnection(*leader) as connection:
            starts = _list_offsets(connection, topic, partitions, EARLIEST)
            ends = _list_offsets(connection, topic, partitions, LATEST, isolation_level)
            ranges |= {partition: (starts[partition], ends[partition]) for partition in partitions}
    return ranges


def topic_id(bootstrap: str, topic: str) -> UUID | None:
    """Return the id of a topic; None from a Kafka before 2.8. Raises `EndpointError`."""
    (found,) = _metadata(bootstrap, topic).topics
    _check(found.error_code, f"asking for topic {topic}")
    return getattr(found, "topic_id", None)


def check_readable(bootstrap: str, topics: Sequence[str], login: Login = PLAIN_CONNECTION) -> None:
    """Raise `EndpointError` unless the endpoint has these topics and lets this client read them, `Unchecked`
    as `ask_first`. A broker that does not report rights (Metadata before v8, KIP-430) is asked for the topics
    alone.
    """
    for topic in topics:
        (found,) = _metadata(bootstrap, topic, login).topics
        if found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            raise MissingTopicError(
                f"There is no topic {topic} at {bootstrap}{_nearest(bootstrap, topic, login)}. Create it: "
                f"seqgate topics create {topic} --bootstrap {bootstrap}"
            )
        rights = getattr(found, "topic_authorized_operations", _OPERATIONS_NOT_REPORTED)
        is_hidden = found.error_code == TOPIC_AUTHORIZATION_FAILED
        if is_hidden or (rights != _OPERATIONS_NOT_REPORTED and not rights & _MAY_READ):
            raise EndpointError(
                f"{bootstrap} does not let this client read the topic {topic} (TOPIC_AUTHORIZATION_FAILED); "
                "its user needs the right READ on the topic."
            )
        if found.error_code != NO_ERROR and not is_retriable(found.error_code):
            _check(found.error_code, f"asking for topic {topic}")


def _nearest(bootstrap: str, topic: str, login: Login) -> str:
    """Return the nearest name among the topics that this client may see, as a part of a sentence."""
    names = [found.name for found in _metadata(bootstrap, None, login).topics]
    close = difflib.get_close_matches(topic, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def parse_headers(records: bytes, topic: str, partition: int) -> Iterator[BatchRow]:
    """Yield the batch headers in a Fetch answer, which may end inside a batch; its whole header counts."""
    position = 0
    while position + _HEADER.size <= len(records):
        (base_offset, length, _, magic, _, attributes, last_offset_delta, _, _, *producer) = (
            _HEADER.unpack_from(records, position)
        )
        if magic != _CURRENT_MAGIC:
            raise EndpointError(
                f"{topic}-{partition} holds messages of the old format {magic} at offset {base_offset}: "
                "messages of this format have no sequences. Audit the records' own numbers instead "
                "(--records)."
            )
        last_offset, is_control = base_offset + last_offset_delta, bool(attributes & _CONTROL)
        yield BatchRow._make((topic, partition, base_offset, last_offset, *producer, is_control))
        position += _LENGTH_BEFORE_BATCH + length


def _fetched(connection: WireConnection, split: Split, offset: int) -> Iterator[list[BatchRow]]:
    deadline = time.monotonic() + PATIENCE_S
    while offset < split.end_offset:
        records = _fetch(connection, split, offset)
        rows = [
            row for row in parse_headers(records, split.topic, split.partition) if row.last_offset >= offset
        ]
        if not rows:
            if time.monotonic() > deadline:
                raise EndpointError(
                    f"{split.topic}-{split.partition} returned no batch at offset {offset} within "
                    f"{PATIENCE_S:g} s."
                )
            continue
        offset = rows[-1].last_offset + 1
        deadline = time.monotonic() + PATIENCE_S
        is_first = split.start_offset == split.log_start_offset
        mine = [
            row
            for row in rows
            if (is_first or row.base_offset >= split.start_offset) and row.base_offset < split.end_offset
        ]
        if mine:
            yield mine


def _fetch(connection: WireConnection, split: Split, offset: int) -> bytes:
    asked = {"partition": split.partition, "fetch_offset": offset, "partition_max_bytes": FETCH_MAX_BYTES}
    answer = connection.call(
        FETCH,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=FETCH_MAX_BYTES,
        isolation_level=0,
        forgotten_topics_data=(),
        topics=[{"topic": split.topic, "partitions": [asked]}],
    )
    (data,) = (partition for topic in answer.responses for partition in topic.partitions)
    if data.error_code == OFFSET_OUT_OF_RANGE:
        raise EndpointError(
            f"{split.topic}-{split.partition} no longer holds offset {offset}: the records were deleted "
            "during the read. Run the command again."
        )
    _check(data.error_code, f"fetching {split.topic}-{split.partition}")
    return data.records or b""


def _list_offsets(
    connection: WireConnection,
    topic: str,
    partitions: Sequence[int],
    timestamp: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[int, int]:
    asked = [{"partition_index": partition, "timestamp": timestamp} for partition in partitions]
    answer = connection.call(
        LIST_OFFSETS,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": asked}],
    )
    offsets: dict[int, int] = {}
    for partition in answer.topics[0].partitions:
        _check(partition.error_code, f"asking for offsets of {topic}-{partition.partition_index}")
        offsets[partition.partition_index] = partition.offset
    return offsets


def _leader_of(bootstrap: str, topic: str, partition: int) -> WireConnection:
    for leader, partitions in _leaders(bootstrap, topic).items():
        if partition in partitions:
            return WireConnection(*leader)
    raise EndpointError(f"{topic}-{partition} has no leader.", retriable=True)


def _leaders(bootstrap: str, topic: str) -> dict[tuple[str, int], list[int]]:
    answer = _metadata(bootstrap, topic)
    _check(answer.topics[0].error_code, f"asking for topic {topic}")
    brokers = {broker.node_id: (broker.host, int(broker.port)) for broker in answer.brokers}
    leaders: dict[tuple[str, int], list[int]] = {}
    for partition in answer.topics[0].partitions:
        address = brokers.get(partition.leader_id)
        if address is None:
            raise EndpointError(f"{topic}-{partition.partition_index} has no leader.", retriable=True)
        leaders.setdefault(address, []).append(partition.partition_index)
    return leaders


def _metadata(bootstrap: str, topic: str | None, login: Login = PLAIN_CONNECTION) -> Any:
    """Ask for one topic, or with None for all."""
    return ask_first(
        bootstrap,
        lambda connection: connection.call(
            METADATA,
            topics=None if topic is None else [{"name": topic, "topic_id": None}],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        ),
        login,
    )


def _check(error_code: int, doing: str) -> None:
    if error_code != NO_ERROR:
        kind = MissingTopicError if error_code == UNKNOWN_TOPIC_OR_PARTITION else EndpointError
        raise kind(
            f"The endpoint answered {error_name(error_code)} when {doing}.",
            retriable=is_retriable(error_code),
        )
