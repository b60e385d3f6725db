"""Writes topics into a relational database, effectively once, with Spark.

Each micro batch is one transaction of the database that writes the rows and moves the positions kept beside them
(`spark_kafka_compat.positions`). What a micro batch spans that the database has already is left out, so that a repeated
micro batch changes nothing, whether Spark repeats it from its checkpoint or a new checkpoint cuts the records differently.

The rows pass through the driver, because one transaction has one connection: one Spark partition of the micro batch at a time
(`maxRecordsPerPartition`), in slices of `ROWS_AT_ONCE`.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from spark_kafka_compat.databases import Database, Transaction
from spark_kafka_compat.endpoints import source
from spark_kafka_compat.errors import PositionError, SparkCompatError
from spark_kafka_compat.offset_log import OffsetLog, Span
from spark_kafka_compat.options import OptionValue, Use, checked_options
from spark_kafka_compat.partitions import partitions_of
from spark_kafka_compat.positions import Claim, Place, Positions, Starting, claim, first_positions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_AT_ONCE = 1_000
DEFAULTS: Mapping[str, OptionValue] = {
    "maxOffsetsPerTrigger": 1_000_000,
    "maxRecordsPerPartition": 50_000,
    "kafka.isolation.level": "read_committed",
}
"""The source's options unless others are given: the first bounds a transaction, the second what the driver holds of it."""
_DECIDED_HERE = ("starting", "subscribe", "assign")

RowWriter = Callable[[Transaction, "Sequence[Row]"], None]
"""Writes a slice of rows through a transaction; it must not commit."""


def into_table(table: str, *, key: Sequence[str] = ()) -> RowWriter:
    """Insert rows into a table whose columns are named as theirs; with `key` a row replaces the one with the same key."""

    def write(transaction: Transaction, rows: Sequence[Row]) -> None:
        transaction.insert(table, rows[0].__fields__, rows, key=key)

    return write


class BatchWriter:
    """What `foreachBatch` calls: one micro batch, one transaction.

    The stream must be nothing but the Kafka source: the columns `topic`, `partition` and `offset` tell what is new.
    `rows` turns the new records of a micro batch into the rows that are given to `write`.
    """

    def __init__(
        self,
        pipeline: Claim,
        write: RowWriter,
        *,
        checkpoint: str,
        rows: Callable[[DataFrame], DataFrame] | None = None,
        may_skip: bool = False,
    ) -> None:
        self._claim = pipeline
        self._write = write
        self._rows = rows
        self._may_skip = may_skip
        self._log = OffsetLog(checkpoint)

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        """Write what is new in a micro batch.

        Raises `FencedError` when another copy of the pipeline has started since, `PositionError` when records between the
        database's position and the micro batch are missing.
        """
        span = self._log.span(records.sparkSession, batch_id)
        with self._claim.step() as step:
            if not self._may_skip:
                refuse_gaps(span, step.positions)
            ahead = {place: end for place, end in span.end.items() if end > step.positions.get(place, -1)}
            if not ahead:
                return
            known = already_written(span, step.positions)
            fresh = records.where(~_any_of(known)) if known else records
            for rows in _slices(self._rows(fresh) if self._rows else fresh):
                self._write(step.transaction, rows)
            step.advance(ahead)


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
) -> StreamingQuery:
    """Start writing topics into a database, effectively once; the query begins where the database says.

    `pipeline` names the positions in the database: keep it. A copy of the pipeline that still runs is fenced. `rows` turns new
    records (Spark's Kafka columns) into the rows that `write` is given. `starting` counts for topics that the database does
    not know yet. Without `every` it takes what is there now and ends; with `every`, such as "10 seconds", it goes on until it
    is stopped. `options` are the source's (`DEFAULTS`); `failOnDataLoss=false` passes over records that were deleted before they were read.

    Without `checkpoint` Spark's own lies in a directory that goes away with this process. With one, Spark begins where it says,
    and the database still decides what is new.

    Raises `UnknownOptionError`, `SparkCompatError` for options that the database decides, `EndpointError`, `PositionError`.
    """
    chosen = {**DEFAULTS, **checked_options(Use.STREAM_READ, options or {})}
    refused = [name for name in chosen if name.startswith(_DECIDED_HERE)]
    if refused:
        raise SparkCompatError(f"{', '.join(refused)} can't be given: the database says where to go on.")
    may_skip = str(chosen.get("failOnDataLoss")).lower() == "false"
    names = [topics] if isinstance(topics, str) else list(topics)
    # An endpoint that is not there is not waited for in the transaction, where others wait.
    found = partitions_of(spark, bootstrap, names, chosen)

    def first(stored: Positions) -> Positions:
        nonlocal found
        found = partitions_of(spark, bootstrap, names, chosen)
        return first_positions(found.ranges, starting, may_skip=may_skip)(stored)

    owned = claim(database, pipeline, first, topic_ids=found.topic_ids)
    folder = checkpoint or _passing_folder()
    stream = source(
        spark,
        bootstrap,
        names,
        stream=True,
        options={**chosen, "startingOffsets": starting_offsets(owned.positions, found.ranges)},
    )
    # Of two in one session, copies or into two databases, both must have a name of their own.
    name = f"into database {pipeline} {uuid4().hex[:8]}"
    writer = stream.writeStream.queryName(name).option("checkpointLocation", folder)
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    batch_writer = BatchWriter(owned, write, checkpoint=folder, rows=rows, may_skip=may_skip)
    return writer.foreachBatch(batch_writer).start()


def starting_offsets(positions: Positions, places: Mapping[Place, object]) -> Mapping[str, object]:
    """The positions of these partitions as the option startingOffsets, which must name every partition."""
    offsets: dict[str, dict[str, int]] = {}
    for place in sorted(places):
        offsets.setdefault(place.topic, {})[str(place.partition)] = positions[place]
    return offsets


def refuse_gaps(span: Span, positions: Positions) -> None:
    """Raise `PositionError` when the database does not have what is before the micro batch."""
    for place, start in span.start.items():
        held = positions.get(place, start)
        if start > held:
            raise PositionError(
                f"{place} is written up to {held:,}, but the checkpoint goes on at {start:,}: the database is older than the "
                "checkpoint. Delete the checkpoint, and the pipeline goes on where the database says."
            )


def already_written(span: Span, positions: Positions) -> dict[Place, int]:
    """The partitions of which a part of the micro batch is in the database already, and up to where."""
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
    """The rows, with timestamps in UTC: Spark hands them over as the clock of this process' time zone shows them."""
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


def _passing_folder() -> str:
    folder = Path(tempfile.mkdtemp(prefix="into-database-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder.as_uri()
