"""Reads the records of a topic of a cluster. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.admin import OffsetSpec
from kafka.structs import OffsetAndMetadata

from seqgate.gateway.admin.consume.command import FROM_THE_END, Start, first_offset
from seqgate.gateway.admin.remote.cluster import Cluster, opened, topic_partition
from seqgate.gateway.admin.request import ControlError

POLL_MS: Final = 500
UNASSIGNED_S: Final = 4.0
"""Time after which a group that gives no partition is reported; a first rebalance takes three seconds."""
STALL_S: Final = 30.0
"""Time without a record after which a command that knows of more records gives up, unless `--timeout` says
another.
"""


def consume(
    cluster: Cluster,
    topic: str,
    *,
    partitions: Sequence[int],
    start: Start,
    group: str | None = None,
    follow: bool,
    committed: bool,
    on_pause: Callable[[], None],
) -> Generator[Any]:
    """Yield the records from `start` on, to the end that each partition has now, or for ever when the command
    follows.

    `partitions` empty: all. `group`: read those that a member of this group gets, from the offsets of the
    group on, and commit what is yielded. `committed`: leave out records of aborted and open transactions.
    `on_pause` is called whenever all records that have come are yielded, and before a commit.
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
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="latest" if start == FROM_THE_END else "earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
        allow_auto_create_topics=False,
    )
    try:
        if group is None:
            wanted = places if follow else [place for place in places if first[place] < ends[place]]
            consumer.assign(wanted)
            for place in wanted:
                consumer.seek(place, first[place])
            if not wanted:
                return
        else:
            consumer.subscribe([topic])
        yield from _Reading(cluster, consumer, None if follow else ends, on_pause, group).records()
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


class _Reading:
    """Reads what is assigned to a consumer, up to `ends`, or for ever without."""

    def __init__(
        self,
        cluster: Cluster,
        consumer: Any,
        ends: Mapping[Any, int] | None,
        on_pause: Callable[[], None],
        group: str | None,
    ) -> None:
        self._watch = cluster.watch
        self._timeout_s = cluster.timeout_s
        self._consumer = consumer
        self._ends = ends
        self._on_pause = on_pause
        self._group = group
        self._read: dict[Any, int] = {}
        self._committed: dict[Any, int] = {}

    def records(self) -> Generator[Any]:
        """Yield the records, and commit those that were yielded when the reader stops."""
        try:
            yield from self._records()
        except (GeneratorExit, KeyboardInterrupt):
            self._pause()
            raise

    def _records(self) -> Generator[Any]:
        before: dict[Any, int] = {}
        last_progress = time.monotonic()
        while True:
            for place, batch in self._consumer.poll(timeout_ms=POLL_MS).items():
                for record in batch:
                    if self._ends is None or record.offset < self._ends[place]:
                        self._read[place] = record.offset + 1
                        yield record
            assigned = self._consumer.assignment()
            now = {place: self._consumer.position(place, timeout_ms=POLL_MS) for place in assigned}
            # Control records of transactions are read, too, and not yielded.
            past = {place: self._clipped(place, at) for place, at in now.items() if at is not None}
            is_waiting = not assigned and time.monotonic() - last_progress > UNASSIGNED_S
            self._note_group(is_waiting=is_waiting)
            if past != before:
                before, last_progress = past, time.monotonic()
            self._read = {place: at for place, at in self._read.items() if place in assigned} | past
            self._pause()
            self._check_stall(time.monotonic() - last_progress)
            if self._ends is not None:
                done = {place for place, at in past.items() if at >= self._ends[place]}
                self._consumer.pause(*done)
                if assigned and done >= assigned:
                    return

    def _clipped(self, place: Any, position: int) -> int:
        return position if self._ends is None else min(position, self._ends[place])

    def _pause(self) -> None:
        """Print what was read, then commit it."""
        self._on_pause()
        new = {place: at for place, at in self._read.items() if self._committed.get(place) != at}
        if self._group is not None and new:
            self._consumer.commit({place: OffsetAndMetadata(at, "", -1) for place, at in new.items()})
            self._committed |= new

    def _note_group(self, *, is_waiting: bool) -> None:
        if self._group is not None:
            name = f"group {self._group}"
            if is_waiting:
                self._watch.begins("members", name, f"{name} gives no partition to this member")
            else:
                self._watch.ends("members", name)

    def _check_stall(self, stalled_s: float) -> None:
        """End a command that waits in vain: to the end for records, and otherwise for a lost broker."""
        if self._ends is None:
            if self._timeout_s is not None and self._watch.lasts_s > self._timeout_s:
                raise ControlError(f"gave up after {self._timeout_s:g} s: {self._watch.trouble}")
            return
        limit_s = self._timeout_s or STALL_S
        if stalled_s > limit_s:
            reason = self._watch.trouble
            raise ControlError(
                f"no record came for {limit_s:g} s, although the partitions have more"
                + (f": {reason}" if reason else "")
            )
