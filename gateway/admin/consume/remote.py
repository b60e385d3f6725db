"""Reads the records of a topic of a cluster. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.admin import OffsetSpec

from seqgate.gateway.admin.consume.command import Start, first_offset
from seqgate.gateway.admin.remote.cluster import Cluster, opened, topic_partition
from seqgate.gateway.admin.request import ControlError

POLL_MS: Final = 500
STALL_S: Final = 30.0
"""Time without a record after which a command that knows of more records gives up."""


def consume(
    cluster: Cluster,
    topic: str,
    *,
    partitions: Sequence[int],
    start: Start,
    follow: bool,
    committed: bool,
    on_pause: Callable[[], None],
) -> Generator[Any]:
    """Yield the records from `start` on, to the end that each partition has now, or for ever when the command
    follows.

    `partitions` empty: all. `committed`: leave out records of aborted and open transactions. `on_pause` is
    called whenever all records that have come are yielded.
    """
    (found,) = cluster.topics([topic])
    count = len(found["partitions"])
    for partition in partitions:
        if not 0 <= partition < count:
            raise ControlError(f"topic {topic} has no partition {partition}, only 0 to {count - 1}")
    places = [topic_partition(topic, partition) for partition in partitions or range(count)]
    first, ends = _span(cluster, places, start, committed=committed)
    consumer = opened(
        KafkaConsumer,
        **cluster.client_settings(),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
        allow_auto_create_topics=False,
    )
    try:
        wanted = places if follow else [place for place in places if first[place] < ends[place]]
        consumer.assign(wanted)
        for place in wanted:
            consumer.seek(place, first[place])
        yield from _follow(consumer, on_pause) if follow else _to_the_end(consumer, ends, on_pause)
    finally:
        consumer.close(autocommit=False)


def _span(
    cluster: Cluster, places: Sequence[Any], start: Start, *, committed: bool
) -> tuple[dict[Any, int], dict[Any, int]]:
    isolation = "read_committed" if committed else "read_uncommitted"
    starts = cluster.offsets(places, OffsetSpec.EARLIEST)
    ends = cluster.offsets(places, OffsetSpec.LATEST, isolation)
    at_time = cluster.offsets(places, start.value, isolation) if start.kind == "time" else {}
    first = {}
    for place in places:
        at = at_time.get(place, -1)
        first[place] = first_offset(start, starts[place], ends[place], None if at < 0 else at)
    return first, ends


def _follow(consumer: Any, on_pause: Callable[[], None]) -> Iterator[Any]:
    while True:
        for batch in consumer.poll(timeout_ms=POLL_MS).values():
            yield from batch
        on_pause()


def _to_the_end(consumer: Any, ends: dict[Any, int], on_pause: Callable[[], None]) -> Iterator[Any]:
    remaining = set(consumer.assignment())
    positions: dict[Any, int] = {}
    last_progress = time.monotonic()
    while remaining:
        for place, batch in consumer.poll(timeout_ms=POLL_MS).items():
            yield from (record for record in batch if record.offset < ends[place])
        on_pause()
        now = {place: consumer.position(place) for place in remaining}
        if now != positions:
            positions, last_progress = now, time.monotonic()
        elif time.monotonic() - last_progress > STALL_S:
            raise ControlError(f"no record came for {STALL_S:g} s, although the partitions have more")
        done = {place for place, position in now.items() if position >= ends[place]}
        consumer.pause(*done)
        remaining -= done
