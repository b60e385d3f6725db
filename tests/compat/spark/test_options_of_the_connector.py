"""The table of source and sink options agrees with Spark's own connector."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from seqgate.spark_kafka_compat import UnknownOptionError, source
from seqgate.spark_kafka_compat.options import OPTIONS
from tests.compat.spark.topics import Topics

PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider$"
NOT_OF_THE_CONNECTOR = {"checkpointlocation"}  # options of Structured Streaming itself


def test_the_table_has_all_the_names_the_connector_has(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    provider = jvm.org.apache.spark.util.Utils.classForName(PROVIDER, True, False)
    names = set()
    for field in provider.getDeclaredFields():
        if field.getType().getName() == "java.lang.String":
            field.setAccessible(True)
            value = field.get(None)
            if value is not None and re.fullmatch(r"[a-z]+(\.[a-z]+)?", value):
                names.add(value)
    assert names == {option.name.lower() for option in OPTIONS} - NOT_OF_THE_CONNECTOR


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_spark_refuses_what_the_table_keeps_from_streams(
    spark: SparkSession, topics: Topics, name: str
) -> None:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    with pytest.raises(IllegalArgumentException, match="not valid in streaming"):
        reader.option("subscribe", "t").option(name, "latest").load()
    with pytest.raises(UnknownOptionError, match="does not apply to a streaming read"):
        source(spark, topics.bootstrap, "t", stream=True, options={name: "latest"})


def test_names_go_to_spark_in_any_case(spark: SparkSession, topics: Topics) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    assert source(spark, topics.bootstrap, topic, STARTINGOFFSETS={topic: {"0": 4}}).count() == 6
