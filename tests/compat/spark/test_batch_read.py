from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from seqgate.spark_kafka_compat import source
from tests.compat.spark.topics import Topics, values_of

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.tier("test")
def test_rows_have_what_was_sent(spark: SparkSession, topics: Topics) -> None:
    topic = topics.fresh()
    topics.fill(topic, ["a"], timestamps={"a": 1_700_000_000_000}, headers=[("who", b"me"), ("none", None)])

    (row,) = source(spark, topics.bootstrap, topic, includeHeaders=True).collect()

    assert (bytes(row.key), bytes(row.value), row.topic) == (b"key-a", b"a", topic)
    assert (row.partition, row.offset, row.timestampType) == (0, 0, 0)
    assert row.timestamp.timestamp() == 1_700_000_000
    assert [(header.key, header.value) for header in row.headers] == [("who", b"me"), ("none", None)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(spark: SparkSession, topics: Topics, codec: str) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(2_000), codec=codec)
    assert values_of(source(spark, topics.bootstrap, topic)) == list(range(2_000))


@pytest.mark.tier("test")
def test_several_topics_and_partitions(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.fresh(partitions=2), topics.fresh()
    topics.fill(first, range(10), partition=0)
    topics.fill(first, range(10, 20), partition=1)
    topics.fill(second, range(20, 30))
    assert values_of(source(spark, topics.bootstrap, [first, second])) == list(range(30))


def test_an_empty_topic_is_empty(spark: SparkSession, topics: Topics) -> None:
    assert source(spark, topics.bootstrap, topics.fresh(partitions=3)).count() == 0


@pytest.mark.tier("test")
def test_offsets_by_json(spark: SparkSession, topics: Topics) -> None:
    topic = topics.fresh(partitions=2)
    topics.fill(topic, range(100), partition=0)
    topics.fill(topic, range(100, 200), partition=1)
    frame = source(
        spark,
        topics.bootstrap,
        topic,
        startingOffsets={topic: {"0": 30, "1": -2}},
        endingOffsets={topic: {"0": 40, "1": -1}},
    )
    assert values_of(frame) == [*range(30, 40), *range(100, 200)]


class TestByTimestamp:
    BEGIN = 1_700_000_000_000

    @pytest.fixture
    def topic(self, topics: Topics) -> str:
        name = topics.fresh()
        topics.fill(name, range(100), timestamps={value: self.BEGIN + value * 1_000 for value in range(100)})
        return name

    def test_per_partition(self, spark: SparkSession, topics: Topics, topic: str) -> None:
        frame = source(
            spark,
            topics.bootstrap,
            topic,
            startingOffsetsByTimestamp={topic: {"0": self.BEGIN + 29_500}},
            endingOffsetsByTimestamp={topic: {"0": self.BEGIN + 60_000}},
        )
        assert values_of(frame) == list(range(30, 60))

    def test_for_all_partitions(self, spark: SparkSession, topics: Topics, topic: str) -> None:
        ends = {"startingTimestamp": self.BEGIN + 10_000, "endingTimestamp": self.BEGIN + 20_000}
        assert values_of(source(spark, topics.bootstrap, topic, options=ends)) == list(range(10, 20))

    def test_later_than_every_record(self, spark: SparkSession, topics: Topics, topic: str) -> None:
        late = {"startingTimestamp": self.BEGIN + 10**9, "startingOffsetsByTimestampStrategy": "latest"}
        assert values_of(source(spark, topics.bootstrap, topic, options=late)) == []
        with pytest.raises(Exception, match=r"[Oo]ffset"):
            source(spark, topics.bootstrap, topic, startingTimestamp=self.BEGIN + 10**9).count()


@pytest.mark.parametrize(("wanted", "at_least"), [(1, 2), (6, 6)])
def test_min_partitions_splits_what_is_read(
    spark: SparkSession, topics: Topics, wanted: int, at_least: int
) -> None:
    topic = topics.fresh(partitions=2)
    topics.fill(topic, range(900), partition=0)
    topics.fill(topic, range(900, 1_000), partition=1)
    frame = source(spark, topics.bootstrap, topic, minPartitions=wanted)
    assert frame.rdd.getNumPartitions() >= at_least
    assert values_of(frame) == list(range(1_000))


@pytest.mark.tier("test")
def test_subscribe_pattern(spark: SparkSession, topics: Topics) -> None:
    ours = topics.fresh(prefix="pattern-yes")
    theirs = topics.fresh(prefix="pattern-no")
    topics.fill(ours, range(10))
    topics.fill(theirs, range(10, 20))
    mark = ours.rpartition("-")[2]
    assert values_of(source(spark, topics.bootstrap, subscribePattern=f"pattern-.*{mark}")) == list(range(10))


def test_assign(spark: SparkSession, topics: Topics) -> None:
    topic = topics.fresh(partitions=3)
    for partition in range(3):
        topics.fill(topic, [partition], partition=partition)
    assert values_of(source(spark, topics.bootstrap, assign={topic: [0, 2]})) == [0, 2]


class TestDeletedRecords:
    @pytest.fixture
    def topic(self, topics: Topics) -> str:
        name = topics.fresh()
        topics.fill(name, range(100))
        topics.delete_records_before(name, 0, 60)
        return name

    def test_earliest_is_what_is_left(self, spark: SparkSession, topics: Topics, topic: str) -> None:
        assert values_of(source(spark, topics.bootstrap, topic)) == list(range(60, 100))

    def test_asking_for_them_fails(self, spark: SparkSession, topics: Topics, topic: str) -> None:
        with pytest.raises(Exception, match=r"(?i)data|offset"):
            source(spark, topics.bootstrap, topic, startingOffsets={topic: {"0": 10}}).count()

    def test_or_goes_on_with_what_is_left(self, spark: SparkSession, topics: Topics, topic: str) -> None:
        frame = source(
            spark, topics.bootstrap, topic, startingOffsets={topic: {"0": 10}}, failOnDataLoss=False
        )
        assert values_of(frame) == list(range(60, 100))
