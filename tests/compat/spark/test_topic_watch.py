"""A plain stream of `source()` is warned when its topic was deleted and created again, with Spark's own
checkpoint.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from seqgate.spark_kafka_compat import source, topic_watch
from seqgate.spark_kafka_compat.checkpoint_topics import IDS_FILE
from tests.compat.spark.topics import Topics

PATIENCE_S = 180
LENIENT = {"failOnDataLoss": False}


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """The warnings of the watch since the last call."""
    caplog.set_level(logging.INFO, topic_watch.logger.name)

    def found() -> list[str]:
        records = [record for record in caplog.records if record.name == topic_watch.logger.name]
        assert all(record.levelno == logging.WARNING for record in records), records
        caplog.clear()
        return [record.getMessage() for record in records]

    yield found
    assert found() == []


def drain(frame: DataFrame, folder: Path) -> StreamingQuery:
    """Read all available records, from the folder's checkpoint on; return once all listeners know."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    await_listeners(frame.sparkSession)
    return query


def await_listeners(spark: SparkSession) -> None:
    """Wait until the listeners have got all events so far. Spark reports progress in a thread of its own."""
    spark._jsc.sc().listenerBus().waitUntilEmpty(int(PATIENCE_S * 1000))


def stream(spark: SparkSession, topics: Topics, topic: str) -> DataFrame:
    return source(spark, topics.bootstrap, topic, stream=True, options=LENIENT)


def told_once(warnings: Callable[[], list[str]], topic: str) -> None:
    (warning,) = warnings()
    assert warning.startswith(f"The topic {topic} was deleted and created again since ")
    assert "Start the query with a new checkpoint" in warning
    assert IDS_FILE in warning


@pytest.fixture
def read(spark: SparkSession, topics: Topics, tmp_path: Path) -> str:
    """A topic of which a stream has read ten records, and which was then created again with forty."""
    topic = topics.fresh()
    topics.fill(topic, range(10))
    drain(stream(spark, topics, topic), tmp_path)
    topics.make_anew(topic)
    topics.fill(topic, range(100, 140))
    return topic


class TestAtTheStart:
    def test_until_the_checkpoint_is_another(
        self,
        spark: SparkSession,
        topics: Topics,
        read: str,
        tmp_path: Path,
        warnings: Callable[[], list[str]],
    ) -> None:
        assert warnings() == []
        for _ in range(2):
            drain(stream(spark, topics, read), tmp_path)
            told_once(warnings, read)
        drain(stream(spark, topics, read), tmp_path / "new")

    def test_until_the_ids_are_deleted(
        self,
        spark: SparkSession,
        topics: Topics,
        read: str,
        tmp_path: Path,
        warnings: Callable[[], list[str]],
    ) -> None:
        (tmp_path / "checkpoint" / IDS_FILE).unlink()
        for _ in range(2):
            drain(stream(spark, topics, read), tmp_path)

    def test_by_the_end_of_the_partition_where_the_checkpoint_has_no_ids(
        self, spark: SparkSession, topics: Topics, tmp_path: Path, warnings: Callable[[], list[str]]
    ) -> None:
        topic = topics.fresh()
        topics.fill(topic, range(10))
        drain(stream(spark, topics, topic), tmp_path)
        (tmp_path / "checkpoint" / IDS_FILE).unlink()
        topics.make_anew(topic)
        topics.fill(topic, range(4))
        drain(stream(spark, topics, topic), tmp_path)
        (warning,) = warnings()
        assert f"continues {topic}-0 at offset 10, but the partition ends at 4" in warning

    def test_topics_of_a_pattern(
        self, spark: SparkSession, topics: Topics, tmp_path: Path, warnings: Callable[[], list[str]]
    ) -> None:
        topic = topics.fresh()
        topics.fill(topic, range(10))

        def run() -> None:
            options = {**LENIENT, "subscribePattern": f"{topic}.*"}
            drain(source(spark, topics.bootstrap, stream=True, options=options), tmp_path)

        for _ in range(2):
            run()
        topics.make_anew(topic)
        topics.fill(topic, range(20))
        run()
        told_once(warnings, topic)

    def test_the_second_source_of_a_query(
        self, spark: SparkSession, topics: Topics, tmp_path: Path, warnings: Callable[[], list[str]]
    ) -> None:
        first, second = topics.fresh(), topics.fresh()

        def run() -> None:
            topics.fill(first, range(10))
            topics.fill(second, range(20))
            drain(stream(spark, topics, first).union(stream(spark, topics, second)), tmp_path)

        run()
        topics.make_anew(second)
        topics.fill(second, range(10))
        run()
        told_once(warnings, second)


def test_while_the_query_runs(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_watch, "CHECK_EVERY_S", 0.0)
    topic, name = topics.fresh(), f"watched_{uuid.uuid4().hex}"
    topics.fill(topic, range(10))
    writer = stream(spark, topics, topic).writeStream.format("memory").queryName(name)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        await_listeners(spark)
        topics.make_anew(topic)
        for first in (0, 40):
            topics.fill(topic, range(first, first + 40))
            query.processAllAvailable()
    finally:
        query.stop()
    await_listeners(spark)
    told_once(warnings, topic)


def test_a_query_that_fails_because_of_it(
    spark: SparkSession, topics: Topics, tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    frame = source(spark, topics.bootstrap, topic, stream=True)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        await_listeners(spark)
        topics.make_anew(topic)
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    await_listeners(spark)
    told_once(warnings, topic)


def test_a_query_without_a_checkpoint_leaves_no_directory(spark: SparkSession, topics: Topics) -> None:
    topic, name = topics.fresh(), f"watched_{uuid.uuid4().hex}"
    topics.fill(topic, range(10))
    writer = stream(spark, topics, topic).writeStream.format("memory").queryName(name)
    query = writer.trigger(processingTime="0 seconds").start()
    execution = query._jsq.streamingQuery()
    folder = Path(execution.resolvedCheckpointRoot().removeprefix("file:"))
    try:
        query.processAllAvailable()
        assert (folder / IDS_FILE).exists()
    finally:
        query.stop()
    assert not folder.exists()


def test_one_listener_for_a_session(spark: SparkSession, topics: Topics) -> None:
    topic = topics.fresh()
    stream(spark, topics, topic)
    before = spark._jsparkSession.streams().listListeners()
    stream(spark, topics, topic)
    assert len(spark._jsparkSession.streams().listListeners()) == len(before) > 0


def test_a_query_whose_plan_is_unknown_runs(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: object) -> list[dict[str, str]]:
        raise LookupError("another version of Spark")

    monkeypatch.setattr(topic_watch, "kafka_sources", fail)
    topic = topics.fresh()
    topics.fill(topic, range(10))
    query = drain(stream(spark, topics, topic), tmp_path)
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 10
    assert "another version of Spark" in caplog.text
