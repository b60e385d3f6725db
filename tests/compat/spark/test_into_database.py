"""Spark writes topics into SQLite and PostgreSQL: every new row once, whatever Spark repeats."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from seqgate.spark_kafka_compat import positions
from seqgate.spark_kafka_compat.databases import Database, Transaction
from seqgate.spark_kafka_compat.into_database import into_database, into_table
from seqgate.spark_kafka_compat.partitions import partitions_by_wire
from seqgate.spark_kafka_compat.pipelines import into_database as program
from seqgate.spark_kafka_compat.positions import (
    ReadTopics,
    TopicPartition,
    claim,
    create_tables,
    stored_positions,
)
from seqgate.spark_kafka_compat.session import PositionError
from tests.compat.conftest import empty_database
from tests.compat.spark.topics import TIMEOUT_S, Topics
from tests.tiers import in_tiers

PATIENCE_S = 180


def with_lines(url: str) -> Database:
    made = Database(url)
    with made.transaction() as transaction:
        transaction.execute("CREATE TABLE lines (line INTEGER, place INTEGER)")
    return made


@pytest.fixture(params=in_tiers(["SQLite", "PostgreSQL"], nightly=["PostgreSQL"]))
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database. `tests/compat/databases` has both in `make test-all`."""
    return empty_database(request, request.param, tmp_path)


@pytest.fixture
def database(database_url: str) -> Database:
    return with_lines(database_url)


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    return with_lines(f"sqlite://{tmp_path / 'lines.db'}")


def rows_of(database: Database, columns: str = "line, place") -> list[tuple[int, ...]]:
    with database.transaction() as transaction:
        return sorted(transaction.execute(f"SELECT {columns} FROM lines").fetchall())


def lines(database: Database) -> list[int]:
    return [line for line, _ in rows_of(database)]


def as_lines(records: DataFrame) -> DataFrame:
    return records.selectExpr("CAST(CAST(value AS STRING) AS INT) AS line", "partition AS place")


def start(
    spark: SparkSession, topics: Topics, topic: str | Sequence[str], database: Database, **more: Any
) -> StreamingQuery:
    given: dict[str, Any] = {"pipeline": "p", "write": into_table("lines"), "rows": as_lines, **more}
    return into_database(spark, topics.bootstrap, topic, database, **given)


def run(
    spark: SparkSession, topics: Topics, topic: str | Sequence[str], database: Database, **more: Any
) -> None:
    query = start(spark, topics, topic, database, **more)
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()


def test_rows_come_in_the_order_of_each_partition(
    spark: SparkSession, topics: Topics, sqlite: Database
) -> None:
    topic = topics.fresh(partitions=2)
    for partition in (0, 1):
        topics.fill(topic, range(partition, 600, 2), partition=partition)
    run(spark, topics, topic, sqlite, options={"maxOffsetsPerTrigger": 350, "maxRecordsPerPartition": 60})
    found = rows_of(sqlite, "rowid, line, place")
    for partition in (0, 1):
        assert [line for _, line, place in found if place == partition] == list(range(partition, 600, 2))
    ends = {TopicPartition(topic, 0): 300, TopicPartition(topic, 1): 300}
    assert stored_positions(sqlite, "p") == ends


def test_a_micro_batch_that_spark_repeats(
    spark: SparkSession, topics: Topics, sqlite: Database, tmp_path: Path
) -> None:
    topic, checkpoint = topics.fresh(), tmp_path / "checkpoint"
    topics.fill(topic, range(100))
    run(spark, topics, topic, sqlite, checkpoint=str(checkpoint))
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    topics.fill(topic, range(100, 150))
    run(spark, topics, topic, sqlite, checkpoint=str(checkpoint))
    assert lines(sqlite) == list(range(150))


