"""Topics and partitions."""

from __future__ import annotations

from typing import Final

from gateway.metadata.image import INTERNAL_TOPICS
from gateway.metrics.metric import Samples, Sources, Subject, counter, gauge

RECORDS: Final = counter(
    "seqgate_topic_records_total",
    "Records appended since the start, with markers of transactions. Topics beyond seqgate.metrics.topics.max share one series.",
    "topic",
)
BYTES: Final = counter("seqgate_topic_bytes_total", "Bytes of batches appended since the start.", "topic")
FETCHED: Final = counter(
    "seqgate_topic_fetched_bytes_total", "Bytes of records in answers to fetches since the start.", "topic"
)
OPEN: Final = gauge(
    "seqgate_topic_open_partitions",
    "Partitions that are open here. A partition is opened by the first request for it.",
    "topic",
)
SIZE: Final = gauge("seqgate_topic_size_bytes", "Size of the logs of the open partitions.", "topic")
TOPICS: Final = gauge("seqgate_topics", "Topics, without internal topics.")
PARTITIONS: Final = gauge("seqgate_partitions", "Partitions of all topics, led here or elsewhere.")
LED: Final = gauge("seqgate_led_partitions", "Partitions that this gateway leads.")
OFFLINE: Final = gauge(
    "seqgate_offline_partitions",
    "Partitions that can't be used: a write or a flush has failed, or their files can't be opened.",
)
REFUSING: Final = gauge(
    "seqgate_backlog_refusing_partitions",
    "Partitions that refuse or hold producers because a group's backlog is over the topic's quota.",
)
WAITING: Final = gauge("seqgate_delayed_records", "Delayed records that are not due yet.")


def _read(sources: Sources) -> Samples:
    services = sources.services
    registry = services.partitions.registry
    for found in sources.topics.read():
        if found is None:
            yield None
            continue
        for series, traffic in found.items():
            yield RECORDS.at(traffic.records, series)
            yield BYTES.at(traffic.bytes, series)
            yield FETCHED.at(traffic.fetched_bytes, series)
            yield OPEN.at(traffic.partitions, series)
            yield SIZE.at(traffic.size_bytes, series)
    offline = refusing = 0
    for partition in registry:
        offline += partition.log.offline
        refusing += partition.gate is not None and partition.gate.is_closed
        yield None
    led = partitions = topics = 0
    for topic in list(registry.by_name.values()):
        topics += topic.name not in INTERNAL_TOPICS
        offline += len(topic.failed)
        partitions += topic.count
        for index in range(topic.count):
            led += topic.refusal(index) is None
            yield None
        yield None
    yield TOPICS.at(topics)
    yield PARTITIONS.at(partitions)
    yield LED.at(led)
    yield OFFLINE.at(offline)
    yield REFUSING.at(refusing)
    yield WAITING.at(services.partitions.log_directory.environment.delayed_limit.in_all)


SUBJECT: Final = Subject(
    "Topics and partitions",
    (RECORDS, BYTES, FETCHED, OPEN, SIZE, TOPICS, PARTITIONS, LED, OFFLINE, REFUSING, WAITING),
    _read,
)
