"""The partitions of topics with their first and end offsets, and the offsets of a micro batch.

With TLS or SASL the admin client of Spark's own Java asks the endpoint, and takes the `kafka.*` options as
they are. Otherwise `seqgate.spark_kafka_compat.batch_reader` asks, which needs neither Java nor a library.

Spark writes an offset log into the checkpoint before a micro batch runs: `offsets/N` holds the end of micro
batch N, the begin of N + 1; `sources/0/0` the begin of the first. The rows alone do not show the span: a
micro batch may end with transaction markers, aborted or compacted records. Spark has written version 1 of
this format (`OffsetSeqLog`, `KafkaSourceInitialOffsetWriter`) since 2.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from seqgate.spark_kafka_compat.batch_reader import READ_COMMITTED, READ_UNCOMMITTED, offset_ranges, topic_id
from seqgate.spark_kafka_compat.logins import PLAINTEXT, client_settings
from seqgate.spark_kafka_compat.options import OptionValue
from seqgate.spark_kafka_compat.positions import TopicPartition
from seqgate.spark_kafka_compat.session import EndpointError, MissingTopicError, SparkCompatError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PATIENCE = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}
_MISSING = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
_64_BITS = 2**64


class PartitionRanges(NamedTuple):
    """The ranges of partitions, log start offset to high watermark (read_committed: last stable offset), and
    the ids of their topics if the endpoint has topic ids.
    """

    ranges: dict[TopicPartition, tuple[int, int]]
    topic_ids: dict[str, UUID]


def partitions_of(
    spark: SparkSession, bootstrap: str, topics: Sequence[str], options: Mapping[str, OptionValue]
) -> PartitionRanges:
    """Ask for partitions, with checked options of Spark's source. Raises `EndpointError`."""
    settings = client_settings(options)
    if _is_plain(settings):
        return partitions_by_wire(bootstrap, topics, settings)
    return partitions_by_admin(spark, bootstrap, topics, settings)


def topic_ids_of(
    spark: SparkSession, bootstrap: str, topics: Sequence[str], options: Mapping[str, OptionValue]
) -> dict[str, UUID]:
    """Ask the endpoint for topic ids alone; none from a Kafka before 2.8. Raises `EndpointError`."""
    settings = client_settings(options)
    if _is_plain(settings):
        return {topic: found for topic in topics if (found := topic_id(bootstrap, topic))}
    with _admin(spark, bootstrap, settings) as (jvm, admin):
        return _topic_ids(_described(jvm, admin, topics))


def _is_plain(settings: Mapping[str, str]) -> bool:
    return settings.get("security.protocol", PLAINTEXT).upper() == PLAINTEXT


def partitions_by_wire(bootstrap: str, topics: Sequence[str], settings: Mapping[str, str]) -> PartitionRanges:
    """Ask the endpoint for partitions without TLS and SASL."""
    isolation_level = READ_COMMITTED if _is_committed(settings) else READ_UNCOMMITTED
    ranges = {
        TopicPartition(topic, partition): bounds
        for topic in topics
        for partition, bounds in offset_ranges(bootstrap, topic, isolation_level).items()
    }
    return PartitionRanges(
        ranges, {topic: found for topic in topics if (found := topic_id(bootstrap, topic))}
    )


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
            f"{bootstrap} can't be asked for its topics ({cause.toString()}); check the address and the "
            "kafka.* options."
        ) from error