def test_a_repeated_micro_batch_of_which_a_part_is_new(
    spark: SparkSession, topics: Topics, sqlite: Database, tmp_path: Path
) -> None:
    topic, checkpoint = topics.fresh(partitions=2), tmp_path / "checkpoint"
    for partition in (0, 1):
        topics.fill(topic, range(partition, 100, 2), partition=partition)
    with pytest.raises(StreamingQueryException):
        run(spark, topics, topic, sqlite, checkpoint=str(checkpoint), write=into_table("missing"))
    with claim(sqlite, "p", lambda stored: stored).step() as step:
        step.transaction.insert("lines", ("line", "place"), [(line, 0) for line in range(0, 60, 2)])
        step.advance({TopicPartition(topic, 0): 30})
    run(spark, topics, topic, sqlite, checkpoint=str(checkpoint))
    assert lines(sqlite) == list(range(100))


def test_a_lost_checkpoint(spark: SparkSession, topics: Topics, sqlite: Database) -> None:
    topic = topics.fresh()
    for first in (0, 100):
        topics.fill(topic, range(first, first + 100))
        run(spark, topics, topic, sqlite)
        assert lines(sqlite) == list(range(first + 100))


def test_a_database_that_is_older_than_the_checkpoint(
    spark: SparkSession, topics: Topics, sqlite: Database, tmp_path: Path
) -> None:
    topic, checkpoint = topics.fresh(), str(tmp_path / "checkpoint")
    topics.fill(topic, range(100))
    run(spark, topics, topic, sqlite, checkpoint=checkpoint)
    backup = sqlite3.connect(tmp_path / "backup.db")
    sqlite.connect().backup(backup)  # type: ignore[attr-defined]
    topics.fill(topic, range(100, 200))
    run(spark, topics, topic, sqlite, checkpoint=checkpoint)
    topics.fill(topic, range(200, 300))

    backup.close()
    restored = Database(f"sqlite://{tmp_path / 'backup.db'}")
    with pytest.raises(StreamingQueryException, match="up to 100, but the checkpoint continues at 200"):
        run(spark, topics, topic, restored, checkpoint=checkpoint)
    assert lines(restored) == list(range(100))
    run(spark, topics, topic, restored)
    assert lines(restored) == list(range(300))


def test_the_later_of_two_goes_on(spark: SparkSession, topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(100))
    older = start(spark, topics, topic, database, every="0 seconds")
    try:
        older.processAllAvailable()
        run(spark, topics, topic, database)
        topics.fill(topic, range(100, 200))
        with pytest.raises(StreamingQueryException, match="Another copy of the pipeline 'p' has started"):
            older.awaitTermination(PATIENCE_S)
    finally:
        older.stop()
    assert lines(database) == list(range(100))
    run(spark, topics, topic, database)
    assert lines(database) == list(range(200))


def test_two_databases_at_once(spark: SparkSession, topics: Topics, sqlite: Database, tmp_path: Path) -> None:
    topic, other = topics.fresh(), with_lines(f"sqlite://{tmp_path / 'other.db'}")
    topics.fill(topic, range(10))
    going_on = start(spark, topics, topic, sqlite, every="0 seconds")
    try:
        run(spark, topics, topic, other)
        going_on.processAllAvailable()
    finally:
        going_on.stop()
    assert lines(sqlite) == lines(other) == list(range(10))


def test_one_that_starts_while_another_writes(
    spark: SparkSession, topics: Topics, sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(100))
    other = claim(sqlite, "p", lambda _: {})

    def meanwhile(database: Database) -> None:
        topics.fill(topic, range(100, 200))
        with other.step() as step:
            step.advance({TopicPartition(topic, 0): 150})
        create_tables(database)

    monkeypatch.setattr(positions, "create_tables", meanwhile)
    run(spark, topics, topic, sqlite)
    assert lines(sqlite) == list(range(150, 200))


def test_positions_pass_what_is_no_record(spark: SparkSession, topics: Topics, sqlite: Database) -> None:
    topic = topics.fresh()
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for first in (0, 10):
        producer.begin_transaction()
        for value in range(first, first + 10):
            producer.produce(topic, str(value).encode())
        assert producer.flush(TIMEOUT_S) == 0
        (producer.abort_transaction if first else producer.commit_transaction)(TIMEOUT_S)
    run(spark, topics, topic, sqlite)
    assert lines(sqlite) == list(range(10))
    assert stored_positions(sqlite, "p") == {TopicPartition(topic, 0): 22}
    topics.delete_records_before(topic, 0, 22)
    topics.fill(topic, range(20, 30))
    run(spark, topics, topic, sqlite)
    assert lines(sqlite) == [*range(10), *range(20, 30)]


