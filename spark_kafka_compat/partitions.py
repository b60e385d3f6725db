"""The lookup of the partitions of topics, and of their first and end offsets, by the options of Spark's Kafka source.

With TLS or SASL the admin client of Spark's own Java asks the endpoint, and takes the `kafka.*` options as they are.
Otherwise `spark_kafka_compat.batch_reader` asks, which needs neither Java nor a client library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from spark_kafka_compat.batch_reader import READ_COMMITTED, READ_UNCOMMITTED, offset_ranges, topic_id
from spark_kafka_compat.errors import EndpointError, MissingTopicError, SparkCompatError
from spark_kafka_compat.options import KAFKA_PREFIX, OptionValue, option_text
from spark_kafka_compat.positions import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAIN = "PLAINTEXT"
_PATIENCE = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}
_MISSING = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
_64_BITS = 2**64


class Partitions(NamedTuple):
    """The offset ranges of partitions, and the ids of their topics if the endpoint has topic ids.

    A range is the log start offset and the high watermark; under read_committed the last stable offset replaces the high
    watermark.
    """

    ranges: dict[Place, tuple[int, int]]
    topic_ids: dict[str, UUID]


def partitions_of(
    spark: SparkSession, bootstrap: str, topics: Sequence[str], options: Mapping[str, OptionValue]
) -> Partitions:
    """Ask the endpoint for partitions. `options` are the checked options of Spark's source. Raises `EndpointError`."""
    settings = _client_settings(options)
    if _is_plain(settings):
        return partitions_by_wire(bootstrap, topics, settings)
    return partitions_by_admin(spark, bootstrap, topics, settings)


def topic_ids_of(
    spark: SparkSession, bootstrap: str, topics: Sequence[str], options: Mapping[str, OptionValue]
) -> dict[str, UUID]:
    """Ask the endpoint for topic ids alone; none from a Kafka before 2.8. Raises `EndpointError`."""
    settings = _client_settings(options)
    if _is_plain(settings):
        return {topic: found for topic in topics if (found := topic_id(bootstrap, topic))}
    with _admin(spark, bootstrap, settings) as (jvm, admin):
        return _topic_ids(_described(jvm, admin, topics))


def _client_settings(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Return the settings of the Kafka client among the options of Spark's source."""
    return {
        name.removeprefix(KAFKA_PREFIX): option_text(value)
        for name, value in options.items()
        if name.startswith(KAFKA_PREFIX)
    }


def _is_plain(settings: Mapping[str, str]) -> bool:
    return settings.get("security.protocol", _PLAIN).upper() == _PLAIN


def partitions_by_wire(bootstrap: str, topics: Sequence[str], settings: Mapping[str, str]) -> Partitions:
    """Ask the endpoint for partitions without TLS and SASL."""
    isolation_level = READ_COMMITTED if _is_committed(settings) else READ_UNCOMMITTED
    ranges = {
        Place(topic, partition): bounds
        for topic in topics
        for partition, bounds in offset_ranges(bootstrap, topic, isolation_level).items()
    }
    return Partitions(ranges, {topic: found for topic in topics if (found := topic_id(bootstrap, topic))})


@contextmanager
def _admin(spark: SparkSession, bootstrap: str, settings: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        raise SparkCompatError(
            "With TLS or SASL the Spark session needs its own Java, which Spark Connect does not have; "
            "use a classic session."
        )
    properties = jvm.java.util.Properties()
    for name, value in {**_PATIENCE, **settings, "bootstrap.servers": bootstrap}.items():
        properties.setProperty(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            yield jvm, admin
        finally:
            admin.close()
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        kind = MissingTopicError if str(cause.getClass().getName()) == _MISSING else EndpointError
        raise kind(
            f"{bootstrap} can't be asked for its topics ({cause.toString()}); check the address and the kafka.* options."
        ) from error


def partitions_by_admin(
    spark: SparkSession, bootstrap: str, topics: Sequence[str], settings: Mapping[str, str]
) -> Partitions:
    """Ask the endpoint for partitions through Java's admin client, with these client settings."""
    with _admin(spark, bootstrap, settings) as (jvm, admin):
        described = _described(jvm, admin, topics)
        places = {
            Place(topic, info.partition()): jvm.org.apache.kafka.common.TopicPartition(
                topic, info.partition()
            )
            for topic in topics
            for info in described.get(topic).partitions()
        }
        ids = _topic_ids(described)
        levels = jvm.org.apache.kafka.common.IsolationLevel
        level = levels.READ_COMMITTED if _is_committed(settings) else levels.READ_UNCOMMITTED
        ask = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
        starts, ends = (
            _offsets(jvm, admin, places, which, ask) for which in (spec.earliest(), spec.latest())
        )
    return Partitions(
        {place: (starts[place], ends[place]) for place in places},
        ids,
    )


def _described(jvm: Any, admin: Any, topics: Sequence[str]) -> Any:
    """Return a map from topic name to Java's TopicDescription."""
    names = jvm.java.util.ArrayList()
    for topic in topics:
        names.add(topic)
    return admin.describeTopics(names).allTopicNames().get()


def _topic_ids(described: Any) -> dict[str, UUID]:
    ids = {str(topic): _uuid(described.get(topic).topicId()) for topic in described}
    return {topic: found for topic, found in ids.items() if found.int}


def _offsets(jvm: Any, admin: Any, places: Mapping[Place, Any], which: Any, options: Any) -> dict[Place, int]:
    asked = jvm.java.util.HashMap()
    for partition in places.values():
        asked.put(partition, which)
    found = admin.listOffsets(asked, options).all().get()
    return {place: int(found.get(partition).offset()) for place, partition in places.items()}


def _is_committed(settings: Mapping[str, str]) -> bool:
    return settings.get("isolation.level") == "read_committed"


def _uuid(found: Any) -> UUID:
    high, low = found.getMostSignificantBits(), found.getLeastSignificantBits()
    return UUID(int=high % _64_BITS * _64_BITS + low % _64_BITS)
