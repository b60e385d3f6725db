"""Positions of a pipeline, kept in the database that its rows go to.

A position is the offset of the next record to write of one partition. It moves in the transaction that writes the rows before
it, so that both count or neither; whatever is read twice is therefore known as such. Kafka's documentation of the
consumer calls this "Storing Offsets Outside Kafka".

Of two copies of a pipeline the one that started later goes on: `claim` raises the pipeline's generation, and every
transaction of an older one is refused, as a transactional id fences the producer before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple
from uuid import UUID

from spark_kafka_compat.databases import Database, Transaction
from spark_kafka_compat.errors import FencedError, PositionError

PIPELINES, POSITIONS, TOPICS = "kafka_read_pipelines", "kafka_read_positions", "kafka_read_topics"
_PIPELINES_COLUMNS = "pipeline TEXT PRIMARY KEY, generation BIGINT NOT NULL"
_POSITIONS_COLUMNS = (
    "pipeline TEXT NOT NULL, topic TEXT NOT NULL, partition_id INTEGER NOT NULL, next_offset BIGINT NOT NULL, "
    "PRIMARY KEY (pipeline, topic, partition_id)"
)
_TOPICS_COLUMNS = (
    "pipeline TEXT NOT NULL, topic TEXT NOT NULL, topic_id TEXT NOT NULL, PRIMARY KEY (pipeline, topic)"
)
TABLES = {PIPELINES: _PIPELINES_COLUMNS, POSITIONS: _POSITIONS_COLUMNS, TOPICS: _TOPICS_COLUMNS}


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Positions = Mapping[Place, int]
"""The offset of the next record to write, by partition."""

TopicIds = Mapping[str, UUID]
"""What tells a topic from one that was there before under its name (KIP-516), as far as the endpoint says it."""

Starting = Literal["earliest", "latest"] | Positions
"""Where to begin with what the database does not know yet."""


@dataclass(frozen=True)
class Step:
    """One transaction of a pipeline: `positions` are those it began with, and nobody else changes them meanwhile."""

    transaction: Transaction
    pipeline: str
    positions: Positions

    def advance(self, positions: Positions) -> None:
        """Move positions; raises `PositionError` when one would move back."""
        for place, next_offset in positions.items():
            held = self.positions.get(place)
            if held is not None and next_offset < held:
                raise PositionError(
                    f"{place} is written up to {held:,}: its position can't move back to {next_offset:,}."
                )
        _store(
            self.transaction,
            self.pipeline,
            {p: o for p, o in positions.items() if self.positions.get(p) != o},
        )


@dataclass(frozen=True)
class Claim:
    """The right to move a pipeline's positions until somebody else claims it; `positions` are those at that time."""

    database: Database
    pipeline: str
    generation: int
    positions: Positions

    @contextmanager
    def step(self) -> Iterator[Step]:
        """One transaction: committed at the end of the block, rolled back when it raises.

        Raises `FencedError` before anything else when the pipeline was claimed anew. Waits for another copy's transaction
        for at most 30 s, then the driver's error for a lock that can't be had is raised.
        """
        with self.database.transaction() as transaction:
            found = _locked_generation(transaction, self.pipeline)
            if found != self.generation:
                raise FencedError(
                    f"Another copy of the pipeline {self.pipeline!r} has started since "
                    f"(generation {found}, this one is {self.generation}): it goes on, and this one ends."
                )
            yield Step(transaction, self.pipeline, _stored(transaction, self.pipeline))


def claim(
    database: Database,
    pipeline: str,
    first: Callable[[Positions], Positions],
    *,
    topic_ids: TopicIds = MappingProxyType({}),
) -> Claim:
    """Take over a pipeline: from here on every copy that claimed it earlier is fenced.

    `first` is given the stored positions and returns those to begin with: of partitions that are new, and of any that have to
    move. No other copy can move them while it is called, so it asks the endpoint where partitions end: an end that was asked for
    earlier may lie before what another copy has written since. They are stored at once, so that a pipeline that begins at the latest offset still begins there after a crash
    before its first row. The tables are created when they are missing. Raises `PositionError` when one of `topic_ids` is not that
    of the topic that the stored positions are of.
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
        _know_topics(transaction, pipeline, topic_ids, {place.topic for place in stored})
        begun = dict(first(stored))
        _store(
            transaction,
            pipeline,
            {place: offset for place, offset in begun.items() if stored.get(place) != offset},
        )
        return Claim(database, pipeline, generation, {**stored, **begun})


def first_positions(
    ranges: Mapping[Place, tuple[int, int]], starting: Starting = "earliest", *, may_skip: bool = False
) -> Callable[[Positions], Positions]:
    """Where to begin, for `claim`: where the database says; `starting` counts for topics that it does not know.

    `ranges` has the log start offset and the end of each partition. A partition that a known topic did not have before is read
    from its beginning. Raises `PositionError` where the records to go on with were deleted (with `may_skip` they are passed over),
    where the partition ends before the position, and for offsets that are missing in `starting` or that a partition does not have.
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