def test_records_that_were_deleted_before_they_were_read(
    spark: SparkSession, topics: Topics, sqlite: Database
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    run(spark, topics, topic, sqlite)
    topics.fill(topic, range(10, 20))
    topics.delete_records_before(topic, 0, 15)
    with pytest.raises(PositionError, match="begins at 15, but is written up to 10 only"):
        start(spark, topics, topic, sqlite)
    run(spark, topics, topic, sqlite, options={"failOnDataLoss": False})
    assert lines(sqlite) == [*range(10), *range(15, 20)]


def test_a_recreated_topic_that_has_grown_beyond_is_refused(
    spark: SparkSession, topics: Topics, sqlite: Database
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    run(spark, topics, topic, sqlite)
    topics.make_anew(topic)
    topics.fill(topic, range(100, 120))
    with pytest.raises(PositionError, match=f"{topic} was recreated"):
        start(spark, topics, topic, sqlite)
    run(spark, topics, topic, sqlite, pipeline="q")
    assert lines(sqlite) == [*range(10), *range(100, 120)]


def test_a_micro_batch_of_a_topic_that_was_recreated_meanwhile_is_rolled_back(
    spark: SparkSession, topics: Topics, sqlite: Database
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))

    def recreated() -> dict[str, UUID]:
        topics.make_anew(topic)
        return partitions_by_wire(topics.bootstrap, [topic], {}).topic_ids

    wrote: list[int] = []
    query = start(spark, topics, topic, sqlite, kept=ReadTopics(recreated), wrote=wrote.append)
    with pytest.raises(
        StreamingQueryException, match=f"RecreatedTopicError: The topic {topic} was recreated"
    ):
        query.awaitTermination(PATIENCE_S)
    assert (lines(sqlite), wrote) == ([], [])
    assert stored_positions(sqlite, "p") == {TopicPartition(topic, 0): 0}


def test_the_program_notices_a_topic_that_is_recreated_while_it_runs(
    spark: SparkSession,
    topics: Topics,
    sqlite: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    started = into_database

    def then_recreated(*given: Any, **named: Any) -> StreamingQuery:
        query = started(*given, **named)
        query.processAllAvailable()
        topics.make_anew(topic)
        return query

    monkeypatch.setattr(program, "into_database", then_recreated)
    url = sqlite.url
    arguments = ["--bootstrap", topics.bootstrap, "--database", url, "--table", "lines", "--pipeline", "p"]
    arguments += ["--select", "CAST(CAST(value AS STRING) AS INT) AS line", "--every", "0 seconds", topic]
    assert program.main(arguments) == program.NOT_BEGUN
    assert f"The topic {topic} was recreated" in capsys.readouterr().err.splitlines()[-1]


def test_from_the_latest_on_and_more_partitions(
    spark: SparkSession, topics: Topics, sqlite: Database
) -> None:
    topic, other = topics.fresh(), topics.fresh()
    topics.fill(topic, range(10))
    run(spark, topics, topic, sqlite, starting="latest")
    topics.fill(topic, range(10, 20))
    topics.grow(topic, 2)
    topics.fill(topic, range(20, 30), partition=1)
    topics.fill(other, range(30, 40))
    run(spark, topics, [topic, other], sqlite, starting="latest")
    assert lines(sqlite) == list(range(10, 30))


def test_from_the_latest_on_amid_a_transaction(spark: SparkSession, topics: Topics, sqlite: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in range(10, 20):
        producer.produce(topic, str(value).encode())
    assert producer.flush(TIMEOUT_S) == 0
    run(spark, topics, topic, sqlite, starting="latest")
    assert stored_positions(sqlite, "p") == {TopicPartition(topic, 0): 10}
    producer.commit_transaction(TIMEOUT_S)
    run(spark, topics, topic, sqlite)
    assert lines(sqlite) == list(range(10, 20))


def test_state_of_the_business_that_adds_up(spark: SparkSession, topics: Topics, database: Database) -> None:
    with database.transaction() as transaction:
        transaction.execute("CREATE TABLE totals (parity INTEGER PRIMARY KEY, total BIGINT)")

    def add_up(transaction: Transaction, rows: Sequence[Row]) -> None:
        place = transaction.placeholder
        transaction.cursor.executemany(
            f"INSERT INTO totals (parity, total) VALUES ({place}, {place}) "
            "ON CONFLICT (parity) DO UPDATE SET total = totals.total + excluded.total",
            rows,
        )

    def per_parity(records: DataFrame) -> DataFrame:
        number = "CAST(CAST(value AS STRING) AS INT)"
        return (
            records.selectExpr(f"{number} % 2 AS parity", f"{number} AS line").groupBy("parity").sum("line")
        )

    topic = topics.fresh(partitions=2)
    for first in (0, 100):
        topics.fill(topic, range(first, first + 100), partition=first // 100)
        run(spark, topics, topic, database, write=add_up, rows=per_parity)
    with database.transaction() as transaction:
        found = transaction.execute("SELECT parity, total FROM totals ORDER BY parity").fetchall()
    assert [tuple(row) for row in found] == [(0, sum(range(0, 200, 2))), (1, sum(range(1, 200, 2)))]


@pytest.fixture
def in_new_york() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_timestamps_do_not_depend_on_the_time_zone(
    spark: SparkSession, topics: Topics, database: Database
) -> None:
    with database.transaction() as transaction:
        transaction.execute("CREATE TABLE stamped (line INTEGER, moment TIMESTAMP WITH TIME ZONE)")
    # in New York both moments show as half past one on the clock
    moments = [datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6)]
    topic = topics.fresh()
    topics.fill(topic, (0, 1), timestamps={line: int(moments[line].timestamp() * 1_000) for line in range(2)})

    def stamped(records: DataFrame) -> DataFrame:
        return records.selectExpr(
            "CAST(CAST(value AS STRING) AS INT) AS line", "CASE WHEN line < 2 THEN timestamp END AS moment"
        )

    topics.fill(topic, [2])
    run(spark, topics, topic, database, rows=stamped, write=into_table("stamped"))
    with database.transaction() as transaction:
        found = transaction.execute("SELECT moment FROM stamped ORDER BY line").fetchall()
    # SQLite stores text
    assert [datetime.fromisoformat(moment) if isinstance(moment, str) else moment for (moment,) in found] == [
        *moments,
        None,
    ]


class TestProgram:
    def arguments(self, topics: Topics, topic: str, database: Database) -> list[str]:
        found = ["--bootstrap", topics.bootstrap, "--database", database.url, "--pipeline", "p"]
        return [*found, "--table", "records", "--key", "topic,partition,offset", topic]

    def test_as_told(
        self, spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        database = Database(f"sqlite://{tmp_path / 'records.db'}")
        columns = "topic TEXT, partition INTEGER, offset BIGINT, timestamp TEXT, value TEXT"
        with database.transaction() as transaction:
            transaction.execute(f"CREATE TABLE records ({columns}, PRIMARY KEY (topic, partition, offset))")
        topic = topics.fresh()
        topics.fill(topic, range(3))
        for written in (3, 0):
            assert program.main(self.arguments(topics, topic, database)) == program.DONE
            told = f"wrote {written} rows of {topic} into the table records\n"
            assert capsys.readouterr().out == told
        with database.transaction() as transaction:
            found = transaction.execute("SELECT topic, partition, offset, value FROM records").fetchall()
        assert found == [(topic, 0, offset, str(offset)) for offset in range(3)]

    def test_of_a_file_that_is_no_database(
        self, spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "letter.db").write_text("Dear Sir or Madam, " * 100)
        arguments = self.arguments(topics, topics.fresh(), Database(f"sqlite://{tmp_path / 'letter.db'}"))
        assert program.main(arguments) == program.NOT_BEGUN
        assert capsys.readouterr().err == "into_database: file is not a database\n"
