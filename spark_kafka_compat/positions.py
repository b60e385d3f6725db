"""The positions of a pipeline, stored in the database that its rows go to.

A position is the offset of the next record to write of one partition. The transaction that writes rows also
moves the position past these rows, so both count or neither. A record below its position is recognized when
it is read again. Kafka's documentation of the consumer calls this "Storing Offsets Outside Kafka".

Of two copies of a pipeline, the copy that started later continues: `claim` raises the pipeline's generation,
and every transaction of an older generation is refused, as a transactional id fences the previous producer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple
from uuid import UUID

from seqgate.spark_kafka_compat.databases import Database, Transaction
from seqgate.spark_kafka_compat.session import EndpointError, FencedError, PositionError, RecreatedTopicError

PIPELINES, POSITIONS, TOPICS = "kafka_read_pipelines", "kafka_read_positions", "kafka_read_topics"
TABLES = {
    PIPELINES: "pipeline TEXT PRIMARY KEY, generation BIGINT NOT NULL",
    POSITIONS: "pipeline TEXT NOT NULL, topic TEXT NOT NULL, partition_id INTEGER NOT NULL, "
    "next_offset BIGINT NOT NULL, PRIMARY KEY (pipeline, topic, partition_id)",
    TOPICS: "pipeline TEXT NOT NULL, topic TEXT NOT NULL, topic_id TEXT NOT NULL, "
    "PRIMARY KEY (pipeline, topic)",
}


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Positions = Mapping[TopicPartition, int]
"""The offset of the next record to write, by partition."""

TopicIds = Mapping[str, UUID]
"""The ids of topics, if the endpoint has them (KIP-516). A topic that is recreated has another id."""

Starting = Literal["earliest", "latest"] | Positions
"""The start of partitions without a position in the database."""


@dataclass(frozen=True)
class PipelineTransaction:
    """One transaction of a pipeline. No other transaction changes `positions` since its begin."""

    transaction: Transaction
    pipeline: str
    positions: Positions

    def advance(self, positions: Positions) -> None:
        """Move positions. Raises `PositionError` when a position would move back."""
        for place, next_offset in positions.items():
            held = self.positions.get(place)
            if held is not None and next_offset < held:
                raise PositionError(
                    f"{place} is written up to {held:,}: its position can't move back to {next_offset:,}."
                )
        _store(self.transaction, self.pipeline, positions, self.positions)


@dataclass(frozen=True)
class Claim:
    """The right to move a pipeline's positions, until another claim; `positions` are those of the claim."""

    database: Database
    pipeline: str
    generation: int
    positions: Positions

    @contextmanager
    def step(self) -> Iterator[PipelineTransaction]:
        """Open one transaction; commit at the end of the block, roll back when the block raises.

        Raises `FencedError` at the begin when another copy has claimed the pipeline since. Waits at most 30 s
        for another copy's transaction; then the driver raises its lock timeout.
        """
        with self.database.transaction() as transaction:
            found = _locked_generation(transaction, self.pipeline)
            if found != self.generation:
                raise FencedError(
                    f"Another copy of the pipeline {self.pipeline!r} has started since (generation {found}, "
                    f"this one is {self.generation}): the other copy continues, and this one ends."
                )
            yield PipelineTransaction(transaction, self.pipeline, _stored(transaction, self.pipeline))


def claim(
    database: Database,
    pipeline: str,
    first: Callable[[Positions], Positions],
    *,
    topic_ids: TopicIds = MappingProxyType({}),
) -> Claim:
    """Take over a pipeline and fence every copy that claimed the pipeline earlier.

    `first` gets the stored positions and returns the first positions: of new partitions, and of partitions
    whose position must move. No other copy can move positions while `first` runs. So `first` must ask the
    endpoint for the ends of partitions itself: an end from before may lie below records that another copy has
    written since. The first positions are stored at once, so that a pipeline that begins at the latest offset
    begins there again after a crash before its first row. Missing tables are created. Raises `PositionError`
    when one of `topic_ids` differs from the id of the topic that the stored positions belong to.
    """
    create_tables(database)
    with database.transaction() as transaction:
        places = (transaction.placeholder, transaction.placeholder)
        transaction.execute(
            f"INSERT INTO {PIPELINES} (pipeline, generation) VALUES ({', '.join(places)}) "  # noqa: S608
            f"ON CONFLICT (pipeline) DO UPDATE SET generation = {PIPELINES}.generation + 1",
            (pipeline, 1),
        )
        generation = _locked_generation(transaction, pipeline)
        stored = _stored(transaction, pipeline)
        _check_topics(transaction, pipeline, topic_ids, {place.topic for place in stored})
        begun = dict(first(stored))
        _store(transaction, pipeline, begun, stored)
        return Claim(database, pipeline, generation, {**stored, **begun})


def first_positions(
    ranges: Mapping[TopicPartition, tuple[int, int]],
    starting: Starting = "earliest",
    *,
    may_skip: bool = False,
) -> Callable[[Positions], Positions]:
    """Return the function `first` for `claim`: begin at the stored positions, and at `starting` for unknown
    topics.

    `ranges` has the log start offset and the end of each partition. A new partition of a known topic begins
    at its log start offset. The function raises `PositionError` when the next records were deleted (with
    `may_skip` it skips them), when the partition ends before the position, and when `starting` lacks a
    partition or names an offset outside of it.
    """

    def begin(stored: Positions) -> Positions:
        known = {place.topic for place in stored}
        return {
            place: (
                _resumed(place, stored[place], bounds, may_skip=may_skip)
                if place in stored
                else bounds[0]
                if place.topic in known
                else _chosen(place, bounds, starting)
            )
            for place, bounds in ranges.items()
        }

    return begin


