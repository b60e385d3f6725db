"""Reads topics with a plain consumer (kafka-python) into a relational database, effectively once.

The consumer is in no group: it is assigned partitions, sought to the positions in the database, and every poll is one transaction
that writes what came and moves the positions (`spark_kafka_compat.positions`). A position is the consumer's, not the last
record's plus one: it passes transaction markers, aborted and compacted records.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from spark_kafka_compat.databases import Database, Transaction
from spark_kafka_compat.errors import EndpointError, PositionError, SparkCompatError
from spark_kafka_compat.positions import Claim, Place, Positions, Starting, claim, first_positions, made_anew

RecordWriter = Callable[[Transaction, Sequence[Any]], None]
"""Writes kafka-python's ConsumerRecords of one partition, in their order, through a transaction; it must not commit."""

_DECIDED_HERE: Mapping[str, object] = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
}


class DatabaseReader:
    """A consumer whose positions lie in a database; a context manager.

    `pipeline` names the positions: keep it. Another reader that is opened with the same name fences this one. To share the work
    among processes give each a name and `partitions` of its own. `starting` counts for topics that the database does not
    know yet. `options` are KafkaConsumer's; records of aborted transactions are left out unless `isolation_level` says
    otherwise, and `max_poll_records` (500) bounds a transaction.

    Raises `SparkCompatError` without kafka-python, or for options that the database decides; `EndpointError` for topics and
    partitions that are not there; `PositionError`.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: str | Sequence[str],
        database: Database,
        *,
        pipeline: str,
        write: RecordWriter,
        partitions: Collection[int] | None = None,
        starting: Starting = "earliest",
        options: Mapping[str, object] | None = None,
    ) -> None:
        refused = sorted(_DECIDED_HERE.keys() & (options or {}))
        if refused:
            raise SparkCompatError(f"{', '.join(refused)} can't be given: the database says where to go on.")
        if partitions is not None and not partitions:
            raise SparkCompatError("No partition to read is chosen.")
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._chosen = partitions
        self._write = write
        self._open = functools.partial(
            _consumer, bootstrap, {"isolation_level": "read_committed", **(options or {})}
        )
        self._consumer = self._open()
        try:
            places = self._places()

            def first(stored: Positions) -> Positions:
                return first_positions(self._ranges(places), starting)(stored)

            self._topic_ids = self._found_topic_ids()
            self._claim: Claim = claim(database, pipeline, first, topic_ids=self._topic_ids)
            self._positions: dict[Place, int] = {}
            self._resume()
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def positions(self) -> Positions:
        """The offset of the next record to write, by partition, as the database has it."""
        return dict(self._positions)

    def poll(self, timeout_ms: int = 1_000) -> int:
        """Wait for records, write them and the positions in one transaction; returns how many.

        When anything raises, nothing of it counts and the next poll reads the same again: `FencedError` when another reader has
        the pipeline, `PositionError` when records were deleted before they were read, the driver's errors, and what `write`
        raises. After a commit whose answer was lost the next poll goes on from where the database is.
        """
        self._go_on()
        try:
            batches, reached = self._polled(timeout_ms)
            moved = {place: offset for place, offset in reached.items() if offset != self._positions[place]}
            if not moved:
                return 0
            with self._claim.step() as step:
                self._refuse_moved(step.positions)
                for records in batches.values():
                    self._write(step.transaction, records)
                step.advance(moved)
        except BaseException:
            # The consumer may be behind records that nobody was given: the next poll asks the database where it is.
            self._positions.clear()
            raise
        self._positions |= moved
        return sum(map(len, batches.values()))

    def read_to_end(self) -> int:
        """Poll until everything is written that was there when this was called; returns how many records."""
        self._go_on()
        ends = self._ranges(self._places())
        written = 0
        while any(self._positions[place] < ends[place][1] for place in self._positions if place in ends):
            written += self.poll()
        return written

    def _go_on(self) -> None:
        """Be where the database is: after a failure, and with partitions that were added."""
        if not self._positions:
            # One that failed may also hold on to what it failed at.
            self._consumer.close()
            self._consumer = self._open()
        places = self._places()
        self._refuse_topics_made_anew()
        if self._positions.keys() != places:
            self._resume()

    def _polled(self, timeout_ms: int) -> tuple[dict[Any, list[Any]], dict[Place, int]]:
        from kafka.errors import LogTruncationError, OffsetOutOfRangeError

        try:
            found: dict[Any, list[Any]] = self._consumer.poll(timeout_ms=timeout_ms)
            return found, {place: self._consumer.position(_partition(place)) for place in self._positions}
        except (LogTruncationError, OffsetOutOfRangeError):
            # These say which, and why.
            self._refuse_topics_made_anew()
            first_positions(self._ranges(set(self._positions)))(self._positions)
            raise

    def _refuse_moved(self, stored: Positions) -> None:
        for place, offset in self._positions.items():
            if stored.get(place) != offset:
                raise PositionError(
                    f"The position of {place} was moved from {offset:,} to {stored.get(place)} in the database by somebody "
                    "else; what was read is given up."
                )

    def _resume(self) -> None:
        """Go on from where the database is, with the partitions that are there now."""
        places = self._places()
        with self._claim.step() as step:
            new = {place: bounds[0] for place, bounds in self._ranges(places - step.positions.keys()).items()}
            step.advance(new)
        positions = {**step.positions, **new}
        self._consumer.assign([_partition(place) for place in sorted(places)])
        for place in places:
            self._consumer.seek(_partition(place), positions[place])
        self._positions = {place: positions[place] for place in places}

    def _places(self) -> set[Place]:
        places: set[Place] = set()
        for topic in self._topics:
            found = self._consumer.partitions_for_topic(topic)
            if not found:
                raise EndpointError(f"There is no topic {topic}.")
            places |= {Place(topic, partition) for partition in found}
        if self._chosen is None:
            return places
        missing = set(self._chosen) - {place.partition for place in places}
        if missing:
            raise EndpointError(f"{', '.join(self._topics)} has no partition {min(missing)}.")
        return {place for place in places if place.partition in self._chosen}

    def _found_topic_ids(self) -> dict[str, UUID]:
        # The consumer knows them, and tells them in no other way; older ones do not.
        found = getattr(getattr(self._consumer, "_cluster", None), "topic_id", lambda _topic: None)
        return {topic: topic_id for topic in self._topics if (topic_id := found(topic))}

    def _refuse_topics_made_anew(self) -> None:
        for topic, topic_id in self._found_topic_ids().items():
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                raise made_anew(topic)

    def _ranges(self, places: Collection[Place]) -> dict[Place, tuple[int, int]]:
        if not places:
            return {}
        partitions = [_partition(place) for place in places]
        starts = self._consumer.beginning_offsets(partitions)
        ends = self._consumer.end_offsets(partitions)
        return {
            Place(partition.topic, partition.partition): (starts[partition], ends[partition])
            for partition in partitions
        }


def _consumer(bootstrap: str, options: Mapping[str, object]) -> Any:
    try:
        from kafka import KafkaConsumer
    except ImportError:
        raise SparkCompatError(
            "kafka-python is not installed; install it with: pip install kafka-python"
        ) from None
    return KafkaConsumer(bootstrap_servers=bootstrap.split(","), **options, **_DECIDED_HERE)


def _partition(place: Place) -> Any:
    from kafka import TopicPartition

    return TopicPartition(place.topic, place.partition)
