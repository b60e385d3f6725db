"""Reads topics with a plain consumer (kafka-python) into a relational database, effectively once.

The consumer joins no group. The reader assigns partitions to the consumer and seeks to the positions in the
database. Every poll is one transaction that writes the records and moves the positions
(`seqgate.spark_kafka_compat.positions`). A position is the position of the consumer, not the last record's
offset plus one: it moves past transaction markers, aborted and compacted records.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self
from uuid import UUID

from seqgate.spark_kafka_compat.databases import Database, Transaction
from seqgate.spark_kafka_compat.positions import (
    Claim,
    Positions,
    ReadTopics,
    Starting,
    TopicPartition,
    claim,
    first_positions,
)
from seqgate.spark_kafka_compat.session import EndpointError, PositionError, SparkCompatError

RecordWriter = Callable[[Transaction, Sequence[Any]], None]
"""Writes ConsumerRecords of one partition, in order, through a transaction, which it must not commit."""

_DECIDED_HERE: Mapping[str, object] = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
}


class DatabaseReader:
    """A consumer with its positions in a database; a context manager.

    `pipeline` is the key of the positions in the database; never change it. A reader that is opened later
    with the same `pipeline` fences this reader. To share the work among processes, give each process a
    `pipeline` and `partitions` of its own. `starting` applies to topics without a position in the database.
    `options` are KafkaConsumer's. The default `isolation_level` is read_committed, and `max_poll_records`
    (500) bounds a transaction.

    Raises `SparkCompatError` without kafka-python, or for options that the database decides; `EndpointError`
    for missing topics and partitions; `PositionError`.
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
            raise SparkCompatError(
                f"{', '.join(refused)} can't be given: the positions in the database decide where to begin."
            )
        if partitions is not None and not partitions:
            raise SparkCompatError("The list of partitions is empty; leave it out to read all partitions.")
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

            topic_ids = self._found_topic_ids()
            self._kept = ReadTopics(self._found_topic_ids)
            self._kept.know(topic_ids)
            self._claim: Claim = claim(database, pipeline, first, topic_ids=topic_ids)
            self._positions: dict[TopicPartition, int] = {}
            self._resume()
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def positions(self) -> Positions:
        """The offset of the next record to write, by partition, as stored in the database."""
        return dict(self._positions)

    def poll(self, timeout_ms: int = 1_000) -> int:
        """Wait for records, write records and positions in one transaction, and return the number of records.

        Raises `FencedError` when another reader has claimed the pipeline, `PositionError` when records were
        deleted before they were read, and errors of the driver and of `write`. After an error the transaction
        is rolled back, and the next poll reads the same records again. After a commit whose answer was lost,
        the next poll resumes from the database.
        """
        self._follow_database()
        try:
            batches, reached = self._polled(timeout_ms)
            moved = {place: offset for place, offset in reached.items() if offset != self._positions[place]}
            if not moved:
                return 0
            self._check_topics()  # the records are read by now, so they belong to the topics that it finds
            with self._claim.step() as step:
                self._refuse_moved(step.positions)
                for records in batches.values():
                    self._write(step.transaction, records)
                step.advance(moved)
        except BaseException:
            # The consumer may have passed records that were never written. The next poll resumes from the
            # database.
            self._positions.clear()
            raise
        self._positions |= moved
        return sum(map(len, batches.values()))

    def read_to_end(self) -> int:
        """Poll until all records are written that were there at the call; return their number."""
        self._follow_database()
        self._check_topics()
        ends = self._ranges(self._places())
        written = 0
        while any(self._positions[place] < ends[place][1] for place in self._positions if place in ends):
            written += self.poll()
        return written

    def _follow_database(self) -> None:
        """Resume from the database after a failure, and when the topic has more partitions than before."""
        if not self._positions:
            # After a failure the consumer may hold on to the record that failed.
            self._consumer.close()
            self._consumer = self._open()
        places = self._places()
        self._kept.check()
        if self._positions.keys() != places:
            self._resume()

    def _polled(self, timeout_ms: int) -> tuple[dict[Any, list[Any]], dict[TopicPartition, int]]:
        from kafka.errors import LogTruncationError, OffsetOutOfRangeError

        try:
            found: dict[Any, list[Any]] = self._consumer.poll(timeout_ms=timeout_ms)
            return found, {place: self._consumer.position(_partition(place)) for place in self._positions}
        except (LogTruncationError, OffsetOutOfRangeError):
            # Both calls raise an error that names the partition and the reason.
            self._check_topics()
            first_positions(self._ranges(set(self._positions)))(self._positions)
            raise

    def _refuse_moved(self, stored: Positions) -> None:
        for place, offset in self._positions.items():
            if stored.get(place) != offset:
                raise PositionError(
                    f"Somebody moved the position of {place} in the database from {offset:,} to "
                    f"{stored.get(place)}; the records of this poll are not written, and the next poll "
                    "resumes from the database."
                )

    def _resume(self) -> None:
        """Resume from the database, with the present partitions of the topics."""
        places = self._places()
        with self._claim.step() as step:
            new = {place: bounds[0] for place, bounds in self._ranges(places - step.positions.keys()).items()}
            step.advance(new)
        positions = {**step.positions, **new}
        self._consumer.assign([_partition(place) for place in sorted(places)])
        for place in places:
            self._consumer.seek(_partition(place), positions[place])
        self._positions = {place: positions[place] for place in places}

    def _places(self) -> set[TopicPartition]:
        places: set[TopicPartition] = set()
        for topic in self._topics:
            found = self._consumer.partitions_for_topic(topic)
            if not found:
                raise EndpointError(f"There is no topic {topic}; create it first.")
            places |= {TopicPartition(topic, partition) for partition in found}
        if self._chosen is None:
            return places
        missing = set(self._chosen) - {place.partition for place in places}
        if missing:
            raise EndpointError(
                f"{', '.join(self._topics)} has no partition {min(missing)}; choose from 0 to "
                f"{max(place.partition for place in places)}."
            )
        return {place for place in places if place.partition in self._chosen}

    def _check_topics(self) -> None:
        """Raise `RecreatedTopicError` when a topic was recreated. Ask the broker: the client remembers topics
        for minutes (`metadata_max_age_ms`). A broker that does not answer proves nothing.
        """
        from kafka.errors import KafkaError

        # kafka-python's public method, `topics`, asks for all topics of the cluster, at most each 100 ms.
        manager = self._consumer._manager  # noqa: SLF001
        with suppress(KafkaError):
            if manager.cluster.metadata_refresh_in_progress:  # asked before the records came
                manager.run(manager.cluster.refresh_metadata)
            manager.run(manager.cluster.refresh_metadata)
        self._kept.check()

    def _found_topic_ids(self) -> dict[str, UUID]:
        # kafka-python has no public method for topic ids. Older versions of kafka-python do not know topic
        # ids.
        found = getattr(getattr(self._consumer, "_cluster", None), "topic_id", lambda _topic: None)
        return {topic: topic_id for topic in self._topics if (topic_id := found(topic))}

    def _ranges(self, places: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        if not places:
            return {}
        partitions = [_partition(place) for place in places]
        starts = self._consumer.beginning_offsets(partitions)
        ends = self._consumer.end_offsets(partitions)
        return {
            TopicPartition(partition.topic, partition.partition): (starts[partition], ends[partition])
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


def _partition(place: TopicPartition) -> Any:
    from kafka import structs

    return structs.TopicPartition(place.topic, place.partition)
