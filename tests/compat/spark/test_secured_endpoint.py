"""Topics of an endpoint with TLS are read into a database, with the same options as Spark's source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from seqgate.spark_kafka_compat import sink, source
from seqgate.spark_kafka_compat.databases import Database
from seqgate.spark_kafka_compat.into_database import into_database, into_table
from seqgate.spark_kafka_compat.partitions import partitions_by_admin, partitions_by_wire, partitions_of
from seqgate.spark_kafka_compat.positions import TopicPartition
from seqgate.spark_kafka_compat.session import EndpointError, MissingTopicError
from tests.compat.spark.topics import TIMEOUT_S, Topics
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port

PATIENCE_S = 180


class Secured(NamedTuple):
    bootstrap: str
    options: dict[str, str]
    lines: list[int]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """A gateway that requires client certificates, with the topic `lines`."""
    authority = Authority()
    authorities = str(authority.write(tmp_path / "ca.pem"))
    shown = str(authority.client("spark").write_pem(tmp_path / "spark.pem"))
    port = free_port()
    bootstrap = f"localhost:{port}"
    settings = {
        "ssl.keystore.location": str(authority.listener().write_pem(tmp_path / "listener.pem")),
        "ssl.truststore.location": authorities,
        "ssl.client.auth": "required",
        "advertised.listeners": f"SSL://{bootstrap}",
    }
    with GatewayProcess(tmp_path / "data", settings=settings, also_listen=[f"SSL://127.0.0.1:{port}"]):
        client = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": authorities,
            "ssl.certificate.location": shown,
            "ssl.key.location": shown,
        }
        admin = AdminClient(client)
        for created in admin.create_topics([NewTopic("lines", 2, 1)]).values():
            created.result(TIMEOUT_S)
        producer = Producer(client)
        for line in range(20):
            producer.produce("lines", str(line).encode(), partition=line % 2)
        assert producer.flush(TIMEOUT_S) == 0
        trusted = {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": authorities,
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": shown,
        }
        yield Secured(bootstrap, trusted, list(range(20)))


def test_a_topic_behind_tls(spark: SparkSession, secured: Secured, tmp_path: Path) -> None:
    database = Database(f"sqlite://{tmp_path / 'lines.db'}")
    with database.transaction() as transaction:
        transaction.execute("CREATE TABLE lines (line INTEGER)")

    def lines(records: DataFrame) -> DataFrame:
        return records.selectExpr("CAST(CAST(value AS STRING) AS INT) AS line")

    query = into_database(
        spark,
        secured.bootstrap,
        "lines",
        database,
        pipeline="p",
        write=into_table("lines"),
        rows=lines,
        options=secured.options,
    )
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    with database.transaction() as transaction:
        found = transaction.execute("SELECT line FROM lines").fetchall()
        assert transaction.execute("SELECT topic FROM kafka_read_topics").fetchall() == [("lines",)]
    assert sorted(line for (line,) in found) == secured.lines


def test_source_and_sink_pass_the_options_of_the_client_on(
    spark: SparkSession, secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = spark.range(5).selectExpr("CAST(id AS STRING) AS value")
    sink(numbers, secured.bootstrap, "copies", options=secured.options).save()
    rows = source(spark, secured.bootstrap, "copies", options=secured.options)
    assert sorted(int(row.value) for row in rows.collect()) == [0, 1, 2, 3, 4]
    records = source(spark, secured.bootstrap, "lines", stream=True, options=secured.options)
    query = (
        sink(
            records.select("key", "value"), secured.bootstrap, "copies", stream=True, options=secured.options
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    assert source(spark, secured.bootstrap, "copies", options=secured.options).count() == 25
    assert (tmp_path / "checkpoint" / "topic-ids.json").exists()
    assert "can't be compared" not in caplog.text


@pytest.mark.parametrize(("isolation_level", "end"), [("read_uncommitted", 13), ("read_committed", 10)])
def test_both_ways_of_asking_tell_the_same(
    spark: SparkSession, topics: Topics, isolation_level: str, end: int
) -> None:
    topic, other = topics.fresh(partitions=2), topics.fresh()
    topics.fill(topic, range(10), partition=1)
    topics.delete_records_before(topic, 1, 4)
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in range(3):
        producer.produce(topic, str(value).encode(), partition=1)
    assert producer.flush(TIMEOUT_S) == 0

    settings = {"isolation.level": isolation_level}
    by_wire = partitions_by_wire(topics.bootstrap, [topic, other], settings)
    assert by_wire == partitions_by_admin(spark, topics.bootstrap, [topic, other], settings)
    with pytest.raises(MissingTopicError, match="UnknownTopicOrPartition"):
        partitions_by_admin(spark, topics.bootstrap, ["nobody-created-it"], settings)
    with pytest.raises(MissingTopicError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        partitions_by_wire(topics.bootstrap, ["nobody-created-it"], settings)
    assert by_wire.ranges == {
        TopicPartition(topic, 0): (0, 0),
        TopicPartition(topic, 1): (4, end),
        TopicPartition(other, 0): (0, 0),
    }
    assert set(by_wire.topic_ids) == {topic, other}
    producer.abort_transaction(TIMEOUT_S)


@pytest.mark.parametrize("protocol", ["SSL", "NO_SUCH"])
def test_an_endpoint_that_does_not_speak_it(
    spark: SparkSession, topics: Topics, tmp_path: Path, protocol: str
) -> None:
    options = {"kafka.security.protocol": protocol, "kafka.default.api.timeout.ms": "2000"}
    options["kafka.request.timeout.ms"] = "1000"
    with pytest.raises(EndpointError, match="can't be asked for its topics"):
        partitions_of(spark, topics.bootstrap, ["t"], options)