def partitions_by_admin(
    spark: SparkSession, bootstrap: str, topics: Sequence[str], settings: Mapping[str, str]
) -> PartitionRanges:
    """Ask the endpoint for partitions through Java's admin client, with these client settings."""
    with _admin(spark, bootstrap, settings) as (jvm, admin):
        described = _described(jvm, admin, topics)
        places = {
            TopicPartition(topic, info.partition()): jvm.org.apache.kafka.common.TopicPartition(
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
    return PartitionRanges({place: (starts[place], ends[place]) for place in places}, ids)


def _described(jvm: Any, admin: Any, topics: Sequence[str]) -> Any:
    names = jvm.java.util.ArrayList()
    for topic in topics:
        names.add(topic)
    return admin.describeTopics(names).allTopicNames().get()


def _topic_ids(described: Any) -> dict[str, UUID]:
    ids = {str(topic): _uuid(described.get(topic).topicId()) for topic in described}
    return {topic: found for topic, found in ids.items() if found.int}


def _offsets(
    jvm: Any, admin: Any, places: Mapping[TopicPartition, Any], which: Any, options: Any
) -> dict[TopicPartition, int]:
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


_VERSION = "v1"
_ON_THE_DRIVER = "file:"
_FILE_SYSTEM = re.compile(f"^{_ON_THE_DRIVER}(//[^/]*)?")


class OffsetRange(NamedTuple):
    """Offsets of a micro batch: `start` inclusive, `end` exclusive. A partition without start is new."""

    start: dict[TopicPartition, int]
    end: dict[TopicPartition, int]


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offsets in a file of the log with one source. Raises `SparkCompatError`."""
    version, *lines = _lines(text)
    offsets = _kafka_offsets(lines[-1]) if version == _VERSION and lines else None
    if offsets is None:
        raise _unknown_format(version)
    return offsets


def parse_all_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offsets of all Kafka sources in `offsets/N`. Raises `SparkCompatError` for another format.

    The first line after the version describes the micro batch; each further line belongs to one source of the
    query. Of two sources that read one partition the larger offset counts.
    """
    version, *lines = _lines(text)
    if version != _VERSION:
        raise _unknown_format(version)
    merged: dict[TopicPartition, int] = {}
    for line in lines[1:]:
        for place, offset in (_kafka_offsets(line) or {}).items():
            merged[place] = max(offset, merged.get(place, offset))
    return merged


def topics_in(offsets: Iterable[object]) -> set[str]:
    """Return the topics in the Kafka offsets of a progress report, as JSON or decoded."""
    topics: set[str] = set()
    for one in offsets:
        try:
            found = json.loads(one) if isinstance(one, str) else one
        except ValueError:
            continue
        if isinstance(found, dict):
            topics |= {topic for topic, partitions in found.items() if isinstance(partitions, dict)}
    return topics


def _lines(text: str) -> list[str]:
    return text.lstrip("\0").splitlines() or [""]


def _kafka_offsets(line: str) -> dict[TopicPartition, int] | None:
    """Return the offsets in the line of one source; None for a source of another kind."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in json.loads(line).items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        return None


def _unknown_format(version: str) -> SparkCompatError:
    return SparkCompatError(
        f"The checkpoint's offset log has {version[:20]!r} in its first line, not the format {_VERSION}: "
        "this version of Spark is not supported."
    )


class OffsetLog:
    """The offset log of a checkpoint. Spark reads the log, so the checkpoint can be wherever Spark can write.
    The driver itself reads a `file:` URI, because executors on other machines do not have the file.
    """

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint.rstrip("/")
        self._last: tuple[int, dict[TopicPartition, int]] | None = None

    def span(self, spark: SparkSession, batch_id: int) -> OffsetRange:
        """Return the span of a micro batch. Raises `SparkCompatError` for an unknown format."""
        if self._last is not None and self._last[0] == batch_id - 1:
            start = self._last[1]
        elif batch_id == 0:
            start = self._read(spark, "sources/0/0")
        else:
            start = self._read(spark, f"offsets/{batch_id - 1}")
        end = self._read(spark, f"offsets/{batch_id}")
        self._last = batch_id, end
        return OffsetRange(start, end)

    def _read(self, spark: SparkSession, name: str) -> dict[TopicPartition, int]:
        path = f"{self._checkpoint}/{name}"
        if path.startswith(_ON_THE_DRIVER):
            # Hadoop does not decode percent signs in the text of a path, so the folder may have one.
            return parse_offsets(Path(_FILE_SYSTEM.sub("", path)).read_text(encoding="utf-8"))
        row = spark.read.text(path, wholetext=True).first()
        return parse_offsets(row[0] if row else "")