def _resumed(place: TopicPartition, held: int, bounds: tuple[int, int], *, may_skip: bool) -> int:
    log_start_offset, end_offset = bounds
    if held > end_offset:
        raise PositionError(
            f"{place} ends at {end_offset:,}, but is written up to {held:,}: the topic was recreated, or the "
            "endpoint is another one. Give the pipeline a new name to read the topic from the beginning."
        )
    if held < log_start_offset and not may_skip:
        raise PositionError(
            f"{place} begins at {log_start_offset:,}, but is written up to {held:,} only: the records in "
            "between were deleted before they were read. With failOnDataLoss=false Spark's pipeline skips "
            "them."
        )
    return max(held, log_start_offset)


def _chosen(place: TopicPartition, bounds: tuple[int, int], starting: Starting) -> int:
    if starting == "earliest":
        return bounds[0]
    if starting == "latest":
        return bounds[1]
    if place not in starting:
        raise PositionError(f"No first offset is given for {place}; add it to the starting offsets.")
    if not bounds[0] <= starting[place] <= bounds[1]:
        raise PositionError(
            f"{place} has the offsets {bounds[0]:,} to {bounds[1]:,}, so it can't begin with "
            f"{starting[place]:,}."
        )
    return starting[place]


def create_tables(database: Database) -> None:
    with database.transaction() as transaction:
        for statement in database.dialect.lock_schema:
            transaction.execute(statement)
        for table, columns in TABLES.items():
            # CREATE TABLE IF NOT EXISTS needs the right to create tables even when the table exists.
            if not transaction.has_table(table):
                transaction.execute(f"CREATE TABLE {table} ({columns})")


def stored_positions(database: Database, pipeline: str) -> Positions:
    """Return the positions of a pipeline in the database; empty when the pipeline never ran."""
    create_tables(database)
    with database.transaction() as transaction:
        return _stored(transaction, pipeline)


def _locked_generation(transaction: Transaction, pipeline: str) -> int:
    row = transaction.execute(
        f"SELECT generation FROM {PIPELINES} WHERE pipeline = {transaction.placeholder}"  # noqa: S608
        + transaction.dialect.row_lock,
        (pipeline,),
    ).fetchone()
    return int(row[0]) if row else 0


def _check_topics(
    transaction: Transaction, pipeline: str, topic_ids: TopicIds, read: Collection[str]
) -> None:
    """Raise `PositionError` when a topic of `read` was recreated; store the topic ids."""
    rows = transaction.execute(
        f"SELECT topic, topic_id FROM {TOPICS} WHERE pipeline = {transaction.placeholder}",  # noqa: S608
        (pipeline,),
    ).fetchall()
    known = dict(rows)
    for topic in sorted(topic_ids.keys() & known.keys() & set(read)):
        if known[topic] != str(topic_ids[topic]):
            raise recreated_topic(topic)
    transaction.insert(
        TOPICS,
        ("pipeline", "topic", "topic_id"),
        [(pipeline, topic, str(topic_id)) for topic, topic_id in sorted(topic_ids.items())],
        key=("pipeline", "topic"),
    )


def recreated_topic(topic: str) -> RecreatedTopicError:
    """Return the error for a topic that was deleted and recreated since the positions were stored."""
    return RecreatedTopicError(
        f"The topic {topic} was recreated since it was read, so its offsets begin again. To read the topic "
        "from the beginning, give the pipeline a new name, or delete the pipeline's rows of the topic from "
        f"{POSITIONS}."
    )


class ReadTopics:
    """The topics that a pipeline reads, by their ids at its start. `ask` asks the endpoint for ids."""

    def __init__(self, ask: Callable[[], TopicIds]) -> None:
        self._ask = ask
        self._known: dict[str, UUID] = {}

    def know(self, topic_ids: TopicIds) -> None:
        """Remember the ids at the start. Raises `RecreatedTopicError` when one has changed since."""
        for topic, topic_id in topic_ids.items():
            if self._known.setdefault(topic, topic_id) != topic_id:
                raise recreated_topic(topic)

    def check(self) -> None:
        """Raise `RecreatedTopicError` when a topic was recreated. An unreachable endpoint proves nothing."""
        try:
            found = self._ask()
        except EndpointError:
            return
        self.know(found)


def _stored(transaction: Transaction, pipeline: str) -> dict[TopicPartition, int]:
    rows = transaction.execute(
        f"SELECT topic, partition_id, next_offset FROM {POSITIONS} "  # noqa: S608
        f"WHERE pipeline = {transaction.placeholder}",
        (pipeline,),
    ).fetchall()
    return {TopicPartition(topic, int(partition)): int(next_offset) for topic, partition, next_offset in rows}


def _store(transaction: Transaction, pipeline: str, positions: Positions, stored: Positions) -> None:
    moved = sorted((place, offset) for place, offset in positions.items() if stored.get(place) != offset)
    if moved:
        transaction.insert(
            POSITIONS,
            ("pipeline", "topic", "partition_id", "next_offset"),
            [(pipeline, *place, next_offset) for place, next_offset in moved],
            key=("pipeline", "topic", "partition_id"),
        )
