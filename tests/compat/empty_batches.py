"""A topic with long runs of batches without records, as they remain when a named producer's duplicates are
dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.compat.topics import fresh_topic, stored_batches
from tests.support.batches import Batch, Record
from tests.support.wire import Wire

NAME = b"reader of a file"
FETCH_BYTES = 1000
"""The fetch size of the readers. At most a dozen batches without records fit into an answer."""
RUN = 1500
"""The number of batches in a run."""
NEW = 10
TIMES = 3
IN_FLIGHT = 50
PRODUCE_VERSION = 9


@dataclass(frozen=True)
class SparseLog:
    """A topic with long runs of batches without records.

    `records` are the offsets and values of all records in partition 0: before, between and behind the runs.
    """

    topic: str
    records: list[tuple[int, bytes]]
    log_end_offset: int


def sparse_log(bootstrap: str) -> SparseLog:
    """Create a topic with long runs of empty batches: a named producer sends its records from the beginning
    several times.

    The gateway stores no duplicate, so each repetition leaves a run of batches without records. The last
    repetition has no new records.
    """
    topic = fresh_topic(bootstrap, "empty-batches", configs={"message.deduplication.enable": "true"})
    records: list[tuple[int, bytes]] = []
    next_offset = 0
    with Wire(bootstrap) as wire:
        for time in range(TIMES):
            known = time * NEW
            last = time == TIMES - 1
            sent = [*_known_lines(known), *([] if last else range(known, known + NEW))]
            next_offset = _send(wire, topic, sent, next_offset)
            if not last:
                records += [(next_offset - NEW + index, _value(known + index)) for index in range(NEW)]
    assert sum(not batch.record_count for batch in stored_batches(bootstrap, topic)) >= (TIMES - 1) * RUN
    return SparseLog(topic, records, next_offset)


def _known_lines(known: int) -> list[int]:
    return [index % known for index in range(RUN)] if known else []


def _value(line: int) -> bytes:
    return f"line {line}".encode()


def _send(wire: Wire, topic: str, lines: list[int], base_offset: int) -> int:
    """Send each line in a batch of its own with one idempotent producer; return the offset after the last."""
    begun = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    producer_id = wire.call("init_producer_id", 4, begun).fields["producer_id"]
    pending: list[int] = []
    expected = iter(range(base_offset, base_offset + len(lines)))
    for request in _requests(topic, lines, producer_id):
        pending.append(wire.send("produce", PRODUCE_VERSION, request))
        if len(pending) >= IN_FLIGHT:
            _take_answer(wire, pending.pop(0), next(expected))
    for correlation_id, offset in zip(pending, expected, strict=True):
        _take_answer(wire, correlation_id, offset)
    return base_offset + len(lines)


def _requests(topic: str, lines: list[int], producer_id: int) -> Iterator[dict[str, object]]:
    for sequence, line in enumerate(lines):
        headers = [(b"dedup.name", NAME), (b"dedup.sequence", str(line).encode())]
        batch = Batch([Record(_value(line), headers=headers)]).of(producer_id, 0, sequence)
        partitions = [{"index": 0, "records": batch.encode()}]
        yield {"acks": -1, "timeout": 10_000, "topic_data": [{"name": topic, "partition_data": partitions}]}


def _take_answer(wire: Wire, correlation_id: int, base_offset: int) -> None:
    answer = wire.receive("produce", PRODUCE_VERSION, correlation_id).fields
    row = answer["responses"][0]["partition_responses"][0]
    assert (row["error_code"], row["base_offset"]) == (0, base_offset), row
