"""Topics for Spark to read; confluent-kafka creates, fills, extends and trims them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql import DataFrame, SparkSession

TIMEOUT_S = 90.0


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def fresh(
        self, *, partitions: int = 1, prefix: str = "spark", configs: Mapping[str, str] | None = None
    ) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:10]}"
        # Records with times of years ago stay for as long as a test needs them.
        wanted = NewTopic(name, partitions, 1, config={"retention.ms": "-1", **(configs or {})})
        for created in self._admin.create_topics([wanted]).values():
            created.result(TIMEOUT_S)
        return name

    def delete(self, topic: str) -> None:
        for deleted in self._admin.delete_topics([topic]).values():
            deleted.result(TIMEOUT_S)

    def make_anew(self, topic: str) -> None:
        self.delete(topic)
        for created in self._admin.create_topics([NewTopic(topic, 1, 1)]).values():
            try:
                created.result(TIMEOUT_S)
            except KafkaException as error:  # a consumer that asks for the deleted topic creates it, too
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def grow(self, topic: str, partitions: int) -> None:
        for grown in self._admin.create_partitions([NewPartitions(topic, partitions)]).values():
            grown.result(TIMEOUT_S)

    def delete_records_before(self, topic: str, partition: int, offset: int) -> None:
        for deleted in self._admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            assert deleted.result(TIMEOUT_S).low_watermark == offset

    def configure(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for altered in self._admin.incremental_alter_configs([resource]).values():
            altered.result(TIMEOUT_S)

    def earliest(self, topic: str, partition: int = 0) -> int:
        asked = {TopicPartition(topic, partition): OffsetSpec.earliest()}
        return int(self._admin.list_offsets(asked)[TopicPartition(topic, partition)].result(TIMEOUT_S).offset)

    def fill(
        self,
        topic: str,
        values: Iterable[object],
        *,
        partition: int = 0,
        codec: str = "none",
        timestamps: Mapping[object, int] | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        failures: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
            }
        )
        for value in values:
            producer.produce(
                topic,
                str(value).encode(),
                f"key-{value}".encode(),
                partition,
                timestamp=(timestamps or {}).get(value, 0),
                headers=headers,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert not failures


def values_of(frame: DataFrame) -> list[int]:
    """Return all values as sorted numbers, duplicates included."""
    return sorted(int(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect())


def landed(spark: SparkSession, path: object) -> list[int]:
    return values_of(spark.read.parquet(str(path)))
