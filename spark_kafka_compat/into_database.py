"""Writes topics into a relational database, effectively once, with Spark.

Each micro batch is one transaction of the database. The transaction writes the rows and moves the positions,
which are stored beside the rows (`seqgate.spark_kafka_compat.positions`). The writer leaves out records of a
micro batch that the database already has. So a micro batch that Spark runs again changes nothing, even if a
new checkpoint cuts the records differently.

The rows pass through the driver, because one transaction has one connection. The driver holds one Spark
partition of the micro batch at a time (`maxRecordsPerPartition`), and writes slices of `ROWS_AT_ONCE` rows.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from seqgate.spark_kafka_compat.databases import Database, Transaction
from seqgate.spark_kafka_compat.endpoints import unwatched_source
from seqgate.spark_kafka_compat.options import COMMITTED, OptionValue, Use, checked_options
from seqgate.spark_kafka_compat.partitions import OffsetLog, OffsetRange, partitions_of, topic_ids_of
from seqgate.spark_kafka_compat.positions import (
    Claim,
    Positions,
    ReadTopics,
    Starting,
    TopicPartition,
    claim,
    first_positions,
)
from seqgate.spark_kafka_compat.session import PositionError, SparkCompatError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_AT_ONCE = 1_000
DEFAULTS: Mapping[str, OptionValue] = {
    "maxOffsetsPerTrigger": 1_000_000,
    "maxRecordsPerPartition": 50_000,
    **COMMITTED,
}
"""`maxOffsetsPerTrigger` bounds a transaction, `maxRecordsPerPartition` the rows that the driver holds."""
_DECIDED_HERE = ("starting", "subscribe", "assign")

RowWriter = Callable[[Transaction, "Sequence[Row]"], None]
"""The function that writes a slice of rows through a transaction. The function must not commit."""


def into_table(table: str, *, key: Sequence[str] = ()) -> RowWriter:
    """Return a writer into columns of the same names. With `key` a row replaces the row with its key."""

    def write(transaction: Transaction, rows: Sequence[Row]) -> None:
        transaction.insert(table, rows[0].__fields__, rows, key=key)

    return write


@dataclass(frozen=True)
class _BatchWriter:
    """The function for `foreachBatch`: writes one micro batch in one transaction.

    The stream must be the unchanged Kafka source, because the columns `topic`, `partition` and `offset`
    decide which records are new. A micro batch of a topic that was recreated is rolled back.
    """

    claim: Claim
    write: RowWriter
    rows: Callable[[DataFrame], DataFrame] | None
    may_skip: bool
    kept: ReadTopics
    wrote: Callable[[int], None] | None
    log: OffsetLog

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        """Write the new records of a micro batch. Raises `RecreatedTopicError`, `FencedError` when another
        copy has started, `PositionError` when the micro batch begins behind the database's position.
        """
        span = self.log.span(records.sparkSession, batch_id)
        count = 0
        with self.claim.step() as step:
            if not self.may_skip:
                refuse_gaps(span, step.positions)
            ahead = {place: end for place, end in span.end.items() if end > step.positions.get(place, -1)}
            if not ahead:
                return
            known = already_written(span, step.positions)
            fresh = records.where(~_any_of(known)) if known else records
            for rows in _slices(self.rows(fresh) if self.rows else fresh):
                self.write(step.transaction, rows)
                count += len(rows)
            step.advance(ahead)
            self.kept.check()  # last: the rows are read by now, so they belong to the topics that it finds
        if self.wrote is not None:
            self.wrote(count)


def into_database(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str],
    database: Database,
    *,
    pipeline: str,
    write: RowWriter,
    rows: Callable[[DataFrame], DataFrame] | None = None,
    starting: Starting = "earliest",
    checkpoint: str | None = None,
    every: str | None = None,
    options: Mapping[str, OptionValue] | None = None,
    kept: ReadTopics | None = None,
    wrote: Callable[[int], None] | None = None,
) -> StreamingQuery:
    """Start a query that writes topics into a database, effectively once, from the positions in the database.

    `pipeline` is the key of the positions in the database; never change it. A copy of the pipeline that still
    runs is fenced. `rows` turns new records (Spark's Kafka columns) into the rows for `write`. `starting`
    applies to topics without a position in the database. Without `every` the query reads the present records
    and ends; with `every`, such as "10 seconds", the query runs until it is stopped. `options` are the
    source's (see `DEFAULTS`); `failOnDataLoss=false` skips records that were deleted before they were read.

    Without `checkpoint` Spark's checkpoint lies in a directory that is deleted with this process. With a
    `checkpoint` Spark begins where the checkpoint says, and the database still decides which records are new.

    The ids of the topics are kept in the database, and compared at the start and at the end of each micro
    batch: a topic that was recreated since is refused. Pass `kept`, from `read_topics` with the same
    arguments, to check the topics in between. `wrote` is called with the number of rows of each micro batch,
    once they are committed.

    Raises `UnknownOptionError`; `SparkCompatError` for options that the database decides; `EndpointError`;
    `PositionError`.
    """
    chosen = source_options(options)
    may_skip = str(chosen.get("failOnDataLoss")).lower() == "false"
    names = [topics] if isinstance(topics, str) else list(topics)
    # Ask before the transaction: other copies wait for the transaction, and must not wait for an unreachable
    # endpoint.
    found = partitions_of(spark, bootstrap, names, chosen)

    def first(stored: Positions) -> Positions:
        nonlocal found
        found = partitions_of(spark, bootstrap, names, chosen)
        return first_positions(found.ranges, starting, may_skip=may_skip)(stored)

    owned = claim(database, pipeline, first, topic_ids=found.topic_ids)
    kept = kept or read_topics(spark, bootstrap, names, options=options)
    kept.know(found.topic_ids)
    folder = checkpoint
    if not folder:
        temporary = Path(tempfile.mkdtemp(prefix="into-database-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        folder = f"file://{temporary}"  # `as_uri` escapes spaces, which Hadoop takes as they are
    stream = unwatched_source(
        spark,
        bootstrap,
        names,
        stream=True,
        options={**chosen, "startingOffsets": starting_offsets(owned.positions, found.ranges)},
    )
    # One session can run several queries of one pipeline, and each query needs a name of its own.
    name = f"into database {pipeline} {uuid4().hex[:8]}"
    writer = stream.writeStream.queryName(name).option("checkpointLocation", folder)
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    batch_writer = _BatchWriter(owned, write, rows, may_skip, kept, wrote, OffsetLog(folder))
    return writer.foreachBatch(batch_writer).start()


def read_topics(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str],
    *,
    options: Mapping[str, OptionValue] | None = None,
) -> ReadTopics:
    """Return the topics of `into_database`, to check while the query runs. Raises `UnknownOptionError`."""
    names = [topics] if isinstance(topics, str) else list(topics)
    return ReadTopics(lambda: topic_ids_of(spark, bootstrap, names, source_options(options)))


def source_options(options: Mapping[str, OptionValue] | None) -> dict[str, OptionValue]:
    """Return the options of the source with `DEFAULTS`. Raises `UnknownOptionError`; `SparkCompatError` for
    options that the database decides.
    """
    chosen: dict[str, OptionValue] = {**DEFAULTS, **checked_options(Use.STREAM_READ, options or {})}
    refused = [name for name in chosen if name.startswith(_DECIDED_HERE)]
    if refused:
        raise SparkCompatError(
            f"{', '.join(refused)} can't be given: the positions in the database decide where to begin."
        )
    return chosen


def starting_offsets(positions: Positions, places: Mapping[TopicPartition, object]) -> Mapping[str, object]:
    """Return the option startingOffsets of `places`, which must name every partition."""
    offsets: dict[str, dict[str, int]] = {}
    for place in sorted(places):
        offsets.setdefault(place.topic, {})[str(place.partition)] = positions[place]
    return offsets


def refuse_gaps(span: OffsetRange, positions: Positions) -> None:
    """Raise `PositionError` when the database lacks records before the micro batch."""
    for place, start in span.start.items():
        held = positions.get(place, start)
        if start > held:
            raise PositionError(
                f"{place} is written up to {held:,}, but the checkpoint continues at {start:,}: the database "
                "is older than the checkpoint. Delete the checkpoint; the pipeline then continues at the "
                "positions in the database."
            )


def already_written(span: OffsetRange, positions: Positions) -> dict[TopicPartition, int]:
    """Return the positions of partitions of which the database already has a part of the micro batch."""
    return {
        place: positions[place]
        for place in span.end
        if place in positions and positions[place] > span.start.get(place, 0)
    }


def _any_of(written: Positions) -> Column:
    from pyspark.sql.functions import col

    conditions = (
        (col("topic") == place.topic) & (col("partition") == place.partition) & (col("offset") < next_offset)
        for place, next_offset in written.items()
    )
    return functools.reduce(lambda one, other: one | other, conditions)


def _slices(frame: DataFrame) -> Iterator[list[Row]]:
    rows: Iterator[Any] = _with_instants(frame)
    while slice_of_rows := list(islice(rows, ROWS_AT_ONCE)):
        yield slice_of_rows


def _with_instants(frame: DataFrame) -> Iterator[Row]:
    """Yield the rows with timestamps in UTC. Spark returns timestamps in the time zone of this process."""
    from pyspark.sql import Row

    rows: Iterator[Row] = frame.toLocalIterator()
    are_instants = [field.dataType.typeName() == "timestamp" for field in frame.schema]
    if not any(are_instants):
        return rows
    made = Row(*frame.columns)

    def instants(row: Row) -> Iterator[Any]:
        for value, is_instant in zip(row, are_instants, strict=True):
            yield value.astimezone(UTC) if is_instant and value is not None else value

    return (made(*instants(row)) for row in rows)
