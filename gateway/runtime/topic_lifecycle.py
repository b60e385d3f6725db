"""What happens to partition logs when topics and configurations change, and what must be mended at start.

The metadata image is the truth. A crash between a record and its directory leaves one without the other: at start a
missing directory is created, and one whose topic is gone, or came back under another topic id, is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from gateway.config import Config
from gateway.metadata.image import ALL_BROKERS, BROKER_RESOURCE, TOPIC_RESOURCE, TopicImage
from gateway.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from gateway.metadata.topic_names import INTERNAL_TOPICS, METADATA_TOPIC
from gateway.runtime.flusher import Flusher
from gateway.runtime.metadata_log import MetadataLog
from gateway.runtime.partition import Partition
from gateway.runtime.partitions import Partitions
from log import LogConfig, LogDirectory, LogError

logger = logging.getLogger(__name__)

_LOGS_AT_ONCE = 4
"""Partition logs created or deleted before other work of the event loop gets its turn."""


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The effective configuration of a topic: what its logs need, and when they are flushed."""

    log_config: LogConfig
    flush_messages: int
    flush_ms: int


def topic_policy(config: Config, overrides: Mapping[str, str]) -> TopicPolicy:
    """The policy of a topic with the given configurations of its own."""

    def number(name: str) -> int:
        return cast("int", config.topic_value(name, overrides))

    internal_segment_bytes = config.topic_value("internal.segment.bytes", overrides)
    deletes = "delete" in cast("tuple[str, ...]", config.topic_value("cleanup.policy", overrides))
    log_config = LogConfig(
        segment_bytes=(
            number("segment.bytes") if internal_segment_bytes is None else cast("int", internal_segment_bytes)
        ),
        segment_ms=number("segment.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        segment_index_bytes=number("segment.index.bytes"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_type=cast("str", config.topic_value("message.timestamp.type", overrides)),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        deep_validation=config.bool("seqgate.log.deep.validation"),
        retained_batches=config.int("seqgate.producer.retained.batches"),
        retention_ms=number("retention.ms") if deletes else -1,
        retention_bytes=number("retention.bytes") if deletes else -1,
        file_delete_delay_ms=number("file.delete.delay.ms"),
        producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
    )
    return TopicPolicy(log_config, number("flush.messages"), number("flush.ms"))


class TopicLifecycle:
    """Keeps the partition logs and the registry of partitions in step with the metadata image."""

    def __init__(
        self,
        *,
        config: Config,
        node_id: int,
        metadata_log: MetadataLog,
        directory: LogDirectory,
        partitions: Partitions,
        flusher: Flusher,
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._metadata_log = metadata_log
        self._directory = directory
        self._partitions = partitions
        self._flusher = flusher

    async def start(self) -> None:
        """Bring the data directory in line with the image, then follow its changes.

        A partition log that can't be created is left out and logged; the others are served.
        """
        self._apply_broker_configs()
        await self._delete_strays()
        for topic in list(self._metadata_log.image.topics_by_name.values()):
            await self._open_partitions(topic)
        self._metadata_log.add_listener(self.changed)

    async def changed(self, records: Sequence[MetadataRecord]) -> None:
        """Carry out what the records of one change mean for partition logs."""
        image = self._metadata_log.image
        topic_ids = dict.fromkeys(
            record.topic_id for record in records if isinstance(record, TopicRecord | PartitionRecord)
        )
        if any(isinstance(record, RemoveTopicRecord) for record in records):
            await self._delete_removed(records)
        configs = [record for record in records if isinstance(record, ConfigRecord)]
        if any(record.resource_type == BROKER_RESOURCE for record in configs):
            self._apply_broker_configs()
            self._apply_policies(image.topics_by_name)
        else:
            altered = (record.resource_name for record in configs if record.resource_type == TOPIC_RESOURCE)
            self._apply_policies(dict.fromkeys(altered))
        for topic_id in topic_ids:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                await self._open_partitions(topic)

    def _policy(self, topic: str) -> TopicPolicy:
        policy = topic_policy(self._config, self._metadata_log.image.topic_configs(topic))
        if topic in INTERNAL_TOPICS:
            # its coordinator decides what may go, whatever the topic's configuration says
            kept = replace(policy.log_config, retention_ms=-1, retention_bytes=-1)
            policy = replace(policy, log_config=kept)
        return policy

    def _apply_broker_configs(self) -> None:
        image = self._metadata_log.image
        self._config.set_dynamic(image.configs(BROKER_RESOURCE, ALL_BROKERS), all_brokers=True)
        self._config.set_dynamic(image.configs(BROKER_RESOURCE, str(self._node_id)), all_brokers=False)

    def _apply_policies(self, topics: Iterable[str]) -> None:
        for name in topics:
            served = self._partitions.by_name.get(name)
            if served is None:
                continue
            policy = self._policy(name)
            for partition in served.partitions:
                partition.log.update_config(policy.log_config)
                partition.flush_messages = policy.flush_messages
                partition.flush_ms = policy.flush_ms

    async def _open_partitions(self, topic: TopicImage) -> None:
        """Open or create the logs of all partitions of a topic that are not served yet, in order."""
        served = self._partitions.by_name.get(topic.name)
        first = 0 if served is None else len(served.partitions)
        policy = self._policy(topic.name)
        for index in range(first, len(topic.partitions)):
            try:
                log = self._directory.get(topic.name, index)
                if log is None:
                    log = self._directory.create(topic.name, topic.topic_id, index, policy.log_config)
                else:
                    log.update_config(policy.log_config)
                partition = Partition(
                    log,
                    self._flusher,
                    leader_epoch=topic.partitions[index].leader_epoch,
                    flush_messages=policy.flush_messages,
                    flush_ms=policy.flush_ms,
                )
            except (LogError, OSError) as error:
                logger.error("the log of %s-%d can't be opened: %s", topic.name, index, error)  # noqa: TRY400
                return
            self._partitions.add(partition)
            if index % _LOGS_AT_ONCE == _LOGS_AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _delete_removed(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                served = self._partitions.by_id.get(record.topic_id)
                if served is not None:
                    self._partitions.remove_topic(served.name)
                    await self._delete((served.name, partition.index) for partition in served.partitions)

    async def _delete_strays(self) -> None:
        image = self._metadata_log.image
        strays = []
        for log in self._directory.logs():
            if log.topic == METADATA_TOPIC:
                continue
            topic = image.topics_by_name.get(log.topic)
            if topic is None or topic.topic_id != log.topic_id or log.partition not in topic.partitions:
                logger.warning("deleting the log of %s-%d: its topic is gone", log.topic, log.partition)
                strays.append((log.topic, log.partition))
        await self._delete(strays)

    async def _delete(self, logs: Iterable[tuple[str, int]]) -> None:
        for count, (topic, partition) in enumerate(logs, start=1):
            try:
                self._directory.delete(topic, partition)
            except (LogError, OSError) as error:
                logger.error("the log of %s-%d can't be deleted: %s", topic, partition, error)  # noqa: TRY400
            if count % _LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