def _resumed(place: Place, held: int, bounds: tuple[int, int], *, may_skip: bool) -> int:
    log_start_offset, end_offset = bounds
    if held > end_offset:
        raise PositionError(
            f"{place} ends at {end_offset:,}, but is written up to {held:,}: the topic was made anew, or the endpoint is "
            "another one. Give the pipeline a new name to read it from the beginning."
        )
    if held < log_start_offset and not may_skip:
        raise PositionError(
            f"{place} begins at {log_start_offset:,}, but is written up to {held:,} only: the records between were deleted "
            "before they were read."
        )
    return max(held, log_start_offset)


def _chosen(place: Place, bounds: tuple[int, int], starting: Starting) -> int:
    if starting == "earliest":
        return bounds[0]
    if starting == "latest":
        return bounds[1]
    if place not in starting:
        raise PositionError(f"No offset to begin with is given for {place}.")
    if not bounds[0] <= starting[place] <= bounds[1]:
        raise PositionError(
            f"{place} has the offsets {bounds[0]:,} to {bounds[1]:,}: it can't begin with {starting[place]:,}."
        )
    return starting[place]


def create_tables(database: Database) -> None:
    """Create the tables where they are missing."""
    with database.transaction() as transaction:
        for statement in database.dialect.lock_schema:
            transaction.execute(statement)
        for table, columns in TABLES.items():
            # CREATE TABLE IF NOT EXISTS wants the right to create tables where they are there, too.
            if not transaction.has_table(table):
                transaction.execute(f"CREATE TABLE {table} ({columns})")


def stored_positions(database: Database, pipeline: str) -> Positions:
    """What the database holds of a pipeline; empty when it never ran."""
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


def _know_topics(transaction: Transaction, pipeline: str, topic_ids: TopicIds, read: Collection[str]) -> None:
    rows = transaction.execute(
        f"SELECT topic, topic_id FROM {TOPICS} WHERE pipeline = {transaction.placeholder}",  # noqa: S608
        (pipeline,),
    ).fetchall()
    known = dict(rows)
    for topic in sorted(topic_ids.keys() & known.keys() & set(read)):
        if known[topic] != str(topic_ids[topic]):
            raise made_anew(topic)
    transaction.insert(
        TOPICS,
        ("pipeline", "topic", "topic_id"),
        [(pipeline, topic, str(topic_id)) for topic, topic_id in sorted(topic_ids.items())],
        key=("pipeline", "topic"),
    )


def made_anew(topic: str) -> PositionError:
    """The error for a topic that is another one than the positions are of."""
    return PositionError(
        f"The topic {topic} was made anew since it was read: its offsets begin again. Give the pipeline a new name, or delete "
        f"what it has of the topic from {POSITIONS}, to read it from the beginning."
    )


def _stored(transaction: Transaction, pipeline: str) -> dict[Place, int]:
    rows = transaction.execute(
        f"SELECT topic, partition_id, next_offset FROM {POSITIONS} WHERE pipeline = {transaction.placeholder}",  # noqa: S608
        (pipeline,),
    ).fetchall()
    return {Place(topic, int(partition)): int(next_offset) for topic, partition, next_offset in rows}


def _store(transaction: Transaction, pipeline: str, positions: Positions) -> None:
    if positions:
        transaction.insert(
            POSITIONS,
            ("pipeline", "topic", "partition_id", "next_offset"),
            [(pipeline, *place, next_offset) for place, next_offset in sorted(positions.items())],
            key=("pipeline", "topic", "partition_id"),
        )
